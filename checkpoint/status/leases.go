package status

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// patience is how long to wait for the lock of a network's leases. proofTimeout bounds the search for what keeps namespaces.
const (
	patience     = time.Second
	proofTimeout = 10 * time.Second
)

// Leases are how the networks' leases are.
type Leases struct {
	Usages []lease.Usage
	// DeadHolders is the number of addresses that sandboxes hold whose network namespaces are proven gone.
	DeadHolders int
	// Problems are the stores that could not be read.
	Problems []string
}

// ReadLeases reads the stores. One that cannot be read does not stop the others. allProcesses is sandbox.SeesAllProcesses.
func ReadLeases(ctx context.Context, stores []*lease.Store, allProcesses bool) (l Leases) {
	held := map[attachment.Namespace]int{}
	for _, s := range stores {
		if err := l.read(ctx, s, held); err != nil && !errors.Is(err, lease.ErrNotLeased) {
			l.Problems = append(l.Problems, err.Error())
		}
	}
	ctx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	for namespace := range sandbox.ProvenGone(ctx, allProcesses, slices.Collect(maps.Keys(held))...) {
		l.DeadHolders += held[namespace]
	}
	return l
}

// read reads a store. It counts the addresses that are held in each namespace.
func (l *Leases) read(ctx context.Context, store *lease.Store, held map[attachment.Namespace]int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	usage, err := store.Usage(ctx)
	if err != nil {
		return err
	}
	l.Usages = append(l.Usages, usage)
	holders, err := store.Holders(ctx)
	for _, h := range holders {
		if namespace := h.Holder.Namespace; namespace.Inode != 0 {
			held[namespace]++
		}
	}
	return err
}
