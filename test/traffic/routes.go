package traffic

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Routes adds and deletes routes of a pod all the time, as a VPN or a routing program does.
type Routes struct {
	handle   *netlink.Handle
	gateways map[bool]net.IP
	stop     chan struct{}
	ended    sync.WaitGroup
	// has says of each destination whether it is there by what the kernel has acknowledged.
	has map[string]bool
	// Changes counts the acknowledged requests, and Refused the others.
	Changes, Refused int
}

// StartRoutes starts in the namespace of that path. The gateways are those of IPv4 and of IPv6. Every second request names
// the interface eth0, and the others leave it to the kernel to find one.
func StartRoutes(path string, ipv4, ipv6 string) (*Routes, error) {
	at, err := netns.GetFromPath(path)
	if err != nil {
		return nil, err
	}
	handle, err := netlink.NewHandleAt(at, unix.NETLINK_ROUTE)
	if err = errors.Join(err, at.Close()); err != nil {
		return nil, err
	}
	r := &Routes{
		handle: handle, gateways: map[bool]net.IP{true: net.ParseIP(ipv4), false: net.ParseIP(ipv6)}, stop: make(chan struct{}),
		has: map[string]bool{},
	}
	r.ended.Go(r.run)
	return r, nil
}

func (r *Routes) run() {
	for i := 0; ; i++ {
		select {
		case <-r.stop:
			return
		default:
		}
		to := fmt.Sprintf("10.200.%d.0/24", i%41)
		if i%3 == 0 {
			to = fmt.Sprintf("fd00:200:%x::/48", 1+i%41)
		}
		if err := r.change(to, i%2 == 0); err != nil {
			r.Refused++ // As when nobody has the name at this moment. A refused request changes nothing.
			continue
		}
		r.Changes, r.has[to] = r.Changes+1, !r.has[to]
	}
}

// change adds the route, or deletes it if it is there.
func (r *Routes) change(to string, named bool) error {
	_, destination, err := net.ParseCIDR(to)
	if err != nil {
		return err
	}
	route := &netlink.Route{Dst: destination, Gw: r.gateways[destination.IP.To4() != nil], Protocol: unix.RTPROT_STATIC}
	if named {
		link, err := r.handle.LinkByName("eth0")
		if err != nil {
			return err
		}
		route.LinkIndex = link.Attrs().Index
	}
	request := r.handle.RouteAdd
	if r.has[to] {
		request = r.handle.RouteDel
	}
	return request(route)
}

// Stop ends the changes, and returns what differs from what the kernel has acknowledged.
func (r *Routes) Stop() (wrong []string, err error) {
	close(r.stop)
	r.ended.Wait()
	defer r.handle.Close()
	link, err := r.handle.LinkByName("eth0")
	if err != nil {
		return nil, err
	}
	static := &netlink.Route{Table: unix.RT_TABLE_MAIN, Protocol: unix.RTPROT_STATIC}
	list, err := r.handle.RouteListFiltered(netlink.FAMILY_ALL, static, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
	have := map[string]bool{}
	for _, route := range list {
		if have[route.Dst.String()] = true; route.LinkIndex != link.Attrs().Index {
			wrong = append(wrong, fmt.Sprintf("%s goes through the device with index %d", route.Dst, route.LinkIndex))
		}
	}
	for to := range maps.Keys(r.has) {
		switch {
		case r.has[to] == have[to]:
		case have[to]:
			wrong = append(wrong, to+" has come back")
		default:
			wrong = append(wrong, to+" is lost")
		}
	}
	return wrong, err
}
