package pool

import (
	"bytes"
	"hash/maphash"
	"slices"
)

// key is the hash of a state. States that differ only in the names of the nodes, UIDs, versions, epochs and boots have the
// same key, if the names are met in the same order.
type key [2]uint64

// encoder writes a state for its key.
type encoder struct {
	*model
	s *state
	// order are the nodes in the order in which they are written, place is where each of them is. It goes by the outlines.
	order, place [hosts]int
	outlines     [hosts][]byte
	to           []byte
}

// keyOf returns the key of the state.
func (m *model) keyOf(s *state, seeds [2]maphash.Seed) key {
	e := &m.key
	e.model, e.s, e.to = m, s, e.to[:0]
	for n := range hosts {
		e.order[n], e.place[n] = n, n
		e.outlines[n] = e.outline(n, e.outlines[n][:0])
	}
	slices.SortStableFunc(e.order[:], func(a, b int) int { return bytes.Compare(e.outlines[a], e.outlines[b]) })
	for at, n := range e.order {
		e.place[n] = at
	}
	e.put(byte(s.used.crashes), byte(s.used.deaths), byte(s.used.fences), byte(s.used.asks), byte(s.used.labels), bit(s.roamed))
	for i := range m.blocks {
		e.block(s.api[i])
	}
	for _, n := range e.order {
		e.host(n)
	}
	if e.write(s.fence); s.fence != nil {
		e.put(byte(e.place[nodeOf(fencedBy(s.fence))]))
	}
	return key{maphash.Bytes(seeds[0], e.to), maphash.Bytes(seeds[1], e.to)}
}

func (e *encoder) put(b ...byte) { e.to = append(e.to, b...) }

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// outline is what can be said of a node without the others. It decides the order of the nodes.
func (e *encoder) outline(n int, out []byte) []byte {
	h := &e.s.host[n]
	out = append(out, bit(h.alive), bit(h.deleted), bit(h.confirmed), h.met, h.leases[0], h.leases[1], bit(h.read == nil), bit(h.write == nil), bit(h.late == nil), bit(h.outside))
	for i := range e.blocks {
		out = append(append(out, h.grants[i].Addresses...), '/')
		b := e.s.api[i]
		if b == nil {
			continue
		}
		for at := range len(b.Status.Addresses) {
			out = append(out, bit(b.HeldBy(party(n), at)))
		}
		_, is := b.Holder(party(n))
		wants := slices.IndexFunc(b.Status.Want, func(w Want) bool { return w.SameParty(party(n)) })
		out = append(out, bit(is), byte(wants+1))
	}
	for _, w := range [2]*write{h.write, h.late} {
		if w != nil {
			out = append(out, byte(w.index), bit(w.create), bit(w.remove), byte(len(w.block.FreeOffsets())))
		}
	}
	if r := h.read; r != nil {
		out = append(out, byte(r.index), bit(r.adopted), bit(r.block != nil && e.current(e.s, r.block, r.index)))
	}
	return out
}

func (e *encoder) host(n int) {
	h := &e.s.host[n]
	e.put(bit(h.alive), bit(h.deleted), bit(h.confirmed), h.met, h.leases[0], h.leases[1], bit(h.outside))
	for i := range e.blocks {
		e.grant(h.grants[i], n)
		if u := h.unsynced[i]; u != nil {
			e.grant(u, n)
		}
		e.put('|')
	}
	e.reading(h.read, n)
	e.reading(h.cached, n)
	e.write(h.write)
	e.write(h.late)
}

// grant writes a grant. Of its epoch it counts only whether a block of the same UID is older, and of its UID whether it is that
// of a block, if the node has something that it could lose. So a grant without addresses is like none.
func (e *encoder) grant(g *Grant, n int) {
	if !g.Empty() {
		e.to = append(e.to, g.Addresses...)
	}
	ours := len(g.Offsets(GrantedChars)) > 0
	relation := func(b *Block) byte {
		same := b != nil && b.Metadata.UID == g.Block
		return bit(same && ours) | bit(same && b.Status.Epoch < g.Epoch)<<1
	}
	h := &e.s.host[n]
	e.put('/', relation(e.s.api[g.Index]))
	for _, r := range [2]*reading{h.read, h.cached} {
		if r != nil && r.index == int(g.Index) {
			e.put(relation(r.block))
		}
	}
	if h.write != nil && h.write.index == int(g.Index) {
		e.put(relation(h.write.block))
	}
}

// reading writes what was read. If it is not current any more, it counts only what the node itself has there.
func (e *encoder) reading(r *reading, n int) {
	switch {
	case r == nil:
		e.put(0)
	case r.block == nil:
		e.put(1, byte(r.index), bit(r.adopted))
	case e.current(e.s, r.block, r.index):
		e.put(2, byte(r.index), bit(r.adopted))
		if e.broken == ignoresVersion {
			e.block(r.block)
		}
	default:
		e.put(3, byte(r.index), bit(r.adopted))
		for i := range len(r.block.Status.Addresses) {
			e.put(bit(r.block.HeldBy(party(n), i)), bit(slices.Contains(r.block.Status.Unproven, e.at[r.index][i])))
		}
		h, is := r.block.Holder(party(n))
		e.put(bit(is), bit(h.Fenced != ""), bit(h.Boot == bootID(&e.s.host[n])))
	}
}

// write writes a request.
func (e *encoder) write(w *write) {
	switch {
	case w == nil:
		e.put(0)
	case w.create:
		e.put(1, byte(w.index), bit(w.block.Status.Holders[0].Boot == bootID(&e.s.host[w.who])), byte(len(w.block.FreeOffsets())))
	case w.remove:
		e.put(2, byte(w.index))
	default:
		e.put(3, byte(w.index))
		e.block(w.block)
	}
}

// block writes a block. The letters of its holders do not count.
func (e *encoder) block(b *Block) {
	if b == nil {
		e.put(0)
		return
	}
	e.put(1)
	for i := range len(b.Status.Addresses) {
		owner := byte(Unassigned)
		if b.Status.Addresses[i] == Claimed {
			owner = Claimed
		} else if h, is := b.HolderOf(i); is {
			owner = byte(e.place[nodeOf(h.Party)])
		}
		e.put(owner, bit(slices.Contains(b.Status.Unproven, e.at[b.Spec.Index][i])))
	}
	var holders [hosts]byte
	for _, h := range b.Status.Holders {
		n := nodeOf(h.Party)
		holders[e.place[n]] = 1 | bit(h.Fenced != "")<<1 | bit(h.Boot == bootID(&e.s.host[n]))<<2
	}
	e.put(holders[:]...)
	e.put(byte(len(b.Status.Want)))
	for _, w := range b.Status.Want {
		e.put(byte(e.place[nodeOf(w.Party)]), byte(w.Count), bit(w.Address.IsValid()), bit(w.Claim != ""))
	}
}
