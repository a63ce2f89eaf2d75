package pool

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// hosts is how many nodes the model has. They are interchangeable.
const hosts = 3

// The leases that an address can have on a node.
const (
	noLease = byte(iota)
	// podLease is of a pod that takes any address. Owners' pods have ownerLease. An address that is kept for the owner's next
	// pod is reserved.
	podLease
	ownerLease
	reserved
)

// model is what the exploration walks through. The steps of the protocol are the production functions. The model has only
// what is around them: the API, the network, the store, the plugin and what fails.
type model struct {
	layout Layout
	blocks int
	// sticky says that the first address is an owner's, whose pods start on any node. It may start on two at once.
	sticky bool
	// begun says that the first node has all blocks from the start.
	begun bool
	// imports says that nodes also make blocks of which they have only the first address.
	imports bool
	// racks says that the pool is for the nodes of one rack, and roams that its owner gets an address of another pool elsewhere.
	racks, roams bool
	most         budget
	broken       fault
	// at are the addresses of each block.
	at [2][]netip.Addr
	// seen counts what has happened somewhere: an exploration in which nothing happens finds nothing.
	seen map[string]int
	// spent are states that nobody has any more: most steps lead to one that is known. key is the encoder of all states.
	spent []*state
	key   encoder
}

// budget bounds what fails, how often somebody asks for something (for a block, for an address that it may take, or for one of another
// node), and how often a node gets other labels.
type budget struct{ crashes, deaths, fences, asks, labels int8 }

// state is one state of the cluster. What it points to never changes.
type state struct {
	api  [2]*Block
	host [hosts]host
	// fence is the controller's request that the API has not got yet.
	fence *write
	used  budget
	// roamed says that the owner has an address of another pool: the claim of this one is gone.
	roamed bool
	// version is the last UID or resource version that the API has given. Only which of them are equal counts.
	version int
}

// host is a node.
type host struct {
	alive bool
	// deleted says that its Node object is deleted: it never comes back.
	deleted bool
	boot    int
	// outside says that the node has the labels of another rack.
	outside bool
	// The store: it survives all.
	confirmed bool
	grants    [2]*Grant
	leases    [2]byte
	// The agent's memory: met are the blocks that an agent has met since the boot, read is the block that it has read last, and
	// write is its request that was not answered yet.
	met   byte
	read  *reading
	write *write
	// late is a request of a process that has crashed or given up. It still can arrive.
	late *write
	// Only for faults: what a crash makes of the grants, and an older read.
	unsynced [2]*Grant
	cached   *reading
}

// reading is an answer of the API. block is nil if there is none. adopted says that it is in the store.
type reading struct {
	index   int
	block   *Block
	adopted bool
}

// write is a request to the API. It has the UID and the resource version that it was made from in the block.
type write struct {
	who, index     int
	block          *Block
	create, remove bool
}

// step is what can happen next. wrong says which promise it breaks by itself.
type step struct {
	who, at int
	what    string
	next    *state
	wrong   string
}

func newModel(blocks, size int, most budget) *model {
	first := netip.MustParseAddr("10.3.0.10")
	m := &model{blocks: blocks, most: most, seen: map[string]int{}, layout: Layout{
		Name: "p", UID: "pool", Subnet: netip.MustParsePrefix("10.3.0.0/24"), BlockSize: size,
		Ranges: []Span{{first, plus(first, int64(blocks*size-1))}},
	}}
	for i := range blocks * size {
		m.at[i/size] = append(m.at[i/size], plus(first, int64(i)))
	}
	return m
}

// start is the cluster before anybody has anything.
func (m *model) start() *state {
	s := &state{}
	for n := range s.host {
		h := &s.host[n]
		h.alive, h.confirmed, h.boot, h.outside = true, true, 1, m.racks && n == hosts-1
		for i := range h.grants {
			h.grants[i] = m.nothing(i)
		}
	}
	for i := 0; m.begun && i < m.blocks; i++ {
		h := &s.host[0]
		b, _ := NewBlock(m.layout, int64(i), party(0), bootID(h))
		made, _ := m.apply(s, &write{index: i, block: &b, create: true})
		g, _, _ := h.grants[i].Adopt(*made.block, party(0))
		h.grants[i] = &g
	}
	return s
}

// nothing is the grant of a block of which the store has nothing.
func (m *model) nothing(index int) *Grant { return &Grant{Pool: m.layout.Name, Index: int64(index)} }

// party is the store of the n-th node.
func party(n int) Party { return stores[n] }

var stores = [hosts]Party{{Node: "node0", Network: "net", Store: "0"}, {Node: "node1", Network: "net", Store: "1"}, {Node: "node2", Network: "net", Store: "2"}}

// nodeOf returns the node of a party.
func nodeOf(p Party) int { return int(p.Store[0] - '0') }

func bootID(h *host) string { return strconv.Itoa(h.boot) }

// lease returns the lease of an address of a block.
func (m *model) lease(h *host, index, i int) *byte { return &h.leases[index*m.layout.BlockSize+i] }

// clone copies the state.
func (m *model) clone(s *state) (c *state) {
	if last := len(m.spent) - 1; last >= 0 {
		c, m.spent = m.spent[last], m.spent[:last]
	} else {
		c = new(state)
	}
	*c = *s
	return c
}

// apply is the API: it does what it is asked, or it refuses.
func (m *model) apply(s *state, w *write) (_ *reading, ok bool) {
	was := s.api[w.index]
	if w.create && was != nil && m.broken != createsTwice || !w.create && !m.current(s, w.block, w.index) {
		return nil, false
	}
	m.note(s, w)
	if w.remove {
		s.api[w.index] = nil
		return &reading{index: w.index}, true
	}
	made := *w.block
	s.version++
	made.Metadata.ResourceVersion = strconv.Itoa(s.version)
	made.Metadata.UID = made.Metadata.ResourceVersion
	if !w.create {
		made.Metadata.UID = was.Metadata.UID
	}
	s.api[w.index] = &made
	return &reading{index: w.index, block: &made}, true
}

// current says whether the API accepts a change that was made from b.
func (m *model) current(s *state, b *Block, index int) bool {
	is := s.api[index]
	if is == nil || m.broken == ignoresVersion {
		return is != nil
	}
	return is.Metadata.UID == b.Metadata.UID && is.Metadata.ResourceVersion == b.Metadata.ResourceVersion
}

// note counts what a change means.
func (m *model) note(s *state, w *write) {
	was := s.api[w.index]
	switch {
	case w.remove:
		m.seen["a block is deleted"]++
	case w.create:
		for n := range s.host {
			if n != w.who && len(s.host[n].grants[w.index].Offsets(string(Marked))) > 0 {
				m.seen["a block is made anew of which another node has marks"]++
			}
		}
		if len(w.block.FreeOffsets()) > 0 {
			m.seen["a block is made of which its maker has a part"]++
		}
	case w.who >= 0:
		m.noteMoves(was, w)
	case len(w.block.Status.Holders) < len(was.Status.Holders):
		m.seen["a deleted node leaves"]++
	default:
		m.seen["a node is fenced"]++
	}
}

// noteMoves counts how addresses come to other parties.
func (m *model) noteMoves(was *Block, w *write) {
	for i := range len(was.Status.Addresses) {
		from, held := was.HolderOf(i)
		to, is := w.block.HolderOf(i)
		switch {
		case !is || held && from.SameParty(to.Party):
		case was.Status.Addresses[i] == Claimed:
			m.seen["an address that waits for its owner is taken"]++
		case !held:
			m.seen["nobody's address is taken"]++
		case from.Fenced != "":
			m.seen["a fenced address is taken"]++
		case slices.ContainsFunc(was.Status.Want, func(v Want) bool { return v.SameParty(to.Party) && v.Address == was.Address(i) }):
			m.seen["the sticky address moves"]++
		case slices.ContainsFunc(was.Status.Want, func(v Want) bool { return v.SameParty(to.Party) }):
			m.seen["an address is handed over"]++
		default:
			m.seen["an address is passed on to who asks on another block"]++
		}
	}
	if h, is := was.Holder(party(w.who)); is && h.Fenced != "" {
		if h, is := w.block.Holder(party(w.who)); !is || h.Fenced == "" {
			m.seen["a fenced node comes back and leaves"]++
		}
	}
}

// mustHappen is what an exploration without faults has to reach.
var mustHappen = []string{
	"a block is deleted", "a block is made anew of which another node has marks", "a block is made of which its maker has a part", "a node is fenced", "nobody's address is taken",
	"a fenced address is taken", "a fenced node comes back and leaves", "a create comes late", "a node comes back", "a fence comes too late",
	"a deleted node leaves", "an address that waits for its owner is taken",
	"an address is handed over", "an address is passed on to who asks on another block", "the sticky address moves",
	"a node comes to another rack", "an owner roams",
}

// breaks returns the promise that the state breaks, "" for none.
func (m *model) breaks(s *state) string {
	for i := range m.blocks {
		b := s.api[i]
		if b != nil && b.Check() != nil {
			return b.Check().Error()
		}
		for at := range m.layout.BlockSize {
			var givers, pods, ownersPods int
			for n := range s.host {
				h := &s.host[n]
				if !h.alive {
					continue
				}
				lease := *m.lease(h, i, at)
				if lease == podLease || lease == ownerLease {
					pods++
				}
				if lease == ownerLease {
					ownersPods++
				}
				if !h.confirmed || at >= len(h.grants[i].Addresses) || !strings.ContainsRune(GrantedChars, rune(h.grants[i].Addresses[at])) {
					continue
				}
				if givers++; b == nil || !b.HeldBy(party(n), at) {
					return gives
				}
			}
			switch {
			case ownersPods > 1:
				return owners
			case pods > 1:
				return leased
			case givers > 1:
				return "two nodes may give an address"
			}
		}
	}
	return ""
}
