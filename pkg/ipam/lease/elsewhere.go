package lease

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// LeasedElsewhere names the other stores in the directory that have leases of the sets, those in quarantine apart. If the network of one of
// these is this store's network by an earlier name, no ADD knows what its pods hold.
func (s *Store) LeasedElsewhere(ctx context.Context, sets []RangeSet) (stores []string, err error) {
	names, err := Networks(filepath.Dir(s.path))
	for _, name := range names {
		if name == s.network {
			continue
		}
		other := *s
		other.network, other.path = name, PathIn(filepath.Dir(s.path), name)
		other.wait = time.Millisecond // An ADD must not wait for another network.
		// A store that cannot be read is reported by those who use it.
		if leased, err := other.hasLeaseIn(ctx, sets); leased && err == nil {
			stores = append(stores, name)
		}
	}
	return stores, err
}

// hasLeaseIn says whether the store has a lease of the sets. Most stores have other ranges: their leases are not read.
func (s *Store) hasLeaseIn(ctx context.Context, sets []RangeSet) (leased bool, err error) {
	err = s.AllowForeign().view(ctx, func(l *leaseTx) error {
		requested, err := l.requestedRanges()
		if !slices.ContainsFunc(requested, RequestedRanges{Sets: sets}.overlaps) {
			return err
		}
		return l.eachCurrent(func(lease Lease) error {
			leased = leased || SetOf(sets, lease.Address) >= 0 && lease.State != Quarantined
			return nil
		})
	})
	return leased, err
}

// ElsewhereRemark tells people what LeasedElsewhere has found, and what to do.
func ElsewhereRemark(network, other string) string {
	return fmt.Sprintf("network %[1]s begins with an empty store, and the store %[2]s has leases of the same ranges. If %[1]s is a new name of that network, "+
		`no ADD knows what its pods hold: add "store": %[2]q to "ipam" of its configuration`, network, other)
}

// networkOf is Holder.Network for the attachment.
func (l *leaseTx) networkOf(a attachment.Key) string {
	if a.Network == l.store.network {
		return ""
	}
	return a.Network
}
