package restore

import (
	"context"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// waitForBases plans until no device is missing any more that may still appear,
// or the time for that is over.
func (r *run) waitForBases(ctx context.Context, records []checkpoint.Record) error {
	start := time.Now()
	for {
		devices, err := r.host.Devices()
		if err != nil {
			return err
		}
		r.plan = NewParentPlan(devices, r.ParentOptions)
		p := r.prospect(records)
		waited := time.Since(start)
		if r.DryRun || ctx.Err() != nil || waited >= r.Wait || len(p.missing) == 0 && (len(p.wanting) == 0 || waited >= memberWait) {
			r.report.Notes, r.report.Problems, r.report.Waited = append(r.report.Notes, p.notes...), p.problems, waited
			return nil
		}
		if r.Waiting != nil {
			r.Waiting(slices.Concat(p.missing, p.wanting))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
}

// memberWait bounds the wait for what an attachment can do without: a member of a
// bond that has another, a NIC in the place of which there is another card.
const memberWait = 5 * time.Second

// prospect is what can be said of the parents of all records before anything is done.
type prospect struct {
	notes, problems []string
	// missing are what attachments can't do without, wanting what they can; both
	// may still appear.
	missing, wanting []string
}

func (r *run) prospect(records []checkpoint.Record) (p prospect) {
	for _, record := range records {
		if record.Interface.Link.Kind == netstate.KindNIC {
			r.prospectOfNIC(record, &p)
			continue
		}
		if record.Interface.ParentsInSandbox {
			continue
		}
		result := r.plan.chain(record.Interface.Parents)
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
	return p
}

// prospectOfNIC is prospect for a NIC that is the sandbox's own.
func (r *run) prospectOfNIC(record checkpoint.Record, p *prospect) {
	there, known := r.inPlace[record.Attachment]
	if !known {
		there = r.isInPlace(record)
		r.inPlace[record.Attachment] = there
	}
	if there {
		return
	}
	_, note, problem := r.plan.nic(record.Interface.Link)
	if note != "" {
		p.notes = appendNew(p.notes, note)
	}
	if problem != nil && problem.Waiting {
		p.missing = appendNew(p.missing, problem.Reason)
	}
}

// isInPlace says that the sandbox has the interface, whatever its name, or can't be
// looked at.
func (r *run) isInPlace(record checkpoint.Record) bool {
	sandbox, err := kernel.Open(record.Namespace.Path)
	if err != nil {
		return true
	}
	defer sandbox.Close()
	there, err := sandbox.Exists(record.Interface.Link.Name)
	if err != nil || there {
		return true
	}
	w := work{run: r, record: record, sandbox: sandbox}
	return w.lookElsewhere() != nil
}
