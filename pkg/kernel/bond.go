package kernel

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Attributes of bonds that the netlink library does not have (linux/if_link.h).
const (
	iflaBondPeerNotifyDelay = 28
	iflaBondLACPActive      = 29
	iflaBondMissedMax       = 30
	iflaBondNSIPv6Target    = 31
	iflaBondCoupledControl  = 32
)

// bondOption is an option of a bond whose value is a number.
type bondOption struct {
	attr uint16
	name string
	// bytes is the size of the number.
	bytes int
	// defaultValue is the kernel's default (bond_check_params in drivers/net/bonding).
	defaultValue uint32
}

// bondOptions are the options that netstate.BondOptions names.
var bondOptions = []bondOption{
	{nl.IFLA_BOND_MIIMON, "miimon", 4, 0},
	{nl.IFLA_BOND_UPDELAY, "updelay", 4, 0},
	{nl.IFLA_BOND_DOWNDELAY, "downdelay", 4, 0},
	{nl.IFLA_BOND_USE_CARRIER, "use_carrier", 1, 1},
	{nl.IFLA_BOND_ARP_INTERVAL, "arp_interval", 4, 0},
	{nl.IFLA_BOND_ARP_VALIDATE, "arp_validate", 4, 0},
	{nl.IFLA_BOND_ARP_ALL_TARGETS, "arp_all_targets", 4, 0},
	{nl.IFLA_BOND_PRIMARY_RESELECT, "primary_reselect", 1, 0},
	{nl.IFLA_BOND_FAIL_OVER_MAC, "fail_over_mac", 1, 0},
	{nl.IFLA_BOND_XMIT_HASH_POLICY, "xmit_hash_policy", 1, 0},
	{nl.IFLA_BOND_RESEND_IGMP, "resend_igmp", 4, 1},
	{nl.IFLA_BOND_NUM_PEER_NOTIF, "num_grat_arp", 1, 1},
	{nl.IFLA_BOND_ALL_SLAVES_ACTIVE, "all_slaves_active", 1, 0},
	{nl.IFLA_BOND_MIN_LINKS, "min_links", 4, 0},
	{nl.IFLA_BOND_LP_INTERVAL, "lp_interval", 4, 1},
	{nl.IFLA_BOND_PACKETS_PER_SLAVE, "packets_per_slave", 4, 1},
	{nl.IFLA_BOND_AD_LACP_RATE, "lacp_rate", 1, 0},
	{nl.IFLA_BOND_AD_SELECT, "ad_select", 1, 0},
	{nl.IFLA_BOND_AD_ACTOR_SYS_PRIO, "ad_actor_sys_prio", 2, 65535},
	{nl.IFLA_BOND_AD_USER_PORT_KEY, "ad_user_port_key", 2, 0},
	{nl.IFLA_BOND_TLB_DYNAMIC_LB, "tlb_dynamic_lb", 1, 1},
	{iflaBondPeerNotifyDelay, "peer_notify_delay", 4, 0},
	{iflaBondLACPActive, "lacp_active", 1, 1},
	{iflaBondMissedMax, "missed_max", 1, 2},
	{iflaBondCoupledControl, "coupled_control", 1, 1},
}

// bondModes are the names of the modes, each at its number (linux/if_bonding.h).
var bondModes = []string{
	"balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb",
}

// parseBond returns the bond without its members, and the index of its primary member, 0 for none.
func parseBond(data []byte) (bond *netstate.Bond, primary int, err error) {
	bond = &netstate.Bond{}
	err = rtnl.EachAttribute(data, 0, func(a *rtnl.Attribute) {
		switch a.Type() {
		case nl.IFLA_BOND_MODE:
			bond.Mode = nameAt(bondModes, int(a.Uint8()))
		case nl.IFLA_BOND_PRIMARY:
			primary = a.Int32()
		case nl.IFLA_BOND_ARP_IP_TARGET, iflaBondNSIPv6Target:
			a.Each(func(target *rtnl.Attribute) {
				if addr := target.Address(); addr.IsValid() && !addr.IsUnspecified() {
					bond.ARPTargets = append(bond.ARPTargets, addr)
				}
			})
		case nl.IFLA_BOND_AD_ACTOR_SYSTEM:
			bond.ActorSystem = nonZero(a.Value()).String()
		default:
			parseBondOption(bond, a)
		}
	})
	if err != nil {
		return nil, 0, fmt.Errorf("bond: %w", err)
	}
	return bond, primary, nil
}

// parseBondOption adds the option to the bond, unless it has the kernel's default.
func parseBondOption(bond *netstate.Bond, a *rtnl.Attribute) {
	i := slices.IndexFunc(bondOptions, func(o bondOption) bool { return o.attr == a.Type() })
	if i < 0 {
		return
	}
	o := bondOptions[i]
	value := a.Number(0, o.bytes)
	if value == o.defaultValue {
		return
	}
	if bond.Options == nil {
		bond.Options = map[string]uint32{}
	}
	bond.Options[o.name] = value
}

func numberAttr(value uint32, size int) []byte {
	switch size {
	case 1:
		return nl.Uint8Attr(uint8(value))
	case 2:
		return nl.Uint16Attr(uint16(value))
	}
	return nl.Uint32Attr(value)
}

// CreateBond makes the bond, down and without members. Its primary member is the device of that
// index, 0 for none. It returns ErrExists if n has a device of that name, and ErrUnsupported for a
// mode that it does not know.
func (n *Namespace) CreateBond(d netstate.Device, primary int) error {
	mode := slices.Index(bondModes, d.Bond.Mode)
	if mode < 0 {
		return fmt.Errorf("bond %s: mode %q: %w", d.Name, d.Bond.Mode, ErrUnsupported)
	}
	create := newDevice(fmt.Sprintf("create bond %s of mode %s", d.Name, d.Bond.Mode), d.Name, 0, 0)
	create.Advise = missingModule(netstate.KindBond)
	addFields(create, []field{{unix.IFLA_MTU, &d.MTU}})
	if d.MAC != "" {
		attr, err := macAttr(d.MAC)
		if err != nil {
			return err
		}
		create.Add(attr)
	}
	info := create.AddRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(netstate.KindBond))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	data.AddRtAttr(nl.IFLA_BOND_MODE, nl.Uint8Attr(uint8(mode)))
	for _, o := range bondOptions {
		if value, ok := d.Bond.Options[o.name]; ok {
			data.AddRtAttr(int(o.attr), numberAttr(value, o.bytes))
		}
	}
	addARPTargets(data, d.Bond.ARPTargets)
	if d.Bond.ActorSystem != "" {
		mac, err := net.ParseMAC(d.Bond.ActorSystem)
		if err != nil {
			return err
		}
		data.AddRtAttr(nl.IFLA_BOND_AD_ACTOR_SYSTEM, mac)
	}
	addFields(data, []field{{nl.IFLA_BOND_PRIMARY, &primary}})
	return asErrExists(n.socket.Run(create))
}

// addARPTargets adds the targets, numbered from 0 in each family.
func addARPTargets(data *nl.RtAttr, targets []netip.Addr) {
	for _, family := range []struct {
		attr int
		is6  bool
	}{{nl.IFLA_BOND_ARP_IP_TARGET, false}, {iflaBondNSIPv6Target, true}} {
		var list *nl.RtAttr
		number := 0
		for _, target := range targets {
			if target.Is6() != family.is6 {
				continue
			}
			if list == nil {
				list = data.AddRtAttr(family.attr, nil)
			}
			list.AddRtAttr(number, target.AsSlice())
			number++
		}
	}
}
