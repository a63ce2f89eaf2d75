package pool

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// Share is what a party has of a pool.
type Share struct {
	Party
	// Addresses is how many it has, in Blocks blocks. FencedAddresses and FencedBlocks are how many of these others may take: the party
	// is proven dead there. Fenced says why.
	Addresses       int      `json:"addresses"`
	Blocks          int      `json:"blocks"`
	FencedAddresses int      `json:"fencedAddresses,omitempty"`
	FencedBlocks    int      `json:"fencedBlocks,omitempty"`
	Fenced          []string `json:"fenced,omitempty"`
	// Boots are the boots of the node in which it has last said that it has this. A node that has said so of all its blocks since
	// its boot has one.
	Boots []string `json:"boots,omitempty"`
	// Wants is how many addresses it asks other parties for.
	Wants int `json:"wants,omitempty"`
}

// Shares returns what each party has of the blocks, in the order of the nodes and their networks.
func Shares(blocks []Block) []Share {
	shares := map[PartyKey]*Share{}
	shareOf := func(p Party) *Share {
		if shares[p.Key()] == nil {
			shares[p.Key()] = &Share{Party: p}
		}
		return shares[p.Key()]
	}
	for _, b := range blocks {
		for _, h := range b.Status.Holders {
			shareOf(h.Party).add(h, strings.Count(b.Status.Addresses, h.ID))
		}
		for _, w := range b.Status.Want {
			shareOf(w.Party).Wants += max(w.Count, 1)
		}
	}
	var sorted []Share
	for _, s := range shares {
		sorted = append(sorted, *s)
	}
	slices.SortFunc(sorted, func(a, b Share) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Network, b.Network), cmp.Compare(a.Store, b.Store))
	})
	return sorted
}

// add adds what the party has of one block.
func (s *Share) add(h Holder, n int) {
	s.Addresses, s.Blocks = s.Addresses+n, s.Blocks+1
	if h.Boot != "" && !slices.Contains(s.Boots, h.Boot) {
		s.Boots = append(s.Boots, h.Boot)
	}
	if h.Fenced == "" {
		return
	}
	s.FencedAddresses, s.FencedBlocks = s.FencedAddresses+n, s.FencedBlocks+1
	if !slices.Contains(s.Fenced, h.Fenced) {
		s.Fenced = append(s.Fenced, h.Fenced)
	}
}

// AddressStatus is what the API says of one address of a pool.
type AddressStatus struct {
	Pool    string     `json:"pool"`
	Block   string     `json:"block"`
	Address netip.Addr `json:"address"`
	// Holder is who has it, nil for nobody.
	Holder *Holder `json:"holder,omitempty"`
	// Excluded says that no pod gets it: the pool excludes it, or it is the gateway.
	Excluded bool `json:"never,omitempty"`
	// Unproven says that pods of a dead node may still answer for it.
	Unproven bool `json:"unproven,omitempty"`
	// Want are the parties that ask for this address.
	Want []Want `json:"want,omitempty"`
	// Claims are those of the owners that have it, and Active of each says where.
	Claims []Claim `json:"claims,omitempty"`
}

// AddressStatus returns what the block says of an address of it.
func (b Block) AddressStatus(a netip.Addr) AddressStatus {
	s := AddressStatus{Pool: b.Spec.Pool, Block: b.Metadata.Name, Address: a}
	i := b.Offset(a)
	if i < 0 {
		return s
	}
	if h, found := b.HolderOf(i); found {
		s.Holder = &h
	}
	s.Excluded, s.Unproven = b.Status.Addresses[i] == Excluded, slices.Contains(b.Status.Unproven, a)
	for _, w := range b.Status.Want {
		if w.Address == a {
			s.Want = append(s.Want, w)
		}
	}
	return s
}
