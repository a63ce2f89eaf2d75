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

// ErrHolder says that the address is another's than the caller expects.
var ErrHolder = errors.New("not as expected")

func notAsExpected(l Lease) error {
	return fmt.Errorf("%s is %w: it is %s", l.Address, ErrHolder, l.Whose())
}

// List returns all leases in the order of their addresses, as the next change will find
// them: those that have ended are left out, and what was held in an earlier boot is
// held no more. ErrNone: nothing was ever given.
func (s *Store) List(ctx context.Context) ([]Lease, error) {
	var all []Lease
	err := s.view(ctx, func(l *leases) error {
		return l.each(func(lease Lease) error {
			if lease, ok := l.asOfNow(lease); ok {
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

// HeldBy returns what the attachment holds. If the network was renamed, the store by its new name is
// meant. ErrNone: nothing was ever given.
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

// heldHere is HeldBy for the store of this very name.
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

// asOfNow returns the lease as a change would find it, and whether it would find one. A
// look changes nothing, and may be the first thing in a boot.
func (l *leases) asOfNow(lease Lease) (_ Lease, ok bool) {
	if slices.ContainsFunc(lease.Holders, l.isOfEarlierBoot) {
		return lease.without(l.isOfEarlierBoot, earlierBoot, l.now)
	}
	return lease, !l.over(lease)
}

// Expected is whom the caller of ReleaseByHand believes to have an address: the attachment's
// container and interface, the owner, or nobody, for one in quarantine. An empty
// field is not compared, but one has to be given.
type Expected struct {
	ContainerID, IfName string
	Owner               attachment.Owner
	Nobody              bool
}

// is says whether the lease is as expected.
func (e Expected) is(l Lease) bool {
	if e == (Expected{}) || e.Nobody != l.Nobodys() {
		return false
	}
	return (e.ContainerID == "" && e.IfName == "" || slices.ContainsFunc(l.Holders, e.means)) &&
		(e.Owner == attachment.Owner{} || l.Owner == e.Owner)
}

// means says whether the holder is one of those that are meant.
func (e Expected) means(h Holder) bool {
	return (e.ContainerID == "" || e.ContainerID == h.ContainerID) && (e.IfName == "" || e.IfName == h.IfName)
}

// ReleaseByHand makes the address nobody's, if it is the expected holder's, and returns the
// lease that it had and the one that is left, the zero Lease for free. Where it has other
// holders, those keep it. What was held, or reserved for shorter than that, goes into
// quarantine. ErrHolder: it is another's; ErrNone: it is free.
func (s *Store) ReleaseByHand(ctx context.Context, a netip.Addr, expected Expected) (was, left Lease, err error) {
	err = s.change(ctx, func(l *leases) (err error) {
		if err := l.settle(); err != nil {
			return err
		}
		if was, err = l.current(a); err != nil {
			return err
		}
		if !expected.is(was) {
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

// byHand is why a lease is reserved that an operator made, releasedByHand why one is in
// quarantine that an operator ended.
const (
	byHand         = "by hand"
	releasedByHand = "released by hand"
)

// releasedByHand returns the lease after an operator ended the holding of some, or what
// keeps it for its owner.
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
