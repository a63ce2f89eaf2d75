package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// ErrNotGiven says that no ADD gives the address.
var ErrNotGiven = errors.New("is never given")

// Reserve reserves the address for the owner: until somebody releases it, or for the time retain if that is
// not 0. The address may be the owner's already, or in quarantine. ErrTaken: somebody else has it;
// ErrNotGiven: no ADD gives it, by the ranges that ADDs asked for, if any are known.
func (s *Store) Reserve(ctx context.Context, a netip.Addr, owner attachment.Owner, retain time.Duration) (Lease, error) {
	if owner == (attachment.Owner{}) {
		return Lease{}, errors.New("an address cannot be reserved for nobody")
	}
	owner = storable(owner)
	return result(ctx, s.update, func(l *leaseTx) (Lease, error) {
		previous, err := l.findAfterExpiry(a)
		if err = cmp.Or(err, l.checkGiven(a)); err != nil {
			return Lease{}, err
		}
		lease, err := l.reserved(previous, a, owner, retain)
		if err != nil {
			return Lease{}, err
		}
		l.addEvent(Event{Type: ReservedByHand, StateAfter: lease.State}.withLease(lease, Holder{}))
		return lease, l.put(lease)
	})
}

// CheckGiven returns ErrNotGiven, with the reason, for an address that no ADD gives on this node: a gateway, an excluded address, or
// one outside of the ranges that ADDs asked for. Another node's address of a pool matches ErrNotGranted, too. It returns nil if
// no ranges are known, and ErrNotLeased for a network that has no store.
func (s *Store) CheckGiven(ctx context.Context, a netip.Addr) error {
	return s.view(ctx, func(l *leaseTx) error { return l.checkGiven(a) })
}

// checkGiven returns ErrNotGiven for an address that no ADD gives.
func (l *leaseTx) checkGiven(a netip.Addr) error {
	requested, err := l.requestedRanges()
	if err != nil || len(requested) == 0 {
		return err
	}
	var spans []string
	for _, k := range requested {
		sets, err := l.addressSets(k)
		if err != nil {
			return err
		}
		n := SetOf(sets.ranges(), a)
		if n < 0 {
			for _, s := range sets {
				spans = append(spans, s.members.String())
			}
			continue
		}
		if ok, reason := sets[n].members.Gives(a); !ok {
			return fmt.Errorf("%s %w in network %s: %s", a, ErrNotGiven, l.store.network, reason)
		}
		if !sets[n].gives.Has(a) {
			return fmt.Errorf("%s %w in network %s: it is of pool %s, and %w: run the command on the node that has it",
				a, ErrNotGiven, l.store.network, sets[n].pool.layout.Name, ErrNotGranted)
		}
		return nil
	}
	return fmt.Errorf("%s %w in network %s: its last ADDs gave addresses of %s; a new range is known after its first ADD",
		a, ErrNotGiven, l.store.network, strings.Join(spans, ", "))
}

// reserved returns the reservation that follows on the lease that the address had, the zero Lease for free. It
// ends no earlier than that lease.
func (l *leaseTx) reserved(previous Lease, a netip.Addr, owner attachment.Owner, retain time.Duration) (Lease, error) {
	if !previous.isFree() && previous.State != Quarantined && previous.Owner != owner {
		return Lease{}, fmt.Errorf("%s is %w: it is %s", a, ErrTaken, previous.describeFor(owner))
	}
	var until time.Time
	if retain > 0 {
		until = l.instant.Add(retain)
	}
	lease := previous
	switch previous.State {
	case Held:
		if previous.ReservedByHandAt(l.instant) {
			until = later(until, previous.ByHandUntil)
		}
	case Reserved:
		until = later(until, previous.Until)
		lease.Until = until
	case Quarantined:
		lease.Last = Holder{Policy: Policy{Quarantine: previous.Last.Policy.Quarantine}}
		if !until.IsZero() {
			until = latest(until, previous.Until)
		}
		lease.Until = until
	default:
		lease = Lease{Address: a, Network: l.store.network, ReleasedAt: l.instant, Until: until}
	}
	if previous.State != Held {
		lease.State, lease.Reason = Reserved, ByHand
	}
	lease.Owner, lease.ByHand, lease.ByHandAt, lease.ByHandUntil = owner, true, l.instant, until
	return lease, nil
}

// later returns the later of two ends. Zero stands for never.
func later(a, b time.Time) time.Time {
	if a.IsZero() || b.IsZero() {
		return time.Time{}
	}
	return latest(a, b)
}
