package lease

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/printable"
)

// RequestedRanges is what an ADD asked for: the ranges or the pools.
type RequestedRanges struct {
	Sets  []RangeSet `json:"sets"`
	Pools []string   `json:"pools,omitempty"`

	Unknown Unknown `json:"-"`
}

// putLastRequested notes what an ADD asks for. If the last ADD asked for the same, that stays as it is stored, with what a newer relink has added.
func (l *leaseTx) putLastRequested(k RequestedRanges) error {
	b := encode(&k)
	if bytes.Equal(b, l.meta.Get([]byte(keyRequested))) {
		return nil
	}
	last, err := l.lastRequested()
	if err != nil {
		return err
	}
	if last.Unknown = nil; bytes.Equal(b, encode(&last)) {
		return nil
	}
	return l.meta.Put([]byte(keyRequested), b)
}

// lastRequested returns what the last ADD asked for, nothing before the first one.
func (l *leaseTx) lastRequested() (k RequestedRanges, err error) {
	err = decodeFrom(l.meta, keyRequested, "ranges", &k)
	return k, err
}

// lastSets returns the sets that the last ADD asked for.
func (l *leaseTx) lastSets() (addressSets, error) {
	k, err := l.lastRequested()
	if err != nil {
		return nil, err
	}
	return l.addressSets(k)
}

// addressSet are addresses of which an attachment gets one: a range set, or all addresses of a pool.
type addressSet struct {
	number int
	// poolLayout is that of the pool. It has no name for a range set.
	poolLayout pool.Layout
	// members are all addresses, also those that only other nodes give. ready and needsProbe are what this node may give, needsProbe only
	// after a probe, and gives both. Each range of a pool is a run of addresses.
	members, ready, needsProbe, gives RangeSet
}

func (s addressSet) isPool() bool { return s.poolLayout.Name != "" }

type addressSets []addressSet

// addressSets returns what was asked for, with what the store has of its pools.
func (l *leaseTx) addressSets(k RequestedRanges) (sets addressSets, err error) {
	if len(k.Pools) == 0 {
		for i, s := range k.Sets {
			sets = append(sets, addressSet{number: i, members: s, ready: s, gives: s})
		}
	}
	for i, name := range k.Pools {
		set, err := l.poolSet(name)
		if err != nil {
			return nil, err
		}
		set.number = i
		sets = append(sets, set)
	}
	return sets, nil
}

// ranges returns all addresses of each set.
func (s addressSets) ranges() (ranges []RangeSet) {
	for _, set := range s {
		ranges = append(ranges, set.members)
	}
	return ranges
}

// inSameSet says whether the addresses are of one range set or one pool of the last ADD.
func (l *leaseTx) inSameSet(a, b netip.Addr) (bool, error) {
	sets, err := l.lastSets()
	return slices.ContainsFunc(sets, func(s addressSet) bool { return s.members.Has(a) && s.members.Has(b) }), err
}

// wish is what an attachment asks for of a set: one address, or one of several. Nothing is asked for if both are empty.
type wish struct {
	requested netip.Addr
	choices   []netip.Addr
}

// assign returns what is asked for of each set. refused is what no ADD can give, whatever is leased: an address that no set has, a requested
// address that is not the only one of its set, and one of several that the set does not give.
func (r Request) assign(sets []RangeSet) (wishes []wish, refused []*RefusedError) {
	for _, a := range slices.Concat(r.CandidateAddresses, r.RequestedAddresses) {
		if SetOf(sets, a) < 0 {
			refused = append(refused, &RefusedError{Address: a, Reason: "is in none of the range sets"})
		}
	}
	for _, set := range sets {
		requested, choices := set.Among(r.RequestedAddresses), set.Among(r.CandidateAddresses)
		if n := len(choices); n > 0 && r.Replica != nil {
			if *r.Replica >= n {
				reason := fmt.Sprintf("is the last address of %s in the list, which must have one for each replica: this is replica %d, counted from 1", set, *r.Replica+1)
				refused = append(refused, &RefusedError{Address: choices[n-1], Reason: reason})
				continue
			}
			choices = choices[*r.Replica:][:1]
		}
		if len(requested) == 0 && len(choices) == 1 {
			requested, choices = choices, nil
		}
		for _, a := range choices {
			if ok, reason := set.Gives(a); !ok {
				refused = append(refused, refuseExcluded(a, reason))
			}
		}
		w := wish{choices: choices}
		if len(requested) > 0 {
			w.requested = requested[0]
			if len(choices) > 0 && !slices.Contains(choices, w.requested) {
				requested = append(requested, choices[0])
			}
			for _, a := range requested[1:] {
				refused = append(refused, &RefusedError{Address: a, Reason: fmt.Sprintf("is the second address of a range set that gives one, after %s", w.requested)})
			}
		}
		wishes = append(wishes, w)
	}
	return wishes, refused
}

func refuseExcluded(a netip.Addr, reason string) *RefusedError {
	return &RefusedError{Address: a, Reason: "cannot be given: " + reason}
}

// CheckRequested returns an error for each wanted address that no Allocate of an attachment without addresses would give,
// whatever is leased.
func CheckRequested(sets []RangeSet, wanted []netip.Addr) []*RefusedError {
	wishes, errs := Request{RequestedAddresses: wanted}.assign(sets)
	for i, w := range wishes {
		if ok, reason := sets[i].Gives(w.requested); w.requested.IsValid() && !ok {
			errs = append(errs, refuseExcluded(w.requested, reason))
		}
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
			refusals = append(refusals, fmt.Sprintf("%s of pool %s is %v", a, c.poolLayout.Name, ErrNotGranted))
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
		return Lease{}, &ElsewhereError{Pool: c.poolLayout.Name, Addresses: unqueried}
	}
	const enough = 3
	return Lease{}, fmt.Errorf("each of the requested addresses is %w: %s", ErrTaken, printable.First(refusals, enough, "; "))
}
