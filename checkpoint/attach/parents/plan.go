package parents

import (
	"errors"
	"fmt"

	"github.com/relink-cni/relink/checkpoint/attach/netconf"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Plan is the device to build the link on. It exists, or is a VLAN device to create.
type Plan struct {
	// Lower is the device that is there: the link is built on it, or on a VLAN device on it.
	Lower netstate.LiveDevice
	// Create is the VLAN device to create on it, nil for none.
	Create *netconf.ParentVLAN
}

// PlanParent decides what to build the link on. It uses an existing VLAN device only if that is
// exactly the wanted one. Without a configured name, that is the one with the ID and the protocol on
// the master: a restore that moves attachments to another NIC keeps the VLAN device's old name.
func PlanParent(devices netstate.Devices, master netstate.LiveDevice, vlan *netconf.ParentVLAN) (Plan, error) {
	if vlan == nil {
		return Plan{Lower: master}, nil
	}
	wanted := *vlan
	existing, ok := devices.VLANOn(master.Index, vlan.VLAN)
	switch {
	case ok && (wanted.Name == "" || wanted.Name == existing.Name):
		return Plan{Lower: existing}, nil
	case ok:
		return Plan{}, cniplugin.ConfigError("vlanName", wanted.Name,
			fmt.Sprintf("%s on %s is there as %s: name that, or leave vlanName out", vlan.VLAN, master.Name, existing.Name))
	case wanted.Name == "":
		wanted.Name = fmt.Sprintf("%s.%d", master.Name, vlan.ID)
		if err := attachment.ValidateIfName(wanted.Name); err != nil {
			return Plan{}, cniplugin.ConfigError("vlan", vlan.ID,
				fmt.Sprintf("the device's name %q %v: give another by vlanName", wanted.Name, err))
		}
	}
	if conflict, ok := devices.ByName(wanted.Name); ok {
		return Plan{}, cniplugin.ConfigError("vlan", vlan.ID,
			fmt.Sprintf("%s is there but is %s, not %s on %s: remove it, or give another name by vlanName",
				wanted.Name, describe(devices, conflict), vlan.VLAN, master.Name))
	}
	return Plan{Lower: master, Create: &wanted}, nil
}

func describe(devices netstate.Devices, d netstate.LiveDevice) string {
	if d.VLAN == nil {
		return "a " + d.Kind
	}
	if parent, ok := devices.ByIndex(d.ParentIndex); ok {
		return fmt.Sprintf("%s on %s", d.VLAN, parent.Name)
	}
	return d.VLAN.String()
}

// CheckMTU reports an MTU that is too large for the parent.
func CheckMTU(mtu int, parent netstate.LiveDevice) error {
	if mtu > parent.MTU {
		return cniplugin.ConfigError("mtu", mtu, fmt.Sprintf("must not be above %d, the MTU of %s", parent.MTU, parent.Name))
	}
	return nil
}

// Ensure returns the device to build on. It creates it if the plan says so, and then made is true,
// even beside an error. Another ADD may create the same device at the same time. Then Ensure
// verifies and uses that one.
func (p Plan) Ensure(host *kernel.Namespace, devices netstate.Devices) (parent netstate.LiveDevice, current netstate.Devices, created bool, err error) {
	if p.Create == nil {
		return p.Lower, devices, false, nil
	}
	err = host.CreateVLAN(p.Lower.Index, netstate.Device{Kind: netstate.KindVLAN, Name: p.Create.Name, VLAN: &p.Create.VLAN})
	if err != nil && !errors.Is(err, kernel.ErrExists) {
		return parent, nil, false, fmt.Errorf("VLAN parent: %w%s", err, p.hint())
	}
	created = err == nil
	if devices, err = host.Devices(); err != nil {
		return parent, nil, created, err
	}
	recheck, err := PlanParent(devices, p.Lower, p.Create)
	if err == nil && recheck.Create != nil {
		err = fmt.Errorf("VLAN parent %s: it was removed while it was being used", p.Create.Name)
	}
	return recheck.Lower, devices, created, err
}

// hint adds what the kernel does not say: a VLAN device cannot go up on a device that is down.
func (p Plan) hint() string {
	if p.Lower.Up {
		return ""
	}
	return fmt.Sprintf(" (%s is down: set it up)", p.Lower.Name)
}
