package ipam

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
)

// judgeBatch is how many owners an ADD asks for in one request. The addresses that were released first are the likeliest to be of
// pods that run elsewhere.
const judgeBatch = 16

// judgeTimeout is how long an ADD waits that finds no address. A slow API needs a second for each of several answers, and an ADD that gives up
// earlier would find no address the next time, either.
const judgeTimeout = 10 * time.Second

// endReservationElsewhere ends the oldest reservation of the set whose one pod is on another node by the API. The pod has an address of that
// node. The error says why the oldest one is kept, if none has ended.
func (c *Call) endReservationElsewhere(ctx context.Context, store *lease.Store, set lease.RangeSet) (ended bool, reason error) {
	waiting, err := store.WaitingForPods(ctx, set)
	if err != nil || len(waiting) == 0 {
		return false, err
	}
	judge, ok := c.owners.(owner.Judge)
	if !ok {
		return false, owner.ErrNoAsker
	}
	for batch := range slices.Chunk(waiting, judgeBatch) {
		for i, j := range judge.Judge(ctx, ownersOf(batch)) {
			if i >= len(batch) || j.Owner != batch[i].Owner { // What is not an answer to the question says nothing.
				continue
			}
			kept := c.endReservation(ctx, store, batch[i], j)
			if kept == nil {
				return true, nil
			}
			reason = cmp.Or(reason, kept)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return false, reason
}

// endReservation ends the reservation if the judgement says that its pod is on another node, and if nobody has taken the address
// meanwhile. The error says why it is kept.
func (c *Call) endReservation(ctx context.Context, store *lease.Store, l lease.Lease, j owner.Judgement) error {
	kept := func(reason any) error { return fmt.Errorf("%s is kept for %s: %v", l.Address, l.Owner, reason) }
	switch {
	case j.Standing != owner.Exists:
		return kept(j.Reason)
	case j.RemotePodUID == "":
		return kept(cmp.Or(j.PodLocation, "relink-agent does not tell where its pod is"))
	case j.RemotePodUID == l.Last.Pod.UID:
		return kept(j.PodLocation + ", and had the address here")
	case j.Cluster == "":
		return kept("the Kubernetes API does not tell which cluster it is: " + j.NoCluster)
	}
	if err := store.SetCluster(ctx, j.Cluster); err != nil { // It knows the owner of the address, and so it is this cluster.
		return kept(err)
	}
	if err := store.End(ctx, l, "no address was free, and "+j.PodLocation); err != nil {
		return kept(err)
	}
	fmt.Fprintf(c.stderr, "%s: %s does not wait for %s any more: no address was free, and %s\n", PluginName, l.Address, l.Owner, j.PodLocation)
	return nil
}

// ownersOf are the owners of the leases, in their order.
func ownersOf(leases []lease.Lease) (owners []attachment.Owner) {
	for _, l := range leases {
		owners = append(owners, l.Owner)
	}
	return owners
}
