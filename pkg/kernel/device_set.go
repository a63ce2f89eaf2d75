package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// CreateVLAN makes the VLAN device d in n, on the parent of that index, and sets it up. With an MTU
// of zero it has the MTU of the parent, and without a MAC it has the MAC of the parent. CreateVLAN
// returns ErrExists if n has a device of that name, or the parent has a VLAN device of that ID.
func (n *Namespace) CreateVLAN(parentIndex int, d netstate.Device) error {
	link := netstate.Link{
		Kind: netstate.KindVLAN, Name: d.Name, MAC: d.MAC, MTU: d.MTU, VLAN: d.VLAN, VLANOptions: d.VLANOptions,
	}
	return asErrExists(n.socket.Run(newLink(link, parentIndex, 0, d.Name, unix.IFF_UP)))
}

// asErrExists returns the error as ErrExists if the kernel says that something is there already.
func asErrExists(err error) error {
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%w: %w", ErrExists, err)
	}
	return err
}

// SetUp sets the device of that index up. The name is for errors.
func (n *Namespace) SetUp(index int, name string) error {
	return n.socket.Run(setUp(index, name))
}

// SetMTU sets the MTU of the device of that index, in bytes. The name is for errors.
func (n *Namespace) SetMTU(index int, name string, mtu int) error {
	return n.socket.Run(setLink(fmt.Sprintf("set MTU of %s to %d", name, mtu), index, uint32Attr(unix.IFLA_MTU, mtu)))
}

// SetMAC sets the device's MAC, or returns ErrNoDevice.
func (n *Namespace) SetMAC(name, mac string) error {
	return n.runOn(name, func(index int) rtnl.Message {
		return setLink(fmt.Sprintf("set MAC of %s to %s", name, mac), index, macAttr(mac))
	})
}

// SetKind sets the attributes that only links of its kind have, such as the mode. The kernel
// refuses to change a macvlan to passthru or from it. SetKind returns ErrNoDevice if the device is
// not there.
func (n *Namespace) SetKind(link netstate.Link) error {
	return n.runOn(link.Name, func(index int) rtnl.Message {
		// The kernel takes the attributes of a kind with RTM_NEWLINK only.
		return linkMessage(unix.RTM_NEWLINK, "set the attributes of "+link.Name+" as a "+link.Kind, index, 0, 0, linkInfoAttr(link))
	})
}

// SetAttributes sets the alias, the group, the length of the queue and the flags of the device.
// Other flags of the device stay. SetAttributes returns ErrNoDevice if the device is not there.
func (n *Namespace) SetAttributes(link netstate.Link) error {
	return n.runOn(link.Name, func(index int) rtnl.Message {
		m := setAttributes(index, link)
		if link.Kind != netstate.KindNIC {
			m.Add(uint32Attr(unix.IFLA_GROUP, link.Group))
			addTxQueueLen(m, link)
		}
		return m
	})
}

// runOn sends one request for the device of that name, or returns ErrNoDevice.
func (n *Namespace) runOn(name string, request func(index int) rtnl.Message) error {
	link, err := n.link(name)
	if err != nil {
		return err
	}
	return n.socket.Run(request(link.index))
}
