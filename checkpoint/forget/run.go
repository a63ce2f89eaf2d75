package forget

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

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
	store *checkpoint.Store
	// candidates are those of the outcomes in report, which is what Run returns if nothing comes in between.
	candidates []candidate
	report     CheckpointReport
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
	plan := &Plan{store: opts.Store, report: CheckpointReport{Checkpoints: []CheckpointOutcome{}}}
	for _, c := range found {
		state, reason := decide(c, !opts.Stale, opts.Force)
		if state == passed {
			plan.report.Alive++
			continue
		}
		plan.candidates = append(plan.candidates, c)
		plan.report.Checkpoints = append(plan.report.Checkpoints, CheckpointOutcome{
			Attachment: c.key(), Pod: c.record.Pod, Namespace: c.record.Namespace, Sandbox: c.evidence.Verdict, State: state, Reason: reason,
			LeaseMayRemain: leaseMayRemain(c.record.CNI.Config),
		})
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
	report := p.report
	report.DryRun, report.Checkpoints = true, slices.Clone(report.Checkpoints)
	for i, o := range report.Checkpoints {
		if o.State == Forgotten {
			report.Checkpoints[i].State = ToForget
		}
	}
	return report
}

// Run forgets what was decided, under the sandboxes' locks. One failure does not stop the others.
func (p *Plan) Run(ctx context.Context) CheckpointReport {
	var ids []string
	var doomed []int
	for i, o := range p.report.Checkpoints {
		if o.State == Forgotten {
			ids, doomed = append(ids, o.Attachment.ContainerID), append(doomed, i)
		}
	}
	p.store.EachSandbox(ctx, ids, func(i int, err error) {
		c, o := p.candidates[doomed[i]], &p.report.Checkpoints[doomed[i]]
		if err = cmp.Or(ctx.Err(), err); err == nil {
			err = p.store.ForgetListed(c.record, c.unreadable)
		}
		switch {
		case errors.Is(err, checkpoint.ErrWrittenAnew):
			o.State, o.Reason = Kept, err.Error()
		case err != nil:
			o.State, o.Reason = Failed, printable.Joined(err)
		}
	})
	return p.report
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
