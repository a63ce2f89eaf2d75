package restore

import (
	"fmt"

	"github.com/relink-cni/relink/pkg/netstate"
)

// addAddress adds an address to an interface of a sandbox or to a device of the host.
type addAddress struct{ address netstate.Address }

func (addAddress) action() Action { return AddAddress }

func (c addAddress) describe(device string) string {
	return fmt.Sprintf("add address %s to %s", c.address, device)
}

func (c addAddress) encode(e *encodedStep) { e.Address = &c.address }

func (c addAddress) run(h *stepRunner, step Step) error {
	return h.changeDevice(step, func(index int) error { return h.namespace.AddAddresses(index, []netstate.Address{c.address}) })
}

func (addAddress) applyAll(w *attachmentRestore, steps []Step) error {
	return w.sandbox.AddAddresses(w.index, collect(steps, func(c addAddress) netstate.Address { return c.address }))
}

// addRoute adds a route to an interface of a sandbox or to a device of the host.
type addRoute struct{ route netstate.Route }

func (addRoute) action() Action { return AddRoute }

func (c addRoute) describe(device string) string {
	return fmt.Sprintf("add route %s to %s", c.route, device)
}

func (c addRoute) encode(e *encodedStep) { e.Route = &c.route }

func (c addRoute) run(h *stepRunner, step Step) error {
	return h.changeDevice(step, func(index int) error {
		return h.namespace.AddRoutes(index, []netstate.Route{c.route}, netstate.Interface{})
	})
}

func (addRoute) applyAll(w *attachmentRestore, steps []Step) error {
	return w.sandbox.AddRoutes(w.index, collect(steps, func(c addRoute) netstate.Route { return c.route }), w.record.Interface)
}

// collect calls value with each change that is a C, and returns the results.
func collect[C change, V any](steps []Step, value func(C) V) (values []V) {
	for _, s := range steps {
		if c, ok := s.change.(C); ok {
			values = append(values, value(c))
		}
	}
	return values
}
