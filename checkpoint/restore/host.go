package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/udev"
	"github.com/relink-cni/relink/pkg/wait"
)

// restoreParents plans again and again, until no device is missing that may still appear and udev is
// done with those that are there, or until the time has passed. Then it brings back the devices between the bases and the
// interfaces.
func (c *chainRestore) restoreParents(ctx context.Context) error {
	for start := time.Now(); ; wait.Sleep(ctx, pollInterval) {
		repeat, err := c.planHost(ctx, start)
		if err == nil && !repeat {
			repeat, err = c.restoreHostLocked(ctx, start)
		}
		if err != nil || !repeat {
			return err
		}
	}
}

// planHost plans on the devices as they are now. It says whether there is something to wait for.
func (c *chainRestore) planHost(ctx context.Context, start time.Time) (repeat bool, err error) {
	if err := c.host.look(); err != nil {
		return false, err
	}
	p, waited, opts := c.parentStatus(), time.Since(start), &c.run.opts
	complete := len(p.missing)+len(p.udevPending) == 0
	if opts.DryRun || ctx.Err() != nil || waited >= opts.Wait || complete && (len(p.optional) == 0 || waited >= memberWait) {
		c.reportParentStatus(p)
		c.report.WaitDuration = waited
		c.setWaiting(nil)
		return false, nil
	}
	c.setWaiting(slices.Concat(p.missing, p.udevPending, p.optional))
	return true, nil
}

// restoreHostLocked changes the host's devices, under the lock that keeps other restores off. It changes nothing
// if there is something to wait for again: nobody waits under the lock. If it cannot change anything, the run goes on with the devices
// that are there: sandboxes on them can be restored.
func (c *chainRestore) restoreHostLocked(ctx context.Context, start time.Time) (repeat bool, err error) {
	if !c.run.opts.DryRun && (len(c.host.plan.steps) > 0 || c.run.opts.HostAddresses) {
		unlock, err := func() {}, errors.New("interrupted")
		if ctx.Err() == nil {
			unlock, err = c.run.node.store.LockNode(ctx, checkpoint.HostLock)
		}
		if err != nil {
			c.report.problem(printable.Joined(err) + ": nothing is done to the host's devices")
			err := c.host.look()
			c.reportPlan()
			return false, err
		}
		defer unlock()
		if repeat, err := c.planHost(ctx, start); repeat || err != nil {
			return repeat, err
		}
		c.noteOwedByParents()
	}
	planned := c.host.plan
	if err := c.host.apply(); err != nil {
		return false, err
	}
	if c.host.plan != planned {
		c.reportParentStatus(c.parentStatus())
	}
	c.report.addSteps(c.host.steps)
	c.reportPlan()
	return false, c.restoreCarried()
}

// noteOwedByParents writes into the records of the chain that an announcement is owed, before their parents are changed.
func (c *chainRestore) noteOwedByParents() {
	plan := c.host.plan
	for i := range c.records {
		r := &c.records[i]
		chain := plan.chain(checkpoint.HostParents(r.Interface))
		if isAnnounced(r.Interface) && len(plan.stepsConcerning(chain.Parent.Index, plan.steps)) > 0 && !tellsChange(*r, chain.Found) {
			_ = saveOwed(c.run.node.store, r.Attachment, true)
		}
	}
}

// reportPlan reports what is still missing in the host.
func (c *chainRestore) reportPlan() {
	c.report.problem(shadowedVLANs(c.host.devices, hostNames(c.records))...)
	for _, step := range c.host.after.steps {
		c.report.problem(fmt.Sprintf("not done: %s: %s", step, step.Reason))
	}
}

// shadowedVLANs is a pure function. It names each VLAN device on a member of a bond that has the same
// VLAN: the kernel gives it the frames before the bond sees them. used has the names of the devices that
// records need; one of the two is among them.
func shadowedVLANs(devices netstate.Devices, used map[string]bool) (texts []string) {
	for _, d := range devices {
		below, ok := devices.ByIndex(d.ParentIndex)
		if d.VLAN == nil || !ok {
			continue
		}
		over, ok := devices.AggregateOf(below)
		if !ok {
			continue
		}
		if hidden, ok := devices.VLANOn(over.Index, *d.VLAN); ok && (used[d.Name] || used[hidden.Name]) {
			texts = append(texts, fmt.Sprintf("%s takes the frames that %s should get, as %s is a member of %s", d.Name, hidden.Name, below.Name, over.Name))
		}
	}
	return texts
}

// memberWait is how long to wait at most for what an attachment can do without: a member of a bond
// that has another member, or a NIC if another card is in its place.
const memberWait = 5 * time.Second

// parentStatus is what is known of the parents of all records before anything is done.
type parentStatus struct {
	notes, problems []string
	// missing is what attachments cannot do without. optional is what they can do without. Both may
	// still appear.
	missing, optional []string
	// udevPending are the devices that udev is not done with.
	udevPending []string
}

// reportParentStatus puts into the report what is known before anything is done.
func (c *chainRestore) reportParentStatus(p parentStatus) {
	c.report.Notes, c.report.Problems = p.notes, p.problems
	for _, reason := range p.udevPending {
		c.report.note(reason + ": it is used all the same")
	}
}

func (c *chainRestore) parentStatus() (p parentStatus) {
	for _, chain := range c.host.chains {
		result := c.host.plan.chain(chain)
		addNew(&p.notes, result.notes...)
		if result.unsure {
			addNew(&p.optional, result.notes[0])
		}
		for _, problem := range result.lacking {
			addNew(&p.problems, problem.Reason)
			if problem.Transient {
				addNew(&p.optional, problem.Reason)
			}
		}
		p.addMissing(result.Problem)
	}
	for i := range c.records {
		if c.records[i].Interface.Link.Kind == netstate.KindNIC {
			c.addNICStatus(c.records[i], &p)
		}
	}
	for _, step := range c.host.plan.steps {
		p.checkUdev(step.planned)
	}
	return p
}

// addMissing adds the reason for which nothing can be built, if waiting may solve it.
func (p *parentStatus) addMissing(problem *Problem) {
	if problem != nil && problem.Transient {
		addNew(&p.missing, problem.Reason)
	}
}

// addNICStatus adds what is known of a NIC that belongs to the sandbox.
func (c *chainRestore) addNICStatus(record checkpoint.Record, p *parentStatus) {
	if c.isInSandbox(record) {
		return
	}
	nic, note, problem := c.host.plan.findHostNIC(record.Interface.Link)
	addNew(&p.notes, note)
	if p.addMissing(problem); problem == nil {
		p.checkUdev(nic)
	}
}

// checkUdev notes that udev is not done with a device that is to be changed. Before Linux 6.2 a device
// that is up cannot be renamed: if it is set up too early, it does not get the name that the host has
// for it.
func (p *parentStatus) checkUdev(d netstate.LiveDevice) {
	if d.Index <= 0 {
		return // It is not there yet.
	}
	finished, err := udev.Initialized(d.Index)
	switch {
	case err != nil:
		addNew(&p.notes, fmt.Sprintf("udev: %v", err))
	case !finished:
		addNew(&p.udevPending, d.Name+" is there, but udev is not done with it")
	}
}

// isInSandbox says that the sandbox has the interface, under whatever name. It also returns true if
// nobody can look at the sandbox.
func (c *chainRestore) isInSandbox(record checkpoint.Record) bool {
	sandbox, err := c.run.namespaces.open(record.Namespace)
	if err != nil {
		return true
	}
	defer sandbox.Close()
	exists, err := sandbox.Exists(record.Interface.Link.Name)
	if err != nil || exists {
		return true
	}
	return c.newAttachment(record, sandbox, newState(&record)).checkIdentity(nil) != nil
}

// findParent finds what the interface is to be stacked on. The steps in the host have been
// done by now, or have failed. Parents in the sandbox are brought back here.
func (c *chainRestore) findParent(w *attachmentRestore) error {
	switch {
	case w.isNIC():
		return c.findNIC(w)
	case w.record.Interface.ParentsInSandbox:
		return w.findParentInSandbox()
	}
	recorded := w.record.Interface.Parents
	c.attachments.mu.Lock()
	defer c.attachments.mu.Unlock()
	result := c.host.after.chain(recorded)
	lacking := c.host.after.stepsConcerning(result.Parent.Index, c.host.after.steps)
	switch {
	case result.Problem != nil:
		return result.Problem
	case result.Parent.Index < 0 && !w.dryRun:
		return &Problem{Device: lacking[0].Device, Reason: failureReasons(lacking, c.host.steps)}
	}
	w.outcome.HostSteps, w.outcome.Base = c.host.after.stepsConcerning(result.Parent.Index, c.host.steps), checkpoint.Base(result.Found).Name
	return w.useParent(c.host.after, result)
}

// findNIC finds the NIC in the host that is to be moved, unless it is in the sandbox.
func (c *chainRestore) findNIC(w *attachmentRestore) error {
	w.outcome.Parent = ""
	exists, err := w.sandbox.Exists(w.record.Interface.Link.Name)
	if err != nil || exists {
		return err
	}
	c.attachments.mu.Lock()
	nic, _, problem := c.host.after.findHostNIC(w.record.Interface.Link)
	c.attachments.mu.Unlock()
	if problem != nil {
		problem.Device = nameInHost(w.record.Interface.Link)
		if err := w.checkIdentity(nil); err != nil {
			return err
		}
		return problem
	}
	w.parent, w.outcome.Parent, w.outcome.Base = nic, nic.Name, nic.Name
	return nil
}
