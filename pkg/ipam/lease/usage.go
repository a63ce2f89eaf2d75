package lease

import (
	"bytes"
	"context"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
)

// Usage is how full the ranges of a network are.
type Usage struct {
	Network string     `json:"network"`
	Sets    []SetUsage `json:"sets"`
	// Outside counts the leases outside of all sets.
	Outside int `json:"outside"`
	// Remarks tell people what is wrong, and what to do about it.
	Remarks []string `json:"remarks,omitempty"`
}

// SetUsage is how full a range set is. An address that ADDs no longer give, such as a new gateway, does not
// count.
type SetUsage struct {
	// Set is the number of the set in the configuration.
	Set int `json:"set"`
	// Pool is the name of the pool that stands for the set, empty for ranges of the configuration. Then Ranges are those of
	// the pool, and the rest is about what this node has of it.
	Pool   string   `json:"pool,omitempty"`
	Ranges RangeSet `json:"ranges"`
	// Size is how many addresses of the set ADDs can give.
	Size        *big.Int `json:"size"`
	Held        int      `json:"held"`
	Reserved    int      `json:"reserved"`
	Quarantined int      `json:"quarantined"`
	Free        *big.Int `json:"free"`
	// Share is the part of the set, from 0 to 1, that is held or reserved. An address in quarantine is given
	// if no other is free.
	Share float64 `json:"share"`

	// gives has the addresses that count.
	gives RangeSet
}

// Usage counts the leases of each range set that the last ADD asked for. ErrNotLeased: nothing was ever given.
func (s *Store) Usage(ctx context.Context) (Usage, error) {
	return result(ctx, s.view, (*leaseTx).usage)
}

func (l *leaseTx) usage() (Usage, error) {
	u := Usage{Network: l.store.network, Sets: []SetUsage{}}
	sets, err := l.lastSets()
	if err != nil {
		return u, err
	}
	for _, set := range sets {
		if len(set.members) > 0 {
			u.Sets = append(u.Sets, SetUsage{Set: set.number, Pool: set.poolLayout.Name, Ranges: set.members, Size: set.gives.size(), gives: set.gives})
		}
	}
	if u.Remarks, err = l.remarkGateways(sets); err != nil {
		return u, err
	}
	if len(sets) == 0 {
		u.Remarks = []string{"its ranges are known from the next ADD on"}
	}
	err = l.eachCurrent(func(lease Lease) error {
		u.count(lease)
		return nil
	})
	for i := range u.Sets {
		u.Sets[i].sum()
	}
	return u, err
}

// count adds the lease to its set.
func (u *Usage) count(lease Lease) {
	i := slices.IndexFunc(u.Sets, func(s SetUsage) bool { return s.Ranges.Has(lease.Address) })
	if i < 0 {
		u.Outside++
		return
	}
	set := &u.Sets[i]
	if gives, _ := set.gives.Gives(lease.Address); !gives {
		return
	}
	switch lease.State {
	case Held:
		set.Held++
	case Reserved:
		set.Reserved++
	case Quarantined:
		set.Quarantined++
	}
}

func (s *SetUsage) sum() {
	s.Free = new(big.Int).Sub(s.Size, big.NewInt(int64(s.Held+s.Reserved+s.Quarantined)))
	if s.Size.Sign() > 0 {
		size, _ := new(big.Float).SetInt(s.Size).Float64()
		s.Share = float64(s.Held+s.Reserved) / size
	}
}

// longestReleased returns the first address of the set whose reservation or quarantine has ended. If none
// has ended, it returns the one whose quarantine ends first, and passes over those that another host uses. The zero
// Addr stands for none.
func (l *leaseTx) longestReleased(set RangeSet) (netip.Addr, error) {
	cursor := l.ends.Cursor()
	bound := timeKey(l.instant)
	for k, _ := cursor.First(); k != nil; k, _ = cursor.Next() {
		a := indexedAddress(k)
		if gives, _ := set.Gives(a); !gives {
			continue
		}
		ended := bytes.Compare(k[:len(bound)], bound) <= 0
		if !ended {
			free, err := l.givesBeforeEnd(a)
			if err != nil {
				return netip.Addr{}, err
			}
			if !free {
				continue
			}
		}
		_, err := l.getIndexed(l.ends, k)
		return a, err
	}
	return netip.Addr{}, nil
}

// givesBeforeEnd says whether the address is in quarantine, and no other host uses it. A store with many
// leases has mostly reservations: these are not decoded.
func (l *leaseTx) givesBeforeEnd(a netip.Addr) (bool, error) {
	if !hasState(l.byAddress.Get(addressKey(a)), Quarantined) {
		return false, nil
	}
	lease, err := l.get(a)
	return lease.State == Quarantined && !lease.Conflict, err
}

// canGive says whether an address of the set can be given to anybody, or waits for an owner
// who may come back.
func (l *leaseTx) canGive(set RangeSet) (bool, error) {
	for _, t := range set.turns(netip.Addr{}) {
		if a, err := l.firstFree(t); a.IsValid() || err != nil {
			return err == nil, err
		}
	}
	ok := false
	err := l.each(func(lease Lease) error {
		gives, _ := set.Gives(lease.Address)
		lease = l.asCurrent(lease)
		ok = ok || gives && (lease.isFree() || lease.State == Reserved && lease.hasOwner() || lease.State == Quarantined && !lease.Conflict)
		return nil
	})
	return ok, err
}

// Exhausted returns an error for each set of which nobody can be given an address, not even an owner for
// whom one is reserved. Each matches ErrExhausted. ErrNotLeased: nothing was ever given.
func (s *Store) Exhausted(ctx context.Context, sets []RangeSet) ([]error, error) {
	return result(ctx, s.view, func(l *leaseTx) (full []error, err error) {
		for i, set := range sets {
			ok, err := l.canGive(set)
			if err != nil {
				return nil, err
			}
			if !ok {
				full = append(full, l.exhausted(i, set))
			}
		}
		return full, nil
	})
}

// exhausted says what keeps every address of the set from being given.
func (l *leaseTx) exhausted(number int, set RangeSet) error {
	return &ExhaustedError{set, fmt.Errorf("range set %d (%s) of network %s: %w: %s", number, set, l.store.network, ErrExhausted, l.describeStates(set))}
}

// ExhaustedError is ErrExhausted for a set of ranges.
type ExhaustedError struct {
	Set RangeSet
	err error
}

// Error says what keeps each address from being given.
func (e *ExhaustedError) Error() string { return e.err.Error() }

// Unwrap returns the error that matches ErrExhausted.
func (e *ExhaustedError) Unwrap() error { return e.err }

// WaitsForPod says whether the address waits for the one pod of an ordinal, only because its owner lives. It does not if anything else
// says how long it waits: "retain", an operator, or the claim of a pool.
func (l Lease) WaitsForPod() bool {
	return l.State == Reserved && l.Owner.Ordinal != 0 && l.Owner.UID != "" && !l.ByHand && !l.Claimed && l.Until.IsZero()
}

// WaitingForPods returns the addresses of the set that wait for pods, the one that was released first first. It leaves out those of
// owners that hold an address here. Like any change, it first gives up what an earlier boot held: the ADD that found no address has
// changed nothing. ErrNotLeased: nothing was ever given.
func (s *Store) WaitingForPods(ctx context.Context, set RangeSet) (waiting []Lease, err error) {
	err = s.change(ctx, func(l *leaseTx) error {
		earlierBoot := l.text(keyBoot) != l.bootID()
		if err := l.freeExpired(); err != nil {
			return err
		}
		err := l.eachStored(set, func(a netip.Addr, b []byte) error {
			if !hasState(b, Reserved) {
				return nil
			}
			lease, err := l.get(a)
			if gives, _ := set.Gives(a); err != nil || !gives || !lease.WaitsForPod() {
				return err
			}
			leases, err := l.ownedBy(lease.Owner)
			if err == nil && !slices.ContainsFunc(leases, func(candidate Lease) bool { return candidate.State == Held }) {
				waiting = append(waiting, lease)
			}
			return err
		})
		if err == nil && !earlierBoot {
			err = errUnchanged // What has ended can wait for the next ADD.
		}
		return err
	})
	slices.SortStableFunc(waiting, func(a, b Lease) int { return a.ReleasedAt.Compare(b.ReleasedAt) })
	return waiting, err
}

// describeStates says how many leases of the set are in each state. It decodes none of them: many pods that start at once come
// here one after the other, and a DEL that would free an address has to wait for them.
func (l *leaseTx) describeStates(set RangeSet) string {
	count := map[State]int{}
	_ = l.eachStored(set, func(_ netip.Addr, b []byte) error {
		for _, s := range []State{Held, Reserved, Quarantined} {
			if hasState(b, s) {
				count[s]++
				break
			}
		}
		return nil
	})
	return fmt.Sprintf("%d held, %d reserved, %d in quarantine; relink ipam list says for whom", count[Held], count[Reserved], count[Quarantined])
}

// eachStored calls f with each lease of the set as it is stored.
func (l *leaseTx) eachStored(set RangeSet, f func(a netip.Addr, stored []byte) error) error {
	for _, r := range set {
		cursor := l.byAddress.Cursor()
		end := addressKey(r.Last)
		for k, b := cursor.Seek(addressKey(r.First)); k != nil && bytes.Compare(k, end) <= 0; k, b = cursor.Next() {
			if err := f(addressOf(k), b); err != nil {
				return err
			}
		}
	}
	return nil
}
