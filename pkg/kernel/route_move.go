package kernel

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// routeExchange replaces a route of the device of that index by another one of the same slot.
type routeExchange struct{ old, new netstate.Route }

// exchange replaces routes of the device of that index. The kernel has no request that replaces a certain one of several
// routes. A route is taken away and made anew in one datagram, which a kill does not cut in two. If the new one cannot be made,
// the old one comes back.
func (n *Namespace) exchange(index int, exchanges []routeExchange) error {
	var errs []error
	for chunk := range slices.Chunk(exchanges, rtnl.MaxBatch/2) {
		var batch, undo []rtnl.Message
		for _, x := range chunk {
			remove, removeErr := n.deleteRoute(index, x.old)
			add, addErr := n.addRoute(index, x.new, placeOf(x.new, true))
			restore, restoreErr := n.addRoute(index, x.old, placeOf(x.old, true))
			if err := errors.Join(removeErr, addErr, restoreErr); err != nil {
				errs = append(errs, err)
				continue
			}
			batch, undo = append(batch, remove, add), append(undo, restore)
		}
		outcomes := n.socket.RunEach(batch...)
		for i, restore := range undo {
			removed, added := outcomes[2*i], outcomes[2*i+1]
			if removed == nil && added != nil && !errors.Is(added, unix.EEXIST) {
				added = errors.Join(added, n.socket.Run(restore))
			}
			errs = append(errs, removed, added)
		}
	}
	return errors.Join(errs...)
}

// AddRoutes makes routes of the interface of that index, in the order of its record.
// If the interface has a route in the same slot that is not in its record, the new route replaces
// it. AddRoutes replaces no route of another interface.
func (n *Namespace) AddRoutes(index int, routes []netstate.Route, record netstate.Interface) error {
	direct, dependent := byDevice(routes)
	failed := []error{n.addAmong(index, direct, netstate.RoutesOf(record.Routes).Has)}
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

// addDependentRoutes makes routes of the device of that name, whose source is an address of another
// interface. In IPv6 they may be there without the source, because the kernel removes only the
// source when the address goes.
func (n *Namespace) addDependentRoutes(name string, routes []netstate.Route) error {
	index, err := n.Index(name)
	if err != nil {
		return err
	}
	wanted := netstate.RoutesOf(routes)
	return n.addAmong(index, routes, func(r netstate.Route) bool { return !wanted.HasHop(r) || wanted.Has(r) })
}

// addAmong makes the routes in place of those that are there and not right.
func (n *Namespace) addAmong(index int, routes []netstate.Route, isRight func(netstate.Route) bool) error {
	present, err := n.routes(routeQuery{index: index, families: bothFamilies})
	if err != nil {
		return err
	}
	return n.addInPlace(index, routes, slices.DeleteFunc(removable(present.routes), isRight))
}

// removable returns the routes that can be taken away one by one. It leaves out an IPv6 route
// without a gateway if the slot has one with a gateway: the kernel would take that one away.
func removable(routes []netstate.Route) []netstate.Route {
	hasGateway := func(r netstate.Route) bool { return r.Gateway.IsValid() || len(r.NextHops) > 0 }
	beside := map[netstate.Slot]bool{}
	for _, r := range routes {
		if hasGateway(r) && r.Is6() {
			beside[r.Slot()] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(routes), func(r netstate.Route) bool { return !hasGateway(r) && beside[r.Slot()] })
}

// addInPlace makes the routes. Each replaces a wrong one in its slot, if there is one.
func (n *Namespace) addInPlace(index int, routes, wrong []netstate.Route) error {
	bySlot := map[netstate.Slot][]netstate.Route{}
	for _, r := range wrong {
		bySlot[r.Slot()] = append(bySlot[r.Slot()], r)
	}
	var exchanges []routeExchange
	var simple []netstate.Route
	for _, r := range netstate.InOrder(routes) {
		old := bySlot[r.Slot()]
		if len(old) == 0 {
			simple = append(simple, r)
			continue
		}
		exchanges, bySlot[r.Slot()] = append(exchanges, routeExchange{old: old[0], new: r}), old[1:]
	}
	batch, err := n.addRoutes(index, simple, true)
	for i := range batch {
		batch[i].MayExist = true
	}
	return errors.Join(err, n.socket.Run(batch...), n.exchange(index, exchanges))
}
