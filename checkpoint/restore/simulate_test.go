package restore

import (
	"fmt"
	"slices"

	"github.com/relink-cni/relink/pkg/netstate"
)

// simulateHost changes the devices as the kernel would do for this step. Its error says why the kernel would refuse.
func simulateHost(there devices, s Step) (devices, error) {
	there = slices.Clone(there)
	at := slices.IndexFunc(there, func(d netstate.LiveDevice) bool { return d.Name == s.Device })
	// A step finds its devices by their index.
	seen := []netstate.LiveDevice{s.planned}
	if s.Action == Enslave || s.Action == CreateVLAN {
		seen = append(seen, s.related)
	}
	for _, seen := range seen {
		if seen.Index == 0 {
			return nil, fmt.Errorf("%s: it is not said for which devices it was planned", s)
		}
		if now, ok := there.ByIndex(seen.Index); seen.Index > 0 && (!ok || now.Name != seen.Name) {
			return nil, fmt.Errorf("%s: was planned for %+v, and %+v has its index", s, seen, now)
		}
	}
	if s.Action == CreateVLAN {
		return simulateVLAN(there, s)
	}
	if at < 0 || s.planned.Name != s.Device {
		return nil, fmt.Errorf("%s: no such device", s)
	}
	d := &there[at]
	below, stacked := there.ByIndex(d.ParentIndex)
	switch s.Action {
	case Enslave:
		bond, ok := there.ByName(s.Parent)
		if !ok || d.MasterIndex != 0 || bond.Kind != netstate.KindBond {
			return nil, fmt.Errorf("%s: not free, or no bond", s)
		}
		d.MasterIndex, d.Up = bond.Index, true
	case RaiseMTU:
		if s.MTU <= d.MTU || stacked && s.MTU > below.MTU {
			return nil, fmt.Errorf("%s: MTU is %d, that below %d", s, d.MTU, below.MTU)
		}
		d.MTU = s.MTU
	case SetUp:
		if d.Up || stacked && !below.Up {
			return nil, fmt.Errorf("%s: up already, or what is below is down", s)
		}
		d.Up = true
	default:
		return nil, fmt.Errorf("%s: not one on a device", s)
	}
	return there, nil
}

func simulateVLAN(there devices, s Step) (devices, error) {
	on, ok := there.ByName(s.Parent)
	_, named := there.ByName(s.Device)
	_, taken := there.VLANOn(on.Index, *s.VLAN)
	switch {
	case named || taken:
		return nil, fmt.Errorf("%s: exists", s)
	case !ok || !on.Up || s.MTU > on.MTU:
		return nil, fmt.Errorf("%s: %+v can't carry it", s, on)
	}
	d := netstate.Device{Kind: netstate.KindVLAN, Name: s.Device, MTU: s.MTU, VLAN: s.VLAN}
	return append(there, up(100+len(there), d, on.Index)), nil
}

// simulateSandbox changes the interface as the kernel would do for this step. The interface is nil if it is gone. No
// step replaces a recorded route.
func simulateSandbox(there *netstate.Interface, s Step, recorded netstate.Interface) (*netstate.Interface, error) {
	if s.Action == Create {
		if there != nil {
			return nil, fmt.Errorf("%s: exists", s)
		}
		return &recorded, nil
	}
	if there == nil {
		return nil, fmt.Errorf("%s: no such device", s)
	}
	now := *there
	switch s.Action {
	case SetMTU:
		now.Link.MTU = s.MTU
	case SetMAC:
		now.Link.MAC = s.MAC
	case SetUp:
		now.Link.Up = true
	case SetKind:
		macvlan := *s.Link.Macvlan
		now.Link.Macvlan = &macvlan
	case AddAddress:
		now.Addresses = append(slices.DeleteFunc(slices.Clone(now.Addresses), func(a netstate.Address) bool {
			return a.Prefix == s.Address.Prefix && a.Peer == s.Address.Peer
		}), *s.Address)
	case AddRoute:
		if !now.Link.Up {
			return nil, fmt.Errorf("%s: the interface is down", s)
		}
		now.Routes = append(slices.DeleteFunc(slices.Clone(now.Routes), func(r netstate.Route) bool {
			return r.SameSlot(*s.Route) && !slices.ContainsFunc(recorded.Routes, r.Equal)
		}), *s.Route)
	default:
		return nil, fmt.Errorf("%s: not one on an interface", s)
	}
	return &now, nil
}
