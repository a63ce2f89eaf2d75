package kernel

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// maxCarries is how often the routes or the addresses of an interface are read until it has none. The pod can make new
// ones all the time.
const maxCarries = 16

// errCarrying says that a pod has made routes or addresses faster than they were carried over.
var errCarrying = fmt.Errorf("the pod has added to the old interface during each of %d readings", maxCarries)

// carriedRoute is a route on its way from one interface to another.
type carriedRoute struct {
	route netstate.Route
	// requests are one that replaces the route, or one that makes the new route and one that takes the old one off.
	requests []rtnl.Message
	// offset is where the requests stand in the batch.
	offset int
}

// carryRoutes takes the routes off the interface of the index oldIndex, and makes them routes of the interface of the index
// newIndex. It leaves alone the kernel's own routes.
//
// A route that is alone in its slot is replaced, if it is still there: if the pod has deleted it meanwhile, nothing is
// made. Other routes are made on the new interface and then taken off the old one. If a route is gone by then, the pod has
// deleted it, and the new interface must not have it either, unless the pod had given it that itself.
func (n *Namespace) carryRoutes(oldIndex, newIndex int) error {
	_, err := n.takeRoutes(oldIndex, newIndex)
	return err
}

// takeRoutes is carryRoutes. If newIndex is 0, no interface gets the routes. It returns what it took.
func (n *Namespace) takeRoutes(oldIndex, newIndex int) (removed []netstate.Route, err error) {
	var errs []error
	for range maxCarries {
		list, err := n.routesToCarry(oldIndex)
		if err != nil || len(list.routes) == 0 {
			return removed, errors.Join(append(errs, err)...)
		}
		pending, err := n.carry(oldIndex, newIndex, list)
		before := len(removed)
		errs = append(errs, err)
		for chunk := range slices.Chunk(pending, rtnl.MaxBatch/2) { // A kill between two requests would leave a route on both.
			var batch []rtnl.Message
			for i := range chunk {
				batch = chunk[i].appendTo(batch)
			}
			took, err := n.endCarry(newIndex, chunk, n.socket.RunEach(batch...))
			removed, errs = append(removed, took...), append(errs, err)
		}
		if err := errors.Join(errs...); err != nil && len(removed) == before {
			return removed, err
		}
	}
	return removed, errors.Join(append(errs, errCarrying)...)
}

// routesToCarry returns those routes of the interface that can be taken off now.
func (n *Namespace) routesToCarry(index int) (routeList, error) {
	table, err := n.tableOfVRF(index)
	if err != nil {
		return routeList{}, err
	}
	list, err := n.routes(routeQuery{index: index, families: bothFamilies, table: table, beside: true, toKeep: true})
	list.routes = netstate.InOrder(removable(list.routes))
	return list, err
}

// carry returns the requests for each route. Without newIndex, nothing is made. A route of which no request can be made is left
// out, and its error is returned.
func (n *Namespace) carry(oldIndex, newIndex int, list routeList) (pending []carriedRoute, err error) {
	var errs []error
	for _, r := range list.routes {
		requests, err := n.carryOne(oldIndex, newIndex, r, list)
		if errs = append(errs, err); err == nil {
			pending = append(pending, carriedRoute{route: r, requests: requests})
		}
	}
	return pending, errors.Join(errs...)
}

func (n *Namespace) carryOne(oldIndex, newIndex int, r netstate.Route, list routeList) ([]rtnl.Message, error) {
	var messages requests
	isLeg := len(r.NextHops) > 0 && r.Is6()
	if newIndex != 0 && !isLeg && !list.shared[r.Slot()] {
		messages.add(n.addRoute(newIndex, r, unix.NLM_F_REPLACE))
		return messages.batch, messages.err
	}
	if newIndex != 0 {
		messages.add(n.addRoute(newIndex, r, placeOf(r, true)))
	}
	remove, err := n.deleteRoute(oldIndex, r)
	remove.MayLack = false
	messages.add(remove, err)
	return messages.batch, messages.err
}

// appendTo appends the requests to the batch.
func (c *carriedRoute) appendTo(batch []rtnl.Message) []rtnl.Message {
	c.offset = len(batch)
	return append(batch, c.requests...)
}

// endCarry reads the outcomes of the requests, and sets them to nil. It takes off the new interface what the pod had
// deleted from the old one, and returns what was taken off the old one.
func (n *Namespace) endCarry(newIndex int, pending []carriedRoute, outcomes []error) (took []netstate.Route, err error) {
	var late requests
	for _, c := range pending {
		results := outcomes[c.offset : c.offset+len(c.requests)]
		last := results[len(results)-1]
		created := len(results) == 2 && results[0] == nil
		if len(results) == 2 && !created && !errors.Is(results[0], unix.EEXIST) {
			late.err = errors.Join(late.err, results[0])
		}
		switch {
		case last == nil:
			took = append(took, c.route)
		case !errors.Is(last, unix.ESRCH) && !errors.Is(last, unix.ENOENT):
			late.err = errors.Join(late.err, last)
		case created:
			late.add(n.deleteRoute(newIndex, c.route))
		}
		clear(results)
	}
	return took, late.runOn(n)
}

// carryAddresses takes the addresses off the old interface, until it has none. The new one has those of r.want already.
// It gets what the pod has added since, and loses what the pod has deleted.
func (r *Replacement) carryAddresses() error {
	wanted := r.want.Addresses
	var errs []error
	for range maxCarries {
		list, err := r.sandbox.addresses(r.Old, bothFamilies)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		var late, batch []rtnl.Message
		for _, a := range wanted {
			dropped := !r.overlaps() && a.Is6() // The kernel drops it when the old interface goes down.
			if !dropped && !slices.ContainsFunc(list, a.SameAddress) {
				late = append(late, deleteAddress(r.New, a))
			}
		}
		for i, a := range list {
			if a.Label != "" { // The kernel has renamed it with the interface.
				list[i].Label = r.want.Link.Name
			}
			if !slices.ContainsFunc(wanted, sameLease(a)) {
				batch = append(batch, addAddresses(r.New, list[i:i+1], true)...)
			}
		}
		errs = append(errs, r.sandbox.socket.Run(batch...))
		batch = nil
		for _, a := range slices.Backward(list) { // With the first address of a network, the kernel deletes the others.
			batch = append(batch, deleteAddress(r.Old, a))
		}
		for i, err := range r.sandbox.socket.RunEach(batch...) {
			switch a := list[len(list)-1-i]; {
			case errors.Is(err, unix.EADDRNOTAVAIL):
				late = append(late, deleteAddress(r.New, a))
			case err != nil:
				errs = append(errs, err)
			}
		}
		for _, err := range r.sandbox.socket.RunEach(late...) {
			if !errors.Is(err, unix.EADDRNOTAVAIL) {
				errs = append(errs, err)
			}
		}
		if len(list) == 0 {
			return errors.Join(errs...)
		}
		wanted = nil
	}
	return errors.Join(append(errs, errCarrying)...)
}

// sameLease returns a function that says whether an address is a and ends when a does: a DHCP client can have renewed it.
func sameLease(a netstate.Address) func(netstate.Address) bool {
	return func(address netstate.Address) bool {
		return a.SameAddress(address) && address.ValidUntil == a.ValidUntil && address.PreferredUntil == a.PreferredUntil
	}
}
