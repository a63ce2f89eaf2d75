package pool

import (
	"os"
	"strings"
	"testing"
)

// silence returns how a node gets silent, and how it is heard of again. Then it begins a new session. The time itself is not in the model:
// a node is silent from half of it on, and so before the controller fences it.
func (m *model) silence(all []step, s *state, n int) []step {
	h := &s.host[n]
	switch {
	case !h.alive:
	case h.silent:
		c := s.clone()
		h := &c.host[n]
		h.silent = false
		if m.broken != goesOnAfterSilence {
			h.boot, h.confirmed, h.met, h.read = h.boot+1, false, 0, nil
		}
		m.seen["a silent node begins anew"]++
		all = append(all, step{n, h.boot, "is heard of again, and begins session", c, ""})
	case s.silences < m.silences:
		c := s.clone()
		c.silences++
		c.host[n].silent = true
		all = append(all, step{n, 0, "is silent, case", c, ""})
	}
	return all
}

// answers says whether a pod of another node answers for the address.
func (m *model) answers(s *state, n, a int) bool {
	for other := range s.host {
		h := &s.host[other]
		if l := h.leases[a]; other != n && h.alive && (l == podLease || l == ownerLease) {
			return true
		}
	}
	return false
}

// TestExploreSilence walks through all that can happen to nodes that are fenced for their silence, and whose pods live on. They answer a
// probe.
func TestExploreSilence(t *testing.T) {
	for name, c := range map[string]struct {
		size         int
		sticky       bool
		most, longer budget
		longerSilent int8
	}{
		"one address":    {1, false, budget{0, 0, 1, 2}, budget{1, 1, 1, 2}, 1},
		"a sticky owner": {1, true, budget{0, 0, 1, 1}, budget{1, 0, 1, 2}, 1},
		"two addresses":  {2, false, budget{0, 0, 1, 1}, budget{0, 0, 1, 2}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(1, c.size, c.most)
			m.begun, m.sticky, m.silences = true, c.sticky, 1
			if os.Getenv("RELINK_LONG") != "" {
				m.most, m.silences = c.longer, c.longerSilent
			}
			found := m.explore(1 << 30)
			if found.wrong != "" {
				t.Errorf("%s:\n%s", found.wrong, strings.Join(found.trace, "\n"))
			}
			for _, what := range []string{"a silent node is fenced", "a silent node begins anew", "a fenced address is taken", "a fence comes too late", "a fenced node comes back and leaves"} {
				if m.seen[what] == 0 {
					t.Errorf("nowhere happens: %s", what)
				}
			}
			t.Logf("%d states, %d steps", found.states, found.steps)
		})
	}
}

// TestExploreFindsFaultsOfSilence shows that each rule about silence is needed.
func TestExploreFindsFaultsOfSilence(t *testing.T) {
	for name, c := range map[string]struct {
		broken fault
		want   string
	}{
		"a silent node gives":                            {givesSilent, gives},
		"a node gives after a silence without a session": {goesOnAfterSilence, gives},
		"blocks are not written in the session":          {confirmsUnwritten, gives},
		"others do not probe":                            {takesUnprobed, leased},
		"a node is fenced that is not silent":            {fencesAlive, gives},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(1, 1, budget{0, 0, 1, 2})
			m.begun, m.silences, m.broken = true, 1, c.broken
			found := m.explore(1 << 30)
			if found.wrong != c.want {
				t.Errorf("%q in %d states, want %q:\n%s", found.wrong, found.states, c.want, strings.Join(found.trace, "\n"))
			}
			t.Logf("%s, after %d states and %d steps:\n%s", found.wrong, found.states, len(found.trace), strings.Join(found.trace, "\n"))
		})
	}
}
