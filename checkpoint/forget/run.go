package forget

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/flock"
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
	// Chosen says which of the selected checkpoints are meant. nil: all. A checkpoint that cannot be read may have an
	// empty namespace.
	Chosen func(attachment.Key, attachment.Namespace) bool
	// AllProcesses says that relink sees all processes of the node (sandbox.SeesAllProcesses).
	AllProcesses bool
}

// State is what became of a checkpoint. In a Plan's report ToForget stands for Forgotten.
type State string

// The states.
const (
	ToForget  State = "to forget"
	Forgotten State = "forgotten"
	Kept      State = "kept"
	Failed    State = "failed"
)

// Outcome reports one checkpoint.
type Outcome struct {
	Attachment attachment.Key       `json:"attachment"`
	Pod        attachment.Pod       `json:"pod,omitzero"`
	Namespace  attachment.Namespace `json:"namespace,omitzero"`
	// Sandbox says whether the sandbox is there.
	Sandbox sandbox.State `json:"sandbox"`
	State   State         `json:"state"`
	Reason  string        `json:"reason"`
	// LeaseMayRemain says that relink-ipam may still have a lease of the attachment.
	LeaseMayRemain bool `json:"leaseMayRemain,omitempty"`
}

// Report is everything that a run found and did.
type Report struct {
	DryRun      bool      `json:"dryRun"`
	Checkpoints []Outcome `json:"checkpoints"`
	// Alive counts the checkpoints of living sandboxes that Stale passed over.
	Alive int `json:"alive"`
}

// Complete says that nothing was kept against the operator's wish, and that nothing failed.
func (r Report) Complete() bool {
	for _, o := range r.Checkpoints {
		if o.State == Kept || o.State == Failed {
			return false
		}
	}
	return true
}

// Count returns how many checkpoints are in the state.
func (r Report) Count(s State) int {
	n := 0
	for _, o := range r.Checkpoints {
		if o.State == s {
			n++
		}
	}
	return n
}

// LeasesMayRemain says that relink-ipam may still have the lease of a forgotten checkpoint.
func (r Report) LeasesMayRemain() bool {
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
	do     verb
	reason string
}

// Look decides what to forget, and changes nothing. The error is ErrUsage, or that of reading the
// store.
func Look(ctx context.Context, opts Options) (*Plan, error) {
	switch {
	case !opts.Stale && opts.Select.All():
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
		do, reason := decide(c, !opts.Stale, opts.Force)
		if do == doPass {
			plan.alive++
			continue
		}
		plan.planned = append(plan.planned, planned{c, do, reason})
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
	things, err := restore.Things(records, unreadable, opts.Select)
	if err != nil {
		return nil, err
	}
	chosen, err := opts.Select.Choose(things)
	if err != nil {
		return nil, err
	}
	things = selection.WithPods(things)
	var selected []candidate
	for i, c := range prove(ctx, opts.AllProcesses, records, unreadable) {
		if chosen[i] && (opts.Chosen == nil || opts.Chosen(c.key(), c.record.Namespace)) {
			c.guessed = opts.Select.Guesses(things[i])
			selected = append(selected, c)
		}
	}
	return selected, nil
}

// prove finds out which sandboxes are there. It returns first the records, and then the checkpoints that cannot be read.
func prove(ctx context.Context, all bool, records []checkpoint.Record, unreadable []checkpoint.Unreadable) []candidate {
	var namespaces []attachment.Namespace
	ofContainer := map[string][]attachment.Namespace{}
	for _, r := range records {
		namespaces = append(namespaces, r.Namespace)
		ofContainer[r.Attachment.ContainerID] = append(ofContainer[r.Attachment.ContainerID], r.Namespace)
	}
	for _, u := range unreadable {
		if own := u.Left.Namespace; own != (attachment.Namespace{}) {
			namespaces = append(namespaces, own)
			ofContainer[u.ContainerID] = append(ofContainer[u.ContainerID], own)
		}
	}
	proven := sandbox.Prove(ctx, all, namespaces...)
	var found []candidate
	for _, r := range records {
		found = append(found, candidate{record: r, evidence: proven[r.Namespace]})
	}
	for _, u := range unreadable {
		var own *sandbox.Evidence
		if e, ok := proven[u.Left.Namespace]; ok {
			own = &e
		}
		var others []sandbox.Evidence
		for _, n := range ofContainer[u.ContainerID] {
			others = append(others, proven[n])
		}
		found = append(found, candidate{record: u.Left, unreadable: &u, evidence: tornEvidence(own, others)})
	}
	return found
}

// Report says what Run would do.
func (p *Plan) Report() Report {
	report := Report{DryRun: true, Checkpoints: []Outcome{}, Alive: p.alive}
	for _, c := range p.planned {
		report.Checkpoints = append(report.Checkpoints, c.outcome(ToForget))
	}
	return report
}

// Run forgets what was decided. One failure does not stop the others.
func (p *Plan) Run(ctx context.Context) Report {
	report := Report{Checkpoints: []Outcome{}, Alive: p.alive}
	for _, c := range p.planned {
		o := c.outcome(Forgotten)
		if c.do == doForget {
			p.forget(ctx, c, &o)
		}
		report.Checkpoints = append(report.Checkpoints, o)
	}
	return report
}

// outcome has the state done where the checkpoint is to be forgotten.
func (c planned) outcome(done State) Outcome {
	return Outcome{
		Attachment: c.key(), Pod: c.record.Pod, Namespace: c.record.Namespace, Sandbox: c.evidence.State, Reason: c.reason,
		State: map[verb]State{doForget: done, doKeep: Kept, doFail: Failed}[c.do], LeaseMayRemain: leaseMayRemain(c.record.CNI.Config),
	}
}

// forget removes the checkpoint if it is still the one that was judged.
func (p *Plan) forget(ctx context.Context, c planned, o *Outcome) {
	ctx, cancel := context.WithTimeout(ctx, flock.Patience)
	defer cancel()
	err := ctx.Err()
	forgotten := false
	if err == nil {
		forgotten, err = p.underLock(ctx, c)
	}
	switch {
	case err != nil:
		o.State, o.Reason = Failed, printable.Joined(err)
	case !forgotten:
		o.State, o.Reason = Kept, "it was written anew meanwhile"
	}
}

func (p *Plan) underLock(ctx context.Context, c planned) (forgotten bool, err error) {
	unlock, err := p.store.Lock(ctx, c.key().ContainerID)
	if err != nil {
		return false, err
	}
	defer unlock()
	if c.unreadable != nil {
		return p.store.ForgetUnreadable(*c.unreadable)
	}
	return p.store.ForgetRead(c.record)
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
