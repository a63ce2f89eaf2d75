package capture

import (
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
func (p ParentSpec) Resolve(devices netstate.Devices) (chain []netstate.Device, mtu int, err error) {
	base, _, err := parents.First(devices, p.Devices)
	if err == nil {
		err = parents.CheckMember(devices, base)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("invalid --parent %q: %w", strings.Join(p.Devices, ","), err)
	}
	if chain, err = p.chain(devices, base); err != nil {
		return nil, 0, err
	}
	mtu = p.MTU
	switch limit := chain[0].MTU; {
	case mtu == 0:
		mtu = limit
	case mtu < netstate.MinMTU || mtu > limit:
		return nil, 0, fmt.Errorf("invalid --mtu %d: must be between %d and %d, the MTU of %s", mtu, netstate.MinMTU, limit, chain[0].Name)
	}
	// The interfaces may be gone, and with them the devices that they were on.
	return netstate.WithIndices(chain, nil), mtu, nil
}

// chain returns the base with what it is on, and the VLAN on it. If the VLAN device exists, it takes that one, whatever its name is.
func (p ParentSpec) chain(devices netstate.Devices, base netstate.LiveDevice) ([]netstate.Device, error) {
	chain, err := devices.Chain(base.Index)
	if err != nil || p.VLAN == 0 {
		return chain, err
	}
	vlan := netstate.VLAN{ID: p.VLAN, Protocol: netstate.Protocol8021Q}
	if err := vlan.Validate(); err != nil {
		return nil, fmt.Errorf("invalid --vlan: %w", err)
	}
	existing, name, err := parents.PlanVLAN(devices, base, vlan, "")
	switch {
	case err != nil:
		return nil, fmt.Errorf("invalid --vlan %d: %w: make one for this VLAN by hand", p.VLAN, err)
	case name == "":
		return devices.Chain(existing.Index)
	}
	missing := netstate.Device{Kind: netstate.KindVLAN, Name: name, MAC: base.MAC, MTU: base.MTU, VLAN: &vlan}
	return append([]netstate.Device{missing}, chain...), nil
}
