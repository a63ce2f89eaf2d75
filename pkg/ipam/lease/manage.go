package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// ErrHolderChanged says that the lease is not as the caller has seen it.
var ErrHolderChanged = errors.New("not as expected")

func notAsExpected(l Lease) error {
	return fmt.Errorf("%s is %w: it is %s", l.Address, ErrHolderChanged, l.Describe())
}

// List returns all leases in the order of their addresses, as the next change will find them. Leases that
// have ended are left out, and what was held in an earlier boot is not held any more. ErrNotLeased: nothing was
// ever given.
func (s *Store) List(ctx context.Context) ([]Lease, error) {
	return result(ctx, s.view, func(l *leaseTx) (leases []Lease, err error) {
		err = l.eachCurrent(func(lease Lease) error {
			if len(leases) == cap(leases) {
				leases = slices.Grow(leases, max(16, len(leases))) // append would add a quarter, and copy much more often.
			}
			leases = append(leases, lease)
			return nil
		})
		return leases, err
	})
}

// Get returns the lease of the address. ErrNotLeased: it is free.
func (s *Store) Get(ctx context.Context, a netip.Addr) (Lease, error) {
	return result(ctx, s.view, func(l *leaseTx) (Lease, error) {
		lease, err := l.find(a)
		return lease, cmp.Or(err, l.checkLeased(a, lease))
	})
}

// HeldBy returns what the attachment holds. ErrNotLeased: nothing was ever given.
func (s *Store) HeldBy(ctx context.Context, a attachment.Key) ([]Lease, error) {
	return result(ctx, s.view, func(l *leaseTx) ([]Lease, error) { return l.heldBy(a) })
}

// find returns the lease of the address as a change would find it, the zero Lease if the address is free.
func (l *leaseTx) find(a netip.Addr) (Lease, error) {
	lease, err := l.get(a)
	return l.asCurrent(lease), err
}

// findAfterExpiry is find after freeExpired.
func (l *leaseTx) findAfterExpiry(a netip.Addr) (Lease, error) {
	if err := l.freeExpired(); err != nil {
		return Lease{}, err
	}
	return l.find(a)
}

// current is findAfterExpiry for an address that must not be free: ErrNotLeased.
func (l *leaseTx) current(a netip.Addr) (Lease, error) {
	lease, err := l.findAfterExpiry(a)
	return lease, cmp.Or(err, l.checkLeased(a, lease))
}

func (l *leaseTx) checkLeased(a netip.Addr, lease Lease) error {
	if lease.isFree() {
		return fmt.Errorf("%s is free in network %s: %w", a, l.store.network, ErrNotLeased)
	}
	return nil
}

// asCurrent returns the lease as a change would find it, the zero Lease if it would find none. A look changes
// nothing, and can come before the first change of a boot.
func (l *leaseTx) asCurrent(lease Lease) Lease {
	switch {
	case slices.ContainsFunc(lease.Holders, l.isOfEarlierBoot):
		return lease.withoutHolders(l.isOfEarlierBoot, earlierBootReason, l.instant)
	case l.hasEnded(lease):
		return Lease{}
	}
	return lease
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
		if before, err = l.current(a); err != nil {
			return err
		}
		if !expected.matches(before) || before.State == Held && !slices.ContainsFunc(before.Holders, expected.includes) {
			return notAsExpected(before)
		}
		after = before.releasedByHand(expected.includes, l.instant)
		if before.State != Held {
			l.addEvent(Event{Type: ReleasedByHand, Reason: "it was " + before.Describe(), StateAfter: after.State}.withLease(before, Holder{}))
		}
		return l.putRemaining(before, after, expected.includes, ReleasedByHand, byHand)
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
// reservation, the zero Lease for free.
func (l Lease) releasedByHand(match func(Holder) bool, instant time.Time) Lease {
	if l.State != Held {
		return l.unreserved(releasedByHand, instant)
	}
	if remaining := l.withoutHolders(match, "", instant); remaining.State == Held {
		return remaining
	}
	l = l.withoutSticky()
	l.dropByHand()
	return l.GivenUp(releasedByHand, instant)
}
