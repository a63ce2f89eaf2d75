package lease

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// Renamed returns earlier names that this network may have had: other networks in the same directory that
// gave addresses of the same ranges, still have attachments that hold some, and have given none since this
// one began. ErrNotLeased: nothing was ever given.
func (s *Store) Renamed(ctx context.Context) ([]string, error) {
	names, err := Networks(filepath.Dir(s.path))
	if err != nil {
		return nil, err
	}
	if len(names) < 2 {
		return nil, nil
	}
	requested, err := s.requestedRanges(ctx)
	if err != nil || len(requested) == 0 {
		return nil, err
	}
	var current extent
	var found []string
	for _, name := range names {
		if name == s.network {
			continue
		}
		store := s.sibling(name)
		store.wait = time.Millisecond // An ADD must not wait for another network.
		otherRequested, err := store.requestedRanges(ctx)
		// A store that cannot be read is reported by those who use it. Most networks have other ranges: their leases
		// are not read.
		if err != nil || !slices.ContainsFunc(otherRequested, func(k RequestedRanges) bool { return slices.ContainsFunc(requested, k.overlaps) }) {
			continue
		}
		if current.first.IsZero() {
			if current, err = s.extent(ctx); err != nil {
				return nil, err
			}
		}
		if e, err := store.extent(ctx); err == nil && e.held && e.last.Before(current.first) {
			found = append(found, name)
		}
	}
	return found, nil
}

// requestedRanges returns what ADDs asked for.
func (s *Store) requestedRanges(ctx context.Context) (requested []RequestedRanges, err error) {
	err = s.view(ctx, func(l *leaseTx) (err error) {
		requested, err = l.requestedRanges()
		return err
	})
	return requested, err
}

// sibling returns the store of another network in the same directory.
func (s *Store) sibling(network string) *Store {
	store := *s
	store.network, store.path = network, filepath.Join(filepath.Dir(s.path), network+extension)
	return &store
}

// renamedTo returns the store in which the attachment holds something by the name of this network, nil for
// none. A store that cannot be read is passed over: those who use it report it. ErrBusy and ErrMoved: it
// may be there.
func (s *Store) renamedTo(ctx context.Context, a attachment.Key) (*Store, error) {
	names, err := Networks(filepath.Dir(s.path))
	if err != nil {
		return nil, err
	}
	var frozen *Store
	for _, name := range names {
		if name == s.network {
			continue
		}
		store := s.sibling(name)
		store.wait = min(s.wait, otherWait)
		holds := false
		err := store.view(ctx, func(l *leaseTx) error {
			held, err := l.heldBy(a)
			holds = slices.ContainsFunc(held, func(lease Lease) bool {
				h, _ := lease.Holder(a)
				return h.Network == s.network
			})
			store.allowFrozen = l.frozenFor() != ""
			return err
		})
		store.wait = s.wait
		switch {
		case errors.Is(err, ErrBusy), errors.Is(err, ErrMoved):
			return nil, err
		case errors.Is(err, ErrNotLeased): // It was there a moment ago: a Rename is under way.
			return nil, fmt.Errorf("network %s: %w", name, ErrMoved)
		case holds && !store.allowFrozen:
			return store, nil
		case holds: // Another store may have taken the leases from there.
			frozen = store
		}
	}
	return frozen, nil
}

// otherWait bounds the wait for another network's store.
const otherWait = time.Second

// BeingRenamed returns ErrRenaming if a Rename of the network was killed, with what to do: another network
// has its leases, or is about to get them. It returns nil if not. ErrNotLeased: there is no store.
func (s *Store) BeingRenamed(ctx context.Context) error {
	return s.view(ctx, func(l *leaseTx) error {
		if target := l.frozenFor(); target != "" {
			return isBeingRenamed(s.network, target)
		}
		return nil
	})
}

// RenamedRemark tells people what Renamed has found, and what to do.
func RenamedRemark(old, current string) string {
	return fmt.Sprintf("network %s gives addresses of the same ranges as network %s, which has pods and has given none since %s began. "+
		"If %s is its new name, no ADD knows what those pods hold: relink ipam rename %s %s", current, old, current, current, old, current)
}

// extent is what a store was used for.
type extent struct {
	// held says that an address is held. first and last are when the oldest and the newest of the present
	// leases were given.
	held        bool
	first, last time.Time
}

func (s *Store) extent(ctx context.Context) (extent, error) {
	var e extent
	err := s.view(ctx, func(l *leaseTx) error {
		return l.each(func(lease Lease) error {
			lease, leased := l.asCurrent(lease)
			if !leased {
				return nil
			}
			e.held = e.held || lease.State == Held
			if since := lease.Newest().Since; !since.IsZero() {
				e.last = latest(e.last, since)
				if e.first.IsZero() || since.Before(e.first) {
					e.first = since
				}
			}
			return nil
		})
	})
	return e, err
}
