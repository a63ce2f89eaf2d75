package lease

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
)

// Known is what an ADD asked for: the ranges or the pools, and the policy for their addresses.
type Known struct {
	Sets   []RangeSet `json:"sets"`
	Pools  []string   `json:"pools,omitempty"`
	Policy Policy     `json:"policy,omitzero"`
}

// maxKnown is how many a store remembers. Most networks have one. A runtime that gives pods ranges of their
// own makes more, and so does a change of the configuration.
const maxKnown = 8

// set returns the set that has the address, and its number.
func (k Known) set(a netip.Addr) (int, RangeSet) {
	for i, s := range k.Sets {
		if _, ok := s.Find(a); ok {
			return i, s
		}
	}
	return -1, nil
}

func (k Known) overlaps(o Known) bool {
	return slices.ContainsFunc(k.Sets, func(s RangeSet) bool { return slices.ContainsFunc(o.Sets, s.Overlaps) })
}

// setsBeside returns the sets. A set that shares addresses with o is replaced by an empty one: so the others
// keep their numbers.
func (k Known) setsBeside(o Known) []RangeSet {
	left := slices.Clone(k.Sets)
	for i, s := range left {
		if o.overlaps(Known{Sets: []RangeSet{s}}) {
			left[i] = nil
		}
	}
	return left
}

// remember notes what an ADD asks for. It replaces what earlier ADDs asked for of the same addresses. The rest
// stays as it is stored, with what a newer relink has added.
func (l *leases) remember(k Known) error {
	b, err := encodeKnown(k)
	if err != nil || bytes.Equal(b, l.ranges.Get(knownKey(0))) {
		return err
	}
	all, err := l.known()
	if err != nil {
		return err
	}
	if len(all) > 0 {
		if last, err := encodeKnown(all[0]); err != nil || bytes.Equal(b, last) {
			return err
		}
	}
	values := [][]byte{b}
	for i, other := range all {
		left, err := l.without(i, other, k)
		if err != nil {
			return err
		}
		if left != nil {
			values = append(values, left)
		}
	}
	return l.putKnown(values)
}

// without returns what was asked for, as it is stored, without the sets that share addresses with the last
// ADD's. An empty set replaces each of these, so that the others keep their numbers. It returns nil if no
// set is left.
func (l *leases) without(i int, known, last Known) ([]byte, error) {
	if len(known.Pools) > 0 && len(last.Pools) == 0 {
		return l.storedKnown(i), nil
	}
	left := known.setsBeside(last)
	sameSets := func(a, b RangeSet) bool { return len(a) == len(b) }
	switch {
	case !slices.ContainsFunc(left, func(s RangeSet) bool { return len(s) > 0 }):
		return nil, nil
	case slices.EqualFunc(left, known.Sets, sameSets):
		return l.storedKnown(i), nil
	}
	known.Sets = left
	return encodeKnown(known)
}

// learn notes what ADDs of another network asked for, as if they had come before all ADDs of this one.
func (l *leases) learn(known []Known) error {
	all, err := l.known()
	if err != nil {
		return err
	}
	var values [][]byte
	for i := range all {
		values = append(values, l.storedKnown(i))
	}
	for _, k := range known {
		for _, other := range all {
			k.Sets = k.setsBeside(other)
		}
		if !slices.ContainsFunc(k.Sets, func(s RangeSet) bool { return len(s) > 0 }) {
			continue
		}
		b, err := encodeKnown(k)
		if err != nil {
			return err
		}
		values = append(values, b)
	}
	return l.putKnown(values)
}

// storedKnown returns what was asked for as it is stored.
func (l *leases) storedKnown(i int) []byte { return bytes.Clone(l.ranges.Get(knownKey(i))) }

// putKnown stores what ADDs asked for, the last one first. What is too much for a store is left out.
func (l *leases) putKnown(values [][]byte) (err error) {
	for i := range maxKnown {
		if i < len(values) {
			err = errors.Join(err, l.ranges.Put(knownKey(i), values[i]))
		} else {
			err = errors.Join(err, l.ranges.Delete(knownKey(i)))
		}
	}
	return err
}

func knownKey(i int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(i)) }

// known returns what ADDs asked for, the last one first.
func (l *leases) known() ([]Known, error) {
	if l.ranges == nil {
		return nil, nil // Schema 1 does not know.
	}
	var all []Known
	err := l.ranges.ForEach(func(_, b []byte) error {
		k, err := decodeKnown(b)
		all = append(all, k)
		return err
	})
	return all, err
}

// spread returns what was asked for with all addresses of its pools as sets. pools is what the store has of these.
func (l *leases) spread(k Known) (_ Known, pools []*pooled, err error) {
	for _, name := range k.Pools {
		p, err := l.pooled(name)
		if err != nil {
			return k, nil, err
		}
		pools = append(pools, p)
	}
	if len(pools) > 0 {
		k.Sets = wholes(pools)
	}
	return k, pools, nil
}

// inOneSet says whether the addresses are of one range set or one pool, as far as is known.
func (l *leases) inOneSet(a, b netip.Addr) (bool, error) {
	all, err := l.known()
	if err != nil {
		return false, err
	}
	for _, k := range all {
		if k, _, err = l.spread(k); err != nil {
			return false, err
		}
		_, set := k.set(a)
		if _, in := set.Find(b); in {
			return true, nil
		}
	}
	return false, nil
}
