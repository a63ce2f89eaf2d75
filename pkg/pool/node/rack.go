package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// mismatch says why the pool is not for this node, empty if it is. For a pool that selects nodes it reads the labels that the node has now.
func (nc *Controller) mismatch(ctx context.Context, p pool.Pool) (reason string, err error) {
	n := nc.node()
	if len(p.Spec.NodeSelector) > 0 {
		n, err = nc.readNode(ctx)
	}
	return p.Mismatch(n), err
}

// layoutOf returns what the pool is like for this node, by the labels that were last read.
func (nc *Controller) layoutOf(p pool.Pool) (pool.Layout, error) {
	l, err := p.Layout()
	n := nc.node()
	l.Unneeded = l.Unneeded || n.Name != "" && p.Mismatch(n) != ""
	return l, err
}

// choose returns the pools that this node takes of the choices, by the API. The store notes them, and forgets a choice of which the node can
// take none. The error matches pool.ErrUnknown then.
func (sc *storeController) choose(ctx context.Context, choices []string) ([]string, error) {
	names, chosen := slices.Clone(choices), map[string]string{}
	if !slices.ContainsFunc(choices, pool.IsChoice) {
		return names, nil
	}
	pools, err := sc.API.Pools(ctx)
	if err != nil {
		return nil, err
	}
	n, err := sc.readNode(ctx)
	if err != nil {
		return nil, err
	}
	var wrong error
	for i, c := range choices {
		if pool.IsChoice(c) {
			names[i], err = pool.Choose(c, pools, n)
			chosen[c], wrong = names[i], errors.Join(wrong, err)
		}
	}
	return names, errors.Join(wrong, sc.store.SetChosen(ctx, chosen))
}

// chooseAgain corrects what the store has chosen: pools or labels can have changed.
func (sc *storeController) chooseAgain(ctx context.Context) error {
	s, err := sc.state(ctx)
	if err != nil {
		return err
	}
	_, err = sc.choose(ctx, slices.Collect(maps.Keys(s.Chosen)))
	return err
}

// siblings returns the other pools of the same choice.
func (s state) siblings(name string) (names []string) {
	for choice := range s.Chosen {
		if candidates := pool.Candidates(choice); slices.Contains(candidates, name) {
			names = append(names, candidates...)
		}
	}
	return slices.DeleteFunc(names, func(n string) bool { return n == name })
}

// siblingClaim returns the claim of the owner in another pool of the same choice, the zero Claim for none.
func (sc *storeController) siblingClaim(ctx context.Context, s state, a pool.Acquisition) (c pool.Claim, err error) {
	for _, a.Pool = range s.siblings(a.Pool) {
		if err == nil && c.Metadata.Name == "" {
			c, err = sc.claim(ctx, a.ClaimName())
		}
	}
	return c, err
}

// checkClaimsKnown fails if the pool recovers: which addresses owners have is known after that.
func checkClaimsKnown(p pool.Pool) error {
	if r := p.Status.Recovery; r != nil {
		return fmt.Errorf("the pool %s recovers, and which addresses owners have is known after that: %s", p.Metadata.Name, r.Message)
	}
	return nil
}

// ownerClaim returns the claim of the owner in the pool, the zero Claim for none. If the owner has an address of another pool of the choice, it
// gets none of this one, unless it may roam. A machine that migrates keeps its address.
func (sc *storeController) ownerClaim(ctx context.Context, a pool.Acquisition) (pool.Claim, error) {
	c, err := sc.claim(ctx, a.ClaimName())
	if err != nil || c.Metadata.Name != "" {
		return c, err
	}
	s, err := sc.state(ctx)
	if err == nil {
		c, err = sc.siblingClaim(ctx, s, a)
	}
	for _, name := range s.siblings(a.Pool) {
		if err == nil && c.Metadata.Name == "" {
			var p pool.Pool
			p, err = sc.pool(ctx, name)
			err = cmp.Or(ignore(err, pool.ErrUnknown), checkClaimsKnown(p))
		}
	}
	if err != nil || c.Metadata.Name == "" || a.Roam && !isSource(c, a) {
		return pool.Claim{}, ignore(err, lease.ErrNotLeased)
	}
	p, err := sc.pool(ctx, c.Spec.Pool)
	if err != nil || p.Metadata.DeletionTimestamp != "" && !isSource(c, a) {
		return pool.Claim{}, ignore(err, pool.ErrUnknown) // The pool goes, and the address with it.
	}
	return pool.Claim{}, notSelectedError("the owner has", c.Status.Address, p, `, or set "roam": true`)
}

// checkSelected fails if the address has to come from elsewhere, and the pool is not for this node.
func (sc *storeController) checkSelected(ctx context.Context, p pool.Pool, a pool.Acquisition, address netip.Addr) error {
	mismatch, err := sc.mismatch(ctx, p)
	if err != nil || mismatch == "" {
		return err
	}
	if s, err := sc.state(ctx); err != nil || s.mayGive(a.Pool, address) {
		return ignore(err, lease.ErrNotLeased)
	}
	subject := "the owner has"
	if a.Requested.IsValid() {
		subject = "the pod asks for"
	}
	return notSelectedError(subject, address, p, "")
}

func notSelectedError(subject string, address netip.Addr, p pool.Pool, hint string) error {
	nodes := "another node"
	if selector := p.Selector(); selector != "" {
		nodes = "nodes with " + selector
	}
	return fmt.Errorf("%w: %s %s of pool %s, which is not for this node: let the pod run on %s%s", pool.ErrUnknown, subject, address, p.Metadata.Name, nodes, hint)
}
