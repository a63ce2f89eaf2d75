package pool

import (
	"net/netip"
	"slices"
	"strings"
)

// unmarks is a fault: a mark is taken back.
func (m *model) unmarks(all []step, s *state, n, index int) []step {
	g := *s.host[n].grants[index]
	if m.broken != unmarks || !strings.ContainsRune(g.Addresses, Marked) {
		return all
	}
	c := m.clone(s)
	g.Addresses = strings.ReplaceAll(g.Addresses, string(Marked), string(GrantedMark))
	c.host[n].grants[index] = &g
	return append(all, step{n, index, "takes back its marks of block", c, ""})
}

// plugin returns the ADDs and DELs of the node's pods. In a model with a sticky owner, the owner's pods take the first address
// and nothing else does.
func (m *model) plugin(all []step, s *state, n int) []step {
	set := func(a int, l byte, what string) {
		c := m.clone(s)
		c.host[n].leases[a] = l
		all = append(all, step{n, a, what, c, ""})
	}
	for a := range m.blocks * m.layout.BlockSize {
		index, i := a/m.layout.BlockSize, a%m.layout.BlockSize
		h := &s.host[n]
		g, gives := h.grants[index], false
		if i < len(g.Addresses) {
			gives, _ = g.Assignable(i)
		}
		gives = gives && h.confirmed
		sticky := m.claimed(s) && a == 0
		switch l := h.leases[a]; {
		case l == podLease:
			set(a, noLease, "has no pod any more that has address")
		case l == ownerLease:
			set(a, reserved, "has no pod of the owner any more that has address")
		case gives && sticky:
			set(a, ownerLease, "gives the owner's pod its address")
		case gives && l == noLease:
			set(a, podLease, "gives a pod address")
		}
		if h.leases[a] == reserved {
			set(a, noLease, "does not keep for the owner any more address")
		}
	}
	return all
}

// moves returns how a node comes to another rack, and how an owner's pod gets an address of another pool there: the agent deletes the claim
// of this one.
func (m *model) moves(all []step, s *state, n int) []step {
	if m.racks && s.used.labels < m.most.labels {
		c := m.clone(s)
		c.used.labels++
		c.host[n].outside = !c.host[n].outside
		m.seen["a node comes to another rack"]++
		all = append(all, step{n, 0, "gets the labels of another rack, case", c, ""})
	}
	if h := &s.host[n]; m.roams && m.claimed(s) && h.alive && h.confirmed && h.outside && h.leases[0] == noLease {
		c := m.clone(s)
		c.roamed = true
		m.seen["an owner roams"]++
		all = append(all, step{n, 0, "gives the owner's pod an address of another pool, and deletes the claim of address", c, ""})
	}
	return all
}

// fails returns the failures of a node and of its agent, and what its late request does.
func (m *model) fails(all []step, s *state, n int) []step {
	h := &s.host[n]
	if h.alive && s.used.crashes < m.most.crashes && (h.write != nil || h.met != 0 || h.unsynced != [2]*Grant{}) {
		for _, c := range m.ended(s, n) {
			c.used.crashes++
			for i, g := range h.unsynced {
				if g != nil {
					c.host[n].grants[i] = g
				}
			}
			all = append(all, step{n, 0, "has an agent that crashes or gives up, case", c, ""})
		}
	}
	if h.alive && s.used.deaths < m.most.deaths {
		for _, c := range m.ended(s, n) {
			c.used.deaths++
			c.host[n].alive = false
			all = append(all, step{n, 0, "dies, case", c, ""})
		}
	}
	if !h.alive && !h.deleted {
		all = append(all, step{n, h.boot + 1, "boots again, boot", m.boot(s, n), ""})
	}
	if fenced := func(b *Block) bool { return b != nil && b.IsFenced(party(n)) }; !h.alive && !h.deleted && slices.ContainsFunc(s.api[:], fenced) {
		c := m.clone(s)
		c.host[n].deleted = true
		all = append(all, step{n, 0, "is deleted, case", c, ""})
	}
	if w := h.late; w != nil {
		c := m.clone(s)
		c.host[n].late = nil
		if _, ok := m.apply(c, w); ok {
			if w.create {
				m.seen["a create comes late"]++
			}
			all = append(all, step{n, w.index, "had an older request that arrives only now, on block", c, ""})
		}
	}
	return all
}

// ended returns the states after the agent's process has ended. Of its request and an older one, one can still arrive.
func (m *model) ended(s *state, n int) (all []*state) {
	c := m.clone(s)
	h := &c.host[n]
	w := h.write
	h.write, h.read, h.cached, h.met, h.unsynced = nil, nil, nil, 0, [2]*Grant{}
	if w == nil {
		return []*state{c}
	}
	if h.late != nil {
		all = append(all, m.clone(c))
	}
	h.late = w
	return append(all, c)
}

// boot returns the state after the node has booted: its pods are gone, and its store is there.
func (m *model) boot(s *state, n int) *state {
	m.seen["a node comes back"]++
	c := m.clone(s)
	h := &c.host[n]
	h.alive, h.boot = true, h.boot+1
	h.confirmed = m.broken == confirmsUnread
	for a, l := range h.leases {
		switch l {
		case podLease:
			h.leases[a] = noLease
		case ownerLease:
			h.leases[a] = reserved
		}
	}
	return c
}

// fences returns what the controller does: it decides by a block that it reads while the node is dead. Its request can be late.
func (m *model) fences(all []step, s *state) []step {
	if s.fence != nil {
		c := m.clone(s)
		c.fence = nil
		m.apply(c, s.fence)
		all = append(all, step{nodeOf(fencedBy(s.fence)), s.fence.index, "is fenced or removed now, on block", c, ""})
	}
	for n := range s.host {
		for i := range m.blocks {
			if s.api[i] == nil || s.host[n].alive && m.broken != fencesAlive {
				continue
			}
			if next, changed := s.api[i].RemoveDeleted(func(h Holder) bool { return s.host[n].deleted && h.SameParty(party(n)) }, func(netip.Addr) bool { return m.claimed(s) }); changed {
				c := m.clone(s)
				c.fence = &write{who: -1 - n, index: i, block: &next}
				all = append(all, step{n, i, "is seen deleted by the controller, which has read block", c, ""})
			}
			if s.used.fences == m.most.fences {
				continue
			}
			next, changed := s.api[i].Fence(func(p Party) bool { return p.SameParty(party(n)) }, "dead")
			if !changed {
				continue
			}
			c := m.clone(s)
			c.used.fences++
			c.fence = &write{who: -1 - n, index: i, block: &next}
			all = append(all, step{n, i, "is seen dead by the controller, which has read block", c, ""})
		}
	}
	return all
}

// fencedBy returns whom the request fences.
func fencedBy(w *write) Party { return party(-1 - w.who) }
