package lease

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/relink-cni/relink/pkg/pool"
)

// ErrUnconfirmed says that the agent has not read the pools of this node since its boot.
var ErrUnconfirmed = errors.New("this node has not read its address pools since its boot")

// FromPool says of an address that was given from which pool it is.
type FromPool struct {
	Layout pool.Layout
	// Probe says that a pod of a dead node may still answer for the address.
	Probe bool
}

// FromPools returns what the last Allocate gave from pools, in the order of the addresses.
func (s *Store) FromPools() []FromPool { return s.from }

// pooled are the sets of a request for pools.
type pooled struct {
	// sets have what the store may give, and whole all that the pools have.
	sets, whole []RangeSet
	layouts     []pool.Layout
}

// pools reads what the store may give of the pools.
func (l *leases) pools(r Request) (p pooled, err error) {
	if _, err := l.wantPools(r.Pools); err != nil {
		return p, err
	}
	confirmed, err := l.isConfirmed()
	if err != nil {
		return p, err
	}
	if !confirmed {
		return p, fmt.Errorf("network %s: %w: relink-agent reads them as soon as the Kubernetes API answers", l.store.network, ErrUnconfirmed)
	}
	for _, name := range r.Pools {
		layout, err := l.layout(name)
		if err != nil {
			return p, err
		}
		set, err := l.givenOf(name, layout, r.Probes)
		if err != nil {
			return p, err
		}
		p.sets, p.whole, p.layouts = append(p.sets, set), append(p.whole, setOf(layout)), append(p.layouts, layout)
	}
	return p, nil
}

// givenOf returns the addresses of a pool that the store may give: a range for each run of them. probes says that the
// attachment can probe.
func (l *leases) givenOf(name string, layout pool.Layout, probes bool) (set RangeSet, err error) {
	var next netip.Addr
	err = l.eachGrant(name, func(g pool.Grant) {
		for i, a := 0, g.First; i < len(g.Addresses); i, a = i+1, a.Next() {
			gives, probe := g.May(i)
			switch {
			case !gives || probe && !probes:
			case a == next && len(set) > 0:
				set[len(set)-1].Last, next = a, a.Next()
			default:
				set, next = append(set, rangeOf(layout, Span{a, a})), a.Next()
			}
		}
	})
	return set, err
}

// from says of each given address from which pool it is.
func (l *leases) from(given []Lease, p pooled) (all []FromPool, err error) {
	for i, lease := range given {
		f := FromPool{Layout: p.layouts[i]}
		g, at, err := l.grantAt(f.Layout.Name, lease.Address)
		if err != nil && !errors.Is(err, ErrNotGranted) {
			return nil, err
		}
		if at >= 0 {
			_, f.Probe = g.May(at)
		}
		all = append(all, f)
	}
	return all, nil
}

// poolExhausted is the error of a pool of which the store has no address to give.
func (l *leases) poolExhausted(name string, set RangeSet) error {
	if len(set) == 0 {
		return fmt.Errorf("pool %s on network %s: %w: this node has none of it so far", name, l.store.network, ErrExhausted)
	}
	return fmt.Errorf("pool %s on network %s: %w of the %s that this node has of it; relink ipam list says for whom", name, l.store.network, ErrExhausted, set.size())
}
