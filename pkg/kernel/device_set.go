package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

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

// SetMTU sets the MTU of the device of that index, in bytes. The name is for errors.
func (n *Namespace) SetMTU(index int, name string, mtu int) error {
	return n.socket.Run(setLink(fmt.Sprintf("set MTU of %s to %d", name, mtu), index, uint32Attr(unix.IFLA_MTU, mtu)))
}

// SetMAC sets the MAC of the device of that index. The name is for errors.
func (n *Namespace) SetMAC(index int, name, mac string) error {
	return n.socket.Run(setLink(fmt.Sprintf("set MAC of %s to %s", name, mac), index, macAttr(mac)))
}

// SetKind sets the attributes that only links of its kind have, such as the mode. The kernel
// refuses to change a macvlan to passthru or from it.
func (n *Namespace) SetKind(index int, link netstate.Link) error {
	// The kernel takes the attributes of a kind with RTM_NEWLINK only.
	return n.socket.Run(linkMessage(unix.RTM_NEWLINK, "set the attributes of "+link.Name+" as a "+link.Kind, index, 0, 0, linkInfoAttr(link)))
}

// SetAttributes sets the alias, the group, the length of the queue and the flags of the device of that index.
// Other flags of the device stay.
func (n *Namespace) SetAttributes(index int, link netstate.Link) error {
	m := setAttributes(index, link)
	if link.Kind != netstate.KindNIC {
		addSharedAttributes(m, link)
	}
	return n.socket.Run(m)
}
