package ipam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
)

// judgedAtOnce is how many owners an ADD asks for in one request. The addresses that were released first are the likeliest to be of
// pods that run elsewhere.
const judgedAtOnce = 16

// judging is how long an ADD waits that finds no address. A slow API needs a second for each of several answers, and an ADD that gives up
// earlier would find no address the next time, either.
const judging = 10 * time.Second

// allocateFromSets gives the attachment its addresses from the ranges of this node. If none is free, it gives up what waits here
// for a pod that runs elsewhere, one address after the other.
func (c *Call) allocateFromSets(ctx context.Context, n network, store *lease.Store, r lease.Request) ([]lease.Lease, error) {
	given, err := store.Allocate(ctx, r)
	limited, cancel := context.WithTimeout(ctx, judging)
	defer cancel()
	var full *lease.ExhaustedError
	for errors.As(err, &full) {
		ended, why := c.giveUpElsewhere(limited, store, full.Set)
		if why != nil {
			err = fmt.Errorf("%w; %w", err, why)
		}
		if !ended {
			break
		}
		given, err = store.Allocate(ctx, r)
	}
	if err != nil {
		return nil, n.refused(err)
	}
	return given, nil
}

// giveUpElsewhere ends the oldest reservation of the set whose one pod is on another node by the API. The pod has an address of that
// node. The error says why the oldest one is kept, if none has ended.
func (c *Call) giveUpElsewhere(ctx context.Context, store *lease.Store, set lease.RangeSet) (ended bool, why error) {
	waiting, err := store.WaitingForPods(ctx, set)
	if err != nil || len(waiting) == 0 {
		return false, err
	}
	judge, is := c.owners.(owner.Judge)
	if !is {
		return false, owner.ErrNobody
	}
	for some := range slices.Chunk(waiting, judgedAtOnce) {
		for i, j := range judge.Judge(ctx, ownersOf(some)) {
			if i >= len(some) || j.Owner != some[i].Owner { // What is not an answer to the question says nothing.
				continue
			}
			kept := c.endElsewhere(ctx, store, some[i], j)
			if kept == nil {
				return true, nil
			}
			why = cmp.Or(why, kept)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return false, why
}

// endElsewhere ends the reservation if the judgement says that its pod is on another node, and if nobody has taken the address
// meanwhile. The error says why it is kept.
func (c *Call) endElsewhere(ctx context.Context, store *lease.Store, l lease.Lease, j owner.Judgement) error {
	kept := func(why any) error { return fmt.Errorf("%s is kept for %s: %v", l.Address, l.Owner, why) }
	switch {
	case j.Standing != owner.Lives:
		return kept(j.Why)
	case j.Elsewhere == "":
		return kept(cmp.Or(j.Where, "relink-agent does not tell where its pod is"))
	case j.Elsewhere == l.Last.Pod.UID:
		return kept(j.Where + ", and had the address here")
	case j.Cluster == "":
		return kept("the Kubernetes API does not tell which cluster it is: " + j.NoCluster)
	}
	if err := store.SetCluster(ctx, j.Cluster); err != nil { // It knows the owner of the address, and so it is this cluster.
		return kept(err)
	}
	if err := store.EndReservation(ctx, l, "no address was free, and "+j.Where); err != nil {
		return kept(err)
	}
	fmt.Fprintf(c.stderr, "%s: %s does not wait for %s any more: no address was free, and %s\n", PluginName, l.Address, l.Owner, j.Where)
	return nil
}

// ownersOf are the owners of the leases, in their order.
func ownersOf(all []lease.Lease) (owners []attachment.Owner) {
	for _, l := range all {
		owners = append(owners, l.Owner)
	}
	return owners
}
