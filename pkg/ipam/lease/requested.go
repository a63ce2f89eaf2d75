package lease

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
)

// RequestedRanges is what an ADD asked for: the ranges or the pools, and the policy for their addresses.
type RequestedRanges struct {
	Sets   []RangeSet `json:"sets"`
	Pools  []string   `json:"pools,omitempty"`
	Policy Policy     `json:"policy,omitzero"`

	Unknown Unknown `json:"-"`
}

// maxRequestedRanges is how many a store remembers. Most networks have one. A runtime that gives pods ranges of their
// own makes more, and so does a change of the configuration.
const maxRequestedRanges = 8

func (k RequestedRanges) overlaps(o RequestedRanges) bool {
	return slices.ContainsFunc(k.Sets, func(s RangeSet) bool { return slices.ContainsFunc(o.Sets, s.Overlaps) })
}

// disjointSets returns the sets. A set that shares addresses with o is replaced by an empty one: so the others
// keep their numbers.
func (k RequestedRanges) disjointSets(o RequestedRanges) []RangeSet {
	disjoint := slices.Clone(k.Sets)
	for i, s := range disjoint {
		if o.overlaps(RequestedRanges{Sets: []RangeSet{s}}) {
			disjoint[i] = nil
		}
	}
	return disjoint
}

// putLastRequested notes what an ADD asks for. It replaces what earlier ADDs asked for of the same addresses. The rest
// stays as it is stored, with what a newer relink has added.
func (l *leaseTx) putLastRequested(k RequestedRanges) error {
	b := encode(&k)
	if bytes.Equal(b, l.ranges.Get(requestedRangesKey(0))) {
		return nil
	}
	earlier, err := l.requestedRanges()
	if err != nil {
		return err
	}
	if len(earlier) > 0 {
		last := earlier[0]
		if last.Unknown = nil; bytes.Equal(b, encode(&last)) {
			return nil
		}
	}
	values := [][]byte{b}
	for i, ranges := range earlier {
		value := bytes.Clone(l.ranges.Get(requestedRangesKey(i)))
		if len(ranges.Pools) == 0 || len(k.Pools) > 0 {
			disjoint := ranges.disjointSets(k)
			switch {
			case !slices.ContainsFunc(disjoint, func(s RangeSet) bool { return len(s) > 0 }):
				continue
			case !slices.EqualFunc(disjoint, ranges.Sets, func(a, b RangeSet) bool { return len(a) == len(b) }):
				ranges.Sets = disjoint
				value = encode(&ranges)
			}
		}
		values = append(values, value)
	}
	return l.putRequestedRanges(values)
}

// putRequestedRanges stores what ADDs asked for, the last one first. What is too much for a store is left out.
func (l *leaseTx) putRequestedRanges(values [][]byte) (err error) {
	for i := range maxRequestedRanges {
		if i < len(values) {
			err = errors.Join(err, l.ranges.Put(requestedRangesKey(i), values[i]))
		} else {
			err = errors.Join(err, l.ranges.Delete(requestedRangesKey(i)))
		}
	}
	return err
}

func requestedRangesKey(i int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(i)) }

// requestedRanges returns what ADDs asked for, the last one first.
func (l *leaseTx) requestedRanges() ([]RequestedRanges, error) {
	var requested []RequestedRanges
	err := l.ranges.ForEach(func(_, b []byte) error {
		var k RequestedRanges
		err := decode(b, "ranges", &k)
		requested = append(requested, k)
		return err
	})
	return requested, err
}

// addressSet are addresses of which an attachment gets one: a range set, or all addresses of a pool.
type addressSet struct {
	number int
	// members are all addresses, and gives those of them that this node may give.
	members, gives RangeSet
	// pool is nil for a range set.
	pool *storedPool
}

type addressSets []addressSet

// addressSets returns what was asked for, with what the store has of its pools.
func (l *leaseTx) addressSets(k RequestedRanges) (sets addressSets, err error) {
	if len(k.Pools) == 0 {
		for i, s := range k.Sets {
			sets = append(sets, addressSet{number: i, members: s, gives: s})
		}
	}
	for i, name := range k.Pools {
		p, err := l.storedPool(name)
		if err != nil {
			return nil, err
		}
		sets = append(sets, addressSet{i, p.allRanges, slices.Concat(p.ready, p.needsProbe), p})
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

// inSameSet says whether the addresses are of one range set or one pool, as far as is known.
func (l *leaseTx) inSameSet(a, b netip.Addr) (bool, error) {
	requested, err := l.requestedRanges()
	if err != nil {
		return false, err
	}
	for _, k := range requested {
		sets, err := l.addressSets(k)
		if err != nil || slices.ContainsFunc(sets, func(s addressSet) bool { return s.members.Has(a) && s.members.Has(b) }) {
			return err == nil, err
		}
	}
	return false, nil
}
