package restore

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/access"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/printable"
)

// MendAccess makes the path between a pod and its node right.
const MendAccess Action = "mend-host-access"

// accessDevice stands for the pair and all that belongs to it.
const accessDevice = "host access"

// mendAccess is that step. Its reasons say what is wrong: all of it is mended at once.
type mendAccess struct{}

func (mendAccess) action() Action { return MendAccess }

func (mendAccess) says(string) string { return "mend the host access" }

func (mendAccess) encode(*encodedStep) {}

// nodeOnce reads the node's addresses once in a run.
type nodeOnce struct {
	once sync.Once
	node hostaccess.Node
	err  error
}

func (r *run) node() (hostaccess.Node, error) {
	r.nodeRead.once.Do(func() { r.nodeRead.node, r.nodeRead.err = hostaccess.ReadNode(r.host) })
	return r.nodeRead.node, r.nodeRead.err
}

// mendAccess restores the attachment's host access. The interface may have failed: the host access does not need it.
func (w *work) mendAccess() {
	if w.record.HostAccess == nil || w.parts[w.record.Attachment] != everything {
		return
	}
	node, err := w.node()
	if err != nil {
		w.outcome.failAlso(err)
		return
	}
	pod := w.record.AccessIn(w.host, w.sandbox)
	seen, err := pod.Look(node)
	if err != nil {
		w.outcome.failAlso(err)
		return
	}
	if len(seen.Differences) == 0 {
		if seen.FilterErr != nil {
			w.outcome.failAlso(seen.FilterErr)
		}
		return
	}
	w.outcome.mends(Step{Device: accessDevice, Reason: strings.Join(seen.Differences, ", "), change: mendAccess{}}, w.DryRun)
	if w.DryRun {
		return
	}
	if err := pod.Mend(seen, node); err != nil {
		w.outcome.failAlso(err)
	}
}

// mends adds a step that comes after all others.
func (o *Outcome) mends(s Step, dryRun bool) {
	o.Steps = append(o.Steps, s)
	if o.State == AsRecorded {
		o.State = Repaired
		if dryRun {
			o.State = ToRepair
		}
	}
	o.Reason = joined(o.Reason, reasons([]Step{s}))
}

// failAlso makes the state Failed, and keeps an earlier reason.
func (o *Outcome) failAlso(err error) {
	o.State, o.Reason = Failed, joined(o.Reason, "host access: "+printable.Joined(err))
}

func joined(earlier, more string) string {
	if earlier == "" {
		return more
	}
	return earlier + "; " + more
}

// assertHost makes the host's part of all host accesses right, after the pods' parts.
func (r *run) assertHost(ctx context.Context, records []checkpoint.Record, all bool) (steps []StepResult, err error) {
	if len(checkpoint.Accesses(records)) == 0 && !all {
		return nil, nil
	}
	node, err := r.node()
	if err != nil {
		return nil, err
	}
	host := access.Host{Store: r.Store, Host: r.host, Records: records, All: all}
	var did access.Asserted
	if r.DryRun {
		did = host.Differs(node)
	} else {
		did = host.Assert(ctx, node)
	}
	var errs []error
	for _, part := range []struct {
		reasons []string
		err     error
	}{{did.Plan.Summary(), did.PlanErr}, {did.Filter, did.FilterErr}} {
		failed := ""
		switch {
		case part.err == nil:
		case r.DryRun || len(part.reasons) == 0:
			errs = append(errs, part.err)
		default:
			failed = printable.Joined(part.err)
		}
		for _, why := range part.reasons {
			steps = append(steps, StepResult{Step: Step{Device: accessDevice, Reason: why, change: mendAccess{}}, Error: failed})
		}
	}
	return steps, errors.Join(errs...)
}

// addHost adds what assertHost has found to the report.
func (r *Report) addHost(steps []StepResult, err error) {
	if err != nil {
		r.problem("host access: " + printable.Joined(err))
	}
	for _, s := range steps {
		switch {
		case r.DryRun:
			r.problem("host access: " + s.Reason)
		case s.Error != "":
			r.problem("host access: " + s.Reason + ": " + s.Error)
		}
	}
	if !r.DryRun {
		r.Parents = append(r.Parents, steps...)
	}
}
