package move

import (
	"context"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// followAction looks whether an attachment needs no restore: it is as recorded, but for what the pod has changed since its interface
// has switched. A restore would undo that, so it becomes the record.
type followAction struct {
	*job
	differs bool
}

func (a *followAction) Fail(error) { a.differs = true }

// differing returns the container IDs of those jobs whose interfaces are not as recorded.
func (r *moveRun) differing(ctx context.Context, jobs []*job) (ids []string) {
	var actions []*followAction
	for _, j := range jobs {
		actions = append(actions, &followAction{job: j, differs: !j.complete})
	}
	change.Run(ctx, change.NewRunner(r.Store), actions, func(a *followAction) error {
		if a.differs {
			return nil
		}
		return r.Store.OpenSandbox(a.record, func(s *checkpoint.Sandbox) error {
			unchanged, err := r.followPod(a.job, s.Record, s.Namespace)
			a.differs = !unchanged
			return err
		})
	})
	for _, a := range actions {
		if a.differs {
			ids = append(ids, a.containerID())
		}
	}
	return ids
}

// followPod saves what the pod has changed, and says whether the interface is as recorded then.
func (r *moveRun) followPod(j *job, record checkpoint.Record, sandbox *kernel.Namespace) (unchanged bool, err error) {
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
