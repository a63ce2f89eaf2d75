package lease

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// assignRequested returns the wanted address of each set, the zero Addr for none, and those that are left over. It refuses what no ADD
// can give, whatever is leased: an address of CandidateAddresses that no set has, and a wanted address beside others.
func (r Request) assignRequested(sets []RangeSet) (assigned, rest []netip.Addr, err error) {
	for _, a := range r.CandidateAddresses {
		n := SetOf(sets, a)
		if n < 0 {
			return nil, nil, refuseUnassigned(sets, nil, a)
		}
		if ok, reason := sets[n].Gives(a); !ok {
			return nil, nil, refuseExcluded(a, reason)
		}
	}
	assigned, rest = assignToSets(sets, r.RequestedAddresses)
	for i, a := range assigned {
		choices := sets[i].among(r.CandidateAddresses)
		if a.IsValid() && len(choices) > 0 && !slices.Contains(choices, a) {
			return nil, nil, refuseSecond(choices[0], a)
		}
	}
	return assigned, rest, nil
}

// assignToSets returns the wanted address of each set, the zero Addr for none, and those that are left over.
func assignToSets(sets []RangeSet, wanted []netip.Addr) (assigned, rest []netip.Addr) {
	rest = slices.Clone(wanted)
	for _, set := range sets {
		var address netip.Addr
		if n := slices.IndexFunc(rest, set.Has); n >= 0 {
			address = rest[n]
			rest = slices.Delete(rest, n, n+1)
		}
		assigned = append(assigned, address)
	}
	return assigned, rest
}

func joinAddresses(addresses []netip.Addr) string {
	var texts []string
	for _, a := range addresses {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}

// refuseUnassigned refuses the first address that is left over. assigned are the addresses that the sets give.
func refuseUnassigned(sets []RangeSet, assigned []netip.Addr, a netip.Addr) *RefusedError {
	if n := SetOf(sets, a); n >= 0 {
		return refuseSecond(a, assigned[n])
	}
	return &RefusedError{Address: a, Reason: "is in none of the range sets"}
}

// refuseSecond refuses an address of a set of which another one is wanted.
func refuseSecond(a, first netip.Addr) *RefusedError {
	return &RefusedError{Address: a, First: first, Reason: fmt.Sprintf("is the second address of a range set that gives one, after %s", first)}
}

func refuseExcluded(a netip.Addr, reason string) *RefusedError {
	return &RefusedError{Address: a, Reason: "cannot be given: " + reason}
}

// CheckRequested returns an error for each wanted address that no Allocate of an attachment without addresses would give,
// whatever is leased.
func CheckRequested(sets []RangeSet, wanted []netip.Addr) []*RefusedError {
	var errs []*RefusedError
	assigned, rest := assignToSets(sets, wanted)
	for i, a := range assigned {
		if ok, reason := sets[i].Gives(a); a.IsValid() && !ok {
			errs = append(errs, refuseExcluded(a, reason))
		}
	}
	for _, a := range rest {
		errs = append(errs, refuseUnassigned(sets, assigned, a))
	}
	return errs
}

// giveRequested gives the address of the list that is the owner's already, else the first one that is free, else the first
// one in quarantine. *ElsewhereError: none of them can be given, and nobody has asked another node.
func (c choice) giveRequested(list []netip.Addr) (Lease, error) {
	var mine []Lease
	var free, resting netip.Addr
	var unqueried []netip.Addr
	var refusals []string
	for _, a := range list {
		if ok, reason := c.members.Gives(a); !ok {
			return Lease{}, refuseExcluded(a, reason)
		}
		lease, err := c.get(a)
		switch {
		case err != nil:
			return Lease{}, err
		case !c.gives.Has(a):
			if !slices.Contains(c.QueriedAddresses, a) {
				unqueried = append(unqueried, a)
			}
			refusals = append(refusals, fmt.Sprintf("%s of pool %s is %v", a, c.pool.layout.Name, ErrNotGranted))
		case lease.isFree(), c.hasEnded(lease):
			free = cmp.Or(free, a)
		case c.belongsToRequester(lease):
			mine = append(mine, lease)
		case lease.State == Quarantined && (!lease.Conflict || a == c.requested):
			resting = cmp.Or(resting, a)
		default:
			refusals = append(refusals, fmt.Sprintf("%s is %s", a, lease.describeFor(c.Owner)))
		}
	}
	if len(mine) > 0 {
		return c.give(slices.MinFunc(mine, c.compare), Requested)
	}
	if a := cmp.Or(free, resting); a.IsValid() {
		return c.giveInTurn(a, Requested)
	}
	if len(unqueried) > 0 {
		return Lease{}, &ElsewhereError{Pool: c.pool.layout.Name, Addresses: unqueried}
	}
	const enough = 3
	if surplus := len(refusals) - enough; surplus > 0 {
		refusals = append(refusals[:enough], fmt.Sprintf("%d more are taken, too", surplus))
	}
	return Lease{}, fmt.Errorf("each of the requested addresses is %w: %s", ErrTaken, strings.Join(refusals, "; "))
}
