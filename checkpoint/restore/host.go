package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

// parents waits for the bases. Then it brings back the devices between them and the
// interfaces.
func (r *run) parents(ctx context.Context, records []checkpoint.Record) error {
	for start := time.Now(); ; {
		if err := r.waitForBases(ctx, records, start); err != nil {
			return err
		}
		done, err := r.onHostAlone(ctx, records, start)
		if done || err != nil {
			return err
		}
	}
}

// onHostAlone changes the host's devices, under the lock that keeps other restores off. done is false
// if there is something to wait for again: nobody waits under the lock.
func (r *run) onHostAlone(ctx context.Context, records []checkpoint.Record, start time.Time) (done bool, err error) {
	if !r.DryRun && (len(r.plan.Steps()) > 0 || r.HostAddresses) {
		if ctx.Err() != nil {
			r.report.problem("interrupted before anything was done to the host's devices")
			return true, r.withHostAsItIs(records)
		}
		unlock, err := r.lockHost(ctx)
		if err != nil {
			r.report.problem(printable.Joined(err) + ": nothing is done to the host's devices")
			return true, r.withHostAsItIs(records)
		}
		defer unlock()
		if wait, err := r.look(ctx, records, start); wait || err != nil {
			return false, err
		}
	}
	if err := r.changeHost(records); err != nil {
		return false, err
	}
	r.planAfter(records)
	return true, r.own(records)
}

// withHostAsItIs goes on with the devices that are there. Sandboxes on them can be restored.
func (r *run) withHostAsItIs(records []checkpoint.Record) (err error) {
	if r.devices, err = r.host.Devices(); err == nil {
		r.seen = r.devices
		r.planAfter(records)
	}
	return err
}

// planAfter plans again on the devices as they are after the first plan. It reports the steps that
// were not done.
func (r *run) planAfter(records []checkpoint.Record) {
	r.after.plan = NewParentPlan(r.devices, r.recorded, ParentOptions{Mapped: r.Mapped})
	for i := range records {
		if record := &records[i]; onHost(record) {
			r.after.plan.chain(record.Interface.Parents)
		}
	}
	for _, text := range framesTaken(r.devices, parentNames(records)) {
		r.report.problem(text)
	}
	for _, step := range r.after.plan.Steps() {
		r.report.problem(fmt.Sprintf("not done: %s: %s", step, step.Reason))
	}
}

// parentNames are the names of all parents that the records have in the host.
func parentNames(records []checkpoint.Record) map[string]bool {
	names := map[string]bool{}
	for i := range records {
		for _, p := range records[i].Interface.Parents {
			names[p.Name] = names[p.Name] || onHost(&records[i])
		}
	}
	return names
}

// framesTaken is a pure function. It names each VLAN device on a member of a bond that has the same
// VLAN: the kernel gives it the frames before the bond sees them. used has the names of the devices that
// records need; one of the two is among them.
func framesTaken(devices netstate.Devices, used map[string]bool) (texts []string) {
	for _, d := range devices {
		below, ok := devices.ByIndex(d.ParentIndex)
		if d.VLAN == nil || !ok {
			continue
		}
		over, ok := devices.AggregateOf(below)
		if !ok {
			continue
		}
		if other, ok := devices.VLANOn(over.Index, *d.VLAN); ok && (used[d.Name] || used[other.Name]) {
			texts = append(texts, fmt.Sprintf("%s takes the frames that %s should get, as %s is a member of %s", d.Name, other.Name, below.Name, over.Name))
		}
	}
	return texts
}

// changeHost carries the plan out. If something has changed since the plan was made, it plans
// again, a few times at most.
func (r *run) changeHost(records []checkpoint.Record) error {
	for pass := 1; ; pass++ {
		steps := r.plan.Steps()
		done := r.inHost(steps, pass < passes)
		r.devices = r.plan.devices
		if r.DryRun || len(steps) == 0 {
			return nil
		}
		devices, err := r.host.Devices()
		if err != nil {
			return err
		}
		r.devices, r.seen = devices, devices
		if done == len(steps) {
			return nil
		}
		before := slices.Concat(r.plan.before, steps[:done])
		r.plan = NewParentPlan(devices, r.recorded, r.ParentOptions)
		r.plan.before = before
		r.tell(r.prospect(records))
	}
}

// inHost carries out steps on devices of the host, and reports them. A dry run only reports them. It
// returns how many steps it has finished: with giveUp it stops at a step whose devices have changed.
func (r *run) inHost(steps []Step, giveUp bool) int {
	hands := newHands(r.host)
	for i, step := range steps {
		result := StepResult{Step: step}
		if !r.DryRun {
			err := hands.do(step)
			if giveUp && errors.Is(err, errChanged) {
				return i
			}
			if err != nil {
				result.Error = err.Error()
				r.report.problem(err.Error())
			}
		}
		r.report.Parents = append(r.report.Parents, result)
	}
	return len(steps)
}

// lockHost keeps off other restores that would change the host's devices.
func (r *run) lockHost(ctx context.Context) (func(), error) {
	ctx, cancel := context.WithTimeout(ctx, flock.Patience)
	defer cancel()
	return r.Store.LockHost(ctx)
}

// moveNIC moves the NIC that was found in the host into the sandbox.
func (w *work) moveNIC(want netstate.Interface, opts kernel.ConfigureOptions) error {
	unlock, err := w.lockHost(context.Background())
	if err != nil {
		return err
	}
	defer unlock()
	index, err := newHands(w.host).look(w.parent)
	if err != nil {
		return err
	}
	return kernel.MoveNIC(w.host, w.sandbox, index, want, opts)
}
