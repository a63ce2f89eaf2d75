package kernel

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/netstate"
)

// routeMove is a route to be taken away for another one, or for itself in another place.
type routeMove struct {
	// index is that of the device of both.
	index    int
	old, new netstate.Route
	// flags say where the new one stands among its equals.
	flags int
}

// moves returns what puts the route where flags say: of an IPv6 multipath route every leg by
// itself.
func (r *routeReader) moves(parsed parsedRoute, flags int) ([]routeMove, error) {
	if len(parsed.hops) == 0 || parsed.Destination.Addr().Is4() {
		named, err := r.named(parsed)
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

// move carries the moves out. The kernel has no request that does it at once. So that the pod
// has the route at every moment, one of a higher metric stands in for it, which also shows
// first that the kernel takes it: if not, nothing is taken away. Where the route can't be made
// after all, what stands in for it stays.
func (n *Namespace) move(moves []routeMove) error {
	if len(moves) == 0 {
		return nil
	}
	standIns := make([]netstate.Route, len(moves))
	var first, exchange []message
	for i, mv := range moves {
		standIns[i] = standIn(mv.new)
		there, err := n.addRoute(mv.index, standIns[i], unix.NLM_F_CREATE|unix.NLM_F_APPEND)
		if err != nil {
			return err
		}
		remove, err := n.deleteRoute(mv.index, mv.old)
		if err != nil {
			return err
		}
		add, err := n.addRoute(mv.index, mv.new, unix.NLM_F_CREATE|mv.flags)
		if err != nil {
			return err
		}
		first, exchange = append(first, there), append(exchange, remove, add)
	}
	stood := n.conn.runEach(first...)
	made := func(i int) bool { return stood[i] == nil } // Otherwise it is somebody's.
	if refused := slices.DeleteFunc(slices.Clone(stood), func(err error) bool { return errors.Is(err, unix.EEXIST) }); errors.Join(refused...) != nil {
		return errors.Join(errors.Join(refused...), n.removeStandIns(moves, standIns, made))
	}
	outcomes := n.conn.runEach(exchange...)
	done := func(i int) bool {
		return made(i) && (outcomes[2*i+1] == nil || errors.Is(outcomes[2*i+1], unix.EEXIST))
	}
	return errors.Join(errors.Join(outcomes...), n.removeStandIns(moves, standIns, done))
}

// standIn returns the route with the next higher metric.
func standIn(r netstate.Route) netstate.Route {
	if r.Priority++; r.Priority == 0 {
		r.Priority -= 2 // It was the highest.
	}
	return r
}

// removeStandIns takes away those of which which says so.
func (n *Namespace) removeStandIns(moves []routeMove, standIns []netstate.Route, which func(int) bool) error {
	var batch []message
	for i, mv := range moves {
		if !which(i) {
			continue
		}
		m, err := n.deleteRoute(mv.index, standIns[i])
		if err != nil {
			return err
		}
		batch = append(batch, m)
	}
	return n.conn.run(batch...)
}

// AddRoutes makes routes of the interface of that index, in the order that it is to have. What
// it has in the slot of one and is none of its routes is replaced by it, but nothing of
// another interface.
func (n *Namespace) AddRoutes(index int, routes []netstate.Route, of netstate.Interface) error {
	own, leaning := byDevice(routes)
	failed := []error{n.addOwnRoutes(index, own, of)}
	for _, device := range sortedKeys(leaning) {
		failed = append(failed, n.addLeaning(device, leaning[device]))
	}
	return errors.Join(failed...)
}

// byDevice returns the routes through the interface itself, and those through others by their
// devices.
func byDevice(routes []netstate.Route) (own []netstate.Route, others map[string][]netstate.Route) {
	others = map[string][]netstate.Route{}
	for _, r := range routes {
		if r.Device == "" {
			own = append(own, r)
			continue
		}
		device := r.Device
		r.Device = ""
		others[device] = append(others[device], r)
	}
	return own, others
}

func (n *Namespace) addOwnRoutes(index int, routes []netstate.Route, of netstate.Interface) error {
	there, err := n.routesOf(index)
	if err != nil {
		return err
	}
	keep := netstate.RoutesOf(of.Routes)
	wrong := slices.DeleteFunc(removable(there), keep.Has)
	return n.addInPlace(index, routes, of.RouteOrder, wrong)
}

// addLeaning makes routes of another interface than the one that has their source. Of IPv6
// they may be there without it: the kernel takes it off with the address.
func (n *Namespace) addLeaning(name string, routes []netstate.Route) error {
	index, err := n.Index(name)
	if err != nil {
		return err
	}
	there, err := n.routesOf(index)
	if err != nil {
		return err
	}
	wanted := netstate.RoutesOf(routes)
	wrong := slices.DeleteFunc(removable(there), func(r netstate.Route) bool { return !wanted.HasHop(r) || wanted.Has(r) })
	return n.addInPlace(index, routes, nil, wrong)
}

func (n *Namespace) routesOf(index int) ([]netstate.Route, error) {
	list, err := n.routes(routeQuery{index: index, families: bothFamilies})
	return list.routes, err
}

// removable returns the routes but those of IPv6 without a gateway that have one with a gateway
// beside them: the kernel would take that one away.
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

// addInPlace makes the routes, each in place of a wrong one in its slot, if there is one.
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
		batch[i].mayExist = true
	}
	return errors.Join(err, n.conn.run(batch...), n.move(moves))
}
