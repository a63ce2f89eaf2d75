package kernel

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// routeMove replaces a route by another one, or by itself in another place.
type routeMove struct {
	// index is the index of the device of both routes.
	index    int
	old, new netstate.Route
	// flags say where the new route stands among its equals.
	flags int
}

// moves returns what puts the route where flags say. Each leg of an IPv6 multipath route moves by
// itself.
func (r *routeReader) moves(parsed parsedRoute, flags int) ([]routeMove, error) {
	if len(parsed.hops) == 0 || parsed.Destination.Addr().Is4() {
		named, err := r.withNames(parsed)
		if err != nil {
			return nil, err
		}
		return []routeMove{{r.index, named[0], named[0], flags}}, nil
	}
	var moves []routeMove
	for i, hop := range parsed.NextHops {
		leg := parsed.Route
		leg.NextHops, leg.Unsure = []netstate.NextHop{hop}, i > 0
		moves = append(moves, routeMove{parsed.hops[i], leg, leg, flags})
	}
	return moves, nil
}

// standInProtocol is the protocol number of a route that stands in for another one. It tells such a
// route from any other of the pod. No other program is known to use this number.
const standInProtocol = 114

// movesAtOnce is how many moves go in one datagram. Each takes four requests.
const movesAtOnce = rtnl.MaxBatch / 4

// exchange is one move with its requests, in their order.
type exchange struct {
	routeMove
	addStandIn, remove, add, removeStandIn rtnl.Message
}

// move carries the moves out. The kernel has no single request for a move. So that the pod has the
// route at every moment, a route of a higher metric stands in for it. All requests of a move go in
// one datagram, so that a kill leaves no stand-in behind. The stand-in alone is tried first. If the
// kernel refuses it, no route of the slot is taken away.
func (n *Namespace) move(moves []routeMove) error {
	exchanges, err := n.exchanges(moves)
	if err != nil || len(moves) == 0 {
		return err
	}
	refused, err := n.refused(exchanges)
	failed := []error{err}
	accepted := slices.DeleteFunc(exchanges, func(x exchange) bool { return refused[x.new.Slot()] })
	for chunk := range slices.Chunk(accepted, movesAtOnce) {
		failed = append(failed, n.exchange(chunk))
	}
	return errors.Join(failed...)
}

func (n *Namespace) exchanges(moves []routeMove) ([]exchange, error) {
	var exchanges []exchange
	for _, mv := range moves {
		x, substitute := exchange{routeMove: mv}, standIn(mv.new)
		substitute.Protocol, substitute.Unsure = standInProtocol, false
		var errs [4]error
		x.addStandIn, errs[0] = n.addRoute(mv.index, substitute, unix.NLM_F_CREATE|unix.NLM_F_APPEND)
		x.addStandIn.MayExist = true // In IPv6 somebody may have this route, which can stand in too.
		x.remove, errs[1] = n.deleteRoute(mv.index, mv.old)
		x.add, errs[2] = n.addRoute(mv.index, mv.new, unix.NLM_F_CREATE|mv.flags)
		x.removeStandIn, errs[3] = n.deleteRoute(mv.index, substitute)
		if err := errors.Join(errs[:]...); err != nil {
			return nil, err
		}
		exchanges = append(exchanges, x)
	}
	return exchanges, nil
}

// refused returns the slots in which the kernel refuses a route.
func (n *Namespace) refused(exchanges []exchange) (map[netstate.Slot]bool, error) {
	var try []rtnl.Message
	for _, x := range exchanges {
		try = append(try, x.addStandIn, x.removeStandIn)
	}
	slots, outcomes := map[netstate.Slot]bool{}, n.socket.RunEach(try...)
	for i, err := range outcomes {
		if err != nil {
			slots[exchanges[i/2].new.Slot()] = true
		}
	}
	return slots, errors.Join(outcomes...)
}

// exchange carries out the moves, which must fit one datagram. If a route cannot be made after all,
// one of the next metric takes its place.
func (n *Namespace) exchange(exchanges []exchange) error {
	var batch, last, instead []rtnl.Message
	for _, x := range exchanges {
		batch, last = append(batch, x.addStandIn), append(last, x.removeStandIn)
	}
	for _, x := range exchanges {
		batch = append(batch, x.remove, x.add)
	}
	outcomes := n.socket.RunEach(append(batch, last...)...)
	failed := slices.Clone(outcomes)
	for i, x := range exchanges {
		removed, added := outcomes[len(exchanges)+2*i], outcomes[len(exchanges)+2*i+1]
		if removed != nil || added == nil || errors.Is(added, unix.EEXIST) {
			continue
		}
		m, err := n.addRoute(x.index, standIn(x.new), unix.NLM_F_CREATE|unix.NLM_F_APPEND)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		m.MayExist = true
		instead = append(instead, m)
	}
	return errors.Join(append(failed, n.socket.Run(instead...))...)
}

// standIn returns the route with the next higher metric.
func standIn(r netstate.Route) netstate.Route {
	if r.Priority++; r.Priority == 0 {
		r.Priority -= 2 // The metric was the highest. Take the one below it.
	}
	return r
}

// AddRoutes makes routes of the interface of that index, in the order of its record.
// If the interface has a route in the same slot that is not in its record, the new route replaces
// it. AddRoutes replaces no route of another interface.
func (n *Namespace) AddRoutes(index int, routes []netstate.Route, record netstate.Interface) error {
	direct, dependent := byDevice(routes)
	failed := []error{n.addDirectRoutes(index, direct, record)}
	for _, device := range sortedKeys(dependent) {
		failed = append(failed, n.addDependentRoutes(device, dependent[device]))
	}
	return errors.Join(failed...)
}

// byDevice returns the routes through the interface itself, and those through other devices, by the
// name of the device.
func byDevice(routes []netstate.Route) (direct []netstate.Route, dependent map[string][]netstate.Route) {
	dependent = map[string][]netstate.Route{}
	for _, r := range routes {
		if r.Device == "" {
			direct = append(direct, r)
			continue
		}
		device := r.Device
		r.Device = ""
		dependent[device] = append(dependent[device], r)
	}
	return direct, dependent
}

func (n *Namespace) addDirectRoutes(index int, routes []netstate.Route, record netstate.Interface) error {
	present, err := n.routesOf(index)
	if err != nil {
		return err
	}
	keep := netstate.RoutesOf(record.Routes)
	wrong := slices.DeleteFunc(removable(present), keep.Has)
	return n.addInPlace(index, routes, record.RouteOrder, wrong)
}

// addDependentRoutes makes routes of the device of that name, whose source is an address of another
// interface. In IPv6 they may be there without the source, because the kernel removes only the
// source when the address goes.
func (n *Namespace) addDependentRoutes(name string, routes []netstate.Route) error {
	index, err := n.Index(name)
	if err != nil {
		return err
	}
	present, err := n.routesOf(index)
	if err != nil {
		return err
	}
	wanted := netstate.RoutesOf(routes)
	wrong := slices.DeleteFunc(removable(present), func(r netstate.Route) bool { return !wanted.HasHop(r) || wanted.Has(r) })
	return n.addInPlace(index, routes, nil, wrong)
}

func (n *Namespace) routesOf(index int) ([]netstate.Route, error) {
	list, err := n.routes(routeQuery{index: index, families: bothFamilies})
	return list.routes, err
}

// removable returns the routes that can be taken away one by one. It leaves out an IPv6 route
// without a gateway if the slot has one with a gateway: the kernel would take that one away.
func removable(routes []netstate.Route) []netstate.Route {
	hasGateway := func(r netstate.Route) bool { return r.Gateway.IsValid() || len(r.NextHops) > 0 }
	beside := map[netstate.Slot]bool{}
	for _, r := range routes {
		if hasGateway(r) && r.Destination.Addr().Is6() {
			beside[r.Slot()] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(routes), func(r netstate.Route) bool { return !hasGateway(r) && beside[r.Slot()] })
}

// addInPlace makes the routes. Each replaces a wrong one in its slot, if there is one.
func (n *Namespace) addInPlace(index int, routes []netstate.Route, orders []netstate.Order, wrong []netstate.Route) error {
	bySlot := map[netstate.Slot][]netstate.Route{}
	for _, r := range wrong {
		bySlot[r.Slot()] = append(bySlot[r.Slot()], r)
	}
	var moves []routeMove
	var simple []netstate.Route
	for _, r := range netstate.InOrder(routes) {
		old := bySlot[r.Slot()]
		if len(old) == 0 {
			simple = append(simple, r)
			continue
		}
		moves, bySlot[r.Slot()] = append(moves, routeMove{index: index, old: old[0], new: r}), old[1:]
	}
	batch, err := n.addRoutes(index, simple, orders, true)
	for i := range batch {
		batch[i].MayExist = true
	}
	return errors.Join(err, n.socket.Run(batch...), n.move(moves))
}
