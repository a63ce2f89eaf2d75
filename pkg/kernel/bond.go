package kernel

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// iflaBondNSIPv6Target is IFLA_BOND_NS_IP6_TARGET (linux/if_link.h).
const iflaBondNSIPv6Target = 31

// bondModes are the names of the modes, each at its number (linux/if_bonding.h).
var bondModes = []string{
	"balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb",
}

// bondFields are the attributes of a bond that are alike in requests and answers, but for its Options. primary is the index of the
// primary member, 0 for none.
func bondFields(bond *netstate.Bond, primary *int) []field {
	return []field{
		{nl.IFLA_BOND_MODE, named{&bond.Mode, bondModes, netstate.U8}}, {nl.IFLA_BOND_PRIMARY, primary},
		{nl.IFLA_BOND_AD_ACTOR_SYSTEM, (*macText)(&bond.ActorSystem)},
	}
}

// parseBond returns the bond without its members, and the index of its primary member, 0 for none.
func parseBond(data []byte) (bond *netstate.Bond, primary int, err error) {
	bond = &netstate.Bond{}
	fields := bondFields(bond, &primary)
	err = rtnl.EachAttribute(data, 0, func(a *rtnl.Attribute) {
		switch {
		case readField(fields, a):
		case a.Type() == nl.IFLA_BOND_ARP_IP_TARGET, a.Type() == iflaBondNSIPv6Target:
			a.Each(func(target *rtnl.Attribute) {
				if addr := target.Address(); addr.IsValid() && !addr.IsUnspecified() {
					bond.ARPTargets = append(bond.ARPTargets, addr)
				}
			})
		default:
			readNumber(netstate.BondOptions, a, &bond.Options)
		}
	})
	if err != nil {
		return nil, 0, fmt.Errorf("bond: %w", err)
	}
	return bond, primary, nil
}

// CreateBond makes the bond, down and without members. Its primary member is the device of that
// index, 0 for none. It returns ErrExists if n has a device of that name, and ErrUnsupported for a
// mode that it does not know.
func (n *Namespace) CreateBond(d netstate.Device, primary int) error {
	if !slices.Contains(bondModes, d.Bond.Mode) {
		return fmt.Errorf("bond %s: mode %q: %w", d.Name, d.Bond.Mode, ErrUnsupported)
	}
	create := newDevice(fmt.Sprintf("create bond %s of mode %s", d.Name, d.Bond.Mode), d.Name, 0, 0)
	addFields(create, field{unix.IFLA_MTU, &d.MTU}, field{unix.IFLA_ADDRESS, (*macText)(&d.MAC)})
	info, data := newLinkInfo(netstate.KindBond)
	create.Add(info)
	addFields(data, bondFields(d.Bond, &primary)...)
	addNumbers(data, netstate.BondOptions, d.Bond.Options)
	addARPTargets(data, d.Bond.ARPTargets)
	return asErrExists(n.socket.Run(create))
}

// addARPTargets adds the targets, in a list for each family. The kernel does not look at their numbers (bond_changelink).
func addARPTargets(data *nl.RtAttr, targets []netip.Addr) {
	lists := map[int]*nl.RtAttr{}
	for i, target := range targets {
		attr := nl.IFLA_BOND_ARP_IP_TARGET
		if target.Is6() {
			attr = iflaBondNSIPv6Target
		}
		if lists[attr] == nil {
			lists[attr] = data.AddRtAttr(attr, nil)
		}
		lists[attr].AddRtAttr(i, target.AsSlice())
	}
}
