package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// restoreAttachment restores one attachment and fills in what became of it.
func (c *chainRestore) restoreAttachment(record checkpoint.Record, o *Outcome) {
	sandbox, err := c.run.openNamespace(record.Namespace)
	if err != nil {
		o.setFailed(err)
		if kernel.IsMissing(err) {
			c.run.addVanished(missingNamespace{record: record, outcome: o, err: err})
		}
		return
	}
	defer sandbox.Close()
	w := &attachmentRestore{run: c.run, chain: c, record: record, sandbox: sandbox, outcome: o}
	if err := w.execute(); err != nil {
		o.setFailed(err)
	}
	w.repairAccess()
}

// attachmentRestore is the restore of one attachment.
type attachmentRestore struct {
	run     *restoreRun
	chain   *chainRestore
	record  checkpoint.Record
	sandbox *kernel.Namespace
	outcome *Outcome
	parent  netstate.LiveDevice
	parents []netstate.Device
	// foundParents are the recorded parents as they came back.
	foundParents []netstate.Device
	// carrier says that the interface had carrier at the last look. hasAddresses says that it had its
	// addresses.
	carrier, hasAddresses bool
	// wanted is what wantedState found. It is nil before.
	wanted *netstate.Interface
	// built is what the kernel told of the link when it made it. The next look uses it.
	built kernel.Built
	// index is the index that the interface has now. indexOwnerName is the name of another device that has
	// the recorded index.
	index          int
	indexOwnerName string
	// hostSteps are the steps that were needed in the host. sandboxSteps are the steps that are needed
	// on parents in the sandbox.
	hostSteps, sandboxSteps []Step
}

func (w *attachmentRestore) execute() error {
	if err := w.findParent(); err != nil {
		w.keepLive()
		return err
	}
	if w.run.scopes[w.record.Attachment] != wholeAttachment && w.record.HasOldParent(w.foundParents) {
		return fmt.Errorf("%s was lost meanwhile", w.parent.Name) // The next restore brings back the whole attachment.
	}
	steps, err := w.plan()
	if err != nil {
		return err
	}
	w.outcome.Steps = slices.Concat(w.sandboxSteps, steps)
	if len(w.outcome.Steps) == 0 && len(w.hostSteps) == 0 {
		return w.finishUnchanged()
	}
	w.outcome.ParentReason, w.outcome.Reason = stepReasons(w.hostSteps), stepReasons(w.outcome.Steps)
	w.outcome.State = stateAfter(steps)
	if w.run.DryRun {
		return nil
	}
	w.noteOwed()
	failed := w.apply(steps)
	w.outcome.AnnouncementOwed = isAnnounced(w.record.Interface) // Something may be built even if another step failed.
	if failed != nil {
		return errors.Join(failed, w.announceAndSave(false))
	}
	return w.announceAndSave(true)
}

// announceAndSave tells the neighbours the addresses, if they are owed and there is carrier. Then it writes into
// the record what the next restore needs. whole says that the interface is as recorded.
func (w *attachmentRestore) announceAndSave(whole bool) error {
	w.checkCarrier()
	w.announce()
	return w.saveRecord(whole)
}

// finishUnchanged is for an attachment that is as recorded.
func (w *attachmentRestore) finishUnchanged() error {
	// Nobody says that pods are cut off because a member of their bond is back.
	owed := w.record.AnnouncementOwed || w.record.HasOldParent(w.foundParents) || !w.run.DryRun && tellsChange(w.record, w.foundParents)
	w.outcome.AnnouncementOwed = owed && isAnnounced(w.record.Interface)
	if w.run.DryRun {
		w.checkCarrier()
		return nil
	}
	return w.announceAndSave(true)
}

func stateAfter(steps []Step) State {
	if slices.ContainsFunc(steps, func(s Step) bool { return s.Action == Create || s.Action == MoveNIC }) {
		return Restored
	}
	return Repaired
}

func (w *attachmentRestore) isNIC() bool { return w.record.Interface.Link.Kind == netstate.KindNIC }

// parentNamespace is the namespace of the parents.
func (w *attachmentRestore) parentNamespace() *kernel.Namespace {
	if w.record.Interface.ParentsInSandbox {
		return w.sandbox
	}
	return w.run.host
}

// findParent finds what the interface is to be stacked on. The steps in the host have been
// done by now, or have failed. Parents in the sandbox are brought back here.
func (w *attachmentRestore) findParent() error {
	if w.isNIC() {
		return w.findNIC()
	}
	if w.record.Interface.ParentsInSandbox {
		return w.findParentInSandbox()
	}
	w.hostSteps = w.chain.plan.stepsBelow(w.record.Interface.Parents)
	w.outcome.hostSteps = w.hostSteps
	w.chain.mu.Lock()
	defer w.chain.mu.Unlock()
	plan := w.chain.afterPlan
	result := plan.chain(w.record.Interface.Parents)
	lacking := plan.stepsFor(result.parent.Index)
	chain, err := plan.devices.Chain(result.parent.Index)
	switch {
	case result.blocker != nil:
		w.outcome.failure = causeKey{kind: CauseDevice, device: w.record.Interface.Parents[result.blockerIndex].Name}
		return result.blocker
	case err != nil:
		return err
	case result.parent.Index < 0 && !w.run.DryRun:
		w.outcome.failure = causeKey{kind: CauseDevice, device: lacking[0].Device}
		return errors.New(w.chain.failureReasons(lacking))
	}
	w.outcome.base = result.found[len(result.found)-1].Name
	w.parent, w.parents, w.foundParents, w.outcome.Parent = result.parent, chain, result.found, result.parent.Name
	return nil
}

// failureReasons says why the steps in the host were not done: with the kernel's error if there was one.
func (c *chainRestore) failureReasons(steps []Step) string {
	var texts []string
	for _, step := range steps {
		text := stepReasons([]Step{step})
		for _, result := range c.report.Parents {
			if result.Error != "" && result.Device == step.Device && result.Action == step.Action {
				text = result.Error
			}
		}
		texts = appendNew(texts, text)
	}
	return strings.Join(texts, "; ")
}

// findNIC finds the NIC in the host that is to be moved, unless it is in the sandbox.
func (w *attachmentRestore) findNIC() error {
	w.outcome.Parent = ""
	exists, err := w.sandbox.Exists(w.record.Interface.Link.Name)
	if err != nil || exists {
		return err
	}
	w.chain.mu.Lock()
	nic, _, problem := w.chain.afterPlan.findHostNIC(w.record.Interface.Link)
	w.chain.mu.Unlock()
	if problem != nil {
		identityErr := w.checkIdentity(nil)
		if identityErr == nil {
			w.outcome.failure = causeKey{kind: CauseDevice, device: nameInHost(w.record.Interface.Link)}
		}
		return cmp.Or(identityErr, error(problem))
	}
	w.parent, w.outcome.Parent, w.outcome.base = nic, nic.Name, nic.Name
	return nil
}

func (w *attachmentRestore) findParentInSandbox() error {
	devices, err := w.sandbox.Devices()
	if err != nil {
		return err
	}
	plan := NewParentPlan(devices, hardwareOf(w.record.Interface.Parents), ParentOptions{})
	result := plan.chain(w.record.Interface.Parents)
	if result.blocker != nil {
		if w.run.DryRun {
			return fmt.Errorf("%w yet: interfaces on it are planned once it exists", result.blocker)
		}
		return result.blocker
	}
	w.foundParents = result.found
	w.sandboxSteps = plan.Steps()
	if len(w.sandboxSteps) == 0 || w.run.DryRun {
		return w.useParent(plan.devices, result.parent.Index)
	}
	runner := newStepRunner(w.sandbox)
	for _, step := range w.sandboxSteps {
		if err := runner.run(step); err != nil {
			return err
		}
	}
	if devices, err = w.sandbox.Devices(); err != nil {
		return err
	}
	return w.useParent(devices, runner.indexOf(result.parent.Index))
}

func (w *attachmentRestore) useParent(devices netstate.Devices, index int) (err error) {
	w.parent, _ = devices.ByIndex(index)
	w.outcome.Parent = w.parent.Name
	w.parents, err = devices.Chain(index)
	return err
}

// plan compares the live interface with the record.
func (w *attachmentRestore) plan() ([]Step, error) {
	recorded, err := w.wantedState()
	if err != nil {
		return nil, err
	}
	extent := kernel.ExtentOf(recorded)
	extent.Built, w.built = w.built, kernel.Built{}
	live, err := kernel.Capture(w.run.host, w.sandbox, w.chain.devices, w.record.Interface.Link.Name, extent)
	w.carrier = live.Carrier
	missing, alien := errors.Is(err, kernel.ErrNoDevice), errors.Is(err, kernel.ErrUnsupported)
	if err != nil && !missing && !alien {
		return nil, err
	}
	foreign := !missing && isForeign(w.record.Interface.Link, live.Link)
	if missing || alien || foreign || live.Link.Kind != w.record.Interface.Link.Kind {
		var owner *netstate.Link
		if foreign {
			owner = &live.Link
		}
		if err := w.checkIdentity(owner); err != nil {
			return nil, err
		}
	}
	if alien {
		return nil, fmt.Errorf("%w: left alone", err)
	}
	var current *netstate.Interface
	if !missing {
		current, w.index = &live, live.Link.Index
	}
	w.outcome.Live = current
	part := w.run.scopes[w.record.Attachment]
	steps, problem := planInterface(recorded, current, w.parent.Name, w.parents)
	if problem != nil && part == wholeAttachment {
		return nil, problem
	}
	steps = part.filter(steps, recorded)
	if missing && w.indexOwnerName != "" && len(steps) > 0 {
		steps[0].Reason += fmt.Sprintf("; its index %d is that of %s now, so that it gets another: programs that are bound to the index (SO_BINDTODEVICE, multicast groups) have to bind again",
			w.record.Interface.Link.Index, w.indexOwnerName)
	}
	w.hasAddresses = !missing && !slices.ContainsFunc(steps, func(s Step) bool { return s.Action == AddAddress })
	return steps, nil
}

// keepLive keeps the interface as it is. It is for an interface whose parent was not found, so that
// nothing is planned for it.
func (w *attachmentRestore) keepLive() {
	if !w.run.DryRun {
		return
	}
	live, err := kernel.Capture(w.run.host, w.sandbox, w.chain.devices, w.record.Interface.Link.Name, kernel.ExtentOf(w.record.Interface))
	if err == nil {
		w.outcome.Live = &live
	}
}

// wantedState returns the part of the record that has to be there now. It stays the same unless it
// depends on other interfaces of the sandbox.
func (w *attachmentRestore) wantedState() (netstate.Interface, error) {
	if w.wanted == nil || hasDependentRoutes(w.record.Interface) {
		wanted, err := w.run.Store.Effective(w.record, w.sandbox.Exists)
		if err != nil {
			return wanted, err
		}
		w.wanted = &wanted
	}
	return *w.wanted, nil
}

// maxPasses is how often apply looks again at most. A step can take something else away: an address
// that is replaced takes its routes with it.
const maxPasses = 3

// apply carries the steps out, and goes on after a failure. Then it looks whether the kernel
// agrees with the record.
func (w *attachmentRestore) apply(steps []Step) error {
	var errs []error
	for pass := 0; len(steps) > 0; pass++ {
		if pass == maxPasses {
			return errors.Join(append(errs, errors.New("not as recorded after the restore: "+stepReasons(steps)))...)
		}
		errs = nil
		for _, alike := range batchSteps(steps) {
			if err := w.applySteps(alike); err != nil {
				errs = append(errs, err)
			}
		}
		remaining, err := w.plan()
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		steps = remaining
	}
	return errors.Join(errs...)
}

// applySteps runs steps that batchSteps has grouped.
func (w *attachmentRestore) applySteps(steps []Step) (err error) {
	switch steps[0].Action {
	case Create:
		w.built, err = kernel.Build(w.parentNamespace(), w.sandbox, w.parent.Index, *w.wanted, rebuildOptions)
		return err
	case MoveNIC:
		return w.moveNIC()
	default:
		return applyTo(w.sandbox, w.index, w.record.Interface, steps...)
	}
}

// rebuildOptions says that the record has the whole state of an interface that is made.
var rebuildOptions = kernel.ConfigureOptions{Rebuild: true}

// moveNIC moves the NIC that was found in the host into the sandbox.
func (w *attachmentRestore) moveNIC() error {
	unlock, err := w.run.Store.LockHost(context.Background())
	if err != nil {
		return err
	}
	defer unlock()
	index, err := newStepRunner(w.run.host).check(w.parent)
	if err != nil {
		return err
	}
	return kernel.MoveNIC(w.run.host, w.sandbox, index, *w.wanted, rebuildOptions)
}
