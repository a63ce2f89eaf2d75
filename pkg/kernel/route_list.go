package kernel

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// maxKept is how many routes of an interface are kept of each family. It is the limit too for
// everything else of which a pod can make as much as it likes. A restore makes all of it under a
// lock that every pod of the node needs.
const maxKept = 4096

// routeQuery says which routes to read.
type routeQuery struct {
	index    int
	families []int
	// table is the table of the VRF of the device, 0 for none.
	table uint32
	// beside reads the routes of all devices: which slots the device shares, which of its routes stand first there, and the
	// routes of other devices that have one of addresses as their source. Without it, the kernel tells only of the routes
	// through the device.
	beside    bool
	addresses []netstate.Address
	// toKeep leaves out what a checkpoint cannot keep, and notes it.
	toKeep bool
}

// routeList is what was read.
type routeList struct {
	routes []netstate.Route
	// shared are the slots in which several routes compete. Only a query with beside fills it. The legs of an IPv6 multipath
	// route are one route of the kernel's list.
	shared map[netstate.Slot]bool
	// kernels are the prefixes of the routes that the kernel made of addresses.
	kernels []netip.Prefix
	notes   []string
}

// routeReader is the state of one reading.
type routeReader struct {
	*Namespace
	routeQuery
	sources map[netip.Addr]bool
	names   map[int]string
	// family is the family that is read now.
	family  int
	kept    []parsedRoute
	count   int
	kernels []netip.Prefix
	notes   []string
	// counted are the notes on what is left out and only counted.
	counted map[string]int
	// slots is how many routes each slot has.
	slots map[netstate.Slot]int
}

// routes returns the routes through the device that somebody made, and notes those that cannot be
// described. It leaves out the routes that the kernel makes by itself: they follow from the
// addresses, or come again with router advertisements. The kernel makes them in the main table, in
// the local table, or in the table of the VRF.
func (n *Namespace) routes(q routeQuery) (routeList, error) {
	if q.beside && len(q.addresses) == 0 {
		// A pod can have many devices without routes. The list of all its routes is not read for
		// each of them.
		alone := q
		alone.beside = false
		if list, err := n.routes(alone); err != nil || len(list.routes) == 0 {
			return list, err
		}
	}
	list := routeList{shared: map[netstate.Slot]bool{}}
	for _, family := range q.families {
		r := &routeReader{Namespace: n, routeQuery: q, family: family, names: map[int]string{}, sources: map[netip.Addr]bool{}}
		for _, a := range q.addresses {
			r.sources[a.Prefix.Addr()] = true
		}
		if err := r.read(); err != nil {
			return list, err
		}
		if err := r.appendTo(&list); err != nil {
			return list, err
		}
	}
	return list, nil
}

func (r *routeReader) read() error {
	through := r.index
	if r.beside {
		through = 0
	}
	reset := func() {
		r.count, r.kernels, r.notes, r.kept = 0, nil, nil, nil
		r.counted, r.slots = map[string]int{}, map[netstate.Slot]int{}
	}
	return r.socket.Dump(getRoutes(r.family, through), reset, func(payload []byte) error {
		route, err := parseRoute(payload)
		if err == nil && !route.skip {
			r.classify(route)
		}
		return err
	})
}

// classify puts a route where it belongs.
func (r *routeReader) classify(route parsedRoute) {
	owned := route.uses(r.index)
	daemon := netstate.DaemonOf(route.Protocol)
	kernels := route.isKernelRoute(r.table)
	if r.beside {
		slot := route.Slot()
		route.First = r.slots[slot] == 0 && r.family == unix.AF_INET
		r.slots[slot]++
	}
	switch {
	case !owned:
		if r.beside && daemon == "" && !kernels && !route.encapsulated && r.sources[route.Source] && route.Table != unix.RT_TABLE_LOCAL {
			r.keep(route)
		}
	case kernels:
		r.kernels = append(r.kernels, route.Destination)
	case daemon != "" && (r.toKeep || len(route.hops) == 0): // The kernel does not tell the protocol of a single leg in IPv6.
		r.counted["routes of "+daemon+", which makes them itself"]++
	case route.encapsulated: // Without its encapsulation it would send packets another way.
		r.note(fmt.Sprintf("route %s: its encapsulation", route.Route))
	case route.expires && r.toKeep:
		r.note(fmt.Sprintf("route %s: it has a lifetime", route.Route))
	default:
		r.keep(route)
	}
}

// maxNotes is how many routes are noted one by one.
const maxNotes = 20

func (r *routeReader) note(note string) {
	if len(r.notes) < maxNotes {
		r.notes = append(r.notes, note)
		return
	}
	r.counted["more routes like these"]++
}

func (r *routeReader) keep(route parsedRoute) {
	route.place = r.count
	r.kept = append(r.kept, route)
	r.count++
	if len(r.kept) == 2*maxKept {
		r.limit()
	}
}

// limit leaves out the routes of the highest rank that are too many.
func (r *routeReader) limit() {
	if surplus := len(r.kept) - maxKept; r.toKeep && surplus > 0 {
		slices.SortStableFunc(r.kept, func(a, b parsedRoute) int { return a.rank() - b.rank() })
		r.kept = r.kept[:maxKept]
		family := "IPv4"
		if r.family == unix.AF_INET6 {
			family = "IPv6"
		}
		r.counted[fmt.Sprintf("%s routes beyond the %d that are kept of an interface", family, maxKept)] += surplus
	}
}

// rank is low for routes that are left out last: those of the main table with the widest prefixes.
// A pod is given such routes. What it can have many of are routes to single addresses.
func (r parsedRoute) rank() int {
	if r.Table == unix.RT_TABLE_MAIN {
		return r.Destination.Bits()
	}
	return 1000 + r.Destination.Bits()
}

// appendTo adds what was read to the list.
func (r *routeReader) appendTo(list *routeList) error {
	r.limit()
	slices.SortFunc(r.kept, func(a, b parsedRoute) int { return a.place - b.place })
	for _, parsed := range r.kept {
		if parsed.First && r.slots[parsed.Slot()] == 1 {
			parsed.First, parsed.Uncontested = false, true
		}
		routes, err := r.withNames(parsed)
		if err != nil {
			return err
		}
		list.routes = append(list.routes, r.keepable(parsed, routes)...)
		for _, lost := range parsed.undescribable {
			r.note(fmt.Sprintf("route %s: its %s", parsed.Route, lost))
		}
	}
	list.kernels = append(list.kernels, r.kernels...)
	for slot, count := range r.slots {
		if count > 1 {
			list.shared[slot] = true
		}
	}
	if r.toKeep {
		list.notes = append(list.notes, r.notes...)
		for _, note := range sortedKeys(r.counted) {
			list.notes = append(list.notes, fmt.Sprintf("%s: %d", note, r.counted[note]))
		}
	}
	return nil
}

// keepable returns the routes, without those through a device whose name cannot stand in a
// checkpoint.
func (r *routeReader) keepable(parsed parsedRoute, routes []netstate.Route) []netstate.Route {
	return slices.DeleteFunc(routes, func(route netstate.Route) bool {
		bad := invalidName(route.Devices()...)
		if bad != "" && r.toKeep {
			r.note(fmt.Sprintf("route %s: it goes through %s", parsed.Route, bad))
		}
		return bad != "" && r.toKeep
	})
}

// withNames returns the route with the names of the other devices that it goes through. Of an IPv6
// multipath route it returns each leg of the interface as a route of its own.
func (r *routeReader) withNames(parsed parsedRoute) ([]netstate.Route, error) {
	route := parsed.Route
	route.NextHops = slices.Clone(route.NextHops)
	for i, hop := range parsed.hops {
		name, err := r.nameOf(hop)
		if err != nil {
			return nil, fmt.Errorf("next hop of route %s: %w", parsed.Route, err)
		}
		route.NextHops[i].Device = name
	}
	if parsed.oif != 0 {
		name, err := r.nameOf(parsed.oif)
		if err != nil {
			return nil, fmt.Errorf("route %s: %w", parsed.Route, err)
		}
		route.Device = name
	}
	if len(parsed.hops) == 0 || !route.Is6() {
		return []netstate.Route{route}, nil
	}
	return r.legs(parsed, route), nil
}

// legs returns the legs that belong in the interface's record.
func (r *routeReader) legs(parsed parsedRoute, route netstate.Route) []netstate.Route {
	var legs []netstate.Route
	for i, hop := range route.NextHops {
		if hop.Device != "" && parsed.uses(r.index) {
			continue // It belongs in the record of the other interface.
		}
		leg := route
		leg.Device, hop.Device = hop.Device, ""
		leg.NextHops, leg.Unsure = []netstate.NextHop{hop}, i > 0
		legs = append(legs, leg)
	}
	return legs
}

// nameOf returns the name of a device. It is empty for the interface itself.
func (r *routeReader) nameOf(index int) (string, error) {
	if index == r.index {
		return "", nil
	}
	if _, ok := r.names[index]; !ok {
		name, err := r.NameOf(index)
		if err != nil {
			return "", err
		}
		r.names[index] = name
	}
	return r.names[index], nil
}

// getRoutes returns the request for the routes through the device of that index. Index 0 means all
// routes.
func getRoutes(family, index int) rtnl.Message {
	m := newMessage(unix.RTM_GETROUTE, 0, "list routes", ofFamily(family))
	addFields(m, field{unix.RTA_OIF, &index})
	return m
}

// ofFamily is the header of a request for routes or rules of that family.
func ofFamily(family int) *nl.RtMsg { return &nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family)}} }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
