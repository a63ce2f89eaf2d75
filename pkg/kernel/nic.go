package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/netstate"
)

// MoveNIC moves the NIC of that index from the host into the sandbox, and makes it the interface
// that is described. It gets the described index if that is free there. MoveNIC refuses a NIC that
// has a master or addresses of its own, and a VF (VFError). It returns ErrExists if the sandbox has a device of that
// name.
func MoveNIC(host, sandbox *Namespace, nic int, want netstate.Interface) error {
	device, err := host.linkByIndex(nic)
	if err != nil {
		return fmt.Errorf("move to %s: %w", sandbox.Path(), err)
	}
	action := fmt.Sprintf("move %s to %s", device.Name, sandbox.Path())
	if _, pf := host.hardware(device); pf != "" {
		return fmt.Errorf("move to %s: %w", sandbox.Path(), &VFError{Name: device.Name, PF: pf})
	}
	if device.master != 0 {
		return fmt.Errorf("%s: it has a master: %w", action, errDeviceInUse)
	}
	if err := host.checkNoAddresses(nic, action+": it"); err != nil {
		return err
	}
	err = sandbox.withFreeIndex(want.Link, func(link netstate.Link) error { return host.socket.Run(moveLink(sandbox, nic, link)) })
	if err != nil {
		return err
	}
	index, err := sandbox.Index(want.Link.Name)
	if err != nil {
		return err
	}
	return sandbox.Configure(index, want, true)
}

// errDeviceInUse says that a device has another use: it has a master, or addresses of its own.
var errDeviceInUse = errors.New("in use by something else")

// Enslave makes the NIC a member of the bond. Both are given by their indices. A bond takes a NIC
// only while that is down, and then sets it up. A NIC that is a member of this bond already is only
// set up: somebody else may have enslaved it. Enslave refuses a NIC that has another master or
// addresses of its own, and a NIC that would have to go down while a VLAN on it has addresses. The
// caller keeps other restores away, so that the NIC gets no master between the look and the change.
func (n *Namespace) Enslave(nic, bond int) error {
	master, err := n.linkByIndex(bond)
	if err != nil {
		return fmt.Errorf("enslave: %w", err)
	}
	member, err := n.linkByIndex(nic)
	if err != nil {
		return fmt.Errorf("enslave to %s: %w", master.Name, err)
	}
	action := "enslave " + member.Name + " to " + master.Name
	up := setUp(nic, member.Name)
	switch member.master {
	case bond:
		return n.socket.Run(up)
	case 0:
	default:
		return fmt.Errorf("%s: it has another master: %w", action, errDeviceInUse)
	}
	if err := n.checkNoAddresses(nic, action+": it"); err != nil {
		return err
	}
	enslave := setLink(action, nic, uint32Attr(unix.IFLA_MASTER, bond))
	if member.Up {
		if err := n.checkSetDown(nic); err != nil {
			return fmt.Errorf("%s: %w", action, err)
		}
		return n.socket.Run(setDown(nic, member.Name), enslave, up)
	}
	return n.socket.Run(enslave, up)
}

// checkSetDown returns errDeviceInUse if a VLAN device on the device of that index has addresses. Their
// routes would go when it goes down.
func (n *Namespace) checkSetDown(index int) error {
	devices, err := n.Devices()
	if err != nil {
		return err
	}
	for _, d := range devices {
		if d.ParentIndex != index || d.VLAN == nil {
			continue
		}
		if err := n.checkNoAddresses(d.Index, "it must go down for that, and "+d.Name+" on it"); err != nil {
			return err
		}
	}
	return nil
}

// checkNoAddresses returns errDeviceInUse if the device of that index has addresses of its own.
func (n *Namespace) checkNoAddresses(index int, subject string) error {
	used, err := n.HasAddresses(index)
	if used {
		err = fmt.Errorf("%s has addresses of its own: %w", subject, errDeviceInUse)
	}
	return err
}
