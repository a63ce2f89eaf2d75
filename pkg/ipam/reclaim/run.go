package reclaim

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// Options of a run.
type Options struct {
	Sources
	// DryRun judges the holders, and gives nothing up.
	DryRun bool
	// Chosen says which holders of a lease are judged. nil: all.
	Chosen func(lease.Lease, lease.Holder) bool
	// WithAlive has the report list the holders that are alive, too.
	WithAlive bool
}

// State is what became of a holder.
type State string

// The states. In a dry run, ToReclaim replaces Reclaimed.
const (
	ToReclaim State = "to reclaim"
	Reclaimed State = "reclaimed"
	// Kept says that nothing proves that the holder is gone.
	Kept State = "kept"
	// Passed says that the holder gave up the address meanwhile, or was given it again.
	Passed State = "given up meanwhile"
	// Failed says that the holder is gone, and that it still has the address.
	Failed State = "failed"
)

// Free is the value of Finding.Becomes for a free address.
const Free lease.State = "free"

// Finding is what was found of a holder.
type Finding struct {
	Address netip.Addr       `json:"address"`
	Network string           `json:"network"`
	Owner   attachment.Owner `json:"owner,omitzero"`
	Holder  lease.Holder     `json:"holder"`
	Judgement
	State State `json:"state"`
	// Becomes is the state of the address without the holders that are gone. It is empty for a holder that is
	// kept.
	Becomes lease.State `json:"becomes,omitzero"`
	// Error is why it failed.
	Error string `json:"error,omitempty"`

	lease lease.Lease
	// judged is the namespace that was judged.
	judged attachment.Namespace
}

// Report is everything that a run found and did.
type Report struct {
	DryRun bool `json:"dryRun"`
	// Holders are those that are not alive, in the order of the networks and addresses. With
	// Options.WithAlive they are all.
	Holders []Finding `json:"holders"`
	// Alive counts those that are alive.
	Alive int `json:"alive"`
	// Problems say what of the node could not be looked at.
	Problems []string `json:"problems"`
	// Failures say which networks could not be looked at.
	Failures []string `json:"failures"`
}

// Complete says that nothing failed, and that nothing is unknown for a problem with the look.
func (r Report) Complete() bool {
	unknown, failed := false, len(r.Failures) > 0
	for _, f := range r.Holders {
		unknown, failed = unknown || f.Verdict == Unknown, failed || f.State == Failed
	}
	return !failed && (!unknown || len(r.Problems) == 0)
}

// run is a run under way.
type run struct {
	Options
	report Report
	held   []held
}

// held are the held leases of a store. ahead is how far its time is ahead of the time of day.
type held struct {
	store  *lease.Store
	leases []lease.Lease
	ahead  time.Duration
}

// Run judges each holder of the stores' leases by itself. Then those that are proven gone give up their
// addresses, one after the other, each only if it is still the holder that was judged. A failure does not
// stop the rest, and is in the report. The error is that of Look.
func Run(ctx context.Context, stores []*lease.Store, o Options) (Report, error) {
	r := run{Options: o, report: Report{DryRun: o.DryRun, Holders: []Finding{}, Problems: []string{}, Failures: []string{}}}
	// Leases are listed before the look. So a sandbox that is newer than the look is not judged.
	for _, s := range stores {
		r.list(ctx, s)
	}
	node, err := Look(ctx, o.Sources)
	if err != nil {
		return r.report, err
	}
	for _, h := range r.held {
		found := r.judge(node, h)
		if o.DryRun {
			r.foresee(ctx, h.store, found)
		} else {
			lookAgain(ctx, found, node.bootID)
			reclaim(ctx, h.store, found)
		}
		r.report.Holders = append(r.report.Holders, found...)
	}
	r.report.Problems = append(r.report.Problems, node.Problems()...)
	return r.report, nil
}

func (r *run) list(ctx context.Context, s *lease.Store) {
	h := held{store: s}
	all, err := s.List(ctx)
	if err == nil {
		h.ahead, err = s.ClockAhead(ctx)
	}
	if errors.Is(err, lease.ErrNone) {
		return
	}
	if err != nil {
		r.report.Failures = append(r.report.Failures, err.Error())
		return
	}
	h.leases = slices.DeleteFunc(all, func(l lease.Lease) bool { return l.State != lease.Held })
	r.held = append(r.held, h)
}

// judge returns what is found of the holders, without those that are alive.
func (r *run) judge(node *Node, h held) []Finding {
	var found []Finding
	for _, l := range h.leases {
		for _, holder := range l.Holders {
			if r.Chosen != nil && !r.Chosen(l, holder) {
				continue
			}
			now := time.Now()
			if holder.Origin != lease.Imported { // An import knows only the time of day.
				now = now.Add(h.ahead)
			}
			j := node.Judge(l.Address, holder, now, Others(l, holder)...)
			if j.Verdict == Alive {
				r.report.Alive++
				if !r.WithAlive {
					continue
				}
			}
			f := Finding{Address: l.Address, Network: l.Network, Owner: l.Owner, Holder: holder, Judgement: j, State: Kept, lease: l, judged: node.namespaceOf(holder)}
			if j.Verdict == Gone {
				f.State = ToReclaim
			}
			found = append(found, f)
		}
	}
	return found
}

// Others returns the other holders of the lease, for Judge. Imported holders are left out: their namespaces may
// be strangers'.
func Others(l lease.Lease, holder lease.Holder) []lease.Holder {
	return slices.DeleteFunc(slices.Clone(l.Holders), func(h lease.Holder) bool {
		return h.Origin == lease.Imported || h.ContainerID == holder.ContainerID && h.IfName == holder.IfName
	})
}

// why is why a holder gives its address up.
func (f Finding) why() string { return "its sandbox is gone: " + f.Why() }

// foresee finds out what the addresses of those that are gone will become.
func (r *run) foresee(ctx context.Context, s *lease.Store, found []Finding) {
	var gone []lease.Gone
	for _, f := range found {
		if f.State == ToReclaim {
			gone = append(gone, lease.Gone{Address: f.Address, Holder: f.Holder, Why: f.why()})
		}
	}
	if len(gone) == 0 {
		return
	}
	left, err := s.Without(ctx, gone)
	if err != nil {
		r.report.Failures = append(r.report.Failures, err.Error())
		return
	}
	for i, f := range found {
		if f.State == ToReclaim {
			found[i].Becomes = cmp.Or(left[f.Address].State, Free)
		}
	}
}

// reclaim has those that are gone give up their addresses, and notes what became of the addresses.
func reclaim(ctx context.Context, s *lease.Store, found []Finding) {
	for i := range found {
		if found[i].State == ToReclaim {
			found[i].reclaim(ctx, s)
		}
	}
	if !slices.ContainsFunc(found, func(f Finding) bool { return f.State == Reclaimed }) {
		return
	}
	all, err := s.List(ctx)
	if err != nil {
		return // They are given up, whatever they are now.
	}
	now := map[netip.Addr]lease.State{}
	for _, l := range all {
		now[l.Address] = l.State
	}
	for i, f := range found {
		if f.State == Reclaimed {
			found[i].Becomes = cmp.Or(now[f.Address], Free)
		}
	}
}

func (f *Finding) reclaim(ctx context.Context, s *lease.Store) {
	err := ctx.Err()
	if err == nil {
		err = s.Abandon(ctx, f.lease, f.Holder, f.why())
	}
	switch {
	case err == nil:
		f.State = Reclaimed
	case errors.Is(err, lease.ErrHolder), errors.Is(err, lease.ErrNone):
		f.State = Passed
	default:
		f.State, f.Error = Failed, err.Error()
	}
}
