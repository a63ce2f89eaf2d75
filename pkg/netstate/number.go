package netstate

import (
	"maps"
	"math"
	"slices"
)

// Numbers are attributes by their names, with the kernel's numbers. A range has its first number in the upper half.
type Numbers map[string]uint64

// Number is an attribute of netlink whose value is a number, or a range of two.
type Number struct {
	Name   string
	Type   uint16
	Format Format
	// Usual is the kernel's default, or the value that selects nothing. Numbers do not have it.
	Usual uint64
}

// Format is how the value is written: in so many bytes of the machine's order, but for BigU64. A Range has two such values.
type Format int

// The formats.
const (
	U8      Format = 1
	U16     Format = 2
	U32     Format = 4
	BigU64  Format = 8
	Range   Format = 0x10
	range16        = Range | U16
	range32        = Range | U32
)

// always is no default: the number is kept whatever it is.
const always = math.MaxUint64

// numbers returns the attributes of one format with one default, from their names by their types.
func numbers(format Format, usual uint64, names map[uint16]string) (table []Number) {
	for _, attribute := range slices.Sorted(maps.Keys(names)) {
		table = append(table, Number{names[attribute], attribute, format, usual})
	}
	return table
}

// BondOptions are those of Bond.Options (linux/if_link.h, IFLA_BOND_*), with the defaults of bond_check_params in drivers/net/bonding.
var BondOptions = slices.Concat(
	numbers(U8, 0, map[uint16]string{
		12: "primary_reselect", 13: "fail_over_mac", 14: "xmit_hash_policy", 17: "all_slaves_active", 21: "lacp_rate", 22: "ad_select",
	}),
	numbers(U8, 1, map[uint16]string{6: "use_carrier", 16: "num_grat_arp", 27: "tlb_dynamic_lb", 29: "lacp_active", 32: "coupled_control"}),
	numbers(U8, 2, map[uint16]string{30: "missed_max"}),
	numbers(U16, 0, map[uint16]string{25: "ad_user_port_key"}),
	numbers(U16, 65535, map[uint16]string{24: "ad_actor_sys_prio"}),
	numbers(U32, 0, map[uint16]string{
		3: "miimon", 4: "updelay", 5: "downdelay", 7: "arp_interval", 9: "arp_validate", 10: "arp_all_targets", 18: "min_links",
		28: "peer_notify_delay",
	}),
	numbers(U32, 1, map[uint16]string{15: "resend_igmp", 19: "lp_interval", 20: "packets_per_slave"}),
)

// PortAttributes are those of Master.Port that the kernel both tells and takes (IFLA_BRPORT_*, br_port_policy in net/bridge/br_netlink.c).
var PortAttributes = slices.Concat(
	numbers(U8, always, map[uint16]string{
		4: "mode", 5: "guard", 6: "protect", 7: "fast_leave", 8: "learning", 9: "unicast_flood", 10: "proxyarp", 12: "proxyarp_wifi",
		25: "multicast_router", 27: "mcast_flood", 28: "mcast_to_ucast", 29: "vlan_tunnel", 30: "bcast_flood", 32: "neigh_suppress",
		33: "isolated", 39: "locked", 40: "mab",
	}),
	numbers(U16, always, map[uint16]string{2: "priority", 31: "group_fwd_mask"}),
	numbers(U32, always, map[uint16]string{3: "cost"}),
)

// RuleSelectors are those of Rule.Selectors (linux/fib_rules.h, FRA_*).
var RuleSelectors = slices.Concat(
	numbers(U8, 0, map[uint16]string{19: "l3mdev", 22: "ipproto"}),
	numbers(U32, 0, map[uint16]string{4: "goto", 10: "fwmark", 11: "flow", 16: "fwmask"}),
	numbers(U32, math.MaxUint32, map[uint16]string{13: "suppress_ifgroup", 14: "suppress_prefixlength"}),
	numbers(BigU64, 0, map[uint16]string{12: "tun_id"}),
	numbers(range16, 0, map[uint16]string{23: "sport", 24: "dport"}),
	numbers(range32, math.MaxUint32, map[uint16]string{20: "uidrange"}),
)
