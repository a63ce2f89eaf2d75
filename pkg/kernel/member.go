package kernel

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
)

// errInUse says that a device is used otherwise: it is a member of something else, or
// has addresses of its own.
var errInUse = errors.New("in use otherwise")

// Enslave makes the NIC a member of the bond, both known by their indices. A bond takes
// a NIC only while it is down, and sets it up itself. One that is the bond's already, as
// somebody else may be at the same, is only set up. One that is used otherwise is left
// alone: errInUse. The caller keeps off those of its own kind, so that the NIC is not made
// a member between the look and the change.
func (n *Namespace) Enslave(nic, bond int) error {
	master, err := n.linkByIndex(bond)
	if err != nil {
		return fmt.Errorf("enslave: %w", err)
	}
	member, err := n.linkByIndex(nic)
	if err != nil {
		return fmt.Errorf("enslave to %s: %w", master.name, err)
	}
	what := "enslave " + member.name + " to " + master.name
	up := setUp(nic, member.name)
	switch member.master {
	case bond:
		return n.socket.Run(up)
	case 0:
	default:
		return fmt.Errorf("%s: it has another master: %w", what, errInUse)
	}
	if used, err := n.HasAddresses(nic); err != nil || used {
		return errors.Join(err, fmt.Errorf("%s: it has addresses of its own: %w", what, errInUse))
	}
	request := setLink(nic, 0, 0)
	request.AddData(nl.NewRtAttr(unix.IFLA_MASTER, nl.Uint32Attr(uint32(bond))))
	enslave := rtnl.Message{Request: request, What: what}
	if member.up() {
		if err := n.mayGoDown(nic); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return n.socket.Run(setDown(nic, member.name), enslave, up)
	}
	return n.socket.Run(enslave, up)
}

// mayGoDown returns errInUse if a device on the one of that index has addresses: their routes
// go when it goes down.
func (n *Namespace) mayGoDown(index int) error {
	devices, err := n.Devices()
	if err != nil {
		return err
	}
	for _, d := range devices {
		if d.ParentIndex != index || d.VLAN == nil {
			continue
		}
		if used, err := n.HasAddresses(d.Index); err != nil || used {
			return errors.Join(err, fmt.Errorf("it has to go down for that, and %s on it has addresses: %w", d.Name, errInUse))
		}
	}
	return nil
}
