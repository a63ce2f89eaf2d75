package ipam

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// ErrHolder says that the address is another's than the caller expects.
var ErrHolder = errors.New("not as expected")

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
	if l.isOfEarlierBoot(lease) {
		return lease.GivenUp(earlierBoot, l.now)
	}
	return lease, !l.over(lease)
}

// Holder is whom the caller of Release believes to have an address: the attachment's
// container and interface, the owner, or nobody, for one in quarantine. An empty
// field is not compared, but one has to be given.
type Holder struct {
	ContainerID, IfName string
	Owner               attachment.Owner
	Nobody              bool
}

// is says whether the lease is the holder's.
func (h Holder) is(l Lease) bool {
	if h == (Holder{}) || h.Nobody != l.nobodys() {
		return false
	}
	return (h.ContainerID == "" || l.State == Held && l.Attachment.ContainerID == h.ContainerID) &&
		(h.IfName == "" || l.State == Held && l.Attachment.IfName == h.IfName) &&
		(h.Owner == attachment.Owner{} || l.Owner == h.Owner)
}

// Release makes the address nobody's, if it is the expected holder's, and returns the
// lease that it had and the one that is left, the zero Lease for free. What was held, or
// reserved for shorter than that, goes into quarantine. ErrHolder: it is another's;
// ErrNone: it is free.
func (s *Store) Release(ctx context.Context, a netip.Addr, expected Holder) (was, left Lease, err error) {
	err = s.change(ctx, func(l *leases) (err error) {
		if err := l.settle(); err != nil {
			return err
		}
		if was, err = l.current(a); err != nil {
			return err
		}
		if !expected.is(was) {
			return fmt.Errorf("%s is %w: it is %s", a, ErrHolder, was.Whose())
		}
		var ok bool
		if left, ok = was.releasedByHand(l.now); !ok {
			return l.remove(was)
		}
		return l.put(left)
	})
	return was, left, err
}

// releasedByHand is GivenUp for what no policy keeps for its owner any more.
func (l Lease) releasedByHand(now time.Time) (_ Lease, ok bool) {
	l.ByHand, l.ByHandUntil, l.Policy.Sticky = false, time.Time{}, false
	switch until := l.ReleasedAt.Add(l.Policy.Quarantine); {
	case l.State == Held:
		return l.GivenUp("released by hand", now)
	case l.State == Reserved && until.After(now):
		l.State, l.Until = Quarantined, until
		return l, true
	}
	return Lease{}, false
}

// Reserve reserves the address for the owner until it is released by hand, or for the
// time given if that is not 0. It may be the owner's already, or in quarantine.
// ErrTaken: it is another's. Whether a configuration has the address in a range is not
// looked at.
func (s *Store) Reserve(ctx context.Context, a netip.Addr, owner attachment.Owner, retain time.Duration) (Lease, error) {
	if owner == (attachment.Owner{}) {
		return Lease{}, errors.New("an address can't be reserved for nobody")
	}
	var lease Lease
	err := s.update(ctx, func(l *leases) error {
		if err := l.settle(); err != nil {
			return err
		}
		was, err := l.current(a)
		if err != nil && !errors.Is(err, ErrNone) {
			return err
		}
		lease, err = l.reserved(was, a, owner, retain)
		if err != nil {
			return err
		}
		return l.put(lease)
	})
	return lease, err
}

// reserved returns the reservation that follows on what the address was before, the
// zero Lease for free. It ends no earlier than what was before.
func (l *leases) reserved(was Lease, a netip.Addr, owner attachment.Owner, retain time.Duration) (Lease, error) {
	if was.State != "" && was.State != Quarantined && was.Owner != owner {
		return Lease{}, fmt.Errorf("%s is %w: it is %s", a, ErrTaken, was.Whose())
	}
	var until time.Time
	if retain > 0 {
		until = l.now.Add(retain)
	}
	lease := was
	switch was.State {
	case Held:
		lease.ByHand, lease.ByHandUntil = true, until
		return lease, nil
	case Reserved:
		if !until.IsZero() && (was.Until.IsZero() || was.Until.After(until)) {
			until = was.Until
		}
	case Quarantined:
		lease.Attachment, lease.PodUID, lease.Policy = attachment.Key{Network: l.store.network}, "", Policy{Quarantine: was.Policy.Quarantine}
		if !until.IsZero() {
			until = latest(until, was.Until)
		}
	default:
		lease = Lease{Address: a, Attachment: attachment.Key{Network: l.store.network}, ReleasedAt: l.now}
	}
	lease.Owner, lease.State, lease.Why = owner, Reserved, "by hand"
	lease.ByHand, lease.ByHandUntil, lease.Until = true, until, until
	return lease, nil
}

// errUnchanged is of a change that has nothing to do, and so needs no disk.
var errUnchanged = errors.New("nothing to change")

// change is update for what has a sense only where something was given before.
func (s *Store) change(ctx context.Context, change func(*leases) error) error {
	if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
		return s.none()
	}
	if err := s.update(ctx, change); !errors.Is(err, errUnchanged) {
		return err
	}
	return nil
}

func (s *Store) none() error {
	return fmt.Errorf("network %s: %w (no %s)", s.network, ErrNone, s.path)
}
