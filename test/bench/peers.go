package main

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// maxRSS returns the highest resident memory of an ended process, in KiB.
func maxRSS(p *os.ProcessState) int64 {
	if usage, ok := p.SysUsage().(*syscall.Rusage); ok {
		return usage.Maxrss
	}
	return 0
}

// inNamespace calls f in the namespace at the path.
func inNamespace(path string, f func(at netns.NsHandle) error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := netns.Get()
	if err != nil {
		return err
	}
	defer func() { _ = own.Close() }()
	at, err := netns.GetFromPath(path)
	if err != nil {
		return err
	}
	defer func() { _ = at.Close() }()
	if err := netns.Set(at); err != nil {
		return err
	}
	err = f(at)
	if back := netns.Set(own); back != nil {
		panic(back)
	}
	return err
}

// parentIndices returns the indices of the parents by name.
func (n *node) parentIndices() (map[string]int, error) {
	indices := map[string]int{}
	for i := 0; i < len(n.sandboxes); i += min(n.perParent, len(n.sandboxes)) {
		parent, err := netlink.LinkByName(n.parentName(i))
		if err != nil {
			return nil, err
		}
		indices[n.parentName(i)] = parent.Attrs().Index
	}
	return indices, nil
}

// byLibrary makes the calls of the netlink library that i40e_net_fix makes for each pod, one after the other. It looks
// up the parents, makes the macvlan under a temporary name and sets its proxy_arp. It looks up the macvlan again before
// and after it sets the name and the MAC. It does so once more before it sets the link up and adds the address and the
// route. The last step of i40e_net_fix is left out. That step is a gratuitous ARP over a socket of its own for each
// pod, and closing such a socket takes an RCU grace period.
func byLibrary(n *node) error {
	for i, s := range n.sandboxes {
		if _, err := netlink.LinkByName(s.parent); err != nil { // The bond.
			return err
		}
		parent, err := netlink.LinkByName(s.parent) // The VLAN on it.
		if err != nil {
			return err
		}
		at, err := netns.GetFromPath(s.path)
		if err != nil {
			return err
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.ParentIndex, attrs.Namespace = fmt.Sprintf("tmp%d", i), parent.Attrs().Index, netlink.NsFd(at)
		attrs.MTU = s.iface.Link.MTU
		err = netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE})
		_ = at.Close()
		if err != nil {
			return err
		}
		if err := inNamespace(s.path, func(netns.NsHandle) error { return nameByLibrary(attrs.Name, s) }); err != nil {
			return err
		}
		if err := inNamespace(s.path, func(netns.NsHandle) error { return configureByLibrary(s) }); err != nil {
			return err
		}
	}
	return nil
}

// nameByLibrary gives the new macvlan the name and the MAC of the pod's interface.
func nameByLibrary(temporary string, s sandbox) error {
	if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+temporary+"/proxy_arp", []byte("1"), 0); err != nil {
		return err
	}
	link, err := netlink.LinkByName(temporary)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetName(link, "eth0"); err != nil {
		return err
	}
	if link, err = netlink.LinkByName("eth0"); err != nil {
		return err
	}
	mac, err := net.ParseMAC(s.iface.Link.MAC)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetHardwareAddr(link, mac); err != nil {
		return err
	}
	_, err = netlink.LinkByName("eth0")
	return err
}

// configureByLibrary sets the interface up and adds its address and its route.
func configureByLibrary(s sandbox) error {
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	address, err := netlink.ParseAddr(s.iface.Addresses[0].Prefix.String())
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(link, address); err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: s.iface.Routes[0].Gateway.AsSlice()})
}

// byBatches is the floor. It sends one datagram in each sandbox, which makes the link, sets it up, and adds the address
// and the route. It has no checkpoint and no plan, and reads only the acknowledgements. (Kernels before 6.15 make the
// link in the host that way and move it.)
func byBatches(n *node) error {
	parents, err := n.parentIndices()
	if err != nil {
		return err
	}
	own, err := netns.Get()
	if err != nil {
		return err
	}
	defer func() { _ = own.Close() }()
	for _, s := range n.sandboxes {
		var socket int
		err := inNamespace(s.path, func(netns.NsHandle) (err error) {
			socket, err = routeSocket()
			return err
		})
		if err != nil {
			return err
		}
		var id int
		if id, err = hostID(socket, own); err == nil {
			err = send(socket, append([]*nl.NetlinkRequest{create(parents[s.parent], id, s)}, configure(s)...)...)
		}
		_ = unix.Close(socket)
		if err != nil {
			return fmt.Errorf("%s: %w", s.path, err)
		}
	}
	return nil
}

// hostID asks for the number by which the socket's namespace knows the host's namespace. A sandbox has such a number if
// it had an interface on a parent in the host.
func hostID(socket int, own netns.NsHandle) (int, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETNSID, 0)
	request.AddData(nl.NewRtGenMsg())
	request.AddData(nl.NewRtAttr(unix.NETNSA_FD, nl.Uint32Attr(uint32(own))))
	if err := unix.Sendto(socket, request.Serialize(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	buf := make([]byte, 4096)
	size, _, err := unix.Recvfrom(socket, buf, 0)
	if err != nil {
		return 0, err
	}
	attrs, err := nl.ParseRouteAttr(buf[unix.SizeofNlMsghdr+4 : size])
	for _, a := range attrs {
		if a.Attr.Type == unix.NETNSA_NSID {
			return int(int32(nl.NativeEndian().Uint32(a.Value))), nil
		}
	}
	return 0, err
}

func routeSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return 0, err
	}
	return fd, unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

// send sends the requests in one datagram and reads the acknowledgement of each.
func send(socket int, requests ...*nl.NetlinkRequest) error {
	var batch []byte
	for _, r := range requests {
		r.Flags |= unix.NLM_F_ACK
		batch = append(batch, r.Serialize()...)
	}
	if err := unix.Sendto(socket, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, 4096)
	for acked := 0; acked < len(requests); {
		size, _, err := unix.Recvfrom(socket, buf, 0)
		if err != nil {
			return err
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:size])
		if err != nil {
			return err
		}
		for _, m := range messages {
			if errno := int32(nl.NativeEndian().Uint32(m.Data)); errno != 0 {
				return syscall.Errno(-errno)
			}
			acked++
		}
	}
	return nil
}

func create(parent, hostID int, s sandbox) *nl.NetlinkRequest {
	mac, _ := net.ParseMAC(s.iface.Link.MAC)
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Index, info.Flags, info.Change = 2, unix.IFF_UP, unix.IFF_UP
	request.AddData(info)
	request.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated("eth0")))
	request.AddData(nl.NewRtAttr(unix.IFLA_LINK, nl.Uint32Attr(uint32(parent))))
	request.AddData(nl.NewRtAttr(unix.IFLA_LINK_NETNSID, nl.Uint32Attr(uint32(hostID))))
	request.AddData(nl.NewRtAttr(unix.IFLA_ADDRESS, mac))
	linkInfo := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	linkInfo.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("macvlan"))
	linkInfo.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(nl.IFLA_MACVLAN_MODE, nl.Uint32Attr(nl.MACVLAN_MODE_BRIDGE))
	request.AddData(linkInfo)
	return request
}

func configure(s sandbox) []*nl.NetlinkRequest {
	prefix := s.iface.Addresses[0].Prefix
	address := nl.NewNetlinkRequest(unix.RTM_NEWADDR, unix.NLM_F_CREATE)
	info := nl.NewIfAddrmsg(unix.AF_INET)
	info.Index, info.Prefixlen = 2, uint8(prefix.Bits())
	address.AddData(info)
	address.AddData(nl.NewRtAttr(unix.IFA_LOCAL, prefix.Addr().AsSlice()))

	route := nl.NewNetlinkRequest(unix.RTM_NEWROUTE, unix.NLM_F_CREATE)
	m := nl.NewRtMsg()
	m.Family = unix.AF_INET
	route.AddData(m)
	route.AddData(nl.NewRtAttr(unix.RTA_GATEWAY, s.iface.Routes[0].Gateway.AsSlice()))
	route.AddData(nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(2)))
	return []*nl.NetlinkRequest{address, route}
}
