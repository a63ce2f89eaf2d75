package forget

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/pkg/selection"
)

// Options say what to forget. Select names something, or Stale is set, or both.
type Options struct {
	Store *checkpoint.Store
	// Select names the checkpoints.
	Select selection.Selection
	// Stale passes over the sandboxes that are alive.
	Stale bool
	// Force forgets what Select names, even if the sandbox is alive or nobody knows.
	Force bool
	// AllProcesses says that relink sees all processes of the node (sandbox.SeesAllProcesses).
	AllProcesses bool
}

// CheckpointState is what became of a checkpoint. In a Plan's report ToForget stands for Forgotten.
type CheckpointState string

// The states.
const (
	ToForget  CheckpointState = "to forget"
	Forgotten CheckpointState = "forgotten"
	Kept      CheckpointState = "kept"
	Failed    CheckpointState = "failed"
)

// CheckpointOutcome reports one checkpoint.
type CheckpointOutcome struct {
	Attachment attachment.Key       `json:"attachment"`
	Pod        attachment.Pod       `json:"pod,omitzero"`
	Namespace  attachment.Namespace `json:"namespace,omitzero"`
	// Sandbox says whether the sandbox is there.
	Sandbox sandbox.Verdict `json:"sandbox"`
	State   CheckpointState `json:"state"`
	Reason  string          `json:"reason"`
	// LeaseMayRemain says that relink-ipam may still have a lease of the attachment.
	LeaseMayRemain bool `json:"leaseMayRemain,omitempty"`
}

// CheckpointReport is everything that a run found and did.
type CheckpointReport struct {
	DryRun      bool                `json:"dryRun"`
	Checkpoints []CheckpointOutcome `json:"checkpoints"`
	// Alive counts the checkpoints of living sandboxes that Stale passed over.
	Alive int `json:"alive"`
}

// Complete says that nothing was kept against the operator's wish, and that nothing failed.
func (r CheckpointReport) Complete() bool {
	for _, o := range r.Checkpoints {
		if o.State == Kept || o.State == Failed {
			return false
		}
	}
	return true
}

// Count returns how many checkpoints are in the state.
func (r CheckpointReport) Count(s CheckpointState) int {
	n := 0
	for _, o := range r.Checkpoints {
		if o.State == s {
			n++
		}
	}
	return n
}

// LeasesMayRemain says that relink-ipam may still have the lease of a forgotten checkpoint.
func (r CheckpointReport) LeasesMayRemain() bool {
	for _, o := range r.Checkpoints {
		if o.State == Forgotten && o.LeaseMayRemain {
			return true
		}
	}
	return false
}

// ErrUsage says that the options do not say what to forget.
var ErrUsage = errors.New("relink forget needs the names of pods or sandboxes, or --stale")

// Plan is what Run does.
type Plan struct {
	store   *checkpoint.Store
	planned []planned
	alive   int
}

// planned is a checkpoint, what to do about it and why.
type planned struct {
	candidate
	action verb
	reason string
}

// NewPlan decides what to forget, and changes nothing. The error is ErrUsage, or that of reading the
// store.
func NewPlan(ctx context.Context, opts Options) (*Plan, error) {
	switch {
	case !opts.Stale && opts.Select.MatchesAll():
		return nil, ErrUsage
	case opts.Stale && opts.Force:
		return nil, fmt.Errorf("%w: --force is only for sandboxes that are named", ErrUsage)
	}
	found, err := candidates(ctx, opts)
	if err != nil {
		return nil, err
	}
	plan := &Plan{store: opts.Store}
	for _, c := range found {
		action, reason := decide(c, !opts.Stale, opts.Force)
		if action == doSkip {
			plan.alive++
			continue
		}
		plan.planned = append(plan.planned, planned{c, action, reason})
	}
	return plan, nil
}

// candidates returns the selected checkpoints with their evidence. All checkpoints of a container tell about its
// sandbox, also those that are not selected.
func candidates(ctx context.Context, opts Options) ([]candidate, error) {
	records, unreadable, err := opts.Store.List()
	if err != nil {
		return nil, err
	}
	selectable, err := restore.Candidates(records, unreadable, opts.Select)
	if err != nil {
		return nil, err
	}
	chosen, err := opts.Select.Choose(selectable)
	if err != nil {
		return nil, err
	}
	selectable = selection.WithPods(selectable)
	var selected []candidate
	for i, c := range proveSandboxes(ctx, opts.AllProcesses, records, unreadable) {
		if chosen[i] {
			c.guessed = opts.Select.Guesses(selectable[i])
			selected = append(selected, c)
		}
	}
	return selected, nil
}

// proveSandboxes finds out which sandboxes are there. It returns first the records, and then the checkpoints that cannot be read.
func proveSandboxes(ctx context.Context, allProcesses bool, records []checkpoint.Record, unreadable []checkpoint.Unreadable) []candidate {
	var namespaces []attachment.Namespace
	ofContainer := map[string][]attachment.Namespace{}
	for _, r := range records {
		namespaces = append(namespaces, r.Namespace)
		ofContainer[r.Attachment.ContainerID] = append(ofContainer[r.Attachment.ContainerID], r.Namespace)
	}
	for _, u := range unreadable {
		if namespace := u.Partial.Namespace; namespace != (attachment.Namespace{}) {
			namespaces = append(namespaces, namespace)
			ofContainer[u.ContainerID] = append(ofContainer[u.ContainerID], namespace)
		}
	}
	proven := sandbox.Prove(ctx, allProcesses, namespaces...)
	var found []candidate
	for _, r := range records {
		found = append(found, candidate{record: r, evidence: proven[r.Namespace]})
	}
	for _, u := range unreadable {
		var recorded *sandbox.Evidence
		if e, ok := proven[u.Partial.Namespace]; ok {
			recorded = &e
		}
		var siblings []sandbox.Evidence
		for _, n := range ofContainer[u.ContainerID] {
			siblings = append(siblings, proven[n])
		}
		found = append(found, candidate{record: u.Partial, unreadable: &u, evidence: tornEvidence(recorded, siblings)})
	}
	return found
}

// Report says what Run would do.
func (p *Plan) Report() CheckpointReport {
	report := CheckpointReport{DryRun: true, Checkpoints: []CheckpointOutcome{}, Alive: p.alive}
	for _, c := range p.planned {
		report.Checkpoints = append(report.Checkpoints, c.outcome(ToForget))
	}
	return report
}

// Run forgets what was decided. One failure does not stop the others.
func (p *Plan) Run(ctx context.Context) CheckpointReport {
	report := CheckpointReport{Checkpoints: []CheckpointOutcome{}, Alive: p.alive}
	var ids []string
	var doomed []int
	for i, c := range p.planned {
		report.Checkpoints = append(report.Checkpoints, c.outcome(Forgotten))
		if c.action == doForget {
			ids, doomed = append(ids, c.key().ContainerID), append(doomed, i)
		}
	}
	p.store.EachSandbox(ctx, ids, func(i int, err error) {
		p.forget(p.planned[doomed[i]], cmp.Or(ctx.Err(), err), &report.Checkpoints[doomed[i]])
	})
	return report
}

// outcome has the state done where the checkpoint is to be forgotten.
func (c planned) outcome(success CheckpointState) CheckpointOutcome {
	return CheckpointOutcome{
		Attachment: c.key(), Pod: c.record.Pod, Namespace: c.record.Namespace, Sandbox: c.evidence.Verdict, Reason: c.reason,
		State: map[verb]CheckpointState{doForget: success, doKeep: Kept, doFail: Failed}[c.action], LeaseMayRemain: leaseMayRemain(c.record.CNI.Config),
	}
}

// forget removes the checkpoint if it is still the one that was judged. The caller has the sandbox's lock, or err.
func (p *Plan) forget(c planned, err error, o *CheckpointOutcome) {
	forgotten := false
	if err == nil && c.unreadable != nil {
		forgotten, err = p.store.ForgetUnreadable(*c.unreadable)
	} else if err == nil {
		forgotten, err = p.store.ForgetRecord(c.record)
	}
	switch {
	case err != nil:
		o.State, o.Reason = Failed, printable.Joined(err)
	case !forgotten:
		o.State, o.Reason = Kept, "it was written anew meanwhile"
	}
}

// leaseMayRemain says that the addresses of the CNI configuration come from relink-ipam, or that nobody can tell.
func leaseMayRemain(config []byte) bool {
	var parsed struct {
		IPAM struct {
			Type string `json:"type"`
		} `json:"ipam"`
	}
	return json.Unmarshal(config, &parsed) != nil || parsed.IPAM.Type == "relink-ipam"
}
