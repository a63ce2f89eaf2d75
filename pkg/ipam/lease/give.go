package lease

import (
	"errors"
	"fmt"
	"slices"
)

// next gives the next free address in turn. If there is none, it gives the one whose quarantine ends
// first.
func (c choice) next() (Lease, error) {
	last := c.lastGiven(c.number)
	for _, part := range c.parts() {
		for _, t := range part.turns(last) {
			a, err := c.free(t)
			if err != nil {
				return Lease{}, err
			}
			if a.IsValid() {
				return c.inTurn(Lease{Address: a}, InTurn)
			}
		}
	}
	a, err := c.longestReleased(c.set)
	if err != nil {
		return Lease{}, err
	}
	if a.IsValid() {
		return c.inTurn(Lease{Address: a}, LongestReleased)
	}
	if c.pool != nil {
		return Lease{}, c.exhaustedOfPool()
	}
	return Lease{}, c.exhausted(c.number, c.set)
}

// inTurn gives the address, and lets the turn go on after it.
func (c choice) inTurn(lease Lease, origin Origin) (Lease, error) {
	if err := c.setLastGiven(c.number, lease.Address); err != nil {
		return Lease{}, err
	}
	return c.give(lease, origin)
}

// give makes the attachment a holder of the address: the only one, or one beside an earlier holder. The
// earlier one goes when it gives up the address, or when this ADD has succeeded. If this ADD fails, the
// earlier one has the address as before.
func (c choice) give(was Lease, origin Origin) (Lease, error) {
	bootID, err := c.store.boot()
	if err != nil {
		return Lease{}, err
	}
	owner := c.Owner
	if was.byHand(c.now) {
		owner = was.Owner // The operator's word stays: the next ADD finds it again.
	}
	lease := Lease{
		Address: was.Address, Network: c.store.network, Owner: owner, State: Held, Holders: slices.Clone(was.Holders),
		ByHand: was.ByHand, ByHandAt: was.ByHandAt, ByHandUntil: was.ByHandUntil, Claimed: was.Claimed && was.Owner == owner, unknown: was.unknown,
	}
	if was.State == Held {
		origin, lease.Conflict, lease.Why = TakenOver, was.Conflict, was.Why
	}
	h := Holder{
		ContainerID: c.Attachment.ContainerID, IfName: c.Attachment.IfName, Pod: c.Pod, Owner: c.Resolved, Namespace: c.Namespace,
		Since: c.now, Origin: origin, Policy: c.Policy,
	}
	h.Namespace.BootID = bootID
	lease.Holders = append(lease.Holders, h)
	c.note(Event{What: Given, Why: string(origin), Then: Held}.of(lease, h))
	return lease, errors.Join(c.put(lease), c.letOthersGo(lease, was.State))
}

// letOthersGo ends what else the policy reserves for the owner in the set, for the same interface: nobody
// would ever ask for it again. was is the state of the given address before. A pod of a shared owner uses up only one of the
// addresses that wait: the given one, or the one that it would have been given if it had not asked for another. So no more
// addresses wait than the owner had pods at one time.
func (c choice) letOthersGo(given Lease, was State) error {
	if !given.owned() {
		return nil
	}
	all, err := c.ownedByAny()
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(other Lease) bool {
		_, in := c.whole.Find(other.Address)
		differs := other.Last.Policy.keptForSeveral() != c.Policy.keptForSeveral()
		return !in || differs || other.State != Reserved || other.byHand(c.now) || other.Last.IfName != c.Attachment.IfName
	})
	if c.Policy.keptForSeveral() && len(all) > 0 {
		slices.SortFunc(all, c.compare)
		all = all[:1]
		if was == Reserved || was == Held {
			all = nil
		}
	}
	for _, other := range all {
		why := fmt.Sprintf("the owner has %s instead", given.Address)
		left, ok := other.unreserved(why, c.now)
		c.note(Event{What: Ended, Why: why, Then: left.State}.of(other, Holder{}))
		if err := c.leave(other, left, ok, nil, "", ""); err != nil {
			return err
		}
	}
	return nil
}
