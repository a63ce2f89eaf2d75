package adopt

import (
	"context"
	"slices"

	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Tell is for interfaces that are gone or down now. It adds to their checkpoints what the kernel has reported since the
// interfaces were last as recorded. told is by the index of the device. Tell returns how many checkpoints it has
// written. It returns checkpoint.ErrBusy at once if another process works on the sandbox. It does not use Host, Devices
// and Heard.
func (n Renewal) Tell(ctx context.Context, told map[int][]kernel.Told) (written int, err error) {
	err = n.underLock(ctx, func() error {
		for _, id := range n.ContainerIDs {
			records, _ := n.Store.ListSandbox(id)
			for _, record := range records {
				is, differs := withTold(record.Interface, told[record.Interface.Link.Index])
				if !differs || record.Namespace.Same(n.Namespace) != nil {
					continue
				}
				record.Interface, record.CapturedAt = is, stamp()
				if err := n.Store.Save(record); err != nil {
					return err
				}
				written++
			}
		}
		return nil
	})
	return written, err
}

// withTold adds the reports in told to the recorded interface. It changes nothing if the result is not certain:
//
//   - an address went: the kernel drops routes with it, and does not tell them all;
//   - a route came beside another one of its slot: the message does not tell their order;
//   - no kernel would accept the result.
func withTold(recorded netstate.Interface, told []kernel.Told) (is netstate.Interface, differs bool) {
	is = recorded
	is.Addresses, is.Routes = slices.Clone(is.Addresses), slices.Clone(is.Routes)
	for _, t := range told {
		certain := true
		switch {
		case t.Address != nil:
			certain = withAddress(&is, t)
		case t.Route != nil:
			certain = withRoute(&is, t)
		}
		if !certain {
			return recorded, false
		}
	}
	if is.Validate() != nil {
		return recorded, false
	}
	differs = !slices.Equal(is.Addresses, recorded.Addresses) || len(netstate.Diff(is, recorded))+len(netstate.Diff(recorded, is)) > 0
	return is, differs
}

func withAddress(is *netstate.Interface, t kernel.Told) (certain bool) {
	if t.Gone {
		return false
	}
	at := slices.IndexFunc(is.Addresses, func(a netstate.Address) bool { return t.IsOf(kernel.Told{Address: &a}) })
	if at >= 0 { // Its lifetimes may be other ones now.
		is.Addresses[at].ValidUntil, is.Addresses[at].PreferredUntil = t.Address.ValidUntil, t.Address.PreferredUntil
		return true
	}
	// The order is the kernel's: the oldest IPv4 address first, and the newest IPv6 address first.
	at = slices.IndexFunc(is.Addresses, func(a netstate.Address) bool { return a.Prefix.Addr().Is6() })
	if at < 0 {
		at = len(is.Addresses)
	}
	is.Addresses = slices.Insert(is.Addresses, at, *t.Address)
	return true
}

func withRoute(is *netstate.Interface, t kernel.Told) (certain bool) {
	left := slices.DeleteFunc(slices.Clone(is.Routes), func(r netstate.Route) bool { return t.IsOf(kernel.Told{Route: &r}) })
	if !t.Gone {
		if slices.ContainsFunc(left, func(r netstate.Route) bool { return r.Slot() == t.Route.Slot() }) {
			return false
		}
		left = append(left, *t.Route)
	}
	is.Routes = left
	return true
}
