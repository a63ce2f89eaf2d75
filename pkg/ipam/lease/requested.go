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

// setOf returns the set that has the address, and its number.
func (k RequestedRanges) setOf(a netip.Addr) (int, RangeSet) {
	n := SetOf(k.Sets, a)
	if n < 0 {
		return n, nil
	}
	return n, k.Sets[n]
}

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

// expandPools returns what was asked for with all addresses of its pools as sets. pools is what the store has of these.
func (l *leaseTx) expandPools(k RequestedRanges) (_ RequestedRanges, pools []*storedPool, err error) {
	for _, name := range k.Pools {
		p, err := l.storedPool(name)
		if err != nil {
			return k, nil, err
		}
		pools = append(pools, p)
	}
	if len(pools) > 0 {
		k.Sets = allRangesOf(pools)
	}
	return k, pools, nil
}

// inSameSet says whether the addresses are of one range set or one pool, as far as is known.
func (l *leaseTx) inSameSet(a, b netip.Addr) (bool, error) {
	requested, err := l.requestedRanges()
	if err != nil {
		return false, err
	}
	for _, k := range requested {
		if k, _, err = l.expandPools(k); err != nil {
			return false, err
		}
		_, set := k.setOf(a)
		if set.Has(b) {
			return true, nil
		}
	}
	return false, nil
}
