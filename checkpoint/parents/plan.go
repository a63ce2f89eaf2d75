package parents

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/relink-cni/relink/checkpoint/attach/netconf"
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
	// Devices are those that the plan was made of.
	Devices netstate.Devices
}

// PlanParent decides what to build the link on. It uses an existing VLAN device only if that has the
// configured name, if there is one.
func PlanParent(devices netstate.Devices, master netstate.LiveDevice, vlan *netconf.ParentVLAN) (Plan, error) {
	if vlan == nil {
		return Plan{Lower: master}, nil
	}
	wanted := *vlan
	existing, name, err := PlanVLAN(devices, master, vlan.VLAN, vlan.Name)
	switch {
	case err != nil:
		return Plan{}, cniplugin.ConfigError("vlan", vlan.ID, fmt.Sprintf("%v: give another name by vlanName", err))
	case name != "":
		wanted.Name = name
		return Plan{Lower: master, Create: &wanted}, nil
	case vlan.Name != "" && vlan.Name != existing.Name:
		return Plan{}, cniplugin.ConfigError("vlanName", vlan.Name,
			fmt.Sprintf("%s on %s is there as %s: name that, or leave vlanName out", vlan.VLAN, master.Name, existing.Name))
	}
	return Plan{Lower: existing}, nil
}

// ReadPlan is PlanParent with the devices that it needs besides those of the master. It looks for the VLAN device by its name first: only if
// it has another one, the other VLAN devices are read.
func ReadPlan(ns *kernel.Namespace, m Master, vlan *netconf.ParentVLAN) (Plan, error) {
	if vlan == nil {
		return Plan{Lower: m.LiveDevice, Devices: m.Devices}, nil
	}
	devices := m.Devices
	index, err := ns.Index(cmp.Or(vlan.Name, vlanName(m.LiveDevice, vlan.VLAN)))
	if err == nil {
		devices, err = ns.AddStack(devices, index)
	} else if errors.Is(err, kernel.ErrNoDevice) {
		err = nil
	}
	if _, ok := devices.VLANOn(m.Index, vlan.VLAN); err == nil && !ok {
		devices, err = ns.AddVLANs(devices, m.Index)
	}
	if err != nil {
		return Plan{}, err
	}
	plan, err := PlanParent(devices, m.LiveDevice, vlan)
	plan.Devices = devices
	return plan, err
}

// CheckMTU reports an MTU that is too large for the parent.
func CheckMTU(mtu int, parent netstate.LiveDevice) error {
	if mtu > parent.MTU {
		return cniplugin.ConfigError("mtu", mtu, fmt.Sprintf("must not be above %d, the MTU of %s", parent.MTU, parent.Name))
	}
	return nil
}

// Ensure returns the plan with the device to build on. It creates that if the plan says so, and then created is true,
// even beside an error. Another ADD may create the same device at the same time. Then Ensure
// verifies and uses that one.
func (p Plan) Ensure(ns *kernel.Namespace, m Master) (ensured Plan, created bool, err error) {
	if p.Create == nil {
		return p, false, nil
	}
	err = ns.CreateVLAN(p.Lower.Index, netstate.Device{Kind: netstate.KindVLAN, Name: p.Create.Name, VLAN: &p.Create.VLAN})
	if err != nil && !errors.Is(err, kernel.ErrExists) {
		return p, false, fmt.Errorf("VLAN parent: %w%s", err, p.hint())
	}
	created = err == nil
	ensured, err = ReadPlan(ns, m, p.Create)
	if err == nil && ensured.Create != nil {
		err = fmt.Errorf("VLAN parent %s: it was removed while it was being used", p.Create.Name)
	}
	return ensured, created, err
}

// hint adds what the kernel does not say: a VLAN device cannot go up on a device that is down.
func (p Plan) hint() string {
	if p.Lower.Up {
		return ""
	}
	return fmt.Sprintf(" (%s is down: set it up)", p.Lower.Name)
}
