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

// waitForBases plans again and again, until no device is missing that may still appear and udev is
// done with those that are there, or until the time has passed.
func (c *chain) waitForBases(ctx context.Context, start time.Time) error {
	for {
		wait, err := c.look(ctx, start)
		if !wait || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
}

// look plans on the devices as they are now. It says whether there is something to wait for.
func (c *chain) look(ctx context.Context, start time.Time) (wait bool, err error) {
	devices, err := c.host.Devices()
	if err != nil {
		return false, err
	}
	c.seen, c.plan = devices, NewParentPlan(devices, c.recorded, c.ParentOptions)
	p := c.prospect()
	waited := time.Since(start)
	if c.DryRun || ctx.Err() != nil || waited >= c.Wait || p.complete() && (len(p.wanting) == 0 || waited >= memberWait) {
		c.tell(p)
		c.report.Waited, c.unnamed = waited, p.unnamedAt
		c.waitFor(nil)
		return false, nil
	}
	c.waitFor(slices.Concat(p.missing, p.unnamed, p.wanting))
	return true, nil
}

// tell puts into the report what is known before anything is done.
func (c *chain) tell(p prospect) {
	c.report.Notes, c.report.Problems = slices.Clone(p.notes), p.problems
	for _, reason := range p.unnamed {
		c.report.Notes = appendNew(c.report.Notes, reason+": it is used all the same")
	}
}

// memberWait is how long to wait at most for what an attachment can do without: a member of a bond
// that has another member, or a NIC if another card is in its place.
const memberWait = 5 * time.Second

// prospect is what is known of the parents of all records before anything is done.
type prospect struct {
	notes, problems []string
	// missing is what attachments cannot do without. wanting is what they can do without. Both may
	// still appear.
	missing, wanting []string
	// unnamed are the devices that udev is not done with. unnamedAt are their indices.
	unnamed   []string
	unnamedAt []int
}

// complete says that nothing is missing that attachments cannot do without.
func (p prospect) complete() bool { return len(p.missing)+len(p.unnamed) == 0 }

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

func (c *chain) prospect() (p prospect) {
	for record := range bondsFirst(c.records) {
		if record.Interface.Link.Kind == netstate.KindNIC {
			c.prospectOfNIC(*record, &p)
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
			p.wanting = appendNew(p.wanting, result.notes[0])
		}
		for _, problem := range result.problems {
			p.problems = appendNew(p.problems, problem.Reason)
			if problem.Waiting {
				p.wanting = appendNew(p.wanting, problem.Reason)
			}
		}
		if result.broken != nil && result.broken.Waiting {
			p.missing = appendNew(p.missing, result.broken.Reason)
		}
	}
	for _, step := range c.plan.Steps() {
		p.await(step.at)
	}
	return p
}

// prospectOfNIC adds what is known of a NIC that belongs to the sandbox.
func (c *chain) prospectOfNIC(record checkpoint.Record, p *prospect) {
	there, known := c.inPlace[record.Attachment]
	if !known {
		there = c.isInPlace(record)
		c.inPlace[record.Attachment] = there
	}
	if there {
		return
	}
	nic, note, problem := c.plan.nic(record.Interface.Link)
	if note != "" {
		p.notes = appendNew(p.notes, note)
	}
	if problem != nil && problem.Waiting {
		p.missing = appendNew(p.missing, problem.Reason)
	}
	if problem == nil {
		p.await(nic)
	}
}

// await notes that udev is not done with a device that is to be changed. Before Linux 6.2 a device
// that is up cannot be renamed: if it is set up too early, it does not get the name that the host has
// for it.
func (p *prospect) await(d netstate.LiveDevice) {
	if d.Index <= 0 {
		return // It is not there yet.
	}
	done, err := udev.Done(d.Index)
	switch {
	case err != nil:
		p.notes = appendNew(p.notes, fmt.Sprintf("udev: %v", err))
	case !done:
		p.unnamed = appendNew(p.unnamed, d.Name+" is there, but udev is not done with it")
		p.unnamedAt = append(p.unnamedAt, d.Index)
	}
}

// isInPlace says that the sandbox has the interface, under whatever name. It also returns true if
// nobody can look at the sandbox.
func (c *chain) isInPlace(record checkpoint.Record) bool {
	sandbox, err := c.open(record.Namespace)
	if err != nil {
		return true
	}
	defer sandbox.Close()
	there, err := sandbox.Exists(record.Interface.Link.Name)
	if err != nil || there {
		return true
	}
	w := work{chain: c, record: record, sandbox: sandbox}
	return w.lookElsewhere() != nil
}
