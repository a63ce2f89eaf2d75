package reclaim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/forget"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
)

// Options of a pass.
type Options struct {
	audit.Sources
	// Grace is the time between two sightings, DefaultGrace for 0.
	Grace time.Duration
	// DryRun frees nothing, and notes no sightings.
	DryRun bool
}

// State is what became of a thing. In a dry run, ToFree replaces Freed.
type State string

// The states.
const (
	ToFree  State = "to free"
	Freed   State = "freed"
	Waiting State = "waiting"
	Kept    State = "kept"
	// Passed says that somebody changed it meanwhile.
	Passed State = "changed meanwhile"
	Failed State = "failed"
)

// States are all states, in the order in which they are told.
var States = []State{ToFree, Freed, Waiting, Passed, Kept, Failed}

// Outcome is what was found of a thing, and what became of it.
type Outcome struct {
	audit.Finding
	State State  `json:"state"`
	Why   string `json:"why"`
	// Until is when it can be freed, if it is Waiting. It is zero if a dry run is the first to see it.
	Until time.Time `json:"until,omitzero"`
	// Becomes is the state of the address afterwards, "free" for free. It is empty for what is not freed, and for a checkpoint.
	Becomes lease.State `json:"becomes,omitempty"`
}

// Report is everything that a pass found and did.
type Report struct {
	DryRun   bool      `json:"dryRun"`
	Outcomes []Outcome `json:"outcomes"`
	// OwnersLeft is how many owners were not asked for in this pass.
	OwnersLeft int `json:"ownersLeft,omitempty"`
	// Problems say what could not be looked at. Notes say what nobody was there to ask for.
	Problems []string `json:"problems,omitempty"`
	Notes    []string `json:"notes,omitempty"`
	// Found is the audit that the pass began with.
	Found audit.Report `json:"-"`
}

// Complete says that nothing failed, and that all could be looked at.
func (r Report) Complete() bool { return r.Count(Failed) == 0 && len(r.Problems) == 0 }

// Count returns how many things are in the state.
func (r Report) Count(s State) (n int) {
	for _, o := range r.Outcomes {
		if o.State == s {
			n++
		}
	}
	return n
}

// Run makes one pass. A failure to free one thing is in the report, and does not stop the rest. The error says that nothing
// could be looked at, that the sightings cannot be noted, or that another pass is under way (flock.ErrBusy).
func Run(ctx context.Context, o Options) (Report, error) {
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	if !o.DryRun {
		unlock, err := lock(ctx, o.Store)
		if err != nil {
			return Report{}, err
		}
		defer unlock()
	}
	earlier, torn := load(o.Store)
	o.First = append(o.First, earlier.Owners()...)
	found, err := audit.Run(ctx, o.Sources)
	if err != nil {
		return Report{}, err
	}
	at, err := now()
	if err != nil {
		return Report{}, err
	}
	decisions, sightings := Decide(found, earlier, at, o.Grace)
	if !o.DryRun {
		if err := save(o.Store, sightings); err != nil {
			return Report{}, err // Nothing would ever be seen twice.
		}
	}
	p := pass{Options: o, stores: map[string]*lease.Store{}, report: Report{DryRun: o.DryRun, Outcomes: []Outcome{}, OwnersLeft: found.OwnersLeft, Problems: found.Problems, Notes: found.Notes, Found: found}}
	for _, s := range p.Leases {
		p.stores[s.Path()] = s
	}
	if torn != nil {
		p.report.Problems = append(p.report.Problems, torn.Error())
	}
	for _, n := range found.Findings {
		if n.Kind == audit.Unknown && n.Severity == audit.Error && n.Attachment == (attachment.Key{}) {
			p.report.Problems = append(p.report.Problems, strings.Join(n.Evidence, "; "))
		}
	}
	p.noteClusters(ctx)
	p.carryOut(ctx, decisions)
	return p.report, nil
}

// now is the moment of the pass.
func now() (Moment, error) {
	id, err := boot.ID()
	if err != nil {
		return Moment{}, err
	}
	uptime, err := boot.Uptime()
	return Moment{BootID: id, Uptime: uptime, Now: time.Now()}, err
}

// pass is a pass that has decided.
type pass struct {
	Options
	report Report
	// stores are by their files.
	stores map[string]*lease.Store
	// again are the owners of what is to be freed, as they are right before that.
	again map[attachment.Owner]owner.Judgement
}

// noteClusters notes in each store that knows none which cluster its owners are of.
func (p *pass) noteClusters(ctx context.Context) {
	if p.DryRun {
		return
	}
	for path, uid := range p.report.Found.NewClusters {
		if err := p.stores[path].SetCluster(ctx, uid); err != nil {
			p.report.Problems = append(p.report.Problems, err.Error())
		}
	}
}

// carryOut does what was decided.
func (p *pass) carryOut(ctx context.Context, all []Decision) {
	p.askAgain(ctx, all)
	var checkpoints []*Outcome
	outcomes := make([]Outcome, len(all))
	for i, d := range all {
		o := &outcomes[i]
		*o = Outcome{Finding: d.Finding, Why: d.Why, Until: d.Until, State: map[Verb]State{Free: ToFree, Wait: Waiting, Keep: Kept}[d.Do]}
		if d.Do != Wait || d.New && p.DryRun {
			o.Until = time.Time{}
		}
		if d.New && p.DryRun {
			o.Why = "no pass has seen it before, and a dry run does not count as one"
		}
		switch s := d.Finding.Subject; {
		case d.Do != Free:
		case s.Holder != nil:
			p.abandon(ctx, o)
		case s.Reservation:
			p.endReservation(ctx, o)
		default:
			checkpoints = append(checkpoints, o)
		}
	}
	p.forget(ctx, checkpoints)
	p.report.Outcomes = append(p.report.Outcomes, outcomes...)
}

// storeOf returns the store of the lease that the outcome is about.
func (p *pass) storeOf(o *Outcome) *lease.Store {
	return p.stores[lease.PathIn(o.LeaseDir, o.Subject.Lease.Network)]
}

// askAgain asks for the owners once more, right before their reservations end.
func (p *pass) askAgain(ctx context.Context, all []Decision) {
	p.again = map[attachment.Owner]owner.Judgement{}
	owners := ownersToFree(all)
	if len(owners) == 0 || p.Judge == nil || p.DryRun {
		return
	}
	for i, j := range p.Judge.Judge(ctx, owners) {
		if i < len(owners) && j.Owner == owners[i] {
			p.again[owners[i]] = j
		}
	}
}

// proof is why the thing is freed, for the history of the address.
func (o *Outcome) proof(what string) string {
	return fmt.Sprintf("%s: %s; %s", what, strings.Join(o.Evidence, "; "), o.Why)
}

// abandon has a holder give up its address.
func (p *pass) abandon(ctx context.Context, o *Outcome) {
	s, l, h, why := p.storeOf(o), o.Subject.Lease, *o.Subject.Holder, o.proof("its sandbox is gone")
	if p.DryRun {
		left, err := s.Without(ctx, []lease.Gone{{Address: l.Address, Holder: h, Why: why}})
		o.becomes(left[l.Address], err)
		return
	}
	if p.done(ctx, o, func() error { return s.Abandon(ctx, l, h, why) }) {
		o.becomes(s.Get(ctx, l.Address))
	}
}

// endReservation ends a reservation, if its owner is still judged as before, by the same cluster.
func (p *pass) endReservation(ctx context.Context, o *Outcome) {
	s, l := p.storeOf(o), o.Subject.Lease
	if p.DryRun {
		return
	}
	again, asked := p.again[l.Owner]
	if !asked {
		again = owner.Judgement{Standing: owner.Unknown, Why: "there was no answer"}
	}
	if again.Standing != o.Fields.Standing {
		o.State, o.Why = Kept, fmt.Sprintf("asked once more, right before: the owner's standing is %q: %s", again.Standing, again.Why)
		return
	}
	if elsewhere := o.Fields.Elsewhere; elsewhere != "" && again.Elsewhere != elsewhere {
		o.State, o.Why = Kept, "asked once more, right before: "+again.Where
		return
	}
	if again.Cluster == "" {
		o.State, o.Why = Kept, "asked once more, right before: the Kubernetes API does not tell which cluster it is: "+again.NoCluster
		return
	}
	if err := s.OfCluster(ctx, again.Cluster); err != nil { // The kubeconfig was replaced meanwhile.
		o.State, o.Why = Kept, "asked once more, right before: "+err.Error()
		return
	}
	if p.done(ctx, o, func() error { return s.EndReservation(ctx, l, o.proof("nobody will ask for it")) }) {
		o.becomes(s.Get(ctx, l.Address))
	}
}

// done calls free and notes what became of the thing.
func (p *pass) done(ctx context.Context, o *Outcome, free func() error) bool {
	err := ctx.Err()
	if err == nil {
		err = free()
	}
	switch {
	case err == nil:
		o.State = Freed
	case errors.Is(err, lease.ErrHolder), errors.Is(err, lease.ErrNone):
		o.State, o.Why = Passed, err.Error()
	default:
		o.State, o.Why = Failed, err.Error()
	}
	return o.State == Freed
}

// FreeAddress is the value of Outcome.Becomes for a free address.
const FreeAddress lease.State = "free"

// becomes notes what the address is afterwards. If that cannot be read, it is not known.
func (o *Outcome) becomes(l lease.Lease, err error) {
	switch {
	case errors.Is(err, lease.ErrNone), err == nil && l.State == "":
		o.Becomes = FreeAddress
	case err == nil:
		o.Becomes = l.State
	}
}

// forget drops checkpoints. Package forget proves once more that their namespaces are gone, and compares under the lock
// of the sandbox.
func (p *pass) forget(ctx context.Context, due []*Outcome) {
	if len(due) == 0 || p.DryRun {
		return
	}
	type one struct{ containerID, ifName string }
	of, whys := map[one]*Outcome{}, map[*Outcome]string{}
	for _, o := range due {
		whys[o] = o.Why
		of[one{o.Attachment.ContainerID, o.Attachment.IfName}] = o
		o.State, o.Why = Passed, "it is not there any more, or its sandbox is alive"
	}
	plan, err := forget.Look(ctx, forget.Options{
		Store: p.Store, Stale: true, AllProcesses: p.AllProcesses,
		Chosen: func(key attachment.Key, was attachment.Namespace) bool {
			o, meant := of[one{key.ContainerID, key.IfName}]
			return meant && o.Fields.Namespace == was
		},
	})
	if err != nil {
		for _, o := range due {
			o.State, o.Why = Failed, err.Error()
		}
		return
	}
	for _, f := range plan.Run(ctx).Checkpoints {
		o := of[one{f.Attachment.ContainerID, f.Attachment.IfName}]
		switch f.State {
		case forget.Forgotten:
			o.State, o.Why = Freed, whys[o]
		case forget.Kept:
			o.State, o.Why = Kept, f.Reason
		default:
			o.State, o.Why = Failed, f.Reason
		}
	}
}
