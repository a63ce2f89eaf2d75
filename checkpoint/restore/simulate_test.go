package restore

import (
	"fmt"
	"slices"

	"github.com/relink-cni/relink/pkg/netstate"
)

// simulateHost does the step to the devices as the kernel would, or says why it
// would not.
func simulateHost(there devices, s Step) (devices, error) {
	there = slices.Clone(there)
	at := slices.IndexFunc(there, func(d netstate.LiveDevice) bool { return d.Name == s.Device })
	on, hasOn := there.ByName(s.On)
	// It is the index that the step goes by.
	for _, seen := range []netstate.LiveDevice{s.at, s.on} {
		if now, ok := there.ByIndex(seen.Index); seen.Index > 0 && (!ok || now.Name != seen.Name || now.Name != s.Device && now.Name != s.On) {
			return nil, fmt.Errorf("%s: was planned for %+v, and %+v has its index", s, seen, now)
		}
	}
	if s.at.Index == 0 || s.On != "" && s.on.Index == 0 {
		return nil, fmt.Errorf("%s: it is not said for which devices it was planned", s)
	}
	if s.Action == CreateVLAN {
		switch _, taken := there.VLANOn(on.Index, *s.VLAN); {
		case at >= 0 || taken:
			return nil, fmt.Errorf("%s: exists", s)
		case !hasOn || !on.Up || s.MTU > on.MTU:
			return nil, fmt.Errorf("%s: %+v can't carry it", s, on)
		}
		d := netstate.Device{Kind: netstate.KindVLAN, Name: s.Device, MTU: s.MTU, VLAN: s.VLAN}
		return append(there, up(100+len(there), d, on.Index)), nil
	}
	if at < 0 {
		return nil, fmt.Errorf("%s: no such device", s)
	}
	d := &there[at]
	switch s.Action {
	case Enslave:
		if d.MasterIndex != 0 || on.Kind != netstate.KindBond {
			return nil, fmt.Errorf("%s: not free, or no bond", s)
		}
		d.MasterIndex, d.Up = on.Index, true
	case RaiseMTU:
		if below, stacked := there.ByIndex(d.ParentIndex); s.MTU <= d.MTU || stacked && s.MTU > below.MTU {
			return nil, fmt.Errorf("%s: MTU is %d, that below %d", s, d.MTU, below.MTU)
		}
		d.MTU = s.MTU
	case SetUp:
		if below, stacked := there.ByIndex(d.ParentIndex); d.Up || stacked && !below.Up {
			return nil, fmt.Errorf("%s: up already, or what is below is down", s)
		}
		d.Up = true
	default:
		return nil, fmt.Errorf("%s: not one on a device", s)
	}
	return there, nil
}

// simulateSandbox does the step to the interface, nil where it is gone. keep are
// the routes that are recorded: no other step replaces them.
func simulateSandbox(there *netstate.Interface, s Step, keep []netstate.Route, parents chain) (*netstate.Interface, error) {
	if s.Action == Create {
		if there != nil {
			return nil, fmt.Errorf("%s: exists", s)
		}
		made := *s.create
		made.Parents = parents
		return &made, nil
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
			return r.SameSlot(*s.Route) && !slices.ContainsFunc(keep, r.Equal)
		}), *s.Route)
	default:
		return nil, fmt.Errorf("%s: not one on an interface", s)
	}
	return &now, nil
}
