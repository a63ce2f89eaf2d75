package kernel

import (
	"fmt"

	"github.com/relink-cni/relink/pkg/netstate"
)

// MoveNIC moves the NIC of that index from the host into the sandbox, and makes it the interface
// that is described. It gets the described index if that is free there. MoveNIC refuses a NIC that
// has a master or addresses of its own, and a VF (VFError). It returns ErrExists if the sandbox has a device of that
// name.
func MoveNIC(host, sandbox *Namespace, nic int, want netstate.Interface, opts ConfigureOptions) error {
	device, err := host.linkByIndex(nic)
	if err != nil {
		return fmt.Errorf("move to %s: %w", sandbox.Path(), err)
	}
	action := fmt.Sprintf("move %s to %s", device.name, sandbox.Path())
	if _, pf := host.hardware(device); pf != "" {
		return fmt.Errorf("move to %s: %w", sandbox.Path(), &VFError{Name: device.name, PF: pf})
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
	return sandbox.Configure(index, want, opts)
}
