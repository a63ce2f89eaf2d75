package lease

import (
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/pool"
)

// Lost returns the addresses of the pool that pods hold and the node does not have: another node may give them, or has lost them
// in turn. The address of a virtual machine that is on its way to this node is one of them.
func (p PoolState) Lost() (addresses []netip.Addr) {
	for a, l := range p.Leased {
		if l.State == Held && !p.has(a) {
			addresses = append(addresses, a)
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return addresses
}

// has says whether the API has the address for the node. The node may be giving it back.
func (p PoolState) has(a netip.Addr) bool {
	return slices.ContainsFunc(p.Grants, func(g pool.Grant) bool {
		i := g.Offset(a)
		return i >= 0 && g.Addresses[i] != pool.NotGranted
	})
}

// Target is how many addresses of the pool the node should have. It needs none of a pool that the configuration names no more or
// that is deleted, and none before the agent has read the pool.
func (p PoolState) Target() int {
	if p.Layout.BlockSize == 0 || p.Layout.Deleted || !p.Named {
		return 0
	}
	return pool.Target(p.Layout.BlockSize, p.Used)
}

// Gives returns how many addresses of the grant pods can get. An address that the pool excludes by now is none of them.
func (p PoolState) Gives(g pool.Grant) (n int) {
	for _, i := range g.Offsets(pool.GrantedChars) {
		if !p.Layout.Excluded(g.Address(i)) {
			n++
		}
	}
	return n
}

// Free returns how many of these have no lease.
func (p PoolState) Free(g pool.Grant) (n int) {
	for _, i := range g.Offsets(pool.GrantedChars) {
		if _, leased := p.Leased[g.Address(i)]; !leased && !p.Layout.Excluded(g.Address(i)) {
			n++
		}
	}
	return n
}
