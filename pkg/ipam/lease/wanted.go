package lease

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// asked returns the wanted address of each set, the zero Addr for none, and those that are left over. It refuses what no ADD
// can give, whatever is leased: an address of OneOf that no set has, and a wanted address beside others.
func (r Request) asked(sets []RangeSet) (each, left []netip.Addr, err error) {
	each, left = assign(sets, r.Wanted)
	if err := checkOneOf(sets, r.OneOf); err != nil {
		return nil, nil, err
	}
	for i, a := range each {
		choices := slices.DeleteFunc(slices.Clone(r.OneOf), func(o netip.Addr) bool { _, in := sets[i].Find(o); return !in })
		if a.IsValid() && len(choices) > 0 && !slices.Contains(choices, a) {
			return nil, nil, second(choices[0], a)
		}
	}
	return each, left, nil
}

// assign returns the wanted address of each set, the zero Addr for none, and those that are left over.
func assign(sets []RangeSet, wanted []netip.Addr) (each, left []netip.Addr) {
	left = slices.Clone(wanted)
	for _, set := range sets {
		var one netip.Addr
		if n := slices.IndexFunc(left, func(a netip.Addr) bool { _, ok := set.Find(a); return ok }); n >= 0 {
			one = left[n]
			left = slices.Delete(left, n, n+1)
		}
		each = append(each, one)
	}
	return each, left
}

func listOf(all []netip.Addr) string {
	var texts []string
	for _, a := range all {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ", ")
}

// leftOver refuses the first address that is left over. each are the addresses that the sets give.
func leftOver(sets []RangeSet, each []netip.Addr, a netip.Addr) *RefusedError {
	for i, s := range sets {
		if _, in := s.Find(a); in {
			return second(a, each[i])
		}
	}
	return &RefusedError{Address: a, Why: "is in none of the range sets"}
}

// second refuses an address of a set of which another one is wanted.
func second(a, first netip.Addr) *RefusedError {
	return &RefusedError{Address: a, Beside: first, Why: fmt.Sprintf("is the second address of a range set that gives one, after %s", first)}
}

func notGiven(a netip.Addr, why string) *RefusedError {
	return &RefusedError{Address: a, Why: "cannot be given: " + why}
}

// CheckWanted returns an error for each wanted address that no Allocate of an attachment without addresses would give,
// whatever is leased.
func CheckWanted(sets []RangeSet, wanted []netip.Addr) []*RefusedError {
	var errs []*RefusedError
	each, left := assign(sets, wanted)
	for i, a := range each {
		if ok, why := sets[i].Gives(a); a.IsValid() && !ok {
			errs = append(errs, notGiven(a, why))
		}
	}
	for _, a := range left {
		errs = append(errs, leftOver(sets, each, a))
	}
	return errs
}

// checkOneOf refuses an address that no ADD can give, whatever is leased.
func checkOneOf(sets []RangeSet, list []netip.Addr) error {
	for _, a := range list {
		i := slices.IndexFunc(sets, func(s RangeSet) bool { _, ok := s.Find(a); return ok })
		if i < 0 {
			return &RefusedError{Address: a, Why: "is in none of the range sets"}
		}
		if ok, why := sets[i].Gives(a); !ok {
			return notGiven(a, why)
		}
	}
	return nil
}

// oneOf returns the addresses of this set of which the attachment wants one.
func (c choice) oneOf() (list []netip.Addr) {
	for _, a := range c.OneOf {
		if _, in := c.whole.Find(a); in {
			list = append(list, a)
		}
	}
	return list
}

// askedOneOf gives the address of the list that is the owner's already, else the first one that is free, else the first
// one in quarantine.
func (c choice) askedOneOf(list []netip.Addr) (Lease, error) {
	var mine []Lease
	var free, resting netip.Addr
	var taken []string
	for _, a := range list {
		lease, leased, err := c.get(a)
		switch {
		case err != nil:
			return Lease{}, err
		case !leased, c.over(lease):
			free = cmp.Or(free, a)
		case c.isMine(lease):
			mine = append(mine, lease)
		case lease.State == Quarantined && !lease.Conflict:
			resting = cmp.Or(resting, a)
		default:
			taken = append(taken, fmt.Sprintf("%s is %s", a, lease.whoseFor(c.Owner)))
		}
	}
	if len(mine) > 0 {
		return c.asked(slices.MinFunc(mine, c.compare).Address)
	}
	if a := cmp.Or(free, resting); a.IsValid() {
		return c.asked(a)
	}
	const enough = 3
	if more := len(taken) - enough; more > 0 {
		taken = append(taken[:enough], fmt.Sprintf("%d more are taken, too", more))
	}
	return Lease{}, fmt.Errorf("each of the requested addresses is %w: %s", ErrTaken, strings.Join(taken, "; "))
}
