package kernel

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// CreateVLAN makes the VLAN device d in n on the parent of that index and sets it
// up. An MTU of zero and an empty MAC are the parent's. It returns ErrExists when n
// has a device of that name, or another of that ID on the parent.
func (n *Namespace) CreateVLAN(parentIndex int, d netstate.Device) error {
	link := netstate.Link{
		Kind: netstate.KindVLAN, Name: d.Name, MAC: d.MAC, MTU: d.MTU, VLAN: d.VLAN, VLANOptions: d.VLANOptions,
	}
	create, err := newLink(link, parentIndex, 0, d.Name, unix.IFF_UP)
	if err != nil {
		return err
	}
	return exists(n.socket.Run(create))
}

// exists makes the kernel's error ErrExists where it is that.
func exists(err error) error {
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%w: %w", ErrExists, err)
	}
	return err
}

// SetUp sets the device of that index up. The name is for errors.
func (n *Namespace) SetUp(index int, name string) error {
	return n.socket.Run(rtnl.Message{Request: setLink(index, unix.IFF_UP), What: "set " + name + " up"})
}

// SetMTU sets the MTU of the device of that index, in bytes. The name is for errors.
func (n *Namespace) SetMTU(index int, name string, mtu int) error {
	request := setLink(index, 0)
	request.AddData(nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(mtu))))
	return n.socket.Run(rtnl.Message{Request: request, What: fmt.Sprintf("set MTU of %s to %d", name, mtu)})
}

// SetMAC sets the device's MAC.
func (n *Namespace) SetMAC(name, mac string) error {
	return n.change(name, fmt.Sprintf("set MAC of %s to %s", name, mac), func(index int) (*nl.NetlinkRequest, error) {
		attr, err := macAttr(mac)
		if err != nil {
			return nil, err
		}
		request := setLink(index, 0)
		request.AddData(attr)
		return request, nil
	})
}

// SetKind sets what only links of its kind have: the mode, flags and the like. The
// kernel refuses to change a macvlan to or from passthru.
func (n *Namespace) SetKind(link netstate.Link) error {
	return n.change(link.Name, "set the attributes of "+link.Name+" as a "+link.Kind, func(index int) (*nl.NetlinkRequest, error) {
		attr, err := linkInfoAttr(link)
		if err != nil {
			return nil, err
		}
		// A kind's own attributes are changed by RTM_NEWLINK alone.
		request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, 0)
		info := nl.NewIfInfomsg(unix.AF_UNSPEC)
		info.Index = int32(index)
		request.AddData(info)
		request.AddData(attr)
		return request, nil
	})
}

// SetAttributes sets the alias, the group, the length of the queue and the flags of the
// device. Flags that it has beyond them stay.
func (n *Namespace) SetAttributes(link netstate.Link) error {
	return n.change(link.Name, "set the attributes of "+link.Name, func(index int) (*nl.NetlinkRequest, error) {
		flags, mask := flagBits(link.LinkFlags)
		request, err := setAttributes(index, link, flags, mask)
		if err != nil || link.Kind == netstate.KindNIC {
			return request, err
		}
		request.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(link.Group)))
		if link.TxQueueLen != nil {
			request.AddData(nl.NewRtAttr(unix.IFLA_TXQLEN, nl.Uint32Attr(uint32(*link.TxQueueLen))))
		}
		return request, nil
	})
}

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
	up := rtnl.Message{Request: setLink(nic, unix.IFF_UP), What: "set " + member.name + " up"}
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
	request := setLink(nic, 0)
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

// AddAddresses gives the device of that index addresses that it had before. One that is
// there but differs (in its broadcast address, label, scope) is removed first, with the
// routes that depend on it: the kernel changes none of that in place.
func (n *Namespace) AddAddresses(index int, addresses []netstate.Address) error {
	there, _, err := n.addresses(index, bothFamilies)
	if err != nil {
		return err
	}
	type identity struct{ prefix, peer netip.Prefix }
	known := make(map[identity]netstate.Address, len(there))
	for _, t := range there {
		known[identity{t.Prefix, t.Peer}] = t
	}
	var batch []rtnl.Message
	for _, a := range addresses {
		if t, ok := known[identity{a.Prefix, a.Peer}]; ok && !t.Same(a) {
			batch = append(batch, deleteAddress(index, a))
		}
		batch = append(batch, addAddresses(index, []netstate.Address{a}, true)...)
		batch = append(batch, removeRoutes(index, []netstate.Address{a})...)
	}
	return n.socket.Run(batch...)
}

func (n *Namespace) change(name, what string, request func(index int) (*nl.NetlinkRequest, error)) error {
	return n.changeBy(name, func(index int) (rtnl.Message, error) {
		r, err := request(index)
		if err != nil {
			err = fmt.Errorf("%s: %w", what, err)
		}
		return rtnl.Message{Request: r, What: what}, err
	})
}

// changeBy runs one request on the device of that name.
func (n *Namespace) changeBy(name string, request func(index int) (rtnl.Message, error)) error {
	link, err := n.link(name)
	if err != nil {
		return fmt.Errorf("change %s: %w", name, err)
	}
	m, err := request(link.index)
	if err != nil {
		return err
	}
	return n.socket.Run(m)
}
