package lease

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// giveNext gives the next free address in turn. If there is none, it gives the one whose quarantine ends
// first.
func (c choice) giveNext() (Lease, error) {
	last := c.lastGiven(c.number)
	parts := []RangeSet{c.ready} // Those that need no probe come first.
	if c.Probes {
		parts = append(parts, c.needsProbe)
	}
	for _, part := range parts {
		for _, t := range part.turns(last) {
			a, err := c.firstFree(t)
			if err != nil {
				return Lease{}, err
			}
			if a.IsValid() {
				return c.giveInTurn(a, InTurn)
			}
		}
	}
	a, err := c.longestReleased(c.gives)
	if err != nil {
		return Lease{}, err
	}
	if a.IsValid() {
		return c.giveInTurn(a, LongestReleased)
	}
	if c.isPool() {
		return Lease{}, c.exhaustedOfPool()
	}
	return Lease{}, c.exhausted(c.number, c.gives)
}

// giveInTurn gives an address that nobody has, and lets the turn go on after it.
func (c choice) giveInTurn(a netip.Addr, origin Origin) (Lease, error) {
	if err := c.setLastGiven(c.number, a); err != nil {
		return Lease{}, err
	}
	return c.give(Lease{Address: a}, origin)
}

// give makes the attachment a holder of the address: the only one, or one beside an earlier holder. The
// earlier one goes when it gives up the address, or when this ADD has succeeded. If this ADD fails, the
// earlier one has the address as before.
func (c choice) give(previous Lease, origin Origin) (Lease, error) {
	owner := c.Owner
	if previous.ReservedByHandAt(c.instant) {
		owner = previous.Owner // The operator's word stays: the next ADD finds it again.
	}
	lease := Lease{
		Address: previous.Address, Network: c.store.network, Owner: owner, State: Held, Holders: slices.Clone(previous.Holders),
		ByHand: previous.ByHand, ByHandAt: previous.ByHandAt, ByHandUntil: previous.ByHandUntil, Claimed: previous.Claimed && previous.Owner == owner, Unknown: previous.Unknown,
	}
	if previous.State == Held {
		origin, lease.Conflict, lease.Reason = TakenOver, previous.Conflict, previous.Reason
	}
	h := Holder{
		ContainerID: c.Attachment.ContainerID, IfName: c.Attachment.IfName, Network: c.networkOf(c.Attachment), Pod: c.Pod, Owner: c.APIOwner, Namespace: c.Namespace,
		Since: c.instant, Origin: origin, Policy: c.Policy,
	}
	h.Namespace.BootID = c.bootID()
	lease.Holders = append(lease.Holders, h)
	return lease, errors.Join(c.record(lease, h, Given, string(origin), lease), c.endOtherReservations(lease, previous.State))
}

// endOtherReservations ends what else the policy reserves for the owner in the set, for the same interface: nobody
// would ever ask for it again. previous is the state of the given address before. A pod of a shared owner uses up only one of the
// addresses that wait: the given one, or the one that it would have been given if it had not asked for another. So no more
// addresses wait than the owner had pods at one time.
func (c choice) endOtherReservations(lease Lease, previous State) error {
	if !lease.hasOwner() {
		return nil
	}
	leases, err := c.ownerLeases()
	if err != nil {
		return err
	}
	leases = slices.DeleteFunc(leases, func(candidate Lease) bool {
		differs := candidate.Last.Policy.keptForSeveral() != c.Policy.keptForSeveral()
		return !c.members.Has(candidate.Address) || differs || candidate.State != Reserved || candidate.ReservedByHandAt(c.instant) || candidate.Last.IfName != c.Attachment.IfName
	})
	if c.Policy.keptForSeveral() && len(leases) > 0 {
		slices.SortFunc(leases, c.compare)
		leases = leases[:1]
		if previous == Reserved || previous == Held {
			leases = nil
		}
	}
	reason := fmt.Sprintf("the owner has %s instead", lease.Address)
	for _, reservation := range leases {
		if err := c.record(reservation, Holder{}, Ended, reason, reservation.unreserved(reason, c.instant)); err != nil {
			return err
		}
	}
	return nil
}
