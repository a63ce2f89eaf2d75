package lease

import (
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
	var lease Lease
	err := s.update(ctx, func(l *leases) error {
		if err := l.settle(); err != nil {
			return err
		}
		if err := l.isGiven(a); err != nil {
			return err
		}
		was, err := l.current(a)
		if err != nil && !errors.Is(err, ErrNone) {
			return err
		}
		if lease, err = l.reserved(was, a, owner, retain); err != nil {
			return err
		}
		l.note(Event{What: ReservedByHand, Then: lease.State}.of(lease, Holder{}))
		return l.put(lease)
	})
	return lease, err
}

// Gives returns ErrNotGiven, with the reason, for an address that no ADD gives on this node: a gateway, an excluded address, or
// one outside of the ranges that ADDs asked for. Another node's address of a pool matches ErrNotGranted, too. It returns nil if
// no ranges are known, and ErrNone for a network that has no store.
func (s *Store) Gives(ctx context.Context, a netip.Addr) error {
	return s.view(ctx, func(l *leases) error { return l.isGiven(a) })
}

// isGiven returns ErrNotGiven for an address that no ADD gives.
func (l *leases) isGiven(a netip.Addr) error {
	all, err := l.known()
	if err != nil || len(all) == 0 {
		return err
	}
	var sets []string
	for _, k := range all {
		k, pools, err := l.spread(k)
		if err != nil {
			return err
		}
		n, set := k.set(a)
		if n < 0 {
			for _, s := range k.Sets {
				sets = append(sets, s.String())
			}
			continue
		}
		if ok, why := set.Gives(a); !ok {
			return fmt.Errorf("%s %w in network %s: %s", a, ErrNotGiven, l.store.network, why)
		}
		if len(pools) > 0 && !pools[n].has(a) {
			return fmt.Errorf("%s %w in network %s: it is of pool %s, and %w: run the command on the node that has it",
				a, ErrNotGiven, l.store.network, pools[n].layout.Name, ErrNotGranted)
		}
		return nil
	}
	return fmt.Errorf("%s %w in network %s: its last ADDs gave addresses of %s; a new range is known after its first ADD",
		a, ErrNotGiven, l.store.network, strings.Join(sets, ", "))
}

// reserved returns the reservation that follows on the lease that the address had, the zero Lease for free. It
// ends no earlier than that lease.
func (l *leases) reserved(was Lease, a netip.Addr, owner attachment.Owner, retain time.Duration) (Lease, error) {
	if was.State != "" && was.State != Quarantined && was.Owner != owner {
		return Lease{}, fmt.Errorf("%s is %w: it is %s", a, ErrTaken, was.whoseFor(owner))
	}
	var until time.Time
	if retain > 0 {
		until = l.now.Add(retain)
	}
	lease := was
	switch was.State {
	case Held:
		if was.byHand(l.now) {
			until = later(until, was.ByHandUntil)
		}
	case Reserved:
		until = later(until, was.Until)
		lease.Until = until
	case Quarantined:
		lease.Last = Holder{Policy: Policy{Quarantine: was.Last.Policy.Quarantine}}
		if !until.IsZero() {
			until = latest(until, was.Until)
		}
		lease.Until = until
	default:
		lease = Lease{Address: a, Network: l.store.network, ReleasedAt: l.now, Until: until}
	}
	if was.State != Held {
		lease.State, lease.Why = Reserved, byHand
	}
	lease.Owner, lease.ByHand, lease.ByHandAt, lease.ByHandUntil = owner, true, l.now, until
	return lease, nil
}

// later returns the later of two ends. Zero stands for never.
func later(a, b time.Time) time.Time {
	if a.IsZero() || b.IsZero() {
		return time.Time{}
	}
	return latest(a, b)
}
