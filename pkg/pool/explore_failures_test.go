package pool

import (
	"slices"
	"strings"
)

// marks returns the markings of single addresses in the store. Nobody has a lease of such an address. The sticky one is marked
// for another node if it is reserved for the owner, and none of its pods is here.
func (m *model) marks(all []step, s *state, n, index int) []step {
	h := &s.host[n]
	g := h.grants[index]
	for _, i := range g.Offsets(GrantedChars) {
		l := *m.lease(h, index, i)
		if l != noLease && m.broken != marksLeased && (!m.isWanted(h, n, index, i) || l != reserved && (l != ownerLease || m.broken != movesHeld)) {
			continue
		}
		c := s.clone()
		marked := g.Mark([]int{i})
		if c.host[n].grants[index] = &marked; l == reserved {
			*m.lease(&c.host[n], index, i) = noLease
		}
		if m.broken == forgetsMark && h.unsynced[index] == nil {
			c.host[n].unsynced[index] = g
		}
		all = append(all, step{n, index*m.layout.BlockSize + i, "marks address", c, ""})
	}
	if m.broken == unmarks && strings.ContainsRune(g.Addresses, Marked) {
		c, is := s.clone(), *g
		is.Addresses = strings.ReplaceAll(is.Addresses, string(Marked), string(GrantedMark))
		c.host[n].grants[index] = &is
		all = append(all, step{n, index, "takes back its marks of block", c, ""})
	}
	return all
}

// isWanted says whether the agent has read that another node wants the address for its owner.
func (m *model) isWanted(h *host, n, index, i int) bool {
	r := h.read
	return r != nil && r.adopted && r.block != nil && r.index == index && slices.ContainsFunc(r.block.Spec.Want, func(w Want) bool {
		return !w.SameParty(party(n)) && w.Address == r.block.Address(i) && w.Claim == claim
	})
}

// plugin returns the ADDs and DELs of the node's pods. In a model with a sticky owner, the owner's pods take the first address
// and nothing else does.
func (m *model) plugin(all []step, s *state, n int) []step {
	set := func(a int, l byte, what string) {
		c := s.clone()
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
		sticky := m.sticky && a == 0
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

// fails returns the failures of a node and of its agent, and what its late request does.
func (m *model) fails(all []step, s *state, n int) []step {
	h := &s.host[n]
	if h.alive && s.used.crashes < m.most.crashes && (h.write != nil || h.met != 0 || h.unsynced != [2]*Grant{}) {
		for _, c := range ended(s, n) {
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
		for _, c := range ended(s, n) {
			c.used.deaths++
			c.host[n].alive = false
			all = append(all, step{n, 0, "dies, case", c, ""})
		}
	}
	if !h.alive {
		all = append(all, step{n, h.boot + 1, "boots again, boot", m.boot(s, n), ""})
	}
	if w := h.late; w != nil {
		c := s.clone()
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
func ended(s *state, n int) (all []*state) {
	c := s.clone()
	h := &c.host[n]
	w := h.write
	h.write, h.read, h.cached, h.met, h.unsynced = nil, nil, nil, 0, [2]*Grant{}
	if w == nil {
		return []*state{c}
	}
	if h.late != nil {
		all = append(all, c.clone())
	}
	h.late = w
	return append(all, c)
}

// boot returns the state after the node has booted: its pods are gone, and its store is there.
func (m *model) boot(s *state, n int) *state {
	m.seen["a node comes back"]++
	c := s.clone()
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
		c := s.clone()
		c.fence = nil
		m.apply(c, s.fence)
		all = append(all, step{nodeOf(fencedBy(s.fence)), s.fence.index, "is fenced now, on block", c, ""})
	}
	for n := range s.host {
		for i := range m.blocks {
			if s.api[i] == nil || s.host[n].alive && m.broken != fencesAlive || s.used.fences == m.most.fences {
				continue
			}
			next, changed := s.api[i].Fence(func(p Party) bool { return p.SameParty(party(n)) }, "dead")
			if !changed {
				continue
			}
			c := s.clone()
			c.used.fences++
			c.fence = &write{who: -1 - n, index: i, block: &next}
			all = append(all, step{n, i, "is seen dead by the controller, which has read block", c, ""})
		}
	}
	return all
}

// fencedBy returns whom the request fences.
func fencedBy(w *write) Party { return party(-1 - w.who) }
