package netfix

import (
	"errors"
	"fmt"
	"strings"

	"github.com/relink-cni/relink/checkpoint/parents"
	"github.com/relink-cni/relink/pkg/netstate"
)

// ParentSpec says what lost interfaces were on. The files do not tell.
type ParentSpec struct {
	// Devices are names of devices of the host. The first that exists is taken.
	Devices []string
	// VLAN is the 802.1q VLAN of that device. 0 stands for the device itself.
	VLAN int
	// MTU is that of the interfaces. 0 stands for the MTU of what they are on.
	MTU int
}

// Resolve returns the chain of parents, the nearest first, and the MTU of the interfaces. The VLAN
// device may be missing: restore creates it.
func (b ParentSpec) Resolve(devices netstate.Devices) ([]netstate.Device, int, error) {
	base, err := b.base(devices)
	if err != nil {
		return nil, 0, err
	}
	chain, err := devices.Chain(base.Index)
	if err == nil && b.VLAN != 0 {
		chain, err = b.addVLAN(devices, base, chain)
	}
	if err != nil {
		return nil, 0, err
	}
	for i, p := range chain[:len(chain)-1] {
		if p.Kind != netstate.KindVLAN {
			return nil, 0, fmt.Errorf("invalid --parent %q: %s is a %s on %s, and a parent is a VLAN or stacked on nothing",
				base.Name, p.Name, p.Kind, chain[i+1].Name)
		}
	}
	mtu := b.MTU
	switch limit := chain[0].MTU; {
	case mtu == 0:
		mtu = limit
	case mtu < netstate.MinMTU || mtu > limit:
		return nil, 0, fmt.Errorf("invalid --mtu %d: must be between %d and %d, the MTU of %s", mtu, netstate.MinMTU, limit, chain[0].Name)
	}
	// The interfaces may be gone, and with them the devices that they were on.
	return netstate.WithIndices(chain, nil), mtu, nil
}

// base returns the first of the devices that exists.
func (b ParentSpec) base(devices netstate.Devices) (netstate.LiveDevice, error) {
	if len(b.Devices) == 0 {
		return netstate.LiveDevice{}, errors.New("--parent is missing: name the device that the pods are on, such as eth0. Of several, such as bond4,eth0, the first that exists is taken")
	}
	d, missing, err := parents.First(devices, b.Devices)
	if err != nil {
		return d, fmt.Errorf("invalid --parent %q: %w", strings.Join(b.Devices, ","), err)
	}
	if err := parents.CheckMember(devices, d); err != nil {
		return d, fmt.Errorf("invalid --parent %q: %w", b.Devices[len(missing)], err)
	}
	return d, nil
}

// addVLAN puts the VLAN on the chain. If the VLAN device exists, it takes that one, whatever its name
// is.
func (b ParentSpec) addVLAN(devices netstate.Devices, base netstate.LiveDevice, chain []netstate.Device) ([]netstate.Device, error) {
	vlan := netstate.VLAN{ID: b.VLAN, Protocol: netstate.Protocol8021Q}
	if err := vlan.Validate(); err != nil {
		return nil, fmt.Errorf("invalid --vlan %d: must be between %d and %d, or 0 for none", b.VLAN, netstate.MinVLANID, netstate.MaxVLANID)
	}
	existing, name, err := parents.PlanVLAN(devices, base, vlan, "")
	switch {
	case err != nil:
		return nil, fmt.Errorf("invalid --vlan %d: %w: make one for this VLAN by hand", b.VLAN, err)
	case name == "":
		return devices.Chain(existing.Index)
	}
	missing := netstate.Device{Kind: netstate.KindVLAN, Name: name, MAC: base.MAC, MTU: base.MTU, VLAN: &vlan}
	return append([]netstate.Device{missing}, chain...), nil
}
