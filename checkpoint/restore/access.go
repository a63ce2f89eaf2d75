package restore

import (
	"context"
	"errors"
	"strings"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/hostends"
	"github.com/relink-cni/relink/pkg/printable"
)

// accessDevice stands for the pair and all that belongs to it.
const accessDevice = "host access"

// repairAccess restores the attachment's host access. The interface may have failed: the host access does not need it.
func (w *attachmentRestore) repairAccess() {
	if w.record.HostAccess == nil || w.run.scopes[w.record.Attachment] != wholeAttachment {
		return
	}
	node, err := w.run.readNode()
	if err != nil {
		w.outcome.addFailure(err)
		return
	}
	pod := w.record.HostAccessPod(w.run.host, w.sandbox)
	inspection, err := pod.Inspect(node)
	if err != nil {
		w.outcome.addFailure(err)
		return
	}
	if len(inspection.Differences) == 0 {
		err = inspection.FilterErr
	} else {
		w.outcome.addStep(Step{Action: RepairHostAccess, Device: accessDevice, Reason: strings.Join(inspection.Differences, ", ")})
		if !w.run.DryRun {
			err = pod.Repair(inspection, node)
		}
	}
	if err != nil {
		w.outcome.addFailure(err)
	}
}

// addStep adds a step that comes after all others.
func (o *Outcome) addStep(s Step) {
	o.Steps = append(o.Steps, s)
	if o.State == AsRecorded {
		o.State = Repaired
	}
	o.Reason = joinReasons(o.Reason, stepReasons([]Step{s}))
}

// addFailure makes the state Failed, and keeps an earlier reason.
func (o *Outcome) addFailure(err error) {
	o.State, o.Reason = Failed, joinReasons(o.Reason, "host access: "+printable.Joined(err))
}

// joinReasons joins two reasons, of which any can be empty.
func joinReasons(earlier, addition string) string {
	if earlier == "" || addition == "" {
		return earlier + addition
	}
	return earlier + "; " + addition
}

// repairHostAccess makes the host's part of all host accesses right, after the pods' parts.
func (r *restoreRun) repairHostAccess(ctx context.Context, records []checkpoint.Record, complete bool) (steps []StepResult, err error) {
	if len(checkpoint.HostAccesses(records)) == 0 && !complete {
		return nil, nil
	}
	node, err := r.readNode()
	if err != nil {
		return nil, err
	}
	result := hostends.Host{Store: r.Store, Host: r.host, Records: records, Complete: complete, DryRun: r.DryRun}.Assert(ctx, node)
	add := func(reasons []string, failed error) {
		text := ""
		if failed != nil && !r.DryRun && len(reasons) > 0 {
			text = printable.Joined(failed)
		} else {
			err = errors.Join(err, failed)
		}
		for _, reason := range reasons {
			steps = append(steps, StepResult{Step: Step{Action: RepairHostAccess, Device: accessDevice, Reason: reason}, Error: text})
		}
	}
	add(result.Plan.Summary(), result.PlanErr)
	add(result.Filter, result.FilterErr)
	return steps, err
}

// addHostSteps adds what repairHostAccess has found to the report.
func (r *Report) addHostSteps(steps []StepResult, err error) {
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
