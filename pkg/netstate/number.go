package netstate

import "math"

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

// BondOptions are those of Bond.Options (linux/if_link.h, IFLA_BOND_*), with the defaults of bond_check_params in drivers/net/bonding.
var BondOptions = []Number{
	{"miimon", 3, U32, 0},
	{"updelay", 4, U32, 0},
	{"downdelay", 5, U32, 0},
	{"use_carrier", 6, U8, 1},
	{"arp_interval", 7, U32, 0},
	{"arp_validate", 9, U32, 0},
	{"arp_all_targets", 10, U32, 0},
	{"primary_reselect", 12, U8, 0},
	{"fail_over_mac", 13, U8, 0},
	{"xmit_hash_policy", 14, U8, 0},
	{"resend_igmp", 15, U32, 1},
	{"num_grat_arp", 16, U8, 1},
	{"all_slaves_active", 17, U8, 0},
	{"min_links", 18, U32, 0},
	{"lp_interval", 19, U32, 1},
	{"packets_per_slave", 20, U32, 1},
	{"lacp_rate", 21, U8, 0},
	{"ad_select", 22, U8, 0},
	{"ad_actor_sys_prio", 24, U16, 65535},
	{"ad_user_port_key", 25, U16, 0},
	{"tlb_dynamic_lb", 27, U8, 1},
	{"peer_notify_delay", 28, U32, 0},
	{"lacp_active", 29, U8, 1},
	{"missed_max", 30, U8, 2},
	{"coupled_control", 32, U8, 1},
}

// PortAttributes are those of Master.Port that the kernel both tells and takes (IFLA_BRPORT_*, br_port_policy in net/bridge/br_netlink.c).
var PortAttributes = []Number{
	{"priority", 2, U16, always},
	{"cost", 3, U32, always},
	{"mode", 4, U8, always},
	{"guard", 5, U8, always},
	{"protect", 6, U8, always},
	{"fast_leave", 7, U8, always},
	{"learning", 8, U8, always},
	{"unicast_flood", 9, U8, always},
	{"proxyarp", 10, U8, always},
	{"proxyarp_wifi", 12, U8, always},
	{"multicast_router", 25, U8, always},
	{"mcast_flood", 27, U8, always},
	{"mcast_to_ucast", 28, U8, always},
	{"vlan_tunnel", 29, U8, always},
	{"bcast_flood", 30, U8, always},
	{"group_fwd_mask", 31, U16, always},
	{"neigh_suppress", 32, U8, always},
	{"isolated", 33, U8, always},
	{"locked", 39, U8, always},
	{"mab", 40, U8, always},
}

// RuleSelectors are those of Rule.Selectors (linux/fib_rules.h, FRA_*).
var RuleSelectors = []Number{
	{"fwmark", 10, U32, 0},
	{"fwmask", 16, U32, 0},
	{"flow", 11, U32, 0},
	{"tun_id", 12, BigU64, 0},
	{"goto", 4, U32, 0},
	{"suppress_prefixlength", 14, U32, math.MaxUint32},
	{"suppress_ifgroup", 13, U32, math.MaxUint32},
	{"l3mdev", 19, U8, 0},
	{"ipproto", 22, U8, 0},
	{"sport", 23, range16, 0},
	{"dport", 24, range16, 0},
	{"uidrange", 20, range32, math.MaxUint32},
}
