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

// ErrHolder says that somebody else has the address than the caller expects.
var ErrHolder = errors.New("not as expected")

func notAsExpected(l Lease) error {
	return fmt.Errorf("%s is %w: it is %s", l.Address, ErrHolder, l.Whose())
}

// List returns all leases in the order of their addresses, as the next change will find them. Leases that
// have ended are left out, and what was held in an earlier boot is not held any more. ErrNone: nothing was
// ever given.
func (s *Store) List(ctx context.Context) ([]Lease, error) {
	var all []Lease
	err := s.view(ctx, func(l *leases) error {
		return l.each(func(lease Lease) error {
			if lease, ok := l.asOfNow(lease); ok {
				if len(all) == cap(all) {
					all = slices.Grow(all, max(16, len(all))) // append would add a quarter, and copy much more often.
				}
				all = append(all, lease)
			}
			return nil
		})
	})
	return all, err
}

// Get returns the lease of the address. ErrNone: it is free.
func (s *Store) Get(ctx context.Context, a netip.Addr) (Lease, error) {
	var lease Lease
	err := s.view(ctx, func(l *leases) (err error) {
		lease, err = l.current(a)
		return err
	})
	return lease, err
}

// HeldBy returns what the attachment holds. If the network was renamed, it looks in the store of the new
// name. ErrNone: nothing was ever given.
func (s *Store) HeldBy(ctx context.Context, a attachment.Key) ([]Lease, error) {
	held, err := s.heldHere(ctx, a)
	if !errors.Is(err, ErrNone) {
		return held, err
	}
	if to, looked := s.renamedTo(ctx, a); to != nil {
		return to.heldHere(ctx, a)
	} else if looked != nil {
		return nil, looked
	}
	return nil, err
}

// heldHere is HeldBy for the store of this name alone.
func (s *Store) heldHere(ctx context.Context, a attachment.Key) (held []Lease, err error) {
	err = s.view(ctx, func(l *leases) (err error) {
		held, err = l.heldBy(a)
		return err
	})
	return held, err
}

// current returns the lease of the address, ErrNone if it is free.
func (l *leases) current(a netip.Addr) (Lease, error) {
	lease, leased, err := l.get(a)
	if err != nil {
		return Lease{}, err
	}
	if leased {
		lease, leased = l.asOfNow(lease)
	}
	if !leased {
		return Lease{}, fmt.Errorf("%s is free in network %s: %w", a, l.store.network, ErrNone)
	}
	return lease, nil
}

// asOfNow returns the lease as a change would find it, and whether it would find one. A look changes
// nothing, and can come before the first change of a boot.
func (l *leases) asOfNow(lease Lease) (_ Lease, ok bool) {
	if slices.ContainsFunc(lease.Holders, l.isOfEarlierBoot) {
		return lease.without(l.isOfEarlierBoot, earlierBoot, l.now)
	}
	return lease, !l.over(lease)
}

// Expected is what the caller of ReleaseByHand has seen, and who it means.
type Expected struct {
	// Seen is the lease that the caller has seen. Its state, its owner and its holders are compared, and for an
	// address in quarantine its last holder.
	Seen Lease
	// Holders are those of Seen that give the address up. Nil means all.
	Holders []Holder
}

// is says whether the lease is still as the caller has seen it.
func (e Expected) is(l Lease) bool {
	if e.Seen.State != l.State || e.Seen.Owner != l.Owner || !slices.EqualFunc(e.Seen.Holders, l.Holders, Holder.sameAttachment) {
		return false
	}
	return l.State != Quarantined || e.Seen.Last.sameAttachment(l.Last)
}

// means says whether the holder gives the address up.
func (e Expected) means(h Holder) bool {
	return e.Holders == nil || slices.ContainsFunc(e.Holders, h.sameAttachment)
}

// sameAttachment says whether both holders are one attachment.
func (h Holder) sameAttachment(other Holder) bool {
	return h.ContainerID == other.ContainerID && h.IfName == other.IfName
}

// ReleaseByHand releases the address if its lease is still as the caller has seen it. It returns the lease before
// and after, the zero Lease for free. Holders that are not meant keep the address. A held address goes into
// quarantine, and so does one whose reservation is younger than its quarantine. ErrHolder: the lease has changed, or
// none of its holders is meant; ErrNone: the address is free.
func (s *Store) ReleaseByHand(ctx context.Context, a netip.Addr, expected Expected) (was, left Lease, err error) {
	err = s.change(ctx, func(l *leases) (err error) {
		if err := l.settle(); err != nil {
			return err
		}
		if was, err = l.current(a); err != nil {
			return err
		}
		if !expected.is(was) || was.State == Held && !slices.ContainsFunc(was.Holders, expected.means) {
			return notAsExpected(was)
		}
		var ok bool
		left, ok = was.releasedByHand(expected.means, l.now)
		if was.State != Held {
			l.note(Event{What: ReleasedByHand, Why: "it was " + was.Whose(), Then: left.State}.of(was, Holder{}))
		}
		return l.leave(was, left, ok, expected.means, ReleasedByHand, byHand)
	})
	return was, left, err
}

// byHand is why an operator's reservation is there. releasedByHand is why an address that an operator
// released is in quarantine.
const (
	byHand         = "by hand"
	releasedByHand = "released by hand"
)

// releasedByHand returns the lease after an operator removed some of its holders, or ended its
// reservation. ok is false for free.
func (l Lease) releasedByHand(gone func(Holder) bool, now time.Time) (_ Lease, ok bool) {
	if l.State != Held {
		return l.unreserved(releasedByHand, now)
	}
	if left, _ := l.without(gone, "", now); left.State == Held {
		return left, true
	}
	l = l.notSticky()
	l.ByHand, l.ByHandAt, l.ByHandUntil = false, time.Time{}, time.Time{}
	return l.GivenUp(releasedByHand, now)
}
