package lease

import (
	"context"
	"math/big"
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

// Usage counts the leases of each range set that ADDs asked for, the sets of the last ADD first. ErrNotLeased:
// nothing was ever given.
func (s *Store) Usage(ctx context.Context) (Usage, error) {
	return result(ctx, s.view, (*leaseTx).usage)
}

func (l *leaseTx) usage() (Usage, error) {
	u := Usage{Network: l.store.network, Sets: []SetUsage{}}
	requested, err := l.requestedRanges()
	if err != nil {
		return u, err
	}
	var last addressSets
	for i, k := range requested {
		sets, err := l.addressSets(k)
		if err != nil {
			return u, err
		}
		if i == 0 {
			last = sets
		}
		u.add(sets)
	}
	if len(requested) == 0 {
		u.Remarks = append(u.Remarks, "its ranges are known from the next ADD on")
	} else if u.Remarks, err = l.remarkGateways(last); err != nil {
		return u, err
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

// add adds the sets of what an ADD asked for.
func (u *Usage) add(sets addressSets) {
	for _, set := range sets {
		usage := SetUsage{Set: set.number, Ranges: set.members, Size: set.gives.size(), gives: set.gives}
		if set.pool != nil {
			usage.Pool = set.pool.layout.Name
		}
		if len(set.members) > 0 {
			u.Sets = append(u.Sets, usage)
		}
	}
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
