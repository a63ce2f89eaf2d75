package lease

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// ErrHolderChanged says that somebody else has the address than the caller expects.
var ErrHolderChanged = errors.New("not as expected")

func notAsExpected(l Lease) error {
	return fmt.Errorf("%s is %w: it is %s", l.Address, ErrHolderChanged, l.Describe())
}

// List returns all leases in the order of their addresses, as the next change will find them. Leases that
// have ended are left out, and what was held in an earlier boot is not held any more. ErrNotLeased: nothing was
// ever given.
func (s *Store) List(ctx context.Context) ([]Lease, error) {
	var leases []Lease
	err := s.view(ctx, func(l *leaseTx) error {
		return l.each(func(lease Lease) error {
			if lease, ok := l.asCurrent(lease); ok {
				if len(leases) == cap(leases) {
					leases = slices.Grow(leases, max(16, len(leases))) // append would add a quarter, and copy much more often.
				}
				leases = append(leases, lease)
			}
			return nil
		})
	})
	return leases, err
}

// Get returns the lease of the address. ErrNotLeased: it is free.
func (s *Store) Get(ctx context.Context, a netip.Addr) (Lease, error) {
	var lease Lease
	err := s.view(ctx, func(l *leaseTx) (err error) {
		lease, err = l.current(a)
		return err
	})
	return lease, err
}

// HeldBy returns what the attachment holds. ErrNotLeased: nothing was ever given.
func (s *Store) HeldBy(ctx context.Context, a attachment.Key) (held []Lease, err error) {
	err = s.view(ctx, func(l *leaseTx) (err error) {
		held, err = l.heldBy(a)
		return err
	})
	return held, err
}

// current returns the lease of the address, ErrNotLeased if it is free.
func (l *leaseTx) current(a netip.Addr) (Lease, error) {
	lease, leased, err := l.get(a)
	if err != nil {
		return Lease{}, err
	}
	if leased {
		lease, leased = l.asCurrent(lease)
	}
	if !leased {
		return Lease{}, fmt.Errorf("%s is free in network %s: %w", a, l.store.network, ErrNotLeased)
	}
	return lease, nil
}

// asCurrent returns the lease as a change would find it, and whether it would find one. A look changes
// nothing, and can come before the first change of a boot.
func (l *leaseTx) asCurrent(lease Lease) (_ Lease, ok bool) {
	if slices.ContainsFunc(lease.Holders, l.isOfEarlierBoot) {
		return lease.withoutHolders(l.isOfEarlierBoot, earlierBootReason, l.instant)
	}
	return lease, !l.hasEnded(lease)
}

// Expected is what the caller of ReleaseByHand has seen, and who it means.
type Expected struct {
	// Lease is the lease that the caller has seen. Its state, its owner and its holders are compared, and for an
	// address in quarantine its last holder.
	Lease Lease
	// Holders are those of Lease that give the address up. Nil means all.
	Holders []Holder
}

// matches says whether the lease is still as the caller has seen it.
func (e Expected) matches(l Lease) bool {
	if e.Lease.State != l.State || e.Lease.Owner != l.Owner || !slices.EqualFunc(e.Lease.Holders, l.Holders, Holder.sameAttachment) {
		return false
	}
	return l.State != Quarantined || e.Lease.Last.sameAttachment(l.Last)
}

// includes says whether the holder gives the address up.
func (e Expected) includes(h Holder) bool {
	return e.Holders == nil || slices.ContainsFunc(e.Holders, h.sameAttachment)
}

// sameAttachment says whether both holders are one attachment.
func (h Holder) sameAttachment(o Holder) bool {
	return h.ContainerID == o.ContainerID && h.IfName == o.IfName
}

// ReleaseByHand releases the address if its lease is still as the caller has seen it. It returns the lease before
// and after, the zero Lease for free. Holders that are not meant keep the address. A held address goes into
// quarantine, and so does one whose reservation is younger than its quarantine. ErrHolderChanged: the lease has changed, or
// none of its holders is meant; ErrNotLeased: the address is free.
func (s *Store) ReleaseByHand(ctx context.Context, a netip.Addr, expected Expected) (before, after Lease, err error) {
	err = s.change(ctx, func(l *leaseTx) (err error) {
		if err := l.freeExpired(); err != nil {
			return err
		}
		if before, err = l.current(a); err != nil {
			return err
		}
		if !expected.matches(before) || before.State == Held && !slices.ContainsFunc(before.Holders, expected.includes) {
			return notAsExpected(before)
		}
		var ok bool
		after, ok = before.releasedByHand(expected.includes, l.instant)
		if before.State != Held {
			l.addEvent(Event{Type: ReleasedByHand, Reason: "it was " + before.Describe(), StateAfter: after.State}.withLease(before, Holder{}))
		}
		return l.putRemaining(before, after, ok, expected.includes, ReleasedByHand, byHand)
	})
	return before, after, err
}

// byHand is why an operator's reservation is there. releasedByHand is why an address that an operator
// released is in quarantine.
const (
	byHand         = "by hand"
	releasedByHand = "released by hand"
)

// releasedByHand returns the lease after an operator removed some of its holders, or ended its
// reservation. ok is false for free.
func (l Lease) releasedByHand(match func(Holder) bool, instant time.Time) (_ Lease, ok bool) {
	if l.State != Held {
		return l.unreserved(releasedByHand, instant)
	}
	if remaining, _ := l.withoutHolders(match, "", instant); remaining.State == Held {
		return remaining, true
	}
	l = l.withoutSticky()
	l.ByHand, l.ByHandAt, l.ByHandUntil = false, time.Time{}, time.Time{}
	return l.GivenUp(releasedByHand, instant)
}
