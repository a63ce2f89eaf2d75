package pool

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Local is what a party knows of itself when it looks at a block.
type Local struct {
	Me   Party
	Boot string
	// Confirmed says that the party has read the API in this boot.
	Confirmed bool
	// Uses are the leases at addresses of the pool. A free address has none.
	Uses map[netip.Addr]Use
	// Excluded says which addresses no pod gets by now.
	Excluded func(netip.Addr) bool
	// Spare is how many free addresses of the pool others may get, and Surplus how many the party gives back unasked.
	Spare, Surplus int
	// Elsewhere are those who ask on other blocks of the pool, for as many as their Count.
	Elsewhere []Want
	// Waits says whether the party goes on asking for what it has asked for. Expired says whether another party that asks is dead, or has asked
	// for so long that it has given up.
	Waits, Expired func(Want) bool
	// Leaves says that the node goes for good, and MayLeave that a fenced party may leave the block. Claimed are the addresses that claims have for
	// owners: they stay theirs then. It is empty for a party that stays.
	Leaves, MayLeave bool
	Claimed          []netip.Addr
}

// Use is what an address is used for on this node.
type Use struct {
	// Claim is the name of the owner's claim, empty without an owner.
	Claim string
	// PodUIDs are the UIDs of the pods that have the address, none for one that waits for its owner or for the end of its quarantine.
	PodUIDs []string
	// Held says that a pod has it, and Waiting that it waits for its owner. Probed says that the pod's ADD is over, with its probe.
	Held, Waiting, Probed bool
	// Claimed says that the API has had a claim for the owner. Stays says that it waits on this node only: until a time, by the will of a
	// person, or because its claim is not written.
	Claimed, Stays bool
}

// Outcome is what follows from a look at a block. Its order counts: the store has the grant before the API gets the block.
type Outcome struct {
	// Grant is what the store has then. A mark in it is never taken back.
	Grant Grant
	// HandedOver are the addresses whose reservations end with that: their owners' next pods are on other nodes. Kept are those that wait for
	// their owners without a time limit from now on, because a machine migrates with them.
	HandedOver, Kept []netip.Addr
	// Write says that the API is asked to store Block, and Delete that it is asked to delete it instead.
	Block         Block
	Write, Delete bool
	// Passed is how many addresses each of Local.Elsewhere gets by it.
	Passed []int
	// Unmet are those who ask on this block for what is not free now. Disowned are those who ask for the address of a claim that is not its
	// owner's any more.
	Unmet, Disowned []Want
	// Fenced are the addresses that pods here have, and others may have by now: the party is fenced, and stays in the block until they have ended.
	Fenced []netip.Addr
}

// Reconcile is what a party does with a block that the API itself has just answered. g is what its store has of it, and no lease of the store
// changes meanwhile. The error matches ErrStale or ErrReplaced if the API has lost something. Otherwise the party has what the block says, and
//
//   - if it is fenced, it leaves as soon as no pod here has any of the addresses;
//   - it confirms what it has, once in a boot;
//   - it notes what is proven: a pod has the address after a probe;
//   - it withdraws what it does not ask for any more;
//   - it marks what others ask for and it can spare, and what it has too much of;
//   - it gives what is marked to those who ask, and to nobody else.
func Reconcile(b Block, g Grant, l Local) (o Outcome, err error) {
	o.Block = b.clone()
	var lost []int
	if o.Grant, lost, err = g.Adopt(b, l.Me); err != nil {
		return o, err
	}
	switch fenced := b.IsFenced(l.Me); {
	case fenced:
		return o.leave(l), nil
	case len(lost) > 0:
		return o, fmt.Errorf("AddressBlock %s: %w: this node has %d addresses that are not its own there", g.Name(), ErrStale, len(lost))
	}
	if !l.Confirmed || !b.HasNodeUID(l.Me) {
		o.Block, o.Write = o.Block.Confirm(l.Me, l.Boot)
	}
	o.prove(l)
	for _, w := range b.Status.Want {
		if w.SameParty(l.Me) && !l.Waits(w) {
			o.Block, o.Write = o.Block.Request(Want{Party: w.Party, Address: w.Address}), true
		}
	}
	if _, holds := b.Holder(l.Me); holds {
		o.answer(l)
		o.endAcceptance(l)
	}
	o.release(l)
	return o, nil
}

// prove notes which addresses need no probe any more: pods have them, and nobody else has answered. As long as a holder is fenced, its pods can live.
func (o *Outcome) prove(l Local) {
	proven := func(a netip.Addr) bool {
		i := o.Block.Offset(a)
		return i >= 0 && o.Block.HeldBy(l.Me, i) && l.Uses[a].Probed
	}
	fenced := func(h Holder) bool { return h.Fenced != "" }
	if !slices.ContainsFunc(o.Block.Status.Holders, fenced) && slices.ContainsFunc(o.Block.Status.Unproven, proven) {
		o.Block.Status.Unproven, o.Write = slices.DeleteFunc(slices.Clone(o.Block.Status.Unproven), proven), true
	}
}

// leave takes a fenced party out of the block.
func (o Outcome) leave(l Local) Outcome {
	for i := range len(o.Block.Status.Addresses) {
		if a := o.Block.Address(i); l.Uses[a].Held {
			o.Fenced = append(o.Fenced, a)
		}
	}
	if len(o.Fenced) == 0 && l.MayLeave {
		o.Block, o.Write = o.Block.Unfence(l.Me, l.Claimed), true
		o.Delete = o.Block.Unused()
	}
	return o
}

// answer marks what others ask for, and what the party has too much of. What was marked earlier is for them, too.
func (o *Outcome) answer(l Local) {
	var asks []Want
	for _, w := range o.Block.Status.Want {
		switch {
		case w.SameParty(l.Me), o.Block.IsFenced(w.Party), l.Expired(w): // A fenced party could not get it.
		case w.Address.IsValid():
			o.answerOwner(w, l)
		default:
			asks = append(asks, w)
		}
	}
	marked := len(o.Grant.Offsets(string(Marked))) - len(o.HandedOver)
	for i, w := range append(asks, l.Elsewhere...) {
		served := min(w.Count, marked)
		marked -= served
		n := o.mark(min(w.Count-served, l.Spare), l, false)
		l.Spare -= n
		if w.Count -= served + n; w.Count > 0 && i < len(asks) {
			o.Unmet = append(o.Unmet, w)
		}
	}
	o.mark(l.Surplus, l, true)
	if l.Leaves {
		o.markWaiting(l)
	}
}

// markWaiting marks what waits for owners: their next pods are on other nodes. They get the claims' addresses there.
func (o *Outcome) markWaiting(l Local) {
	for _, i := range o.Grant.Offsets(GrantedChars) {
		a := o.Grant.Address(i)
		if use := l.Uses[a]; use.Waiting && !use.Stays && (!use.Claimed || slices.Contains(l.Claimed, a)) {
			o.Grant, o.HandedOver = o.Grant.Mark([]int{i}), append(o.HandedOver, a)
		}
	}
}

// answerOwner marks the address that an owner's next pod needs on another node, if no pod of this node has it. A pod from which the owner's
// machine migrates keeps it until it ends.
func (o *Outcome) answerOwner(w Want, l Local) {
	if !o.Grant.MayGive(w.Address) {
		return
	}
	use, used := l.Uses[w.Address]
	switch {
	case used && use.Claim != w.Claim:
		o.Disowned = append(o.Disowned, w)
	case use.Held:
		o.Unmet = append(o.Unmet, w)
		if slices.ContainsFunc(w.Sources, func(uid string) bool { return slices.Contains(use.PodUIDs, uid) }) {
			o.accept(w, l)
		}
	case used && !use.Waiting:
		o.Unmet = append(o.Unmet, w) // It is in quarantine.
	default:
		o.Grant = o.Grant.Mark([]int{o.Grant.Offset(w.Address)})
		if used {
			o.HandedOver = append(o.HandedOver, w.Address)
		}
	}
}

// accept notes in the block that the address is kept for the pod to which the owner's machine migrates.
func (o *Outcome) accept(w Want, l Local) {
	i := o.Block.holder(l.Me)
	if h := &o.Block.Status.Holders[i]; !slices.Contains(h.Accepted, w.PodUID) {
		h.Accepted, o.Write = append(slices.Clone(h.Accepted), w.PodUID), true
		o.Kept = append(o.Kept, w.Address)
	}
}

// endAcceptance forgets pods that do not ask for an address any more: their machines have come, or never do.
func (o *Outcome) endAcceptance(l Local) {
	h := &o.Block.Status.Holders[o.Block.holder(l.Me)]
	ended := func(uid string) bool {
		return !slices.ContainsFunc(o.Block.Status.Want, func(w Want) bool { return w.PodUID == uid })
	}
	if slices.ContainsFunc(h.Accepted, ended) {
		h.Accepted, o.Write = slices.DeleteFunc(slices.Clone(h.Accepted), ended), true
	}
}

// mark marks at most limit free addresses, the last ones first. Those that the pool excludes by now come after all others, and only if somebody
// can do something with them: nobody who asks can. It returns how many it has marked.
func (o *Outcome) mark(limit int, l Local, excluded bool) (n int) {
	for _, pass := range []bool{false, true} {
		offsets := o.Grant.Offsets(GrantedChars)
		slices.Reverse(offsets)
		for _, i := range offsets {
			a := o.Grant.Address(i)
			if _, used := l.Uses[a]; n < limit && !used && l.Excluded(a) == pass && (excluded || !pass) {
				o.Grant = o.Grant.Mark([]int{i})
				n++
			}
		}
	}
	return n
}

// release gives back what is marked: to those who ask on this block, then to those who ask elsewhere. What a claim has for its owner waits for that
// owner. It also removes a party that has nothing: the pool excludes all of the block.
func (o *Outcome) release(l Local) {
	var offsets []int
	for _, i := range o.Grant.Offsets(string(Marked)) {
		if o.Block.HeldBy(l.Me, i) {
			offsets = append(offsets, i)
		}
	}
	if h, holds := o.Block.Holder(l.Me); len(offsets) == 0 && (!holds || strings.Contains(o.Block.Status.Addresses, h.ID)) {
		return
	}
	o.Block, o.Write, o.Passed = o.Block.Release(l.Me, nil, nil), true, make([]int, len(l.Elsewhere))
	for _, i := range offsets {
		a := o.Block.Address(i)
		claimed := slices.Contains(l.Claimed, a)
		next := o.Block.Release(l.Me, []int{i}, func(w Want) bool { return claimed && w.Address != a || l.Expired(w) })
		if claimed && next.Status.Addresses[i] == Unassigned {
			next.setHolder(i, Claimed)
		}
		for n, w := range l.Elsewhere {
			if next.Status.Addresses[i] == Unassigned && o.Passed[n] < w.Count && !o.Block.IsFenced(w.Party) {
				next = o.Block.HandOver(l.Me, []int{i}, w.Party)
				o.Passed[n] += 1 - strings.Count(next.Status.Addresses[i:i+1], string(Unassigned))
			}
		}
		o.Block = next
	}
	o.Delete = o.Block.Unused()
}
