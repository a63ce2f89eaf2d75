// Package parents decides which device of the host an attachment is built on: the master that is there, and the VLAN
// device on it, or the one to make, or why not. Only Read, ReadPlan and Plan.Ensure ask the kernel. What an ADD would be
// refused for, CheckHost says before there is an ADD.
package parents

import (
	"errors"
	"fmt"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// CheckMember refuses the member of a bond or team. A VLAN device on it would take the bond's frames, and the kernel allows no macvlan on
// it. A VLAN device that is already on a member is the admin's, who has taken the frames from the bond anyway.
func CheckMember(devices netstate.Devices, d netstate.LiveDevice) error {
	if bond, ok := devices.AggregateOf(d); ok {
		return fmt.Errorf("it is a member of %s and would take the frames of %[1]s: name %[1]s, or take %[2]s out of it", bond.Name, d.Name)
	}
	return nil
}

// First returns the first of the named devices that exists, and the names before it.
func First(devices netstate.Devices, names []string) (d netstate.LiveDevice, missing []string, err error) {
	for i, name := range names {
		if d, ok := devices.ByAnyName(name); ok {
			return d, names[:i], nil
		}
	}
	if len(names) > 1 {
		return d, names, errors.New("none of them exists: name a device that is there")
	}
	return d, names, errors.New("does not exist: name a device that is there")
}

// PlanVLAN returns the VLAN device on the parent, whatever its name: a restore that moves attachments to another NIC keeps
// the VLAN device's old name. Without such a device, it returns the name of the one to make: the given name, or the usual
// one if that is empty. A parent that is still to be made has no index.
func PlanVLAN(devices netstate.Devices, parent netstate.LiveDevice, vlan netstate.VLAN, name string) (existing netstate.LiveDevice, newName string, err error) {
	if existing, ok := devices.VLANOn(parent.Index, vlan); ok && parent.Index != 0 {
		return existing, "", nil
	}
	if name == "" {
		name = vlanName(parent, vlan)
	}
	if err := attachment.ValidateIfName(name); err != nil {
		return existing, "", fmt.Errorf("the device's name %q %w", name, err)
	}
	if owner, ok := devices.ByName(name); ok {
		return existing, "", fmt.Errorf("%s is there but is %s, not %s on %s", name, describe(devices, owner), vlan, parent.Name)
	}
	return existing, name, nil
}

// vlanName is the usual name of the VLAN device on the parent.
func vlanName(parent netstate.LiveDevice, vlan netstate.VLAN) string {
	return fmt.Sprintf("%s.%d", parent.Name, vlan.ID)
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
