package move

import (
	"context"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// isAsRecorded says that the attachment needs no restore: it is as recorded, but for what the pod has changed since its interface
// has switched. A restore would undo that, so isAsRecorded makes it the record.
func (r *moveRun) isAsRecorded(ctx context.Context, j *job) bool {
	if !j.complete {
		return false
	}
	same := false
	err := r.Store.WithSandbox(ctx, j.record, func(s *checkpoint.Sandbox) (err error) {
		same, err = r.followPod(j, s.Record, s.Namespace)
		return err
	})
	return err == nil && same
}

// followPod saves what the pod has changed, and says whether the interface is as recorded then.
func (r *moveRun) followPod(j *job, record checkpoint.Record, sandbox *kernel.Namespace) (same bool, err error) {
	if record.AnnouncementOwed {
		return false, nil
	}
	live, err := kernel.Capture(r.host, sandbox, r.devices, record.Interface.Link.Name, replacementExtent(record.Interface))
	if err != nil || !live.Link.Up {
		return false, err
	}
	if changes, err := sandbox.CarrierChanges(live.Link.Index); err != nil || changes != j.carrierChanges {
		return false, err // It can have been down: the kernel has taken its routes then, and not the pod.
	}
	followed, changed := mergePodChanges(record.Interface, live)
	if changed {
		record.Interface = followed
		if err := r.Store.Save(record); err != nil {
			return false, err
		}
	}
	wanted, err := r.Store.Effective(record, sandbox.Exists)
	return len(netstate.Diff(wanted, live)) == 0, err
}

// mergePodChanges is a pure function: it returns the recorded interface without the addresses, routes, rules and neighbours that
// it does not have any more, and with those that have replaced them. It leaves a route of another interface in the record:
// the kernel takes the source off such a route when an address goes.
func mergePodChanges(recorded, live netstate.Interface) (followed netstate.Interface, changed bool) {
	followed = recorded
	for _, d := range netstate.Diff(recorded, live) {
		switch {
		case d.Address != nil:
			followed.Addresses = replaceEntries(followed.Addresses, d.Address.SameAddress, live.Addresses, d.Address.SameAddress)
		case d.Route != nil && d.Route.Device == "":
			existing := netstate.RoutesOf(recorded.Routes)
			followed.Routes = replaceEntries(followed.Routes, d.Route.Equal, live.Routes, func(r netstate.Route) bool {
				return r.SameSlot(*d.Route) && r.Device == "" && !existing.Has(r)
			})
		case d.Rule != nil:
			followed.Rules = replaceEntries(followed.Rules, d.Rule.Equal, nil, nil)
		case d.Neighbour != nil:
			sameAddress := func(n netstate.Neighbour) bool { return n.Address == d.Neighbour.Address }
			followed.Neighbours = replaceEntries(followed.Neighbours, sameAddress, live.Neighbours, sameAddress)
		default:
			continue
		}
		changed = true
	}
	return followed, changed
}

// replaceEntries returns the list without what is out, and with those of live that are in.
func replaceEntries[T any](list []T, out func(T) bool, live []T, include func(T) bool) []T {
	list = slices.DeleteFunc(slices.Clone(list), out)
	for _, item := range live {
		if include(item) {
			list = append(list, item)
		}
	}
	return list
}
