package restore

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/udev"
)

// planHost plans on the devices as they are now. It says whether there is something to wait for.
func (c *chainRestore) planHost(ctx context.Context, start time.Time) (wait bool, err error) {
	devices, err := c.run.host.Devices()
	if err != nil {
		return false, err
	}
	c.lastDevices, c.plan = devices, NewParentPlan(devices, c.run.recorded, c.run.ParentOptions)
	p := c.parentStatus()
	waited := time.Since(start)
	if c.run.DryRun || ctx.Err() != nil || waited >= c.run.Wait || p.complete() && (len(p.optional) == 0 || waited >= memberWait) {
		c.reportParentStatus(p)
		c.report.WaitDuration = waited
		c.setWaiting(nil)
		return false, nil
	}
	c.setWaiting(slices.Concat(p.missing, p.udevPending, p.optional))
	return true, nil
}

// reportParentStatus puts into the report what is known before anything is done.
func (c *chainRestore) reportParentStatus(p parentStatus) {
	c.report.Notes, c.report.Problems = slices.Clone(p.notes), p.problems
	for _, reason := range p.udevPending {
		c.report.Notes = appendNew(c.report.Notes, reason+": it is used all the same")
	}
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

// complete says that nothing is missing that attachments cannot do without.
func (p parentStatus) complete() bool { return len(p.missing)+len(p.udevPending) == 0 }

// bondsFirst goes through the records: first those on bonds, then the others. The plan for the others
// depends on which NICs become members.
func bondsFirst(records []checkpoint.Record) iter.Seq[*checkpoint.Record] {
	return func(yield func(*checkpoint.Record) bool) {
		for _, bonds := range []bool{true, false} {
			for i := range records {
				if onBond(&records[i]) == bonds && !yield(&records[i]) {
					return
				}
			}
		}
	}
}

func (c *chainRestore) parentStatus() (p parentStatus) {
	for record := range bondsFirst(c.records) {
		if record.Interface.Link.Kind == netstate.KindNIC {
			c.addNICStatus(*record, &p)
			continue
		}
		if record.Interface.ParentsInSandbox {
			continue
		}
		result := c.plan.chain(record.Interface.Parents)
		for _, n := range result.notes {
			p.notes = appendNew(p.notes, n)
		}
		if result.unsure {
			p.optional = appendNew(p.optional, result.notes[0])
		}
		for _, problem := range result.problems {
			p.problems = appendNew(p.problems, problem.Reason)
			if problem.Transient {
				p.optional = appendNew(p.optional, problem.Reason)
			}
		}
		if result.blocker != nil && result.blocker.Transient {
			p.missing = appendNew(p.missing, result.blocker.Reason)
		}
	}
	for _, step := range c.plan.Steps() {
		p.checkUdev(step.planned)
	}
	return p
}

// addNICStatus adds what is known of a NIC that belongs to the sandbox.
func (c *chainRestore) addNICStatus(record checkpoint.Record, p *parentStatus) {
	present, cached := c.nicInSandbox[record.Attachment]
	if !cached {
		present = c.isInSandbox(record)
		c.nicInSandbox[record.Attachment] = present
	}
	if present {
		return
	}
	nic, note, problem := c.plan.findHostNIC(record.Interface.Link)
	if note != "" {
		p.notes = appendNew(p.notes, note)
	}
	if problem != nil && problem.Transient {
		p.missing = appendNew(p.missing, problem.Reason)
	}
	if problem == nil {
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
		p.notes = appendNew(p.notes, fmt.Sprintf("udev: %v", err))
	case !finished:
		p.udevPending = appendNew(p.udevPending, d.Name+" is there, but udev is not done with it")
	}
}

// isInSandbox says that the sandbox has the interface, under whatever name. It also returns true if
// nobody can look at the sandbox.
func (c *chainRestore) isInSandbox(record checkpoint.Record) bool {
	sandbox, err := c.run.openNamespace(record.Namespace)
	if err != nil {
		return true
	}
	defer sandbox.Close()
	exists, err := sandbox.Exists(record.Interface.Link.Name)
	if err != nil || exists {
		return true
	}
	w := attachmentRestore{run: c.run, chain: c, record: record, sandbox: sandbox}
	return w.checkIdentity(nil) != nil
}
