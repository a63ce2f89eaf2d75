package pool

import (
	"net/netip"
	"slices"
	"strings"
)

// claim is the name of the sticky owner's claim.
const claim = "p-claim"

// steps returns all that can happen in the state.
func (m *model) steps(s *state) (all []step) {
	for n := range s.host {
		h := &s.host[n]
		if h.alive {
			if h.write != nil {
				all = m.answered(all, s, n)
			} else {
				all = m.agent(all, s, n)
			}
			all = m.plugin(all, s, n)
		}
		all = m.fails(all, s, n)
	}
	all = m.fences(all, s)
	for i := range all {
		if all[i].next != nil {
			m.forget(all[i].next)
		}
	}
	return all
}

// forget drops what can have no effect any more: requests that the API will refuse, and reads from which only such requests
// come. An agent that gets such an answer, and one that drops its read, begin anew by a read.
func (m *model) forget(s *state) {
	dead := func(w *write) bool { return w != nil && !w.create && !m.current(s, w.block, w.index) }
	if dead(s.fence) {
		s.fence = nil
		m.seen["a fence comes too late"]++
	}
	for n := range s.host {
		h := &s.host[n]
		if dead(h.late) {
			h.late = nil
		}
		if dead(h.write) {
			h.write = nil
		}
		if r := h.read; r != nil && r.adopted && (r.block == nil || !m.current(s, r.block, r.index)) {
			h.read = nil
		}
	}
}

// answered delivers the request of the agent, and its answer.
func (m *model) answered(all []step, s *state, n int) []step {
	c := s.clone()
	h := &c.host[n]
	w := h.write
	h.write = nil
	var ok bool
	if h.read, ok = m.apply(c, w); !ok {
		return append(all, step{n, w.index, "gets the answer of the API that its request is refused, on block", c, ""})
	}
	return append(all, step{n, w.index, "gets the answer of the API that its request is done, on block", c, ""})
}

// agent returns what an agent can do that waits for no answer.
func (m *model) agent(all []step, s *state, n int) []step {
	h := &s.host[n]
	for i := range m.blocks {
		all = m.marks(all, s, n, i)
		if h.read == nil && (s.api[i] != nil || !h.grants[i].Empty() || !h.confirmed) || h.read != nil && h.read.index != i {
			c := s.clone()
			c.host[n].read = &reading{index: i, block: s.api[i]}
			all = append(all, step{n, i, "reads block", c, ""})
		}
		if h.confirmed && s.used.asks < m.most.asks && len(h.grants[i].Offsets(GrantedChars)) == 0 {
			b, _ := NewBlock(m.layout, int64(i), party(n), bootID(h))
			all = m.gets(all, s, n, "asks the API to make block", write{index: i, block: &b, create: true})
			if m.imports {
				part, _ := NewBlockWith(m.layout, int64(i), party(n), bootID(h), []netip.Addr{b.Address(0)})
				all = m.gets(all, s, n, "asks the API to make, with what its pods have, block", write{index: i, block: &part, create: true})
			}
		}
	}
	if !h.confirmed && h.met == 1<<m.blocks-1 {
		c := s.clone()
		c.host[n].confirmed, c.host[n].met = true, 0
		all = append(all, step{n, 0, "has met all blocks and gives addresses again, boot", c, ""})
	}
	if r := h.cached; r != nil {
		all = m.adopt(all, s, n, r, "adopts a stale read of block")
	}
	if h.read == nil {
		return all
	}
	if !h.read.adopted {
		all = m.adopt(all, s, n, h.read, "adopts block")
	}
	if h.read.block == nil || !m.current(s, h.read.block, h.read.index) {
		return all
	}
	if h.confirmed {
		all = m.takes(all, s, n, *h.read.block)
		all = m.asks(all, s, n, *h.read.block)
	}
	if h.read.adopted {
		all = m.settles(all, s, n, *h.read.block)
	}
	return all
}

// send puts a request of the agent on its way. The agent uses up what it has read.
func (m *model) send(all []step, s *state, n int, what string, w write) []step {
	c := s.clone()
	h := &c.host[n]
	w.who = n
	if m.broken == adoptsStale && h.read != nil {
		h.cached = h.read
	}
	h.write, h.read = &w, nil
	return append(all, step{n, w.index, what, c, ""})
}

// gets is send for what the node gains something by.
func (m *model) gets(all []step, s *state, n int, what string, w write) []step {
	if s.used.asks == m.most.asks {
		return all
	}
	all = m.send(all, s, n, what, w)
	all[len(all)-1].next.used.asks++
	return all
}

// adopt takes what was read into the store.
func (m *model) adopt(all []step, s *state, n int, r *reading, what string) []step {
	c := s.clone()
	h := &c.host[n]
	was := *h.grants[r.index]
	if r == h.cached {
		was.Block, was.Epoch, was.Ended, h.cached = "", 0, "", nil
	}
	var g Grant
	var lost []int
	var err error
	known := false // The block itself says why the node has lost something.
	if r.block == nil {
		g, lost = was.BlockDeleted()
	} else {
		g, lost, err = was.Adopt(*r.block, party(n))
		is, held := r.block.Holder(party(n))
		known = held && is.Fenced != ""
	}
	if err != nil || len(lost) > 0 && !known {
		return append(all, step{n, r.index, what, c, "a node raises the alarm, and the API has lost nothing"})
	}
	h.grants[r.index] = &g
	h.unsynced[r.index] = nil
	if r == s.host[n].read {
		h.read = &reading{r.index, r.block, true}
	}
	if !h.confirmed && (r.block == nil || !m.mustConfirm(*r.block, n, h)) {
		h.met |= 1 << r.index
	}
	return append(all, step{n, r.index, what, c, ""})
}

// mustConfirm says whether the node has to write the block before it gives anything in this boot.
func (m *model) mustConfirm(b Block, n int, h *host) bool {
	_, changed := b.Confirm(party(n), bootID(h))
	return changed && m.broken != confirmsUnwritten
}

// takes returns the takings of single addresses.
func (m *model) takes(all []step, s *state, n int, b Block) []step {
	for _, i := range append(b.FreeOffsets(), b.FencedOffsets()...) {
		if next, took := b.Take(party(n), []int{i}); took == 1 {
			all = m.gets(all, s, n, "asks the API for an address that nobody has or that a fenced node had, of block", write{index: int(b.Spec.Index), block: &next})
		}
	}
	return all
}

// asks returns the askings of other nodes for addresses, and how they are withdrawn.
func (m *model) asks(all []step, s *state, n int, b Block) []step {
	w, index := Want{Party: party(n), Count: 1}, int(b.Spec.Index)
	if m.sticky {
		w = Want{Party: party(n), Address: b.Address(0), Claim: claim}
	}
	if slices.ContainsFunc(b.Spec.Want, func(o Want) bool { return o.SameParty(w.Party) }) {
		w.Count, w.Claim = 0, ""
		next := b.Request(w)
		return m.send(all, s, n, "withdraws what it wants of block", write{index: index, block: &next})
	}
	other := slices.ContainsFunc(b.Spec.Holders, func(h Holder) bool { return !h.SameParty(w.Party) && h.Fenced == "" })
	if !other || b.HeldBy(w.Party, 0) && m.sticky || s.used.asks == m.most.asks {
		return all
	}
	next := b.Request(w)
	all = m.gets(all, s, n, "asks the others for an address of block", write{index: index, block: &next})
	if l := m.lease(&all[len(all)-1].next.host[n], index, 0); m.sticky && *l == noLease {
		*l = reserved
	}
	return all
}

// settles returns the requests that follow from what the store has.
func (m *model) settles(all []step, s *state, n int, b Block) []step {
	h, me, index := &s.host[n], party(n), int(b.Spec.Index)
	if is, held := b.Holder(me); held && is.Fenced != "" {
		for i := range m.layout.BlockSize {
			if l := *m.lease(h, index, i); l == podLease || l == ownerLease {
				return all
			}
		}
		next := b.Unfence(me)
		return m.send(all, s, n, "knows of its fence and leaves block", write{index: index, block: &next})
	}
	if next, changed := b.Confirm(me, bootID(h)); changed && !h.confirmed {
		all = m.send(all, s, n, "confirms block", write{index: index, block: &next})
	}
	g := *h.grants[index]
	if m.broken == settlesUnmarked {
		for i := range m.layout.BlockSize {
			if *m.lease(h, index, i) == noLease {
				g = g.Mark([]int{i})
			}
		}
	}
	next, changed, remove := g.ReleaseMarked(b, me)
	if !changed {
		return all
	}
	all = m.send(all, s, n, "gives back what it has marked of block", write{index: index, block: &next, remove: remove})
	if m.broken == forgetsEarly {
		gone := g
		gone.Block, gone.Epoch = "", 0
		gone.Addresses = strings.Repeat(string(NotGranted), len(g.Addresses))
		all[len(all)-1].next.host[n].grants[index] = &gone
	}
	return m.passesOn(all, s, n, b)
}

// passesOn returns the handings over to parties that ask on another block.
func (m *model) passesOn(all []step, s *state, n int, b Block) []step {
	index := int(b.Spec.Index)
	for i, other := range s.api {
		if i == index || other == nil {
			continue
		}
		for _, w := range other.Spec.Want {
			if !w.SameParty(party(n)) {
				next := b.HandOver(party(n), s.host[n].grants[index].Offsets(string(Marked)), w.Party)
				all = m.send(all, s, n, "passes on what it has marked of block", write{index: index, block: &next})
			}
		}
	}
	return all
}
