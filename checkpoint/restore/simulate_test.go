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
	for _, seen := range append(referencedDevices(s), s.planned) {
		if seen.Index == 0 {
			return nil, fmt.Errorf("%s: it is not said for which devices it was planned", s)
		}
		if now, ok := there.ByIndex(seen.Index); seen.Index > 0 && (!ok || now.Name != seen.Name) {
			return nil, fmt.Errorf("%s: was planned for %+v, and %+v has its index", s, seen, now)
		}
	}
	if c, ok := s.change.(createVLAN); ok {
		return simulateVLAN(there, s, c)
	}
	if at < 0 || s.planned.Name != s.Device {
		return nil, fmt.Errorf("%s: no such device", s)
	}
	d := &there[at]
	below, stacked := there.ByIndex(d.ParentIndex)
	switch c := s.change.(type) {
	case enslave:
		bond, ok := there.ByName(c.bond.Name)
		if !ok || d.MasterIndex != 0 || bond.Kind != netstate.KindBond {
			return nil, fmt.Errorf("%s: not free, or no bond", s)
		}
		d.MasterIndex, d.Up = bond.Index, true
	case raiseMTU:
		if c.bytes <= d.MTU || stacked && c.bytes > below.MTU {
			return nil, fmt.Errorf("%s: MTU is %d, that below %d", s, d.MTU, below.MTU)
		}
		d.MTU = c.bytes
	case setUp:
		if d.Up || stacked && !below.Up {
			return nil, fmt.Errorf("%s: up already, or what is below is down", s)
		}
		d.Up = true
	default:
		return nil, fmt.Errorf("%s: not one on a device", s)
	}
	return there, nil
}

// referencedDevices returns the other devices that the step was planned for.
func referencedDevices(s Step) []netstate.LiveDevice {
	switch c := s.change.(type) {
	case enslave:
		return []netstate.LiveDevice{c.bond}
	case createVLAN:
		return []netstate.LiveDevice{c.parent}
	}
	return nil
}

func simulateVLAN(there devices, s Step, c createVLAN) (devices, error) {
	on, ok := there.ByName(c.parent.Name)
	_, named := there.ByName(s.Device)
	_, taken := there.VLANOn(on.Index, *c.recorded.VLAN)
	switch {
	case named || taken:
		return nil, fmt.Errorf("%s: exists", s)
	case !ok || !on.Up || c.recorded.MTU > on.MTU:
		return nil, fmt.Errorf("%s: %+v can't carry it", s, on)
	}
	d := netstate.Device{Kind: netstate.KindVLAN, Name: s.Device, MTU: c.recorded.MTU, VLAN: c.recorded.VLAN}
	return append(there, up(100+len(there), d, on.Index)), nil
}

// simulateSandbox changes the interface as the kernel would do for this step. The interface is nil if it is gone. keep
// are the recorded routes, which no step replaces.
func simulateSandbox(there *netstate.Interface, s Step, keep []netstate.Route, parents stack) (*netstate.Interface, error) {
	if c, ok := s.change.(create); ok {
		if there != nil {
			return nil, fmt.Errorf("%s: exists", s)
		}
		c.recorded.Parents = parents
		return &c.recorded, nil
	}
	if there == nil {
		return nil, fmt.Errorf("%s: no such device", s)
	}
	now := *there
	switch c := s.change.(type) {
	case setMTU:
		now.Link.MTU = c.bytes
	case setMAC:
		now.Link.MAC = c.mac
	case setUp:
		now.Link.Up = true
	case setKind:
		macvlan := *c.link.Macvlan
		now.Link.Macvlan = &macvlan
	case addAddress:
		now.Addresses = append(slices.DeleteFunc(slices.Clone(now.Addresses), func(a netstate.Address) bool {
			return a.Prefix == c.address.Prefix && a.Peer == c.address.Peer
		}), c.address)
	case addRoute:
		if !now.Link.Up {
			return nil, fmt.Errorf("%s: the interface is down", s)
		}
		now.Routes = append(slices.DeleteFunc(slices.Clone(now.Routes), func(r netstate.Route) bool {
			return r.SameSlot(c.route) && !slices.ContainsFunc(keep, r.Equal)
		}), c.route)
	default:
		return nil, fmt.Errorf("%s: not one on an interface", s)
	}
	return &now, nil
}
