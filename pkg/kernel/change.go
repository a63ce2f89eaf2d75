package kernel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/netstate"
)

// CreateVLAN makes the VLAN device in n on the parent of that index and sets it
// up. An mtu of zero is the parent's. It returns ErrExists when n has a
// device of that name, or another of that ID on the parent.
func (n *Namespace) CreateVLAN(parentIndex int, name string, v netstate.VLAN, mtu int) error {
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Flags, info.Change = unix.IFF_UP, unix.IFF_UP
	request.AddData(info)
	request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	request.AddData(nl.NewRtAttr(unix.IFLA_LINK, nl.Uint32Attr(uint32(parentIndex))))
	if mtu != 0 {
		request.AddData(nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(mtu))))
	}
	attr, err := linkInfoAttr(netstate.Link{Kind: netstate.KindVLAN, VLAN: &v})
	if err != nil {
		return err
	}
	request.AddData(attr)
	err = n.conn.run(message{request, fmt.Sprintf("create %s (%s)", name, v)})
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%w: %w", ErrExists, err)
	}
	return err
}

// SetUp sets the device up.
func (n *Namespace) SetUp(name string) error {
	return n.change(name, "set "+name+" up", func(index int) (*nl.NetlinkRequest, error) {
		return setLink(index, unix.IFF_UP), nil
	})
}

// SetMTU sets the device's MTU in bytes.
func (n *Namespace) SetMTU(name string, mtu int) error {
	return n.change(name, fmt.Sprintf("set MTU of %s to %d", name, mtu), func(index int) (*nl.NetlinkRequest, error) {
		request := setLink(index, 0)
		request.AddData(nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(mtu))))
		return request, nil
	})
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

// SetMacvlan sets the mode and the queue length of a macvlan. The kernel
// refuses to change to or from passthru.
func (n *Namespace) SetMacvlan(link netstate.Link) error {
	return n.change(link.Name, "set mode of "+link.Name+" to "+link.Macvlan.Mode, func(index int) (*nl.NetlinkRequest, error) {
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

// ErrInUse says that a device is used otherwise: it is a member of something else, or
// has addresses of its own.
var ErrInUse = errors.New("in use otherwise")

// Enslave makes the NIC a member of the bond, which takes it only while it is down
// and sets it up itself. One that is the bond's already, as somebody else may be at
// the same, is only set up. One that is used otherwise is left alone: ErrInUse.
func (n *Namespace) Enslave(nic, bond string) error {
	what := "enslave " + nic + " to " + bond
	master, err := n.link(bond)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	member, err := n.link(nic)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	index := member.Attrs().Index
	up := message{setLink(index, unix.IFF_UP), "set " + nic + " up"}
	switch member.Attrs().MasterIndex {
	case master.Attrs().Index:
		return n.conn.run(up)
	case 0:
	default:
		return fmt.Errorf("%s: it has another master: %w", what, ErrInUse)
	}
	if used, err := n.HasAddresses(index); err != nil || used {
		return errors.Join(err, fmt.Errorf("%s: it has addresses of its own: %w", what, ErrInUse))
	}
	down := nl.NewNetlinkRequest(unix.RTM_SETLINK, 0)
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Index, info.Change = int32(index), unix.IFF_UP
	down.AddData(info)
	enslave := setLink(index, 0)
	enslave.AddData(nl.NewRtAttr(unix.IFLA_MASTER, nl.Uint32Attr(uint32(master.Attrs().Index))))
	return n.conn.run(message{down, "set " + nic + " down"}, message{enslave, what}, up)
}

// AddAddress gives the interface an address that it had before. One that is there
// but differs (in its broadcast address, label, scope) is removed first, with the
// routes that depend on it: the kernel changes none of that in place.
func (n *Namespace) AddAddress(name string, a netstate.Address) error {
	link, err := n.link(name)
	if err != nil {
		return err
	}
	index := link.Attrs().Index
	there, err := n.addresses(index)
	if err != nil {
		return err
	}
	var batch []message
	if slices.ContainsFunc(there, func(t netstate.Address) bool { return t.Prefix == a.Prefix && t.Peer == a.Peer && t != a }) {
		batch = append(batch, deleteAddress(index, a))
	}
	return n.conn.run(append(batch, addAddress(index, a, true))...)
}

// AddRoute makes the route through the interface. A route in the same slot that
// is in keep stays beside it, any other is replaced.
func (n *Namespace) AddRoute(name string, r netstate.Route, keep []netstate.Route) error {
	link, err := n.link(name)
	if err != nil {
		return err
	}
	there, err := n.routes(link.Attrs().Index)
	if err != nil {
		return err
	}
	replace := slices.ContainsFunc(there, func(t netstate.Route) bool { return t.SameSlot(r) && !slices.Contains(keep, t) })
	err = n.conn.run(addRoute(link.Attrs().Index, r, replace))
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

func (n *Namespace) change(name, what string, request func(index int) (*nl.NetlinkRequest, error)) error {
	link, err := n.link(name)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	req, err := request(link.Attrs().Index)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return n.conn.run(message{req, what})
}
