package kernel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/netstate"
)

const (
	// highIndex is where the indices of devices under construction begin: far
	// from those that the kernel gives out, which count up from 1.
	highIndex = 1 << 30
	// temporaryPrefix begins the name of a device under construction in the
	// parent's namespace.
	temporaryPrefix = "rlnk"
)

// Create makes the link inside sandbox: a device of its kind on the parent of
// that index in parentAt (the host's namespace, or the sandbox's own), with its
// final name, MAC and MTU, down and without addresses. A link.Index that is not 0
// is given to the device if it is free in the sandbox. It returns ErrExists when
// the sandbox has a device of that name; what Create began it takes away again
// when it fails.
//
// The device is made in the parent's namespace under a name and index that
// nobody uses, and then moved: a message that names the target's namespace at
// once fails on older kernels (6.1 for one) when the parent's namespace has a
// device of the final name, which is how pods and hosts usually are (eth0).
// Both requests go in one datagram, that the kernel works through without a
// break: there is no moment at which a kill leaves the half of it.
func Create(parentAt, sandbox *Namespace, parentIndex int, link netstate.Link) error {
	there, err := sandbox.Exists(link.Name)
	if err != nil {
		return err
	}
	if there {
		return existsError(sandbox, link)
	}
	if link.Index == 0 {
		if link.Index, err = sandbox.freeIndex(); err != nil {
			return err
		}
	}
	err = createOnce(parentAt, sandbox, parentIndex, link)
	if errors.Is(err, unix.EBUSY) {
		// The index is taken in the sandbox: any other will do.
		if link.Index, err = sandbox.freeIndex(); err != nil {
			return err
		}
		err = createOnce(parentAt, sandbox, parentIndex, link)
	}
	return err
}

func createOnce(parentAt, sandbox *Namespace, parentIndex int, link netstate.Link) error {
	if parentAt == sandbox {
		return createInPlace(sandbox, parentIndex, link)
	}
	temporary := highIndex + rand.IntN(highIndex)
	create, err := newLink(link, parentIndex, temporary, temporaryName(temporary))
	if err != nil {
		return err
	}
	outcomes := parentAt.conn.runEach(create, moveLink(sandbox, temporary, link))
	if err := errors.Join(outcomes...); err == nil || outcomes[0] != nil {
		return outcomes[0]
	}
	discard(parentAt, sandbox, temporary)
	if errors.Is(outcomes[1], unix.EEXIST) {
		return existsError(sandbox, link)
	}
	return outcomes[1]
}

// createInPlace makes a link whose parent is in the sandbox too.
func createInPlace(sandbox *Namespace, parentIndex int, link netstate.Link) error {
	create, err := newLink(link, parentIndex, link.Index, link.Name)
	if err != nil {
		return err
	}
	err = sandbox.conn.run(create)
	if errors.Is(err, unix.EEXIST) {
		if there, e := sandbox.Exists(link.Name); e == nil && there {
			return existsError(sandbox, link)
		}
		return unix.EBUSY // It was the index that exists.
	}
	return err
}

// freeIndex returns the index after the highest in use, as the kernel itself
// counts. It does not count devices under construction.
func (n *Namespace) freeIndex() (int, error) {
	devices, err := n.Devices()
	highest := 0
	for _, d := range devices {
		if d.Index < highIndex {
			highest = max(highest, d.Index)
		}
	}
	return highest + 1, err
}

func existsError(sandbox *Namespace, link netstate.Link) error {
	return fmt.Errorf("%s in %s: %w", link.Name, sandbox.Path(), ErrExists)
}

// discard deletes a device under construction. The kernel moves it before it
// renames it: where the name was taken meanwhile, it is in the sandbox already.
func discard(parentAt, sandbox *Namespace, temporary int) {
	_ = parentAt.conn.run(deleteLink(temporary, temporaryName(temporary)))
	_ = sandbox.Delete(temporaryName(temporary))
}

func temporaryName(index int) string { return fmt.Sprintf("%s%x", temporaryPrefix, index) }

func newLink(link netstate.Link, parentIndex, index int, name string) (message, error) {
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Index = int32(index)
	request.AddData(info)
	request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	request.AddData(nl.NewRtAttr(unix.IFLA_LINK, nl.Uint32Attr(uint32(parentIndex))))
	if link.MTU != 0 {
		request.AddData(nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(link.MTU))))
	}
	if link.MAC != "" {
		attr, err := macAttr(link.MAC)
		if err != nil {
			return message{}, err
		}
		request.AddData(attr)
	}
	linkInfo, err := linkInfoAttr(link)
	if err != nil {
		return message{}, err
	}
	request.AddData(linkInfo)
	return message{request, fmt.Sprintf("create %s %s", link.Kind, link.Name)}, nil
}

func macAttr(mac string) (*nl.RtAttr, error) {
	hw, err := net.ParseMAC(mac)
	if err != nil {
		return nil, err
	}
	return nl.NewRtAttr(unix.IFLA_ADDRESS, hw), nil
}

// linkInfoAttr returns IFLA_LINKINFO: what makes the device one of its kind.
func linkInfoAttr(link netstate.Link) (*nl.RtAttr, error) {
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(link.Kind))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	switch {
	case link.Macvlan != nil:
		mode, err := macvlanModeNumber(link.Macvlan.Mode)
		if err != nil {
			return nil, err
		}
		data.AddRtAttr(nl.IFLA_MACVLAN_MODE, nl.Uint32Attr(mode))
		if link.Macvlan.BCQueueLen != 0 {
			data.AddRtAttr(nl.IFLA_MACVLAN_BC_QUEUE_LEN, nl.Uint32Attr(link.Macvlan.BCQueueLen))
		}
	case link.VLAN != nil:
		addVLANData(data, *link.VLAN)
	default:
		return nil, fmt.Errorf("kind %q: %w", link.Kind, ErrUnsupported)
	}
	return info, nil
}

func addVLANData(data *nl.RtAttr, v netstate.VLAN) {
	protocol := uint16(ethP8021Q)
	if v.Protocol == netstate.Protocol8021AD {
		protocol = ethP8021AD
	}
	data.AddRtAttr(nl.IFLA_VLAN_ID, nl.Uint16Attr(uint16(v.ID)))
	data.AddRtAttr(nl.IFLA_VLAN_PROTOCOL, nl.BEUint16Attr(protocol))
}

// macvlanModeNumber returns the mode's number in linux/if_link.h.
func macvlanModeNumber(name string) (uint32, error) {
	switch name {
	case "private":
		return nl.MACVLAN_MODE_PRIVATE, nil
	case "vepa":
		return nl.MACVLAN_MODE_VEPA, nil
	case "bridge":
		return nl.MACVLAN_MODE_BRIDGE, nil
	case "passthru":
		return nl.MACVLAN_MODE_PASSTHRU, nil
	}
	return 0, fmt.Errorf("macvlan mode %q: %w", name, ErrUnsupported)
}

func moveLink(sandbox *Namespace, temporary int, link netstate.Link) message {
	request := setLink(temporary, 0)
	request.AddData(nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(sandbox.handle))))
	request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(link.Name)))
	request.AddData(nl.NewRtAttr(unix.IFLA_NEW_IFINDEX, nl.Uint32Attr(uint32(link.Index))))
	return message{request, fmt.Sprintf("move %s to %s", link.Name, sandbox.Path())}
}

// setLink returns a request that changes a device. flags of 0 change no flag.
func setLink(index int, up uint32) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(unix.RTM_SETLINK, 0)
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Index, info.Flags, info.Change = int32(index), up, up
	request.AddData(info)
	return request
}

func deleteLink(index int, name string) message {
	request := nl.NewNetlinkRequest(unix.RTM_DELLINK, 0)
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Index = int32(index)
	request.AddData(info)
	return message{request, "delete " + name}
}

// ConfigureOptions are the options of Configure.
type ConfigureOptions struct {
	// Known says that the IPv6 addresses were this interface's before, so
	// that they are usable at once, without duplicate address detection.
	Known bool
}

// Configure gives the freshly created interface its settings and addresses,
// sets it up, and gives it its routes.
func (n *Namespace) Configure(want netstate.Interface, opts ConfigureOptions) error {
	link, err := n.link(want.Link.Name)
	if err != nil {
		return err
	}
	if err := n.writeSettings(want.Link.Name, want.Settings); err != nil {
		return err
	}
	index := link.Attrs().Index
	var batch []message
	for _, a := range want.Addresses {
		batch = append(batch, addAddress(index, a, opts.Known))
	}
	up, err := setUp(index, want.Link)
	if err != nil {
		return err
	}
	if want.Link.Up {
		batch = append(batch, up)
	}
	for _, r := range want.Routes {
		batch = append(batch, addRoute(index, r, false))
	}
	return n.conn.run(batch...)
}

// setUp sets the device up. A passthru macvlan took the MAC of its parent when
// it was made, whatever it was asked for (macvlan_common_newlink), so that it is
// given its own here.
func setUp(index int, link netstate.Link) (message, error) {
	request := setLink(index, unix.IFF_UP)
	if link.Macvlan != nil && link.Macvlan.Mode == "passthru" && link.MAC != "" {
		attr, err := macAttr(link.MAC)
		if err != nil {
			return message{}, err
		}
		request.AddData(attr)
	}
	return message{request, "set " + link.Name + " up"}, nil
}

// writeSettings writes the interface's sysctls in n.
func (n *Namespace) writeSettings(ifName string, settings map[string]string) error {
	if len(settings) == 0 {
		return nil
	}
	return n.do(func() error {
		var errs []error
		for key, value := range settings {
			family, name := filepath.Split(key)
			path := filepath.Join("/proc/sys/net", family, "conf", ifName, name)
			if err := os.WriteFile(path, []byte(value), 0); err != nil {
				errs = append(errs, fmt.Errorf("set %s of %s to %s: %w", key, ifName, value, err))
			}
		}
		return errors.Join(errs...)
	})
}

// Delete deletes the device of that name, or returns ErrNoDevice.
func (n *Namespace) Delete(ifName string) error {
	link, err := n.link(ifName)
	if err != nil {
		return err
	}
	err = n.conn.run(deleteLink(link.Attrs().Index, ifName))
	if errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%s: %w", ifName, ErrNoDevice)
	}
	return err
}

// EnableIPv6 turns IPv6 on for the device, if the kernel has IPv6 at all.
func (n *Namespace) EnableIPv6(ifName string) error {
	err := n.writeSettings(ifName, map[string]string{"ipv6/disable_ipv6": "0"})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
