package restore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// attachment restores one attachment and fills in what became of it.
func (c *chain) attachment(record checkpoint.Record, o *Outcome) {
	sandbox, err := c.open(record.Namespace)
	if err == nil {
		defer sandbox.Close()
		err = record.Namespace.Same(sandbox.Identity())
	}
	if err != nil {
		o.fail(err)
		if isGone(err) {
			c.vanish(lost{record: record, outcome: o, why: err})
		}
		return
	}
	w := &work{chain: c, record: record, sandbox: sandbox, outcome: o}
	if err := w.do(); err != nil {
		o.fail(err)
	}
	w.mendAccess()
}

// work is the restore of one attachment.
type work struct {
	*chain
	record  checkpoint.Record
	sandbox *kernel.Namespace
	outcome *Outcome
	parent  netstate.LiveDevice
	parents []netstate.Device
	// now are the recorded parents as they came back.
	now []netstate.Device
	// carrier says that the interface had carrier at the last look. addressed says that it had its
	// addresses.
	carrier, addressed bool
	// wanted is what wantedNow found. It is nil before.
	wanted *netstate.Interface
	// built is what the kernel told of the link when it made it. The next look uses it.
	built kernel.Built
	// index is the index that the interface has now. taken is the name of another device that has
	// the recorded index.
	index int
	taken string
	// below are the steps that were needed in the host. inSandbox are the steps that are needed
	// on parents in the sandbox.
	below, inSandbox []Step
}

func (w *work) do() error {
	if err := w.findParent(); err != nil {
		w.keepLive()
		return err
	}
	steps, err := w.plan()
	if err != nil {
		return err
	}
	w.outcome.Steps = slices.Concat(w.inSandbox, steps)
	if len(w.outcome.Steps) == 0 && len(w.below) == 0 {
		return w.leave()
	}
	w.outcome.ParentReason, w.outcome.Reason = reasons(w.below), reasons(w.outcome.Steps)
	if w.DryRun {
		w.outcome.State = stateOf(steps, ToRestore, ToRepair)
		return nil
	}
	failed := w.apply(steps)
	w.owe() // Something may be built even if another step failed.
	if failed != nil {
		return errors.Join(failed, w.tell(false))
	}
	w.outcome.State = stateOf(steps, Restored, Repaired)
	if was := w.record.Interface.Link.Index; w.outcome.State == Restored && was != 0 && was != w.index && w.taken == "" {
		w.outcome.Reason += "; " + otherIndex(was, "another device")
	}
	return w.tell(true)
}

// tell tells the neighbours the addresses, if they are owed and there is carrier. Then it writes into
// the record what the next restore needs. whole says that the interface is as recorded.
func (w *work) tell(whole bool) error {
	w.lookForCarrier()
	w.announce()
	err := w.remember(whole)
	w.outcome.settled = err == nil
	return err
}

// leave is for an attachment that is as recorded.
func (w *work) leave() error {
	if w.record.AnnouncementOwed || w.unsettled[w.record.Attachment] {
		w.owe()
	}
	if w.DryRun {
		w.lookForCarrier()
		return nil
	}
	return w.tell(true)
}

func stateOf(steps []Step, created, repaired State) State {
	for _, s := range steps {
		if s.Action() == Create || s.Action() == MoveNIC {
			return created
		}
	}
	return repaired
}

func (w *work) isNIC() bool { return w.record.Interface.Link.Kind == netstate.KindNIC }

// parentAt is the namespace of the parents.
func (w *work) parentAt() *kernel.Namespace {
	if w.record.Interface.ParentsInSandbox {
		return w.sandbox
	}
	return w.host
}

// findParent finds what the interface is to be stacked on. The steps in the host have been
// done by now, or have failed. Parents in the sandbox are brought back here.
func (w *work) findParent() error {
	if w.isNIC() {
		return w.findNIC()
	}
	if w.record.Interface.ParentsInSandbox {
		return w.findParentInSandbox()
	}
	w.below = w.chain.plan.stepsBelow(w.record.Interface.Parents)
	w.outcome.below = w.below
	result, lacking, chain, err := w.after.chain(w.record.Interface.Parents)
	switch {
	case err != nil:
		return err
	case result.broken != nil:
		w.outcome.blocked = w.record.Interface.Parents[result.brokenAt].Name
		return result.broken
	case result.parent.Index < 0 && !w.DryRun:
		w.outcome.blocked = lacking[0].Device
		return errors.New(w.failuresOf(lacking))
	}
	w.outcome.base = result.now[len(result.now)-1].Name
	w.parent, w.parents, w.now, w.outcome.Parent = result.parent, chain, result.now, result.parent.Name
	return nil
}

// failuresOf says why the steps in the host were not done: with the kernel's error if there was one.
func (c *chain) failuresOf(steps []Step) string {
	var texts []string
	for _, step := range steps {
		text := reasons([]Step{step})
		for _, result := range c.report.Parents {
			if result.Error != "" && result.Device == step.Device && result.Action() == step.Action() {
				text = result.Error
			}
		}
		texts = appendNew(texts, text)
	}
	return strings.Join(texts, "; ")
}

// findNIC finds the NIC in the host that is to be moved, unless it is in the sandbox.
func (w *work) findNIC() error {
	w.outcome.Parent = ""
	there, err := w.sandbox.Exists(w.record.Interface.Link.Name)
	if err != nil || there {
		return err
	}
	nic, problem := w.after.nic(w.record.Interface.Link)
	if problem != nil {
		elsewhere := w.lookElsewhere()
		if elsewhere == nil {
			w.outcome.blocked = nameInHost(w.record.Interface.Link)
		}
		return cmp.Or(elsewhere, error(problem))
	}
	w.parent, w.outcome.Parent, w.outcome.base = nic, nic.Name, nic.Name
	return nil
}

func (w *work) findParentInSandbox() error {
	devices, err := w.sandbox.Devices()
	if err != nil {
		return err
	}
	plan := NewParentPlan(devices, hardwareOf(w.record.Interface.Parents), ParentOptions{})
	result := plan.chain(w.record.Interface.Parents)
	if result.broken != nil {
		if w.DryRun {
			return fmt.Errorf("%w yet: interfaces on it are planned once it exists", result.broken)
		}
		return result.broken
	}
	w.now = result.now
	w.inSandbox = plan.Steps()
	if len(w.inSandbox) == 0 || w.DryRun {
		return w.useParent(plan.devices, result.parent.Index)
	}
	hands := newHands(w.sandbox)
	for _, step := range w.inSandbox {
		if err := hands.do(step); err != nil {
			return err
		}
	}
	if devices, err = w.sandbox.Devices(); err != nil {
		return err
	}
	return w.useParent(devices, hands.indexOf(result.parent.Index))
}

func (w *work) useParent(devices netstate.Devices, index int) (err error) {
	w.parent, _ = devices.ByIndex(index)
	w.outcome.Parent = w.parent.Name
	w.parents, err = devices.Chain(index)
	return err
}

// plan compares the live interface with the record.
func (w *work) plan() ([]Step, error) {
	recorded, err := w.wantedNow()
	if err != nil {
		return nil, err
	}
	extent := kernel.ExtentOf(recorded)
	extent.Built, w.built = w.built, kernel.Built{}
	live, err := kernel.Capture(w.host, w.sandbox, w.devices, w.record.Interface.Link.Name, extent)
	w.carrier = live.Carrier
	gone, alien := errors.Is(err, kernel.ErrNoDevice), errors.Is(err, kernel.ErrUnsupported)
	if err != nil && !gone && !alien {
		return nil, err
	}
	stranger := !gone && isStranger(w.record.Interface.Link, live.Link)
	if gone || alien || stranger || live.Link.Kind != w.record.Interface.Link.Kind {
		if err := w.lookElsewhere(); err != nil {
			return nil, err
		}
	}
	if stranger {
		if err := w.lookUnderName(live.Link); err != nil {
			return nil, err
		}
	}
	if alien {
		return nil, fmt.Errorf("%w: left alone", err)
	}
	var there *netstate.Interface
	if !gone {
		there, w.index = &live, live.Link.Index
	}
	if w.KeepLive {
		w.outcome.Live = there
	}
	part := w.parts[w.record.Attachment]
	steps, problem := planInterface(recorded, there, w.parent.Name, w.parents)
	if problem != nil && part == everything {
		return nil, problem
	}
	steps = part.keep(steps, recorded)
	if gone && w.taken != "" && len(steps) > 0 {
		steps[0].Reason += "; " + otherIndex(w.record.Interface.Link.Index, w.taken)
	}
	w.addressed = !gone && !slices.ContainsFunc(steps, func(s Step) bool { return s.Action() == AddAddress })
	return steps, nil
}

// keepLive keeps the interface as it is. It is for an interface whose parent was not found, so that
// nothing is planned for it.
func (w *work) keepLive() {
	if !w.KeepLive {
		return
	}
	live, err := kernel.Capture(w.host, w.sandbox, w.devices, w.record.Interface.Link.Name, kernel.ExtentOf(w.record.Interface))
	if err == nil {
		w.outcome.Live = &live
	}
}

// wantedNow returns the part of the record that has to be there now. It stays the same unless it
// depends on other interfaces of the sandbox.
func (w *work) wantedNow() (netstate.Interface, error) {
	if w.wanted == nil || leans(w.record.Interface) {
		wanted, err := w.Store.Wanted(w.record, w.sandbox.Exists)
		if err != nil {
			return wanted, err
		}
		w.wanted = &wanted
	}
	return *w.wanted, nil
}

// passes is how often apply looks again at most. A step can take something else away: an address
// that is replaced takes its routes with it.
const passes = 3

// apply carries the steps out, and goes on after a failure. Then it looks whether the kernel
// agrees with the record.
func (w *work) apply(steps []Step) error {
	var errs []error
	for pass := 0; len(steps) > 0; pass++ {
		if pass == passes {
			return errors.Join(append(errs, errors.New("not as recorded after the restore: "+reasons(steps)))...)
		}
		errs = nil
		for _, alike := range together(steps) {
			if err := w.applySteps(alike); err != nil {
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

// together groups steps that follow each other and are done in one go.
func together(steps []Step) [][]Step {
	var groups [][]Step
	start := 0
	for i := range steps {
		_, batched := steps[i].change.(batchChange)
		if !batched || i+1 == len(steps) || steps[i+1].Action() != steps[i].Action() {
			groups, start = append(groups, steps[start:i+1]), i+1
		}
	}
	return groups
}

// applySteps runs steps that together has grouped.
func (w *work) applySteps(steps []Step) error {
	switch c := steps[0].change.(type) {
	case batchChange:
		return c.applyAll(w, steps)
	case sandboxChange:
		return c.apply(w, steps[0].Device)
	}
	return fmt.Errorf("%s: not a step in a sandbox", steps[0])
}

// isRecorded says that there is a checkpoint of the interface of the sandbox.
func (w *work) isRecorded(name string) bool {
	_, err := w.Store.Load(w.record.Attachment.ContainerID, name)
	return err == nil
}

// changeLive makes a change to the interface of that name in the sandbox.
func (w *work) changeLive(c deviceChange, name string) error {
	at, err := w.live(name)
	if err != nil {
		return err
	}
	return newHands(w.sandbox).do(Step{Device: name, change: c, at: at})
}

// live returns the interface of that name in the sandbox.
func (w *work) live(name string) (netstate.LiveDevice, error) {
	index, err := w.sandbox.Index(name)
	if err != nil {
		return netstate.LiveDevice{}, err
	}
	return w.sandbox.Device(index)
}
