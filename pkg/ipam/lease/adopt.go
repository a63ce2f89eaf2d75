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
	// GoneHolders are holders that give up their addresses before the leases are taken in.
	GoneHolders []GoneHolder
	// Leases are in the order of their addresses. Each replaces the lease that its address had.
	Leases []Lease
	// Reason is where the leases come from.
	Reason string
}

// GoneHolder is a holder that is proven gone. Reason is the proof.
type GoneHolder struct {
	Address netip.Addr
	Holder  Holder
	Reason  string
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
	if err := l.giveUpAll(batch.GoneHolders); err != nil {
		return err
	}
	if err := l.indexInOrder(batch.Leases); err != nil {
		return err
	}
	for _, lease := range batch.Leases {
		l.addEvent(Event{Type: LeaseImported, Reason: batch.Reason, StateAfter: lease.State}.withLease(lease, lease.Newest()))
		if err := l.put(lease); err != nil {
			return err
		}
	}
	return nil
}

// giveUpAll has the holders give up their addresses.
func (l *leaseTx) giveUpAll(holders []GoneHolder) error {
	for _, holder := range holders {
		lease, err := l.current(holder.Address)
		if err != nil {
			return err
		}
		if err := l.giveUp(lease, holder.Holder.sameAttachment, holder.Reason); err != nil {
			return err
		}
	}
	return nil
}

// PreviewGivenUp returns what the addresses of the holders would be without these holders, the zero Lease for a
// free address. It changes nothing. It passes over a holder that has given up its address meanwhile.
// ErrNotLeased: there is no store.
func (s *Store) PreviewGivenUp(ctx context.Context, holders []GoneHolder) (map[netip.Addr]Lease, error) {
	return result(ctx, s.change, func(l *leaseTx) (map[netip.Addr]Lease, error) {
		present := slices.DeleteFunc(slices.Clone(holders), func(holder GoneHolder) bool {
			lease, err := l.find(holder.Address)
			return err != nil || !slices.ContainsFunc(lease.Holders, holder.Holder.sameAttachment)
		})
		if err := errors.Join(l.freeExpired(), l.giveUpAll(present)); err != nil {
			return nil, err
		}
		remaining := map[netip.Addr]Lease{}
		for _, holder := range holders {
			lease, err := l.find(holder.Address)
			if err != nil {
				return nil, err
			}
			remaining[holder.Address] = lease
		}
		return remaining, errUnchanged
	})
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
