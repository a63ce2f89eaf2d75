package pool

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// claim is the name of the sticky owner's claim.
const claim = "p-claim"

// steps appends all that can happen in the state.
func (m *model) steps(s *state, all []step) []step {
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
		all = m.moves(all, s, n)
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
	c := m.clone(s)
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
		all = m.unmarks(all, s, n, i)
		if h.read == nil && (s.api[i] != nil || !h.grants[i].Empty() || !h.confirmed) || h.read != nil && h.read.index != i {
			c := m.clone(s)
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
		c := m.clone(s)
		c.host[n].confirmed, c.host[n].met = true, 0
		all = append(all, step{n, 0, "has met all blocks and gives addresses again, boot", c, ""})
	}
	if r := h.cached; r != nil {
		all = m.reconciles(all, s, n, r)
	}
	if h.read == nil {
		return all
	}
	all = m.reconciles(all, s, n, h.read)
	if h.confirmed && h.read.block != nil && m.current(s, h.read.block, h.read.index) {
		all = m.takes(all, s, n, *h.read.block)
		all = m.asks(all, s, n, *h.read.block)
	}
	return all
}

// send puts a request of the agent on its way. The agent uses up what it has read.
func (m *model) send(all []step, s *state, n int, what string, w write) []step {
	c := m.clone(s)
	h := &c.host[n]
	w.who = n
	wrong := ""
	if m.grows(s, w) && h.outside {
		wrong = elsewhere
	}
	if m.broken == adoptsStale && h.read != nil {
		h.cached = h.read
	}
	h.write, h.read = &w, nil
	return append(all, step{n, w.index, what, c, wrong})
}

// grows says whether the node has or wants more by its request than by what it has read.
func (m *model) grows(s *state, w write) bool {
	r := s.host[w.who].read
	if !m.racks || w.remove || r == nil || r.block == nil {
		return m.racks && w.create
	}
	me, has, had := party(w.who), 0, 0
	for i := range m.at[w.index] {
		has, had = has+int(bit(w.block.HeldBy(me, i))), had+int(bit(r.block.HeldBy(me, i)))
	}
	mine := func(o Want) bool { return o.SameParty(me) }
	return has > had || slices.ContainsFunc(w.block.Status.Want, mine) && !slices.ContainsFunc(r.block.Status.Want, mine)
}

// rack1 is a pool for the nodes of rack 1.
var rack1 = Pool{Spec: Spec{NodeSelector: map[string]string{"rack": "1"}}}

// selected says whether the pool is for the node, by the node's labels.
func selected(h *host) bool {
	return rack1.Mismatch(Node{Labels: map[string]string{"rack": string('1' + rune(bit(h.outside)))}}) == ""
}

// gets is send for what the node gains something by. It gains nothing of a pool for other nodes.
func (m *model) gets(all []step, s *state, n int, what string, w write) []step {
	if s.used.asks == m.most.asks || m.racks && m.broken != ignoresRack && !selected(&s.host[n]) {
		return all
	}
	all = m.send(all, s, n, what, w)
	all[len(all)-1].next.used.asks++
	return all
}

// reconciles is what the agent does with a block that it has read. What the node can spare, has too much of, and still waits for can be anything.
func (m *model) reconciles(all []step, s *state, n int, r *reading) []step {
	if r.block == nil {
		return m.adoptsEnd(all, s, n, r)
	}
	l := m.local(s, n, r.index)
	counts, spares := m.counts(r, l), []int{0}
	if others := func(w Want) bool { return !w.SameParty(l.Me) && w.Count > 0 }; len(l.Elsewhere) > 0 || slices.ContainsFunc(r.block.Status.Want, others) {
		spares = counts
	}
	asks := slices.ContainsFunc(r.block.Status.Want, func(w Want) bool { return w.SameParty(l.Me) })
	for _, l.Spare = range spares {
		for _, l.Surplus = range counts {
			l.Waits = func(Want) bool { return true }
			if all = m.reconcilesWith(all, s, n, r, l); asks {
				l.Waits = func(Want) bool { return false }
				all = m.reconcilesWith(all, s, n, r, l)
			}
		}
	}
	return all
}

// counts are how many of its addresses a node can give away: none, one or all. More than are free there make no difference.
func (m *model) counts(r *reading, l Local) []int {
	free := 0
	for i, a := range m.at[r.index] {
		if _, used := l.Uses[a]; !used && r.block.HeldBy(l.Me, i) {
			free++
		}
	}
	return slices.Compact([]int{0, min(1, free), free})
}

// local is what a node knows of itself when it looks at a block.
func (m *model) local(s *state, n, index int) Local {
	h := &s.host[n]
	l := Local{
		Me: party(n), Boot: bootID(h), Confirmed: h.confirmed || m.broken == confirmsUnwritten, Uses: map[netip.Addr]Use{}, MayLeave: true,
		Excluded: func(netip.Addr) bool { return false }, Expired: func(Want) bool { return false },
	}
	if m.claimed(s) {
		l.Claimed = m.at[index][:1]
	}
	for i, a := range m.at[index] {
		switch lease := *m.lease(h, index, i); {
		case lease == podLease && m.broken != marksLeased:
			l.Uses[a] = Use{Held: true}
		case lease == ownerLease:
			l.Uses[a] = Use{Claim: claim, Held: m.broken != movesHeld, Waiting: m.broken == movesHeld}
		case lease == reserved:
			l.Uses[a] = Use{Claim: claim, Waiting: true}
		}
	}
	for i, other := range s.api {
		if i == index || other == nil {
			continue
		}
		for _, w := range other.Status.Want {
			if !w.SameParty(party(n)) && w.Count > 0 {
				l.Elsewhere = append(l.Elsewhere, w)
			}
		}
	}
	return l
}

// reconcilesWith stores the grant that Reconcile makes, and puts its request on its way.
func (m *model) reconcilesWith(all []step, s *state, n int, r *reading, l Local) []step {
	c := m.clone(s)
	h := &c.host[n]
	before := *h.grants[r.index]
	if r == h.cached {
		before.Block, before.Epoch, before.Ended, h.cached = "", 0, "", nil
	}
	o, err := Reconcile(*r.block, before, l)
	if err != nil {
		return append(all, step{n, r.index, "reconciles block", c, "a node raises the alarm, and the API has lost nothing"})
	}
	m.store(h, r.index, o)
	if r == s.host[n].read {
		h.read = &reading{r.index, r.block, true}
	}
	if !o.Write {
		if !h.confirmed {
			h.met |= 1 << r.index
		}
		return append(all, step{n, r.index, "reconciles block", c, ""})
	}
	all = m.send(all, c, n, writes[l.Spare][l.Surplus], write{index: r.index, block: &o.Block, remove: o.Delete})
	if m.broken == forgetsEarly {
		gone := o.Grant
		gone.Block, gone.Epoch = "", 0
		gone.Addresses = strings.Repeat(string(NotGranted), len(gone.Addresses))
		all[len(all)-1].next.host[n].grants[r.index] = &gone
	}
	return all
}

// writes tells how a node makes its request, by what it has to spare and too much. No node has more than two addresses.
var writes = func() (texts [3][3]string) {
	for spare := range texts {
		for surplus := range texts[spare] {
			texts[spare][surplus] = fmt.Sprintf("reconciles, with %d to spare and %d too much, and writes block", spare, surplus)
		}
	}
	return texts
}()

// store is the transaction of the store.
func (m *model) store(h *host, index int, o Outcome) {
	before, next := h.grants[index], o.Grant
	if len(next.Offsets(string(Marked))) > len(before.Offsets(string(Marked))) {
		switch m.broken {
		case settlesUnmarked:
			next.Addresses = strings.ReplaceAll(next.Addresses, string(Marked), string(GrantedMark))
		case forgetsMark:
			if h.unsynced[index] == nil {
				h.unsynced[index] = before
			}
		}
	} else {
		h.unsynced[index] = nil
	}
	h.grants[index] = &next
	for _, a := range o.HandedOver {
		if l := m.lease(h, index, next.Offset(a)); *l == reserved {
			*l = noLease
		}
	}
}

// adoptsEnd takes into the store that the block does not exist.
func (m *model) adoptsEnd(all []step, s *state, n int, r *reading) []step {
	c := m.clone(s)
	h := &c.host[n]
	g, lost := h.grants[r.index].BlockDeleted()
	if len(lost) > 0 {
		return append(all, step{n, r.index, "reads that there is no block", c, "a node raises the alarm, and the API has lost nothing"})
	}
	h.grants[r.index], h.unsynced[r.index], h.read = &g, nil, &reading{r.index, nil, true}
	if !h.confirmed {
		h.met |= 1 << r.index
	}
	return append(all, step{n, r.index, "reads that there is no block", c, ""})
}

// takeable returns the addresses that no node has, or a fenced one. In a model with a sticky owner, all that is claimed is for its pods.
func (m *model) takeable(b Block) []int {
	offsets := append(b.FreeOffsets(), b.FencedOffsets()...)
	if b.Status.Addresses[0] == Claimed {
		offsets = append(offsets, 0)
	}
	return offsets
}

// claimed says whether a claim has the first address for the owner.
func (m *model) claimed(s *state) bool { return m.sticky && !s.roamed }

// takes returns the takings of single addresses.
func (m *model) takes(all []step, s *state, n int, b Block) []step {
	for _, i := range m.takeable(b) {
		if next, took := b.Take(party(n), []int{i}); took == 1 {
			all = m.gets(all, s, n, "asks the API for an address that nobody has or that a fenced node had, of block", write{index: int(b.Spec.Index), block: &next})
		}
	}
	return all
}

// asks returns the askings of other nodes for addresses, and how they are withdrawn.
func (m *model) asks(all []step, s *state, n int, b Block) []step {
	w, index := Want{Party: party(n), Count: 1}, int(b.Spec.Index)
	if m.claimed(s) {
		w = Want{Party: party(n), Address: b.Address(0), Claim: claim}
	}
	if i := slices.IndexFunc(b.Status.Want, func(o Want) bool { return o.SameParty(w.Party) }); i >= 0 {
		next := b.Request(Want{Party: w.Party, Address: b.Status.Want[i].Address})
		return m.send(all, s, n, "withdraws what it wants of block", write{index: index, block: &next})
	}
	other := slices.ContainsFunc(b.Status.Holders, func(h Holder) bool { return !h.SameParty(w.Party) && h.Fenced == "" })
	if !other || b.HeldBy(w.Party, 0) && m.claimed(s) || s.used.asks == m.most.asks {
		return all
	}
	next, before := b.Request(w), len(all)
	all = m.gets(all, s, n, "asks the others for an address of block", write{index: index, block: &next})
	if len(all) == before {
		return all
	}
	if l := m.lease(&all[len(all)-1].next.host[n], index, 0); m.claimed(s) && *l == noLease {
		*l = reserved
	}
	return all
}
