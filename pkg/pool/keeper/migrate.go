package keeper

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// A virtual machine migrates from a pod to another one of the same run, on another node. Both pods have the address meanwhile. The
// block goes on saying that it is the source's. These are the steps:
//
//  1. The target's node makes itself the claim's target, and asks for the address on the block.
//  2. The source's node makes the address wait without a time limit when its pod ends. Then it accepts the target in the claim: from now
//     on nobody else gets the address.
//  3. The target's ADD gets the address beside the source. Nobody probes for it or announces it.
//  4. The source's pod ends. Its node hands the address over, as to any next pod of an owner.
//  5. The target's node has the address, and makes the claim its own.
//
// If the target's pod ends first, its node takes back what it has asked for.

// comes makes the pod that is about to start the target of the owner's machine, if that migrates. target is the pod's UID then.
// accepted says that the source's node has accepted it.
func (m *member) comes(ctx context.Context, a pool.Acquisition, address netip.Addr, me pool.Party) (target string, accepted bool, err error) {
	if len(a.Siblings) == 0 || a.Pod.UID == "" {
		return "", false, nil
	}
	c, err := m.API.Claim(ctx, pool.ClaimName(a.Pool, a.IfName, a.Owner))
	if errors.Is(err, pool.ErrNotThere) {
		return "", false, nil
	}
	if err != nil {
		return "", false, unavailable(err)
	}
	if c.Spec.Address != address || c.Spec.Active.Is(me) || !slices.Contains(a.Siblings, c.Spec.Active.PodUID) {
		return "", false, nil
	}
	to := pool.Place{Party: me, PodUID: a.Pod.UID}
	if c.Spec.Target != nil && *c.Spec.Target == to {
		return to.PodUID, c.Spec.Accepted == to.PodUID, nil
	}
	c.Spec.Target, c.Spec.Accepted = &to, ""
	_, err = m.API.UpdateClaim(ctx, c)
	m.wrote(err)
	switch {
	case err == nil:
		return to.PodUID, false, nil
	case errors.Is(err, pool.ErrConflict), errors.Is(err, pool.ErrNotThere):
		return "", false, nil // The next try reads it again.
	}
	return "", false, unavailable(err)
}

// letCome accepts that the machine of a pod of this node migrates to who wants its address. l is the pod's lease. A pod that is no
// target so far can become one: its node knows the machine's pod here by the claim, and an ADD that came back to this node has not
// written there.
func (m *member) letCome(ctx context.Context, w pool.Want, l lease.Lease, me pool.Party) error {
	if w.PodUID == "" {
		return m.nameRunning(ctx, w, l, me)
	}
	c, err := m.API.Claim(ctx, w.Claim)
	if err != nil {
		return ignore(err, pool.ErrNotThere)
	}
	t := c.Spec.Target
	if !c.Spec.Active.Is(me) || c.Spec.Address != w.Address || t == nil || !t.Is(w.Party) || t.PodUID != w.PodUID || c.Spec.Accepted == t.PodUID {
		return nil
	}
	if err := m.store.Await(ctx, w.Address, l.Owner); err != nil {
		return err
	}
	c.Spec.Accepted = t.PodUID
	_, err = m.API.UpdateClaim(ctx, c)
	m.wrote(err)
	return ignore(err, pool.ErrConflict, pool.ErrNotThere)
}

// nameRunning writes into the claim which pod has the address here, if it is another one by now.
func (m *member) nameRunning(ctx context.Context, w pool.Want, l lease.Lease, me pool.Party) error {
	c, err := m.API.Claim(ctx, w.Claim)
	uid := l.Newest().Pod.UID
	if err != nil || uid == "" || !c.Spec.Active.Is(me) || c.Spec.Address != w.Address || c.Spec.Active.PodUID == uid {
		return ignore(err, pool.ErrNotThere)
	}
	c.Spec.Active.PodUID = uid
	_, err = m.API.UpdateClaim(ctx, c)
	m.wrote(err)
	return ignore(err, pool.ErrConflict, pool.ErrNotThere)
}

// keepBeside is for owners' addresses that this node does not have. A pod that has one beside another node goes on asking for it. An
// address that waits for nobody is forgotten.
func (m *member) keepBeside(ctx context.Context, s state) error {
	var errs []error
	for _, p := range s.Pools {
		for a, l := range p.Leased {
			if l.Owner.Name == "" || m.has(s, p.Name, a) {
				continue
			}
			switch l.State {
			case lease.Held:
				errs = append(errs, m.askBeside(ctx, p, l, s.me))
			case lease.Reserved:
				errs = append(errs, m.forgetBeside(ctx, p, l, s))
			}
		}
	}
	return errors.Join(errs...)
}

// askBeside asks for the address of a machine that has come to this node. If the source's node was declared dead, it takes it.
func (m *member) askBeside(ctx context.Context, p lease.PoolState, l lease.Lease, me pool.Party) error {
	c := l.ClaimOf(p.Name)
	of, err := m.API.Claim(ctx, pool.ClaimName(c.Pool, c.IfName, c.Owner))
	if err != nil {
		return ignore(err, pool.ErrNotThere)
	}
	if t := of.Spec.Target; of.Spec.Address != l.Address || t == nil || !t.Is(me) || t.PodUID != c.Pod.UID {
		return nil
	}
	index, is := p.Layout.Index(l.Address)
	if !is {
		return nil
	}
	_, _, err = m.fetch(ctx, c.Acquisition, l.Address, index, c.Pod.UID)
	return err
}

// forgetBeside ends a reservation of an address that this node does not have, unless it is about to come. It first takes back what
// this node has asked for: otherwise the address could still come, and nobody would know here whose it is. If it is nobody's, and the
// claim still has it for the owner, this node takes it.
func (m *member) forgetBeside(ctx context.Context, p lease.PoolState, l lease.Lease, s state) error {
	index, is := p.Layout.Index(l.Address)
	if is {
		a := ask{block: pool.BlockName(p.Name, index), want: pool.Want{Party: s.me, Address: l.Address}}
		if _, asked := m.asked[a.key()]; asked && l.Last.ContainerID == "" {
			return nil // withdraw forgets it in time.
		}
		if err := m.unask(ctx, a); err != nil {
			return ignore(err, pool.ErrConflict)
		}
		delete(m.asked, a.key())
	}
	of := l.ClaimOf(p.Name)
	c, err := m.API.Claim(ctx, pool.ClaimName(of.Pool, of.IfName, of.Owner))
	if ignore(err, pool.ErrNotThere) != nil {
		return unavailable(err)
	}
	there := err == nil
	if there && is && c.Spec.Address == l.Address {
		if waits, err := m.regain(ctx, c, index, s); waits || err != nil {
			return err
		}
	}
	if there {
		if err := m.endTarget(ctx, c, s.me); err != nil {
			return ignore(err, pool.ErrConflict) // The next look goes on here.
		}
	}
	return m.store.Unexpect(ctx, p.Name, l.Address, l.Owner)
}

// comesNot says in the claim that the machine does not migrate to this node. The error matches pool.ErrConflict if the claim changes at the
// same time. The claim has to be read again then: it would name a target that never comes.
func (m *member) comesNot(ctx context.Context, claim string, me pool.Party) error {
	c, err := m.API.Claim(ctx, claim)
	if err != nil {
		return ignore(err, pool.ErrNotThere)
	}
	return m.endTarget(ctx, c, me)
}

// endTarget is comesNot for a claim that was just read.
func (m *member) endTarget(ctx context.Context, c pool.Claim, me pool.Party) error {
	if t := c.Spec.Target; t == nil || !t.Is(me) {
		return nil
	}
	c.Spec.Target, c.Spec.Accepted = nil, ""
	_, err := m.API.UpdateClaim(ctx, c)
	m.wrote(err)
	return ignore(err, pool.ErrNotThere)
}
