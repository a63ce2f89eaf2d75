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
// one began. ErrNone: nothing was ever given.
func (s *Store) Renamed(ctx context.Context) ([]string, error) {
	all, err := Networks(filepath.Dir(s.path))
	if err != nil {
		return nil, err
	}
	if len(all) < 2 {
		return nil, nil
	}
	known, err := s.knownHere(ctx)
	if err != nil || len(known) == 0 {
		return nil, err
	}
	var own extent
	var found []string
	for _, name := range all {
		if name == s.network {
			continue
		}
		other := s.beside(name)
		other.wait = time.Millisecond // An ADD must not wait for another network.
		its, err := other.knownHere(ctx)
		// A store that cannot be read is reported by those who use it. Most networks have other ranges: their leases
		// are not read.
		if err != nil || !slices.ContainsFunc(its, func(k Known) bool { return slices.ContainsFunc(known, k.overlaps) }) {
			continue
		}
		if own.first.IsZero() {
			if own, err = s.extent(ctx); err != nil {
				return nil, err
			}
		}
		if e, err := other.extent(ctx); err == nil && e.held && e.last.Before(own.first) {
			found = append(found, name)
		}
	}
	return found, nil
}

// knownHere returns what ADDs asked for.
func (s *Store) knownHere(ctx context.Context) (known []Known, err error) {
	err = s.view(ctx, func(l *leases) (err error) {
		known, err = l.known()
		return err
	})
	return known, err
}

// beside returns the store of another network in the same directory.
func (s *Store) beside(network string) *Store {
	other := *s
	other.network, other.path = network, filepath.Join(filepath.Dir(s.path), network+extension)
	return &other
}

// renamedTo returns the store in which the attachment holds something by the name of this network, nil for
// none. A store that cannot be read is passed over: those who use it report it. ErrBusy and ErrMoved: it
// may be there.
func (s *Store) renamedTo(ctx context.Context, a attachment.Key) (*Store, error) {
	all, err := Networks(filepath.Dir(s.path))
	if err != nil {
		return nil, err
	}
	var frozen *Store
	for _, name := range all {
		if name == s.network {
			continue
		}
		other := s.beside(name)
		other.wait = min(s.wait, otherWait)
		holds := false
		err := other.view(ctx, func(l *leases) error {
			held, err := l.heldBy(a)
			holds = slices.ContainsFunc(held, func(lease Lease) bool {
				h, _ := lease.Holder(a)
				return h.Network == s.network
			})
			other.evenFrozen = l.frozenFor() != ""
			return err
		})
		other.wait = s.wait
		switch {
		case errors.Is(err, ErrBusy), errors.Is(err, ErrMoved):
			return nil, err
		case errors.Is(err, ErrNone): // It was there a moment ago: a Rename is under way.
			return nil, fmt.Errorf("network %s: %w", name, ErrMoved)
		case holds && !other.evenFrozen:
			return other, nil
		case holds: // Another store may have taken the leases from there.
			frozen = other
		}
	}
	return frozen, nil
}

// otherWait bounds the wait for another network's store.
const otherWait = time.Second

// BeingRenamed returns ErrRenaming if a Rename of the network was killed, with what to do: another network
// has its leases, or is about to get them. It returns nil if not. ErrNone: there is no store.
func (s *Store) BeingRenamed(ctx context.Context) error {
	return s.view(ctx, func(l *leases) error {
		if to := l.frozenFor(); to != "" {
			return isBeingRenamed(s.network, to)
		}
		return nil
	})
}

// RenamedRemark tells people what Renamed has found, and what to do.
func RenamedRemark(old, now string) string {
	return fmt.Sprintf("network %s gives addresses of the same ranges as network %s, which has pods and has given none since %s began. "+
		"If %s is its new name, no ADD knows what those pods hold: relink ipam rename %s %s", now, old, now, now, old, now)
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
	err := s.view(ctx, func(l *leases) error {
		return l.each(func(lease Lease) error {
			lease, leased := l.asOfNow(lease)
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
