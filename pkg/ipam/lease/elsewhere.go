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
		leases, _ := other.AllowForeign().List(ctx)
		if slices.ContainsFunc(leases, func(l Lease) bool { return SetOf(sets, l.Address) >= 0 && l.State != Quarantined }) {
			stores = append(stores, name)
		}
	}
	return stores, err
}

// ElsewhereRemark tells people what LeasedElsewhere has found, and what to do.
func ElsewhereRemark(network, previous string) string {
	return fmt.Sprintf("network %[1]s begins with an empty store, and the store %[2]s has leases of the same ranges. If %[1]s is a new name of that network, "+
		`no ADD knows what its pods hold: add "store": %[2]q to "ipam" of its configuration`, network, previous)
}

// networkOf is Holder.Network for the attachment.
func (l *leaseTx) networkOf(a attachment.Key) string {
	if a.Network == l.store.network {
		return ""
	}
	return a.Network
}
