package capture

import (
	"context"
	"slices"

	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// AddEvents is for interfaces that are gone or down now. It adds to their checkpoints what the kernel has reported since the
// interfaces were last as recorded. events is by the index of the device. AddEvents returns how many checkpoints it has
// written. It returns checkpoint.ErrBusy at once if another process works on the sandbox. It does not use Host, Devices
// and LinkHistory.
func (n Renewal) AddEvents(ctx context.Context, events map[int][]kernel.Event) (written int, err error) {
	err = n.underLock(ctx, func() error {
		for _, record := range n.listRecords() {
			updated, differs := applyEvents(record.Interface, events[record.Interface.Link.Index])
			if !differs {
				continue
			}
			record.Interface, record.CapturedAt = updated, captureTime()
			if err := n.Store.Save(record); err != nil {
				return err
			}
			written++
		}
		return nil
	})
	return written, err
}

// applyEvents adds the reports in events to the recorded interface. It changes nothing if the result is not certain:
//
//   - an address went: the kernel drops routes with it, and does not tell them all;
//   - a route came beside another one of its slot: the message does not tell their order;
//   - no kernel would accept the result.
func applyEvents(recorded netstate.Interface, events []kernel.Event) (updated netstate.Interface, differs bool) {
	updated = recorded
	updated.Addresses, updated.Routes = slices.Clone(updated.Addresses), slices.Clone(updated.Routes)
	for _, t := range events {
		certain := true
		switch {
		case t.Address != nil:
			certain = applyAddressEvent(&updated, t)
		case t.Route != nil:
			certain = applyRouteEvent(&updated, t)
		}
		if !certain {
			return recorded, false
		}
	}
	if updated.Validate() != nil {
		return recorded, false
	}
	differs = !slices.Equal(updated.Addresses, recorded.Addresses) || len(netstate.Diff(updated, recorded))+len(netstate.Diff(recorded, updated)) > 0
	return updated, differs
}

func applyAddressEvent(iface *netstate.Interface, t kernel.Event) (certain bool) {
	if t.Deleted {
		return false
	}
	index := slices.IndexFunc(iface.Addresses, func(a netstate.Address) bool { return t.SameObject(kernel.Event{Address: &a}) })
	if index >= 0 { // Its lifetimes may be other ones now.
		iface.Addresses[index].ValidUntil, iface.Addresses[index].PreferredUntil = t.Address.ValidUntil, t.Address.PreferredUntil
		return true
	}
	// The order is the kernel's: the oldest IPv4 address first, and the newest IPv6 address first.
	index = slices.IndexFunc(iface.Addresses, func(a netstate.Address) bool { return a.Prefix.Addr().Is6() })
	if index < 0 {
		index = len(iface.Addresses)
	}
	iface.Addresses = slices.Insert(iface.Addresses, index, *t.Address)
	return true
}

func applyRouteEvent(iface *netstate.Interface, t kernel.Event) (certain bool) {
	routes := slices.DeleteFunc(slices.Clone(iface.Routes), func(r netstate.Route) bool { return t.SameObject(kernel.Event{Route: &r}) })
	if !t.Deleted {
		if slices.ContainsFunc(routes, func(r netstate.Route) bool { return r.Slot() == t.Route.Slot() }) {
			return false
		}
		routes = append(routes, *t.Route)
	}
	iface.Routes = routes
	return true
}
