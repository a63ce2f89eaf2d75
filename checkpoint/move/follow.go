package move

import (
	"context"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// differing returns the container IDs of those jobs whose interfaces need a restore. An interface needs none if it is as recorded, but for what
// the pod has changed since the interface has switched. A restore would undo that, so it becomes the record.
func (r *moveRun) differing(ctx context.Context, jobs []*job) (ids []string) {
	whole := make([]bool, len(jobs))
	errs := change.NewRunner(r.Store).Run(ctx, targetsOf(jobs), func(i int) error {
		if !jobs[i].complete {
			return nil
		}
		return r.Store.OpenSandbox(jobs[i].record, func(s *checkpoint.Sandbox) (err error) {
			whole[i], err = r.followPod(jobs[i], s.Record, s.Namespace)
			return err
		})
	})
	for i, j := range jobs {
		if !whole[i] || errs[i] != nil {
			ids = append(ids, j.containerID())
		}
	}
	return ids
}

// followPod saves what the pod has changed, and says whether the interface is as recorded then.
func (r *moveRun) followPod(j *job, record checkpoint.Record, sandbox *kernel.Namespace) (unchanged bool, err error) {
	if record.AnnouncementOwed {
		return false, nil
	}
	live, err := r.capture(sandbox, record.Interface)
	if err != nil || !live.Link.Up {
		return false, err
	}
	if device, err := sandbox.Device(live.Link.Index); err != nil || device.CarrierChanges != j.carrierChanges {
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

// mergePodChanges is a pure function: it returns the recorded interface with the addresses, routes, rules and neighbours that it has now, if
// some of the recorded ones are gone or others. It leaves the routes of other interfaces as recorded: the kernel takes the source off such a
// route when an address goes.
func mergePodChanges(recorded, live netstate.Interface) (followed netstate.Interface, changed bool) {
	if !slices.ContainsFunc(netstate.Diff(recorded, live), func(d netstate.Difference) bool {
		return d.Address != nil || d.Route != nil && d.Route.Device == "" || d.Rule != nil || d.Neighbour != nil
	}) {
		return recorded, false
	}
	followed = recorded
	followed.Addresses, followed.Rules, followed.Neighbours = live.Addresses, live.Rules, live.Neighbours
	isOwn := func(r netstate.Route) bool { return r.Device == "" }
	isOther := func(r netstate.Route) bool { return r.Device != "" }
	followed.Routes = slices.Concat(slices.DeleteFunc(slices.Clone(live.Routes), isOther), slices.DeleteFunc(slices.Clone(recorded.Routes), isOwn))
	return followed, true
}
