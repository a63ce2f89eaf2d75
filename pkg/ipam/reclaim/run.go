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
	"github.com/relink-cni/relink/pkg/sandbox"
)

// Options of a run.
type Options struct {
	Sources
	// DryRun judges the holders, and gives nothing up.
	DryRun bool
	// Filter says which holders of a lease are judged. nil: all.
	Filter func(lease.Lease, lease.Holder) bool
	// WithAlive has the report list the holders that are alive, too.
	WithAlive bool
}

// HolderState is what became of a holder.
type HolderState string

// The states. In a dry run, ToReclaim replaces Reclaimed.
const (
	ToReclaim HolderState = "to reclaim"
	Reclaimed HolderState = "reclaimed"
	// Kept says that nothing proves that the holder is gone.
	Kept HolderState = "kept"
	// ReleasedMeanwhile says that the holder gave up the address meanwhile, or was given it again.
	ReleasedMeanwhile HolderState = "given up meanwhile"
	// Failed says that the holder is gone, and that it still has the address.
	Failed HolderState = "failed"
)

// Free is the value of HolderFinding.StateAfter for a free address.
const Free lease.State = "free"

// HolderFinding is what was found of a holder.
type HolderFinding struct {
	Address netip.Addr       `json:"address"`
	Network string           `json:"network"`
	Owner   attachment.Owner `json:"owner,omitzero"`
	Holder  lease.Holder     `json:"holder"`
	sandbox.Judgement
	State HolderState `json:"state"`
	// StateAfter is the state of the address without the holders that are gone. It is empty for a holder that is
	// kept.
	StateAfter lease.State `json:"becomes,omitzero"`
	// Error is why it failed.
	Error string `json:"error,omitempty"`

	// namespace is the namespace that was judged.
	namespace attachment.Namespace
}

// HolderReport is everything that a run found and did.
type HolderReport struct {
	DryRun bool `json:"dryRun"`
	// Holders are those that are not alive, in the order of the networks and addresses. With
	// Options.WithAlive they are all.
	Holders []HolderFinding `json:"holders"`
	// Alive counts those that are alive.
	Alive int `json:"alive"`
	// Problems say what of the node could not be looked at.
	Problems []string `json:"problems"`
	// Failures say which networks could not be looked at.
	Failures []string `json:"failures"`
}

// Complete says that nothing failed, and that nothing is unknown for a problem with the look.
func (r HolderReport) Complete() bool {
	unknown, failed := false, len(r.Failures) > 0
	for _, f := range r.Holders {
		unknown, failed = unknown || f.Verdict == sandbox.VerdictUnknown, failed || f.State == Failed
	}
	return !failed && (!unknown || len(r.Problems) == 0)
}

// run is a run under way.
type run struct {
	Options
	report HolderReport
	held   []held
}

// held are the leases of a store. ahead is how far its time is ahead of the time of day.
type held struct {
	store  *lease.Store
	leases []lease.Lease
	ahead  time.Duration
}

// Run judges each holder of the stores' leases by itself. Then those that are proven gone give up their
// addresses, one after the other, each only if it is still the holder that was judged. A failure does not
// stop the rest, and is in the report. The error is that of Look.
func Run(ctx context.Context, stores []*lease.Store, o Options) (HolderReport, error) {
	r := run{Options: o, report: HolderReport{DryRun: o.DryRun, Holders: []HolderFinding{}, Problems: []string{}, Failures: []string{}}}
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
			r.preview(ctx, h.store, found)
		} else {
			proveAgain(ctx, r.AllProcesses, found)
			reclaim(ctx, h.store, found)
		}
		r.report.Holders = append(r.report.Holders, found...)
	}
	r.report.Problems = append(r.report.Problems, node.Problems()...)
	return r.report, nil
}

func (r *run) list(ctx context.Context, s *lease.Store) {
	h := held{store: s}
	leases, err := s.List(ctx)
	if err == nil {
		h.ahead, err = s.ClockAhead(ctx)
	}
	if errors.Is(err, lease.ErrNotLeased) {
		return
	}
	if err != nil {
		r.report.Failures = append(r.report.Failures, err.Error())
		return
	}
	h.leases = leases
	r.held = append(r.held, h)
}

// judge returns what is found of the holders, without those that are alive.
func (r *run) judge(node *Node, h held) []HolderFinding {
	var found []HolderFinding
	for _, l := range h.leases {
		for _, holder := range l.Holders {
			if r.Filter != nil && !r.Filter(l, holder) {
				continue
			}
			instant := time.Now()
			if holder.Origin != lease.Imported { // An import knows only the time of day.
				instant = instant.Add(h.ahead)
			}
			j := node.Judge(l.Address, holder, instant, OtherHolders(l, holder)...)
			if j.Verdict == sandbox.VerdictAlive {
				r.report.Alive++
				if !r.WithAlive {
					continue
				}
			}
			f := HolderFinding{Address: l.Address, Network: l.Network, Owner: l.Owner, Holder: holder, Judgement: j, State: Kept, namespace: node.namespaceOf(holder)}
			if j.Verdict == sandbox.VerdictGone {
				f.State = ToReclaim
			}
			found = append(found, f)
		}
	}
	return found
}

// OtherHolders returns the other holders of the lease, for Judge. Imported holders are left out: their namespaces may
// be strangers'.
func OtherHolders(l lease.Lease, holder lease.Holder) []lease.Holder {
	return slices.DeleteFunc(slices.Clone(l.Holders), func(h lease.Holder) bool {
		return h.Origin == lease.Imported || h.ContainerID == holder.ContainerID && h.IfName == holder.IfName
	})
}

// reclaimReason is why a holder gives its address up.
func (f HolderFinding) reclaimReason() string { return "its sandbox is gone: " + f.Reason() }

// preview finds out what the addresses of those that are gone will become.
func (r *run) preview(ctx context.Context, s *lease.Store, found []HolderFinding) {
	var holders []lease.GoneHolder
	for _, f := range found {
		if f.State == ToReclaim {
			holders = append(holders, lease.GoneHolder{Address: f.Address, Holder: f.Holder, Reason: f.reclaimReason()})
		}
	}
	if len(holders) == 0 {
		return
	}
	remaining, err := s.PreviewGivenUp(ctx, holders)
	if err != nil {
		r.report.Failures = append(r.report.Failures, err.Error())
		return
	}
	noteStates(found, remaining)
}

// noteStates notes what the addresses become or are, if they have a lease then.
func noteStates(found []HolderFinding, leases map[netip.Addr]lease.Lease) {
	for i, f := range found {
		if f.State == ToReclaim || f.State == Reclaimed {
			found[i].StateAfter = cmp.Or(leases[f.Address].State, Free)
		}
	}
}

// reclaim has those that are gone give up their addresses, and notes what became of the addresses.
func reclaim(ctx context.Context, s *lease.Store, found []HolderFinding) {
	for i := range found {
		if found[i].State == ToReclaim {
			found[i].reclaim(ctx, s)
		}
	}
	if !slices.ContainsFunc(found, func(f HolderFinding) bool { return f.State == Reclaimed }) {
		return
	}
	leases, err := s.List(ctx)
	if err != nil {
		return // They are given up, whatever they are now.
	}
	remaining := map[netip.Addr]lease.Lease{}
	for _, l := range leases {
		remaining[l.Address] = l
	}
	noteStates(found, remaining)
}

func (f *HolderFinding) reclaim(ctx context.Context, s *lease.Store) {
	err := ctx.Err()
	if err == nil {
		err = s.RemoveHolder(ctx, lease.Lease{Address: f.Address}, f.Holder, f.reclaimReason())
	}
	switch {
	case err == nil:
		f.State = Reclaimed
	case errors.Is(err, lease.ErrHolderChanged), errors.Is(err, lease.ErrNotLeased):
		f.State = ReleasedMeanwhile
	default:
		f.State, f.Error = Failed, err.Error()
	}
}
