package lease

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"
)

// ImportView is the store as it is before leases are taken in.
type ImportView struct {
	// Time is the time of the store.
	Time time.Time
	// BootID is that of this boot.
	BootID string
	Leases map[netip.Addr]Lease
}

// Import is what is taken in.
type Import struct {
	// Leases are in the order of their addresses. Each replaces the lease that its address had.
	Leases []Lease
	// Reason is where the leases come from.
	Reason string
}

// Import stores the leases that decide returns: all or none. A dry run changes nothing.
func (s *Store) Import(ctx context.Context, dryRun bool, decide func(ImportView) Import) error {
	run := func(l *leaseTx) error {
		if err := l.freeExpired(); err != nil {
			return err
		}
		view := ImportView{Time: l.instant, BootID: l.bootID(), Leases: map[netip.Addr]Lease{}}
		err := l.eachCurrent(func(lease Lease) error {
			view.Leases[lease.Address] = lease
			return nil
		})
		if err != nil {
			return err
		}
		if batch := decide(view); !dryRun {
			return l.importLeases(batch)
		}
		return errUnchanged
	}
	if !dryRun {
		err := s.update(ctx, run)
		if err == nil { // Make room for what was imported. It is on disk even if there is none.
			_ = s.grow(ctx, func(*leaseTx) error { return errUnchanged })
		}
		return err
	}
	err := s.change(ctx, run)
	if errors.Is(err, ErrNotLeased) { // Without a store there is no lease.
		var bootID string
		if bootID, err = s.boot(); err == nil {
			decide(ImportView{Time: s.wallClock(), BootID: bootID})
		}
	}
	return err
}

func (l *leaseTx) importLeases(batch Import) error {
	if err := l.indexInOrder(batch.Leases); err != nil {
		return err
	}
	for _, lease := range batch.Leases {
		if err := l.record(lease, lease.Newest(), LeaseImported, batch.Reason, lease); err != nil {
			return err
		}
	}
	return nil
}

// indexInOrder puts the leases into the index of attachments, before put comes to them. bbolt keeps what
// a transaction adds in one sorted slice. If 60,000 container IDs came in another order, each would move
// half of the rest.
func (l *leaseTx) indexInOrder(leases []Lease) (err error) {
	var keys [][]byte
	for _, lease := range leases {
		for _, e := range l.entries(lease) {
			if e.index == l.byAttachment {
				keys = append(keys, e.key)
			}
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	for _, k := range keys {
		err = errors.Join(err, l.byAttachment.Put(k, nil))
	}
	return err
}
