package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

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

// Holders returns all holders of addresses that List has. It reads no lease that is reserved only: there can be very many. ErrNotLeased:
// nothing was ever given.
func (s *Store) Holders(ctx context.Context) ([]SeenHolder, error) {
	return result(ctx, s.view, func(l *leaseTx) (holders []SeenHolder, err error) {
		held, err := l.findByPrefix(l.byAttachment, nil)
		listed := map[netip.Addr]bool{} // The index has a lease once for each holder.
		for _, lease := range held {
			if lease = l.asCurrent(lease); listed[lease.Address] {
				continue
			}
			listed[lease.Address] = true
			for _, h := range lease.Holders {
				holders = append(holders, SeenHolder{Address: lease.Address, Holder: h})
			}
		}
		return holders, err
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
