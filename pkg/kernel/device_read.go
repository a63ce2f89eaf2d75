package kernel

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// rtextFilterSkipStats is RTEXT_FILTER_SKIP_STATS: the answer has no counters (since 4.4).
const rtextFilterSkipStats = 1 << 3

func getLink(action string, index int, name string) rtnl.Message {
	m := linkMessage(unix.RTM_GETLINK, action, index, 0, 0, uint32Attr(unix.IFLA_EXT_MASK, rtextFilterSkipStats))
	switch {
	case len(name) >= unix.IFNAMSIZ:
		m.Add(textAttr(unix.IFLA_ALT_IFNAME, name))
	case name != "":
		m.Add(textAttr(unix.IFLA_IFNAME, name))
	}
	return m
}

// links returns the devices of the namespace that the kernel finds by the filters, all without one.
func (n *Namespace) links(filters ...nl.NetlinkRequestData) ([]*link, error) {
	list := getLink("list devices", 0, "")
	list.Add(filters...)
	return listOf(n, list, func(payload []byte) (*link, bool, error) {
		l, err := parseLink(payload)
		return l, true, err
	})
}

// listOf returns those of a list of the kernel that parse wants to keep.
func listOf[T any](n *Namespace, request rtnl.Message, parse func(payload []byte) (entry T, keep bool, err error)) (entries []T, err error) {
	err = n.socket.Dump(request, func() { entries = nil }, func(payload []byte) error {
		entry, keep, err := parse(payload)
		if err == nil && keep {
			entries = append(entries, entry)
		}
		return err
	})
	return entries, err
}

// ParentsIn returns the devices of the namespace that have their parent in host: the index of the
// parent by the index of the device.
func (n *Namespace) ParentsIn(host *Namespace) (map[int]int, error) {
	links, err := n.links()
	if err != nil {
		return nil, err
	}
	id, err := n.nsid(host)
	if err != nil {
		return nil, err
	}
	parents := map[int]int{}
	for _, l := range links {
		if l.parentNSID >= 0 && l.parentNSID == id {
			parents[l.Index] = l.parentIndex()
		}
	}
	return parents, nil
}

// ofKind finds the devices of the kind. The kernel passes over the filter if it does not know the kind yet.
func ofKind(kind string) *nl.RtAttr {
	filter, _ := newLinkInfo(kind)
	return filter
}

// Devices returns all the devices of the namespace as they are now.
func (n *Namespace) Devices() (netstate.Devices, error) {
	links, err := n.links()
	if err != nil {
		return nil, err
	}
	return n.addDevices(make(netstate.Devices, 0, len(links)), links)
}

// AddVLANs adds the VLAN devices on the device of that index to those that the caller has read.
func (n *Namespace) AddVLANs(devices netstate.Devices, parent int) (netstate.Devices, error) {
	links, err := n.links(ofKind(netstate.KindVLAN))
	if err != nil {
		return nil, err
	}
	return n.addDevices(devices, slices.DeleteFunc(links, func(l *link) bool {
		return devices.HasIndex(l.Index) || l.Kind != netstate.KindVLAN || l.parentNSID >= 0 || l.parent != parent
	}))
}

// maxNesting is how many devices the kernel stacks on one another (MAX_NEST_DEV).
const maxNesting = 8

// AddStack adds to the devices that the caller has read the one of that index and what it is stacked on, with the ports and the master of
// each. It leaves out what is gone. A list of all devices of a node takes long, and is read again whenever one of them changes.
func (n *Namespace) AddStack(devices netstate.Devices, index int) (netstate.Devices, error) {
	for range maxNesting {
		l, err := n.linkByIndex(index)
		if errors.Is(err, ErrNoDevice) {
			break
		}
		if err != nil {
			return nil, err
		}
		beside := []*link{l}
		master, err := n.linkByIndex(l.master)
		if err == nil {
			beside = append(beside, master)
		} else if !errors.Is(err, ErrNoDevice) {
			return nil, err
		}
		if l.Kind != netstate.KindNIC && l.Kind != netstate.KindVLAN {
			ports, err := n.links(uint32Attr(unix.IFLA_MASTER, index))
			if err != nil {
				return nil, err
			}
			beside = append(beside, ports...)
		}
		beside = slices.DeleteFunc(beside, func(l *link) bool { return devices.HasIndex(l.Index) })
		if devices, err = n.addDevices(devices, beside); err != nil {
			return nil, err
		}
		below, _ := devices.ByIndex(index)
		if !netstate.IsStacked(below.Kind) {
			break
		}
		index = below.ParentIndex
	}
	return devices, nil
}

func (n *Namespace) addDevices(devices netstate.Devices, links []*link) (netstate.Devices, error) {
	for _, l := range links {
		d, err := n.liveDevice(l)
		if err != nil {
			return nil, err
		}
		devices = append(devices, d)
	}
	return devices, nil
}

// Device returns the device of that index as it is now, or ErrNoDevice.
func (n *Namespace) Device(index int) (netstate.LiveDevice, error) {
	l, err := n.linkByIndex(index)
	if err != nil {
		return netstate.LiveDevice{}, err
	}
	return n.liveDevice(l)
}

// link returns the device of that name, or ErrNoDevice.
func (n *Namespace) link(name string) (*link, error) { return n.getLink(0, name) }

// linkByIndex returns the device of that index, or ErrNoDevice. No device has index 0.
func (n *Namespace) linkByIndex(index int) (*link, error) { return n.getLink(index, "") }

func (n *Namespace) getLink(index int, name string) (*link, error) {
	if index == 0 && name == "" {
		return nil, fmt.Errorf("no device is named: %w", ErrNoDevice)
	}
	var found *link
	asked := name
	if index != 0 {
		asked = fmt.Sprintf("the device with index %d", index)
	}
	err := n.socket.Get(getLink("read device "+asked, index, name), func(payload []byte) (err error) {
		found, err = parseLink(payload)
		return err
	})
	if errors.Is(err, unix.ENODEV) {
		return nil, fmt.Errorf("%s: %w", asked, ErrNoDevice)
	}
	return found, err
}

// Exists says whether the namespace has a device of that name. It binds its socket to the device: that does not wait
// for the RTNL lock, as netlink does. For a name that is not there, the ioctl SIOCGIFINDEX would run modprobe twice,
// for the modules netdev-NAME and NAME (dev_load in net/core/dev_ioctl.c).
func (n *Namespace) Exists(name string) (bool, error) {
	// The kernel would cut such a name, or unbind the socket.
	if name == "" || len(name) >= unix.IFNAMSIZ || strings.Contains(name, "\x00") {
		return false, nil
	}
	switch err := unix.BindToDevice(n.socket.FD(), name); {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.ENODEV):
		return false, nil
	}
	// Binding may need CAP_NET_RAW.
	_, err := n.link(name)
	if errors.Is(err, ErrNoDevice) {
		return false, nil
	}
	return err == nil, err
}

// existingLink is link for a device that may well not be there. Then it does not wait for the RTNL lock.
func (n *Namespace) existingLink(name string) (*link, error) {
	exists, err := n.Exists(name)
	if err != nil {
		return nil, err
	}
	if !exists {
		return nil, fmt.Errorf("%s: %w", name, ErrNoDevice)
	}
	return n.link(name)
}

// NameOf returns the name of the device of that index, or ErrNoDevice. It asks by ioctl, which does not wait for the
// RTNL lock.
func (n *Namespace) NameOf(index int) (string, error) {
	request, err := unix.NewIfreq("")
	if err != nil {
		return "", err
	}
	request.SetUint32(uint32(index))
	err = unix.IoctlIfreq(n.socket.FD(), unix.SIOCGIFNAME, request)
	if errors.Is(err, unix.ENODEV) {
		return "", fmt.Errorf("device of index %d: %w", index, ErrNoDevice)
	}
	return request.Name(), err
}

// CurrentName returns the present name of the device that was recorded as link. If a device has its
// index, kind and MAC, this is that device, and it may have been renamed. Otherwise the name is the
// recorded one.
func (n *Namespace) CurrentName(link netstate.Link) (string, error) {
	if link.Index == 0 {
		return link.Name, nil
	}
	current, err := n.linkByIndex(link.Index)
	if errors.Is(err, ErrNoDevice) || err == nil && (current.Kind != link.Kind || current.MAC != link.MAC) {
		return link.Name, nil
	}
	if err != nil {
		return "", err
	}
	return current.Name, nil
}

// liveDevice returns the link as a device that others can be stacked on.
func (n *Namespace) liveDevice(l *link) (netstate.LiveDevice, error) {
	d := netstate.LiveDevice{
		Device:      netstate.Device{Kind: l.Kind, Name: l.Name, MAC: l.MAC, MTU: l.MTU},
		Index:       l.Index,
		MasterIndex: l.master,
		Alias:       l.Alias,
		AltNames:    l.altNames,
		Up:          l.Up,
		Carrier:     l.carrier(), CarrierChanges: l.carrierChanges,
	}
	if l.parentNSID < 0 {
		d.ParentIndex = l.parentIndex()
	}
	var err error
	switch l.Kind {
	case netstate.KindVLAN:
		d.VLAN, d.VLANOptions, err = parseVLAN(l.data)
	case netstate.KindBond:
		d.Bond, d.PrimaryIndex, err = parseBond(l.data)
	case "vxlan":
		if d.ParentIndex == 0 && l.parentNSID < 0 {
			// The device that it sends by, 0 if it takes any. The kernel deletes the VXLAN with that device, but does not call
			// it the parent.
			d.ParentIndex, err = attributeOf(l.data, 0, nl.IFLA_VXLAN_LINK)
		}
	case netstate.KindNIC:
		d.NIC, d.PF = n.hardware(l)
	}
	return d, err
}

// Kind returns the kind of the device of that name, or ErrNoDevice.
func (n *Namespace) Kind(name string) (string, error) {
	link, err := n.link(name)
	if err != nil {
		return "", err
	}
	return link.Kind, nil
}

// Index returns the index of the device of that name, or ErrNoDevice.
func (n *Namespace) Index(name string) (int, error) {
	link, err := n.link(name)
	if err != nil {
		return 0, err
	}
	return link.Index, nil
}
