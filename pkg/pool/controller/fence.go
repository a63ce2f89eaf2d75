package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/pool"
)

// reconcileBlocks fences the holders of blocks that a person has declared dead, and takes out those that are fenced and whose Node is gone.
func (c *Controller) reconcileBlocks(ctx context.Context, p pool.Pool, blocks []pool.Block, nodes []pool.Node, claims []pool.Claim) (err error) {
	uids, dead := map[string]string{}, map[string]bool{}
	for _, n := range nodes {
		if uids[n.Name] = n.UID; n.OutOfService {
			dead[n.Name] = true
		}
	}
	deleted := func(h pool.Holder) bool {
		uid, exists := uids[h.Node]
		return !exists || h.NodeUID != "" && h.NodeUID != uid
	}
	readClaims := sync.OnceValues(func() ([]pool.Claim, error) { return c.API.Claims(ctx, p.Metadata.Name) })
	hasOwner := claimed(p, claims)
	for _, b := range blocks {
		if len(dead) > 0 {
			if fenced, wrong := c.fence(ctx, p, b, dead); fenced || wrong != nil {
				err = errors.Join(err, wrong)
				continue
			}
		}
		if _, changed := b.RemoveDeleted(deleted, hasOwner); changed {
			err = errors.Join(err, c.removeGone(ctx, p, b, deleted, readClaims))
		} else {
			err = errors.Join(err, c.deleteUnused(ctx, p, b), c.readmit(ctx, p, b))
		}
	}
	return err
}

// readmit gives back to the pool what it does not exclude any more. A block that is not as relink writes it stays as it is.
func (c *Controller) readmit(ctx context.Context, p pool.Pool, b pool.Block) error {
	l, err := p.Layout()
	if err != nil || !l.HasBlock(b) || b.Check() != nil || p.Metadata.DeletionTimestamp != "" {
		return nil
	}
	next, changed := b.Readmit(l)
	if !changed {
		return nil
	}
	_, err = c.API.UpdateBlock(ctx, next)
	return pool.IgnoreChanged(err)
}

// deleteUnused deletes a block of a deleted pool that has only unproven addresses: no node does it.
func (c *Controller) deleteUnused(ctx context.Context, p pool.Pool, b pool.Block) error {
	if p.Metadata.DeletionTimestamp != "" && len(b.Status.Holders) == 0 {
		return pool.IgnoreChanged(c.API.DeleteBlock(ctx, b))
	}
	return nil
}

// fence notes in a block which of its holders are dead. The taint is read again after the block: a node that has come back has changed its blocks
// since, and the API refuses the fence. due is false if none is dead that was not fenced before.
func (c *Controller) fence(ctx context.Context, p pool.Pool, b pool.Block, dead map[string]bool) (due bool, err error) {
	reason := "node has the taint node.kubernetes.io/out-of-service, seen " + c.instant()
	next, due := b.Fence(func(p pool.Party) bool { return dead[p.Node] }, reason)
	if !due {
		return false, nil
	}
	var names []string
	for i, h := range next.Status.Holders {
		if h.Fenced != reason || b.Status.Holders[i].Fenced != "" {
			continue
		}
		if n, err := c.API.Node(ctx, h.Node); err != nil || !n.OutOfService {
			return true, pool.IgnoreChanged(err)
		}
		names = append(names, h.Node)
	}
	if _, err = c.API.UpdateBlock(ctx, next); err == nil && len(names) > 0 {
		c.tell(p, true, NodeFenced, fmt.Sprintf("others may take what node %s has in AddressBlock %s: %s", strings.Join(names, ", "), b.Metadata.Name, reason))
	}
	return true, pool.IgnoreChanged(err)
}

// removeGone takes the holders out of the block of which the API itself says that their Node is gone: nobody removes the fence of one that is not.
func (c *Controller) removeGone(ctx context.Context, p pool.Pool, b pool.Block, deleted func(pool.Holder) bool, readClaims func() ([]pool.Claim, error)) error {
	var names []string
	for _, h := range b.Status.Holders {
		if h.Fenced == "" || !deleted(h) {
			continue
		}
		n, err := c.API.Node(ctx, h.Node)
		switch {
		case err == nil && (h.NodeUID == "" || n.UID == h.NodeUID):
			return nil // The cache is late.
		case err != nil && !errors.Is(err, pool.ErrNotFound):
			return err
		}
		names = append(names, h.Node)
	}
	claims, err := readClaims()
	if err != nil {
		return err
	}
	next, changed := b.RemoveDeleted(deleted, claimed(p, claims))
	switch {
	case !changed:
		return nil
	case p.Metadata.DeletionTimestamp != "" && len(next.Status.Holders) == 0:
		err = c.API.DeleteBlock(ctx, b)
	default:
		_, err = c.API.UpdateBlock(ctx, next)
	}
	if err == nil && len(names) > 0 {
		c.tell(p, false, NodeRemoved, fmt.Sprintf("node %s is deleted, and has nothing of AddressBlock %s any more", strings.Join(names, ", "), b.Metadata.Name))
	}
	return pool.IgnoreChanged(err)
}

// claimed says whether an owner keeps an address of the pool. Nobody gets an address of a pool that is being deleted.
func claimed(p pool.Pool, claims []pool.Claim) func(netip.Addr) bool {
	addresses := map[netip.Addr]bool{}
	for _, c := range claims {
		addresses[c.Status.Address] = p.Metadata.DeletionTimestamp == ""
	}
	return func(a netip.Addr) bool { return addresses[a] }
}

// collectClaims deletes the claims of owners that are gone, if no node does it: the addresses are those of fenced nodes, wait for the owners, or another
// node has them since the API was restored. A pool that is being deleted and has no block needs no claim.
func (c *Controller) collectClaims(ctx context.Context, p pool.Pool, claims []pool.Claim, blocks []pool.Block) (err error) {
	if p.Metadata.DeletionTimestamp == "" || len(blocks) > 0 {
		claims = slices.DeleteFunc(slices.Clone(claims), func(claim pool.Claim) bool { return !isOrphan(claim, blocks) })
		claims = c.longGone(ctx, p.Metadata.Name, claims)
	}
	for _, claim := range claims {
		err = errors.Join(err, pool.IgnoreChanged(c.API.DeleteClaim(ctx, claim)))
	}
	return err
}

// longGone returns those of the claims whose owners the API has proven gone for goneLimit.
func (c *Controller) longGone(ctx context.Context, name string, claims []pool.Claim) (ended []pool.Claim) {
	var owners []attachment.Owner
	for _, claim := range claims {
		owners = append(owners, claim.Spec.Owner)
	}
	var judgements []owner.Judgement
	if c.Owners != nil && len(owners) > 0 {
		judgements = c.Owners.Judge(ctx, owners)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before, since := c.last.goneSince[name], map[string]time.Time{}
	for i, j := range judgements {
		if j.Standing != owner.Gone {
			continue
		}
		uid := claims[i].Metadata.UID
		if since[uid] = cmp.Or(before[uid], c.clock()); c.clock().Sub(since[uid]) >= goneLimit {
			ended = append(ended, claims[i])
		}
	}
	c.last.goneSince[name] = since
	return ended
}

// isOrphan says whether no node deletes the claim: the party that it names does not have the address, or is fenced.
func isOrphan(claim pool.Claim, blocks []pool.Block) bool {
	for _, b := range blocks {
		if i := b.Offset(claim.Status.Address); i >= 0 {
			h, _ := b.HolderOf(i)
			return h.Fenced != "" || !h.SameParty(claim.Status.Active.Party)
		}
	}
	return true
}
