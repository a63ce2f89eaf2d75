package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// hasPlace says that the order of the route among those of its slot has to be kept. It has not for
// routes that come and go by themselves. It has not for routes of link-local addresses either,
// because whoever uses these also names the device.
func (r parsedRoute) hasPlace() bool {
	return len(r.devices()) > 0 && r.Table != unix.RT_TABLE_LOCAL && !r.expires &&
		r.Protocol != unix.RTPROT_RA && r.Protocol != unix.RTPROT_REDIRECT &&
		!r.Destination.Addr().IsLinkLocalUnicast() && !r.Destination.Addr().IsMulticast()
}

// devices are the indices of the devices that the route goes through.
func (r parsedRoute) devices() []int {
	if r.oif != 0 {
		return []int{r.oif}
	}
	return r.hops
}

// isGateways says that the kernel makes one route of this one and of the others in its slot that
// have a gateway.
func (r parsedRoute) isGateways() bool {
	return r.Destination.Addr().Is6() && (r.Gateway.IsValid() || len(r.hops) > 0)
}

// slotReader collects, from the kernel's list, the slots that have several routes of which some are
// the device's. In the list, the routes of one slot follow each other.
type slotReader struct {
	slot     netstate.Slot
	routes   []parsedRoute
	count    int
	owned    bool
	complete [][]parsedRoute
	// tooMany are the slots that have too many routes to keep their order.
	tooMany []netstate.Slot
	places  int
}

func (s *slotReader) add(r parsedRoute, owned bool) {
	if slot := r.Slot(); slot != s.slot {
		s.flush()
		s.slot = slot
	}
	s.count++
	s.owned = s.owned || owned
	if s.count <= maxPlaces {
		s.routes = append(s.routes, r)
	}
}

func (s *slotReader) flush() {
	switch {
	case !s.owned || s.count < 2:
	case s.count > maxPlaces || s.places+s.count > maxKept:
		s.tooMany = append(s.tooMany, s.slot)
	default:
		s.complete = append(s.complete, slices.Clone(s.routes))
		s.places += s.count
	}
	s.routes, s.count, s.owned = s.routes[:0], 0, false
}

// shared returns the slots in which the device is not alone. The legs of an IPv6 multipath route are one route of the list.
func (s *slotReader) shared() map[netstate.Slot]bool {
	slots := map[netstate.Slot]bool{}
	for _, routes := range s.complete {
		slots[routes[0].Slot()] = true
	}
	for _, slot := range s.tooMany {
		slots[slot] = true
	}
	return slots
}

// appendOrders adds the orders that were read to the list.
func (r *routeReader) appendOrders(list *routeList) error {
	for _, routes := range r.slots.complete {
		order, bad := netstate.Order{Slot: routes[0].Slot()}, ""
		for _, parsed := range routes {
			place, err := r.place(parsed)
			if err != nil {
				return err
			}
			order.Routes = append(order.Routes, place)
			bad = cmp.Or(bad, invalidName(netstate.Route{Device: place.Device, NextHops: place.NextHops}.Devices()...))
		}
		if bad != "" && r.toKeep {
			list.notes = append(list.notes, fmt.Sprintf("the order of the routes %s: one goes through %s", order.Slot, bad))
			continue
		}
		list.orders = append(list.orders, order)
	}
	if skipped := r.slots.tooMany; len(skipped) > 0 && r.toKeep {
		list.notes = append(list.notes, fmt.Sprintf("the order of routes of one slot where there are more than %d, as of %s: %d", maxPlaces, skipped[0], len(skipped)))
	}
	return nil
}

func (r *routeReader) place(parsed parsedRoute) (netstate.Place, error) {
	if parsed.isGateways() {
		return netstate.Place{Gateways: true}, nil
	}
	named, err := r.withNames(parsed)
	if err != nil {
		return netstate.Place{}, err
	}
	route := named[0]
	return netstate.Place{Device: route.Device, Gateway: route.Gateway, Source: route.Source, NextHops: route.NextHops}, nil
}

// OrderRoutes puts the routes of the slots in the recorded orders, as far as the routes are there.
// It moves a route of another device only if movable says that it may. Whatever fails, no route is
// lost. It returns ErrNoDevice if the interface is not there.
func (n *Namespace) OrderRoutes(name string, orders []netstate.Order, movable func(device string) bool) error {
	index, err := n.Index(name)
	if err != nil {
		return err
	}
	r := &routeReader{Namespace: n, routeQuery: routeQuery{index: index}, names: map[int]string{}}
	routes, err := r.slotsOf(orders)
	if err != nil {
		return err
	}
	var moves []routeMove
	var failed []error
	movable = memoized(movable)
	for _, order := range orders {
		slotMoves, err := r.inOrder(order, routes[order.Slot], movable)
		if err != nil {
			failed = append(failed, fmt.Errorf("put routes in order, %s: %w", order, err))
			continue
		}
		moves = append(moves, slotMoves...)
	}
	return errors.Join(append(failed, n.move(moves))...)
}

// memoized returns a function that asks only once for each device.
func memoized(ask func(string) bool) func(string) bool {
	answers := map[string]bool{}
	return func(device string) bool {
		if _, ok := answers[device]; !ok {
			answers[device] = ask(device)
		}
		return answers[device]
	}
}

// inOrder returns the moves that put the routes of one slot in order.
func (r *routeReader) inOrder(order netstate.Order, routes []parsedRoute, movable func(device string) bool) ([]routeMove, error) {
	var places []netstate.Place
	for _, route := range routes {
		place, err := r.place(route)
		if err != nil {
			return nil, err
		}
		places = append(places, place)
	}
	front, back := order.Moves(places, order.Destination.Addr().Is4())
	slices.Reverse(front)
	var moves []routeMove
	for i, place := range slices.Concat(front, back) {
		if err := r.checkMove(routes[place], routes, movable); err != nil {
			return nil, err
		}
		flags := unix.NLM_F_APPEND
		if i < len(front) {
			flags = 0 // It stands before its equals.
		}
		routeMoves, err := r.moves(routes[place], flags)
		if err != nil {
			return nil, err
		}
		moves = append(moves, routeMoves...)
	}
	return moves, nil
}

// slotsOf returns the routes of the orders' slots that have a place, in the order of the kernel's
// list. It reads each table once.
func (r *routeReader) slotsOf(orders []netstate.Order) (map[netstate.Slot][]parsedRoute, error) {
	type table struct {
		family int
		number uint32
	}
	tables := map[table]map[netstate.Slot]bool{}
	for _, order := range orders {
		key := table{unix.AF_INET, order.Table}
		if order.Destination.Addr().Is6() {
			key.family = unix.AF_INET6
		}
		if tables[key] == nil {
			tables[key] = map[netstate.Slot]bool{}
		}
		tables[key][order.Slot] = true
	}
	bySlot := map[netstate.Slot][]parsedRoute{}
	for key, slots := range tables {
		routes, err := r.inTable(key.family, key.number, slots)
		if err != nil {
			return nil, err
		}
		for _, route := range routes {
			bySlot[route.Slot()] = append(bySlot[route.Slot()], route)
		}
	}
	return bySlot, nil
}

// inTable returns the routes of the slots of one table that have a place.
func (r *routeReader) inTable(family int, number uint32, slots map[netstate.Slot]bool) (routes []parsedRoute, err error) {
	request := getRoutes(family, 0)
	request.AddData(nl.NewRtAttr(unix.RTA_TABLE, nl.Uint32Attr(number)))
	err = r.socket.Dump(rtnl.Message{Request: request, Action: "list routes"}, func() { routes = nil }, func(payload []byte) error {
		route, err := parseRoute(payload)
		if err == nil && !route.skip && slots[route.Slot()] && route.hasPlace() && netstate.DaemonOf(route.Protocol) == "" {
			routes = append(routes, route)
		}
		return err
	})
	if errors.Is(err, unix.ENOENT) {
		err = nil // The table is not there.
	}
	return routes, err
}

// checkMove returns an error if the route cannot be taken away and made again.
func (r *routeReader) checkMove(route parsedRoute, routes []parsedRoute, movable func(device string) bool) error {
	if len(route.undescribable) > 0 {
		return fmt.Errorf("route %s cannot be made again: its %s cannot be described", route.Route, route.undescribable[0])
	}
	if len(route.hops) > 0 && route.isGateways() && (route.Source.IsValid() || metrics(route.Route) != nil) {
		return fmt.Errorf("route %s cannot be made again: the kernel tells the source and metrics of only one of its legs", route.Route)
	}
	for _, device := range route.devices() {
		name, err := r.nameOf(device)
		if err != nil {
			return err
		}
		if name != "" && !movable(name) {
			return fmt.Errorf("route %s of %s is in no checkpoint", route.Route, quoted(name))
		}
	}
	// If it were to delete a route without a gateway, the kernel would delete the first route of
	// the device.
	withGateway := func(candidate parsedRoute) bool {
		return candidate.isGateways() && slices.Contains(candidate.devices(), route.oif)
	}
	if route.Destination.Addr().Is6() && !route.isGateways() && slices.ContainsFunc(routes, withGateway) {
		return fmt.Errorf("route %s cannot be told apart from another route of the device", route.Route)
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
