package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// attachment restores one attachment and fills in what became of it.
func (r *run) attachment(record checkpoint.Record, o *Outcome) {
	sandbox, err := kernel.Open(record.Namespace.Path)
	if err != nil {
		o.skipOrFail(record, err)
		return
	}
	defer sandbox.Close()
	if err := record.Namespace.Same(sandbox.Identity()); err != nil {
		o.skip(record, err)
		return
	}
	w := &work{run: r, record: record, sandbox: sandbox, outcome: o}
	if err := w.do(); err != nil {
		o.fail(err)
	}
}

// work is the restore of one attachment.
type work struct {
	*run
	record  checkpoint.Record
	sandbox *kernel.Namespace
	outcome *Outcome
	parent  netstate.LiveDevice
	parents []netstate.Device
	// now are the recorded parents as they came back.
	now []netstate.Device
	// below are the steps that were needed in the host, inSandbox those that
	// are needed on parents in the sandbox.
	below, inSandbox []Step
}

func (w *work) do() error {
	if err := w.findParent(); err != nil {
		return err
	}
	steps, err := w.plan()
	if err != nil {
		return err
	}
	w.outcome.Steps = slices.Concat(w.inSandbox, steps)
	if len(w.outcome.Steps) == 0 && len(w.below) == 0 {
		if w.DryRun {
			return nil
		}
		return w.remember(w.now)
	}
	w.outcome.ParentReason, w.outcome.Reason = reasons(w.below), reasons(w.outcome.Steps)
	if w.DryRun {
		w.outcome.State = stateOf(steps, ToRestore, ToRepair)
		return nil
	}
	if err := w.apply(steps); err != nil {
		return err
	}
	w.outcome.State = stateOf(steps, Restored, Repaired)
	w.announce()
	return w.remember(w.now)
}

func stateOf(steps []Step, created, repaired State) State {
	for _, s := range steps {
		if s.Action == Create {
			return created
		}
	}
	return repaired
}

// parentAt is the namespace of the parents.
func (w *work) parentAt() *kernel.Namespace {
	if w.record.Interface.ParentsInSandbox {
		return w.sandbox
	}
	return w.host
}

// findParent finds what the interface is to be stacked on. What had to be done
// in the host has been done, or could not be; parents in the sandbox are brought
// back here.
func (w *work) findParent() error {
	if w.record.Interface.ParentsInSandbox {
		return w.findParentInSandbox()
	}
	w.below = w.run.plan.stepsBelow(w.record.Interface.Parents)
	result, lacking, chain, err := w.after.chain(w.record.Interface.Parents)
	switch {
	case err != nil:
		return err
	case result.broken != nil:
		return result.broken
	case result.parent.Index < 0 && !w.DryRun:
		return errors.New(reasons(lacking))
	}
	w.parent, w.parents, w.now, w.outcome.Parent = result.parent, chain, result.now, result.parent.Name
	return nil
}

func (w *work) findParentInSandbox() error {
	devices, err := w.sandbox.Devices()
	if err != nil {
		return err
	}
	plan := NewParentPlan(devices, nil)
	result := plan.chain(w.record.Interface.Parents)
	if result.broken != nil {
		if w.DryRun {
			return fmt.Errorf("%w yet: what is stacked on it is planned when it is", result.broken)
		}
		return result.broken
	}
	w.now = result.now
	w.inSandbox = plan.Steps()
	if len(w.inSandbox) == 0 || w.DryRun {
		return w.useParent(plan.devices, result.parent.Index)
	}
	for _, step := range w.inSandbox {
		if err := applyToDevice(w.sandbox, step); err != nil {
			return err
		}
	}
	if devices, err = w.sandbox.Devices(); err != nil {
		return err
	}
	index, err := w.sandbox.Index(result.parent.Name)
	if err != nil {
		return err
	}
	return w.useParent(devices, index)
}

func (w *work) useParent(devices netstate.Devices, index int) (err error) {
	w.parent, _ = devices.ByIndex(index)
	w.outcome.Parent = w.parent.Name
	w.parents, err = devices.Chain(index)
	return err
}

// plan compares the live interface with the record.
func (w *work) plan() ([]Step, error) {
	live, err := kernel.Capture(w.host, w.sandbox, w.devices, w.record.Attachment.IfName)
	var there *netstate.Interface
	switch {
	case errors.Is(err, kernel.ErrNoDevice):
	case errors.Is(err, kernel.ErrUnsupported):
		return nil, fmt.Errorf("%w: left alone", err)
	case err != nil:
		return nil, err
	default:
		there = &live
	}
	steps, problem := planInterface(w.record.Interface, there, w.parent.Name, w.parents)
	if problem != nil {
		return nil, problem
	}
	return steps, nil
}

// passes bounds how often apply looks again: what one step mends can take something
// else with it, as an address that is replaced does with its routes.
const passes = 3

// apply runs the steps, goes on after a failure, and looks whether the kernel
// agrees then.
func (w *work) apply(steps []Step) error {
	var errs []error
	for pass := 0; len(steps) > 0; pass++ {
		if pass == passes {
			return errors.Join(append(errs, errors.New("not as recorded after the restore: "+reasons(steps)))...)
		}
		errs = nil
		for _, step := range steps {
			if err := w.applyStep(step); err != nil {
				errs = append(errs, err)
			}
		}
		left, err := w.plan()
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		steps = left
	}
	return errors.Join(errs...)
}

func (w *work) applyStep(step Step) error {
	switch step.Action {
	case Create:
		return kernel.Build(w.parentAt(), w.sandbox, w.parent.Index, *step.create, kernel.ConfigureOptions{Known: true})
	case AddAddress:
		return w.sandbox.AddAddress(step.Device, *step.Address)
	case AddRoute:
		return w.sandbox.AddRoute(step.Device, *step.Route, w.record.Interface.Routes)
	case SetMAC:
		return w.sandbox.SetMAC(step.Device, step.MAC)
	case SetMacvlan:
		return w.sandbox.SetMacvlan(*step.Link)
	case SetUp:
		// A restore that was killed can have left it without its settings, which come
		// before it goes up.
		var errs []error
		for key, value := range w.record.Interface.Settings {
			errs = append(errs, w.sandbox.Set(step.Device, key, value))
		}
		return errors.Join(append(errs, w.sandbox.SetUp(step.Device))...)
	}
	return applyToDevice(w.sandbox, step)
}

// applyToDevice runs a step on a parent in the namespace.
func applyToDevice(at *kernel.Namespace, step Step) error {
	switch step.Action {
	case Enslave:
		return at.Enslave(step.Device, step.On)
	case RaiseMTU, SetMTU:
		return at.SetMTU(step.Device, step.MTU)
	case SetUp:
		return at.SetUp(step.Device)
	case CreateVLAN:
		return createVLAN(at, step)
	}
	return fmt.Errorf("step %s: not one on a device", step)
}

// createVLAN makes the VLAN parent. That an ADD or another restore was faster is
// no failure: what is there is looked at afterwards.
func createVLAN(at *kernel.Namespace, step Step) error {
	index, err := at.Index(step.On)
	if err != nil {
		return err
	}
	err = at.CreateVLAN(index, step.Device, *step.VLAN, step.MTU)
	if errors.Is(err, kernel.ErrExists) {
		return nil
	}
	return err
}

// announce tells the neighbours, if the parent can send. If not, announceLate does
// it when it can. An interface on top of another one in the sandbox is behind that
// one's MAC or tag, which is announced itself.
func (w *work) announce() {
	if !w.parent.Carrier || w.record.Interface.ParentsInSandbox {
		return
	}
	if err := w.announcer.Announce(w.parent.Index, w.record.Interface); err == nil {
		w.outcome.Announced = true
	}
}

// remember writes the names and the hardware that the parents came back with into
// the record, so that the next restore needs nobody to say so again.
func (w *work) remember(now []netstate.Device) error {
	if chainKey(now) == chainKey(w.record.Interface.Parents) {
		return nil
	}
	w.record.Interface.Parents = now
	return w.Store.Save(w.record)
}

// announceLate announces what was built on devices that had no carrier yet, as
// soon as they have, and reports those that don't get one in time.
func (r *run) announceLate(ctx context.Context, outcomes []*Outcome) {
	if r.DryRun {
		return
	}
	start := time.Now()
	defer func() { r.report.Waited += time.Since(start) }()
	for ; ; time.Sleep(pollInterval) {
		left := r.announcePending(outcomes)
		if len(left) == 0 {
			return
		}
		if time.Since(start) >= r.Wait || ctx.Err() != nil {
			for _, o := range left {
				r.report.problem(o.Parent + " has no carrier: the addresses on it are not announced")
			}
			return
		}
	}
}

// announcePending announces what can be and returns what can't.
func (r *run) announcePending(outcomes []*Outcome) []*Outcome {
	var devices netstate.Devices
	var left []*Outcome
	for _, o := range outcomes {
		if o.Announced || (o.State != Restored && o.State != Repaired) || len(o.Interface.Addresses) == 0 || o.Interface.ParentsInSandbox {
			continue
		}
		if devices == nil {
			var err error
			if devices, err = r.host.Devices(); err != nil {
				r.report.problem(err.Error())
				return nil
			}
		}
		parent, ok := devices.ByName(o.Parent)
		if !ok || !parent.Carrier {
			left = append(left, o)
			continue
		}
		if err := r.announcer.Announce(parent.Index, o.Interface); err != nil {
			r.report.problem(err.Error())
		}
		o.Announced = true
	}
	return left
}
