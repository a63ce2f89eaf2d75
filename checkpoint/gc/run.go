package gc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/hostends"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/pkg/selection"
)

// Options of a pass.
type Options struct {
	audit.Sources
	// Grace is the time between two sightings, DefaultGrace for 0.
	Grace time.Duration
	// DryRun frees nothing, and notes no sightings.
	DryRun bool
	// Select names what is freed.
	Select selection.Selection
	// These name which sorts of things are freed: none of them stands for all. Interfaces are what host access has in the host: routes, rules, and
	// rules of iptables. The pairs themselves go with the sandboxes.
	OnlyLeases, OnlyCheckpoints, OnlyInterfaces bool
	// Now is for a person: the address or the checkpoint of a sandbox that is proven gone is freed at the first sight. If the runtime was
	// not asked, the CNI caches have to show that it owes no DEL.
	Now bool
	// Forget is for a person who names checkpoints: those of living sandboxes are in the report, too, and all those are freed whose network
	// namespaces are gone. With Force, all are freed.
	Forget, Force bool
	// Confirm is asked with what would be freed, before it is. Its error ends the pass. nil: nobody is asked.
	Confirm func(PassReport) error
}

// wants says whether a sort of things is freed. selected is its field.
func (o Options) wants(selected bool) bool {
	return selected || !o.OnlyLeases && !o.OnlyCheckpoints && !o.OnlyInterfaces
}

// The states, beside those of all verbs.
const (
	ToFree  change.State = "to free"
	Freed   change.State = "freed"
	Waiting change.State = "waiting"
	// Passed says that somebody changed it meanwhile.
	Passed change.State = "changed meanwhile"
)

// States are all states, in the order in which they are told.
var States = []change.State{ToFree, Freed, Waiting, Passed, change.Kept, change.NotTried, change.Failed}

// PassOutcome is what was found of a thing, and what became of it.
type PassOutcome struct {
	audit.Finding
	State  change.State `json:"state"`
	Reason string       `json:"reason"`
	// Until is when it can be freed, if it is Waiting. It is zero if a dry run, or one with Now, is the first to see it.
	Until time.Time `json:"until,omitzero"`
	// AddressState is the state of the address afterwards, "free" for free. It is empty for what is not freed, and for a checkpoint.
	AddressState lease.State `json:"becomes,omitempty"`
}

// Common returns the part that all verbs share.
func (o PassOutcome) Common() change.Outcome {
	return change.Outcome{Attachment: o.Attachment, Pod: o.Pod, State: o.State, Reason: o.Reason}
}

// target returns the record of the checkpoint that the outcome is about, as it was listed.
func (o *PassOutcome) target() checkpoint.Record {
	return *cmp.Or(o.Subject.Checkpoint, &checkpoint.Record{Attachment: o.Attachment})
}

// errForgotten says that somebody else has dropped the checkpoint.
var errForgotten = errors.New("it was dropped meanwhile")

// Fail sets the state by the error.
func (o *PassOutcome) Fail(err error) {
	common := o.Common()
	common.Fail(err)
	o.State, o.Reason = common.State, common.Reason
	for _, changed := range []error{lease.ErrHolderChanged, lease.ErrNotLeased, checkpoint.ErrWrittenAnew, errForgotten} {
		if errors.Is(err, changed) {
			o.State = Passed
		}
	}
}

// PassReport is everything that a pass found and did. Its problems say what could not be looked at, its notes what nobody was there to ask for.
type PassReport struct {
	change.Report[PassOutcome]
	// OwnersUnasked is how many owners were not asked for in this pass.
	OwnersUnasked int `json:"ownersLeft,omitempty"`
	// Host says what was wrong with the host's part of host access, and is right by now: what pods that are gone have left there, and what is missing.
	Host []string `json:"host,omitempty"`
	// Audit is the audit that the pass began with.
	Audit audit.NodeReport `json:"-"`
}

// Run makes one pass. A failure to free one thing is in the report, and does not stop the rest. The error says that nothing
// could be looked at, that Select names nothing, that the sightings cannot be noted, or that another pass is under way (flock.ErrBusy).
func Run(ctx context.Context, o Options) (PassReport, error) {
	o.Grace, o.ByCache = cmp.Or(o.Grace, DefaultGrace), o.Now
	notes := !o.DryRun && !o.Now && !o.Forget
	if notes {
		unlock, err := o.Store.LockNode(ctx, checkpoint.GCLock)
		if err != nil {
			return PassReport{}, err
		}
		defer unlock()
	}
	earlier, torn := loadSightings(o.Store)
	o.FirstOwners = append(o.FirstOwners, earlier.Owners()...)
	found, err := audit.Run(ctx, o.Sources)
	if err != nil {
		return PassReport{}, err
	}
	moment, err := currentMoment()
	if err != nil {
		return PassReport{}, err
	}
	outcomes, sightings := Decide(found, earlier, moment, o)
	if outcomes, err = o.choose(outcomes, found.Findings); err != nil {
		return PassReport{}, err
	}
	if notes {
		if err := saveSightings(o.Store, sightings); err != nil {
			return PassReport{}, err // Nothing would ever be seen twice.
		}
	}
	p := pass{Options: o, stores: map[string]*lease.Store{}, report: PassReport{
		Report:        change.Report[PassOutcome]{DryRun: o.DryRun, Outcomes: outcomes, Problems: found.Problems, Notes: found.Notes},
		OwnersUnasked: found.OwnersUnasked, Audit: found,
	}}
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
	if o.DryRun || o.Confirm != nil {
		p.preview()
		p.sweepHost(ctx, true)
	}
	if o.DryRun {
		return p.report, nil
	}
	if o.Confirm != nil {
		if err := o.Confirm(p.report); err != nil {
			return p.report, err
		}
	}
	p.saveClusters(ctx)
	p.apply(ctx)
	p.sweepHost(ctx, false)
	return p.report, nil
}

// sweepHost puts right what the host has for host access, unless pods are named. A dry run says what that is.
func (p *pass) sweepHost(ctx context.Context, dryRun bool) {
	if p.Forget || !p.Select.MatchesAll() || !p.wants(p.OnlyInterfaces) {
		return
	}
	steps, err := hostends.Sweep(ctx, p.Store, dryRun)
	p.report.Host = steps
	if err == nil {
		return
	}
	if problem := "host access: " + printable.Joined(err); !slices.Contains(p.report.Problems, problem) {
		p.report.Problems = append(p.report.Problems, problem)
	}
}

// choose returns the outcomes that are asked for. A name that is only in a finding about nothing that can be freed is no mistake.
func (o Options) choose(outcomes []PassOutcome, findings []audit.Finding) ([]PassOutcome, error) {
	var candidates []selection.Candidate
	note := func(f audit.Finding) {
		candidates = append(candidates, selection.Candidate{Pod: f.Pod, ContainerID: f.Attachment.ContainerID, Network: f.Network})
	}
	for _, out := range outcomes {
		note(out.Finding)
	}
	for _, f := range findings {
		note(f)
	}
	chosen, err := o.Select.Choose(candidates)
	if err != nil {
		return nil, err
	}
	kept := []PassOutcome{}
	for i, out := range outcomes {
		selected := o.OnlyCheckpoints
		if out.Subject.Lease.Address.IsValid() {
			selected = o.OnlyLeases
		}
		if chosen[i] && o.wants(selected) {
			kept = append(kept, out)
		}
	}
	return kept, nil
}

// currentMoment is the moment of the pass.
func currentMoment() (Moment, error) {
	id, err := boot.ID()
	if err != nil {
		return Moment{}, err
	}
	uptime, err := boot.Uptime()
	return Moment{BootID: id, Uptime: uptime, Time: time.Now()}, err
}

// pass is a pass that has decided.
type pass struct {
	Options
	report PassReport
	// stores are by their files.
	stores map[string]*lease.Store
	// rechecked are the owners of what is to be freed, as they are right before that.
	rechecked map[attachment.Owner]owner.Judgement
}

// saveClusters notes in each store that knows none which cluster its owners are of.
func (p *pass) saveClusters(ctx context.Context) {
	for path, uid := range p.report.Audit.NewClusters {
		if err := p.stores[path].SetCluster(ctx, uid); err != nil {
			p.report.Problems = append(p.report.Problems, err.Error())
		}
	}
}

// preview finds out what the addresses become.
func (p *pass) preview() {
	for i := range p.report.Outcomes {
		o := &p.report.Outcomes[i]
		if h := o.Subject.Holder; h != nil && o.State == ToFree {
			o.setAddressState(o.Subject.Lease.WithoutHolder(*h, time.Now()), nil)
		}
	}
}

// apply frees what is to be freed.
func (p *pass) apply(ctx context.Context) {
	p.recheckOwners(ctx)
	p.recheckNamespaces(ctx)
	var checkpoints []*PassOutcome
	var targets []checkpoint.Record
	for i := range p.report.Outcomes {
		o := &p.report.Outcomes[i]
		o.AddressState = "" // That was what it would become.
		switch {
		case o.State != ToFree:
		case o.Subject.Holder != nil:
			p.releaseHolder(ctx, o)
		case o.Subject.Reservation:
			p.endReservation(ctx, o)
		default:
			checkpoints, targets = append(checkpoints, o), append(targets, o.target())
		}
	}
	for i, err := range change.NewRunner(p.Store).Run(ctx, targets, func(i int) error { return p.forgetCheckpoint(checkpoints[i]) }) {
		if err != nil {
			checkpoints[i].Fail(err)
		}
	}
}

// storeOf returns the store of the lease that the outcome is about.
func (p *pass) storeOf(o *PassOutcome) *lease.Store {
	return p.stores[lease.PathIn(o.LeaseDir, o.Subject.Lease.Network)]
}

// recheckOwners asks for the owners once more, right before their reservations end.
func (p *pass) recheckOwners(ctx context.Context) {
	waiting := map[attachment.Owner]bool{}
	for _, o := range p.report.Outcomes {
		if o.State == ToFree && o.Subject.Reservation {
			waiting[o.Subject.Lease.Owner] = true
		}
	}
	if p.Judge != nil {
		p.rechecked = audit.JudgeOwners(ctx, p.Judge, slices.Collect(maps.Keys(waiting)))
	}
}

// proof is why the thing is freed, for the history of the address.
func (o *PassOutcome) proof(cause string) string {
	return fmt.Sprintf("%s: %s; %s", cause, strings.Join(o.Evidence, "; "), o.Reason)
}

// releaseHolder has a holder give up its address.
func (p *pass) releaseHolder(ctx context.Context, o *PassOutcome) {
	holder := lease.SeenHolder{Address: o.Subject.Lease.Address, Holder: *o.Subject.Holder}
	p.free(ctx, o, func(s *lease.Store) error {
		return s.GiveUp(ctx, []lease.SeenHolder{holder}, o.proof("its sandbox is gone"))
	})
}

// endReservation ends a reservation, if its owner is still judged as before, by the same cluster.
func (p *pass) endReservation(ctx context.Context, o *PassOutcome) {
	if err := p.confirmOwner(ctx, o); err != nil {
		o.State, o.Reason = change.Kept, fmt.Sprintf("asked once more, right before: %v", err)
		return
	}
	p.free(ctx, o, func(s *lease.Store) error { return s.End(ctx, o.Subject.Lease, o.proof("nobody will ask for it")) })
}

// confirmOwner returns an error unless the owner of a reservation is still judged as before.
func (p *pass) confirmOwner(ctx context.Context, o *PassOutcome) error {
	judgement, asked := p.rechecked[o.Subject.Lease.Owner]
	if !asked {
		judgement = owner.Judgement{Standing: owner.Unknown, Reason: "there was no answer"}
	}
	elsewhere := o.Fields.ElsewherePodUID
	switch {
	case judgement.Standing != o.Fields.Standing:
		return fmt.Errorf("the owner's standing is %q: %s", judgement.Standing, judgement.Reason)
	case elsewhere != "" && judgement.RemotePodUID != elsewhere:
		return errors.New(judgement.PodLocation)
	case judgement.Cluster == "":
		return errors.New("the Kubernetes API does not tell which cluster it is: " + judgement.NoCluster)
	}
	return p.storeOf(o).CheckCluster(ctx, judgement.Cluster) // The kubeconfig can have been replaced meanwhile.
}

// free calls apply, and notes what became of the address.
func (p *pass) free(ctx context.Context, o *PassOutcome, apply func(*lease.Store) error) {
	s, err := p.storeOf(o), change.ErrNotTried
	if ctx.Err() == nil {
		err = apply(s)
	}
	if err != nil {
		o.Fail(err)
		return
	}
	o.State = Freed
	o.setAddressState(s.Get(ctx, o.Subject.Lease.Address))
}

// setAddressState notes what the address is afterwards. If that cannot be read, it is not known.
func (o *PassOutcome) setAddressState(l lease.Lease, err error) {
	switch {
	case errors.Is(err, lease.ErrNotLeased), err == nil && l.State == "":
		o.AddressState = "free"
	case err == nil:
		o.AddressState = l.State
	}
}

// recheckNamespaces looks for the namespaces once more, right before. Short-lived processes can hand a namespace on, so that one look
// misses it.
func (p *pass) recheckNamespaces(ctx context.Context) {
	recorded := func(o PassOutcome) bool {
		return o.State == ToFree && !o.Subject.Reservation && (o.Subject.Holder == nil || o.Fields.Namespace.Inode != 0)
	}
	var namespaces []attachment.Namespace
	for _, o := range p.report.Outcomes {
		if recorded(o) {
			namespaces = append(namespaces, o.Fields.Namespace)
		}
	}
	if len(namespaces) == 0 || p.Force {
		return
	}
	proven := sandbox.Prove(ctx, p.AllProcesses, namespaces...)
	for i, o := range p.report.Outcomes {
		if e := proven[o.Fields.Namespace]; recorded(o) && e.Verdict != sandbox.VerdictGone {
			p.report.Outcomes[i].State, p.report.Outcomes[i].Reason = change.Kept, "looked for once more, right before: "+e.Reason
		}
	}
}

// forgetCheckpoint drops a checkpoint. The caller holds its sandbox's lock.
func (p *pass) forgetCheckpoint(o *PassOutcome) error {
	if _, err := p.Store.Load(o.Attachment.ContainerID, o.Attachment.IfName); errors.Is(err, checkpoint.ErrNoCheckpoint) {
		return errForgotten
	}
	err := p.Store.ForgetListed(o.target(), o.Subject.Unreadable)
	if err == nil {
		o.State = Freed
	}
	return err
}
