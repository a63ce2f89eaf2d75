package restore

import (
	"context"
	"strings"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/hostends"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/printable"
)

// accessDevice stands for the pair and all that belongs to it.
const accessDevice = "host access"

// repairAccess restores the attachment's host access. The interface may have failed: the host access does not need it.
func (w *attachmentRestore) repairAccess(readNode func() (hostaccess.Node, error)) {
	if w.record.HostAccess == nil {
		return
	}
	node, err := readNode()
	var inspection hostaccess.Inspection
	pod := w.record.HostAccessPod(w.node.host, w.sandbox)
	if err == nil {
		inspection, err = pod.Inspect(node)
	}
	switch {
	case err != nil:
	case len(inspection.Differences) == 0:
		err = inspection.FilterErr
	default:
		w.outcome.addStep(Step{Action: RepairHostAccess, Device: accessDevice, Reason: strings.Join(inspection.Differences, ", ")})
		if !w.dryRun {
			err = pod.Repair(inspection, node)
		}
	}
	if err != nil {
		w.outcome.State, w.outcome.Reason = change.Failed, joinReasons(w.outcome.Reason, "host access: "+printable.Joined(err))
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

// repairHostAccess makes the host's part of all host accesses right, after the pods' parts.
func (r *restoreRun) repairHostAccess(ctx context.Context, records []checkpoint.Record, complete bool, report *Report) {
	if len(checkpoint.HostAccesses(records)) == 0 && !complete {
		return
	}
	node, err := r.readNode()
	if err != nil {
		report.problem("host access: " + printable.Joined(err))
		return
	}
	dryRun := r.opts.DryRun
	result := hostends.Host{Store: r.node.store, Host: r.node.host, Records: records, Complete: complete, DryRun: dryRun}.Assert(ctx, node)
	add := func(reasons []string, err error) {
		failed := ""
		if err != nil {
			failed = printable.Joined(err)
			report.problem("host access: " + failed)
		}
		for _, reason := range reasons {
			if dryRun {
				report.problem("host access: " + reason)
			} else {
				report.Parents = append(report.Parents, Step{Action: RepairHostAccess, Device: accessDevice, Reason: reason, Error: failed})
			}
		}
	}
	add(result.Plan.Summary(), result.PlanErr)
	add(result.Filter, result.FilterErr)
}
