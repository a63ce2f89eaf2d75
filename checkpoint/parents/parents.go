// Package parents decides which VLAN device of the host is a parent, or has to be made, or why not. It touches nothing.
package parents

import (
	"fmt"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// MemberError says that the device belongs to a bond or team. A VLAN device on it would take the bond's frames, and the
// kernel allows no macvlan on it.
type MemberError struct{ Member, Bond string }

func (e *MemberError) Error() string {
	return fmt.Sprintf("it is a member of %s and would take the frames of %[1]s: name %[1]s, or take %[2]s out of it", e.Bond, e.Member)
}

// CheckMember refuses the member of a bond or team. A VLAN device that is already on a member is the admin's, who has
// taken the frames from the bond anyway.
func CheckMember(devices netstate.Devices, d netstate.LiveDevice) *MemberError {
	if over, ok := devices.AggregateOf(d); ok {
		return &MemberError{d.Name, over.Name}
	}
	return nil
}

// PlanVLAN returns the VLAN device on the parent, whatever its name: a restore that moves attachments to another NIC keeps
// the VLAN device's old name. Without such a device, it returns the name of the one to make: the given name, or the usual
// one if that is empty. A parent that is still to be made has no index.
func PlanVLAN(devices netstate.Devices, parent netstate.LiveDevice, vlan netstate.VLAN, name string) (existing netstate.LiveDevice, newName string, err error) {
	if existing, ok := devices.VLANOn(parent.Index, vlan); ok && parent.Index != 0 {
		return existing, "", nil
	}
	if name == "" {
		name = VLANName(parent, vlan)
	}
	if err := attachment.ValidateIfName(name); err != nil {
		return existing, "", fmt.Errorf("the device's name %q %w", name, err)
	}
	if other, ok := devices.ByName(name); ok {
		return existing, "", fmt.Errorf("%s is there but is %s, not %s on %s", name, describe(devices, other), vlan, parent.Name)
	}
	return existing, name, nil
}

// VLANName is the usual name of the VLAN device on the parent.
func VLANName(parent netstate.LiveDevice, vlan netstate.VLAN) string {
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
