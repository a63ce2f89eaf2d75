package kernel

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/netstate"
)

// ErrUnsupported says that an interface is of a kind, or stacked on something,
// that can't be described.
var ErrUnsupported = errors.New("not supported")

// Capture reads the interface ifName of sandbox and what it is stacked on.
// devices are those of host, read before. It returns ErrNoDevice when the
// interface is not there, and ErrUnsupported when it is none that can be
// described. What it returns is whole: a list that changed while it was read is
// read again.
func Capture(host, sandbox *Namespace, devices netstate.Devices, ifName string) (netstate.Interface, error) {
	var captured netstate.Interface
	there, err := sandbox.Exists(ifName)
	if err != nil {
		return captured, err
	}
	if !there {
		return captured, fmt.Errorf("%s: %w", ifName, ErrNoDevice)
	}
	link, err := sandbox.link(ifName)
	if err != nil {
		return captured, err
	}
	if captured.Link, err = describeLink(link); err != nil {
		return captured, err
	}
	if captured.Parents, captured.ParentsInSandbox, err = parents(host, sandbox, devices, link); err != nil {
		return captured, fmt.Errorf("parents of %s: %w", ifName, err)
	}
	index := link.Attrs().Index
	if captured.Addresses, err = sandbox.addresses(index); err == nil {
		captured.Routes, err = sandbox.routes(index)
	}
	if errors.Is(err, unix.ENODEV) {
		return captured, fmt.Errorf("%s: %w: it went while it was read", ifName, ErrNoDevice)
	}
	if err != nil {
		return captured, fmt.Errorf("%s: %w", ifName, err)
	}
	return captured, nil
}

func describeLink(link netlink.Link) (netstate.Link, error) {
	attrs := link.Attrs()
	described := netstate.Link{
		Kind:  kindOf(link),
		Name:  attrs.Name,
		Index: attrs.Index,
		MAC:   attrs.HardwareAddr.String(),
		MTU:   attrs.MTU,
		Up:    attrs.RawFlags&unix.IFF_UP != 0,
	}
	switch l := link.(type) {
	case *netlink.Macvlan:
		described.Macvlan = &netstate.Macvlan{Mode: macvlanModeName(l.Mode), BCQueueLen: l.BCQueueLen}
	case *netlink.Vlan:
		described.VLAN = &netstate.VLAN{ID: l.VlanId, Protocol: vlanProtocol(l.VlanProtocol)}
	default:
		return described, fmt.Errorf("%s is a %s: %w", attrs.Name, described.Kind, ErrUnsupported)
	}
	return described, nil
}

// macvlanModes are the modes by the number that netlink has for each.
var macvlanModes = map[netlink.MacvlanMode]string{
	netlink.MACVLAN_MODE_BRIDGE:   "bridge",
	netlink.MACVLAN_MODE_PRIVATE:  "private",
	netlink.MACVLAN_MODE_VEPA:     "vepa",
	netlink.MACVLAN_MODE_PASSTHRU: "passthru",
	netlink.MACVLAN_MODE_SOURCE:   "source",
}

func macvlanModeName(mode netlink.MacvlanMode) string {
	if name, ok := macvlanModes[mode]; ok {
		return name
	}
	return fmt.Sprintf("mode %d", mode)
}

// parents returns the chain below the link, and whether it is in the sandbox.
func parents(host, sandbox *Namespace, devices netstate.Devices, link netlink.Link) ([]netstate.Device, bool, error) {
	if link.Attrs().NetNsID < 0 {
		own, err := sandbox.Devices()
		if err != nil {
			return nil, false, err
		}
		chain, err := own.Chain(parentIndex(link))
		return chain, true, err
	}
	hostID, err := sandbox.idOf(host)
	if err != nil {
		return nil, false, err
	}
	if hostID != link.Attrs().NetNsID {
		return nil, false, fmt.Errorf("they are in another namespace than the host's: %w", ErrUnsupported)
	}
	chain, err := devices.Chain(parentIndex(link))
	return chain, false, err
}

// assignID returns the number by which n knows other, and gives it one first if it
// has none yet.
func (n *Namespace) assignID(other *Namespace) (int, error) {
	id, err := n.idOf(other)
	if err != nil || id >= 0 {
		return id, err
	}
	request := nl.NewNetlinkRequest(unix.RTM_NEWNSID, 0)
	request.AddData(nl.NewRtGenMsg())
	request.AddData(nl.NewRtAttr(unix.NETNSA_FD, nl.Uint32Attr(uint32(other.handle))))
	request.AddData(nl.NewRtAttr(unix.NETNSA_NSID, nl.Uint32Attr(uint32(0xffffffff)))) // -1: any
	if err := n.conn.run(message{request, "assign namespace ID"}); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	return n.idOf(other)
}

// idOf returns the number by which n knows other (ip-netns(8), "nsid"), -1 if
// it knows it by none.
func (n *Namespace) idOf(other *Namespace) (int, error) {
	if id, ok := n.known.Load(other); ok {
		return id.(int), nil
	}
	request := nl.NewNetlinkRequest(unix.RTM_GETNSID, 0)
	request.AddData(nl.NewRtGenMsg())
	request.AddData(nl.NewRtAttr(unix.NETNSA_FD, nl.Uint32Attr(uint32(other.handle))))
	id := -1
	err := n.conn.get(message{request, "read namespace ID"}, func(payload []byte) error {
		attrs, err := nl.ParseRouteAttr(payload[nl.NewRtGenMsg().Len():])
		for _, a := range attrs {
			if a.Attr.Type == unix.NETNSA_NSID {
				id = int(int32(nl.NativeEndian().Uint32(a.Value)))
			}
		}
		return err
	})
	if err == nil && id >= 0 {
		n.known.Store(other, id)
	}
	return id, err
}
