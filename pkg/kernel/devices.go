package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/netstate"
)

// rtextFilterSkipStats is RTEXT_FILTER_SKIP_STATS: no counters in the answer
// (since 4.4).
const rtextFilterSkipStats = 1 << 3

func getLink(index int, name string) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Index = int32(index)
	request.AddData(info)
	request.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(rtextFilterSkipStats)))
	if name != "" {
		request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	}
	return request
}

// Devices returns all the devices of the namespace as they are now.
func (n *Namespace) Devices() (netstate.Devices, error) {
	var devices netstate.Devices
	list := message{getLink(0, ""), "list devices"}
	err := n.conn.dump(list, func() { devices = devices[:0] }, func(payload []byte) error {
		link, err := netlink.LinkDeserialize(nil, payload)
		if err != nil {
			return err
		}
		devices = append(devices, liveDevice(link))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return devices, nil
}

// link returns the device of that name, or ErrNoDevice.
func (n *Namespace) link(name string) (netlink.Link, error) { return n.getLink(0, name) }

// linkByIndex returns the device of that index, or ErrNoDevice.
func (n *Namespace) linkByIndex(index int) (netlink.Link, error) { return n.getLink(index, "") }

func (n *Namespace) getLink(index int, name string) (netlink.Link, error) {
	var found netlink.Link
	err := n.conn.get(message{getLink(index, name), "read device " + name}, func(payload []byte) (err error) {
		found, err = netlink.LinkDeserialize(nil, append([]byte(nil), payload...))
		return err
	})
	if errors.Is(err, unix.ENODEV) {
		return nil, fmt.Errorf("%s: %w", name, ErrNoDevice)
	}
	return found, err
}

// Exists says whether the namespace has a device of that name. It asks by ioctl,
// which unlike netlink does not wait for whoever changes something (the RTNL lock).
func (n *Namespace) Exists(name string) (bool, error) {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return false, fmt.Errorf("device %q: %w", name, err)
	}
	err = unix.IoctlIfreq(n.conn.fd, unix.SIOCGIFINDEX, request)
	if errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	return err == nil, err
}

func liveDevice(link netlink.Link) netstate.LiveDevice {
	attrs := link.Attrs()
	d := netstate.LiveDevice{
		Device: netstate.Device{
			Kind: kindOf(link), Name: attrs.Name, MAC: attrs.HardwareAddr.String(), MTU: attrs.MTU,
		},
		Index:       attrs.Index,
		MasterIndex: attrs.MasterIndex,
		AltNames:    attrs.AltNames,
		Up:          attrs.RawFlags&unix.IFF_UP != 0,
		Carrier:     attrs.RawFlags&(unix.IFF_UP|unix.IFF_LOWER_UP) == unix.IFF_UP|unix.IFF_LOWER_UP,
	}
	if attrs.NetNsID < 0 {
		d.ParentIndex = parentIndex(link)
	}
	switch l := link.(type) {
	case *netlink.Vlan:
		d.VLAN = &netstate.VLAN{ID: l.VlanId, Protocol: vlanProtocol(l.VlanProtocol)}
	case *netlink.Bond:
		d.Bond = &netstate.Bond{Mode: l.Mode.String()}
	}
	if d.Kind == netstate.KindNIC {
		d.PermanentMAC, d.BusAddress = attrs.PermHWAddr.String(), busAddress(attrs)
	}
	return d
}

func kindOf(link netlink.Link) string {
	if _, ok := link.(*netlink.Device); ok {
		return netstate.KindNIC
	}
	return link.Type()
}

// busAddress returns the name of the device on its bus. The kernel tells it
// since 5.14; before, sysfs does.
func busAddress(attrs *netlink.LinkAttrs) string {
	if attrs.ParentDev != "" {
		return attrs.ParentDev
	}
	target, err := os.Readlink(filepath.Join("/sys/class/net", attrs.Name, "device"))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// parentIndex returns the index of what the link is stacked on, in its own
// namespace or in another. The kernel leaves it out of its answer where it is
// the link's own number, in another namespace.
func parentIndex(link netlink.Link) int {
	attrs := link.Attrs()
	if attrs.ParentIndex != 0 {
		return attrs.ParentIndex
	}
	switch link.(type) {
	case *netlink.Macvlan, *netlink.Macvtap, *netlink.Vlan, *netlink.IPVlan, *netlink.IPVtap:
		return attrs.Index
	}
	return 0
}

// The protocols as Ethernet has them.
const (
	ethP8021Q  = unix.ETH_P_8021Q
	ethP8021AD = unix.ETH_P_8021AD
)

// etherType is the inverse of vlanProtocol.
func etherType(protocol string) uint16 {
	if protocol == netstate.Protocol8021AD {
		return ethP8021AD
	}
	return ethP8021Q
}

func vlanProtocol(p netlink.VlanProtocol) string {
	switch p {
	case ethP8021Q, 0:
		return netstate.Protocol8021Q
	case ethP8021AD:
		return netstate.Protocol8021AD
	}
	return p.String()
}

// Kind returns the kind of the device of that name, or ErrNoDevice.
func (n *Namespace) Kind(name string) (string, error) {
	link, err := n.link(name)
	if err != nil {
		return "", err
	}
	return kindOf(link), nil
}

// Index returns the index of the device of that name, or ErrNoDevice.
func (n *Namespace) Index(name string) (int, error) {
	link, err := n.link(name)
	if err != nil {
		return 0, err
	}
	return link.Attrs().Index, nil
}
