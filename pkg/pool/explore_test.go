package pool

import (
	"fmt"
	"hash/maphash"
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

// TestExplore walks through all that can happen to small pools, by the production steps. No state may break a promise, and the
// walks together must have been through all that the protocol is for.
func TestExplore(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // Most of what a walk makes stays until its end: to look for what does not takes a quarter of the time.
	happened := make(chan map[string]int, 16)
	t.Run("walks", func(t *testing.T) {
		for _, c := range []struct {
			name         string
			blocks, size int
			begun        bool
			sticky       bool
			imports      bool
			racks        bool
			most, longer budget
		}{
			{"two addresses", 1, 2, false, false, false, false, budget{0, 0, 0, 3, 0}, budget{0, 0, 0, 4, 0}},
			{"two addresses, crashes", 1, 2, false, false, false, false, budget{1, 0, 0, 2, 0}, budget{2, 0, 0, 3, 0}},
			{"two addresses, a dead node", 1, 2, false, false, false, false, budget{0, 1, 1, 2, 0}, budget{1, 1, 1, 2, 0}},
			{"two addresses that are taken over", 1, 2, false, false, true, false, budget{1, 0, 0, 2, 0}, budget{1, 1, 1, 2, 0}},
			{"two blocks", 2, 1, true, false, false, false, budget{0, 0, 0, 1, 0}, budget{0, 0, 0, 2, 0}},
			{"two blocks, a dead node", 2, 1, false, false, false, false, budget{0, 1, 1, 1, 0}, budget{1, 1, 1, 2, 0}},
			{"a sticky owner", 1, 1, false, true, false, false, budget{1, 1, 1, 2, 0}, budget{1, 1, 1, 3, 0}},
			{"a sticky owner and another address", 1, 2, false, true, false, false, budget{2, 0, 0, 2, 0}, budget{1, 1, 1, 2, 0}},
			{"racks", 1, 2, false, false, false, true, budget{0, 0, 0, 2, 1}, budget{1, 0, 0, 2, 2}},
			{"a sticky owner that roams", 1, 1, false, true, false, true, budget{0, 0, 0, 2, 1}, budget{0, 1, 1, 2, 1}},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				m := newModel(c.blocks, c.size, c.most)
				if m.begun, m.sticky, m.imports, m.racks, m.roams = c.begun, c.sticky, c.imports, c.racks, c.racks && c.sticky; os.Getenv("RELINK_LONG") != "" {
					m.most = c.longer
				}
				found := m.explore(1 << 30)
				if found.wrong != "" {
					t.Errorf("%s:\n%s", found.wrong, strings.Join(found.trace, "\n"))
				}
				t.Logf("%d states, %d steps", found.states, found.steps)
				happened <- m.seen
			})
		}
	})
	close(happened)
	all := map[string]int{}
	for seen := range happened {
		for what, n := range seen {
			all[what] += n
		}
	}
	for _, what := range mustHappen {
		if all[what] == 0 {
			t.Errorf("nowhere happens: %s", what)
		}
	}
}

// walk is the result of an exploration. wrong is the promise that is broken, and trace how it comes to that.
type walk struct {
	states, steps int
	wrong         string
	trace         []string
}

// visited is how a state was reached first: by which step of which state.
type visited struct {
	from int32
	step uint16
}

// explore walks through the states, the nearest first. It ends at the first broken promise, or after so many states.
func (m *model) explore(most int) walk {
	seeds := [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	known := map[key]struct{}{m.keyOf(m.start(), seeds): {}}
	how := []visited{{from: -1}}
	layer, first := []*state{m.start()}, 0
	var steps int
	var all []step
	for len(layer) > 0 && len(how) < most {
		var next []*state
		for i, s := range layer {
			all = m.steps(s, all[:0])
			for j, st := range all {
				steps++
				if st.wrong == "" {
					k := m.keyOf(st.next, seeds)
					if _, is := known[k]; is {
						m.spent = append(m.spent, st.next)
						continue
					}
					known[k] = struct{}{}
					st.wrong = m.breaks(st.next)
				}
				how = append(how, visited{int32(first + i), uint16(j)})
				if st.wrong != "" {
					return walk{len(how), steps, st.wrong, m.trace(how)}
				}
				next = append(next, st.next)
			}
			m.spent = append(m.spent, s)
		}
		layer, first = next, first+len(layer)
	}
	return walk{states: len(how), steps: steps}
}

// trace tells in words how the last state was reached.
func (m *model) trace(how []visited) (words []string) {
	var path []uint16
	for at := len(how) - 1; how[at].from >= 0; at = int(how[at].from) {
		path = append([]uint16{how[at].step}, path...)
	}
	s := m.start()
	for _, j := range path {
		st := m.steps(s, nil)[j]
		s = st.next
		words = append(words, fmt.Sprintf("node %d %s %d%s", st.who, st.what, st.at, m.tell(s)))
	}
	return words
}

// tell shows the blocks and the grants of a state.
func (m *model) tell(s *state) string {
	var out strings.Builder
	for i := range m.blocks {
		fmt.Fprintf(&out, "\t[block %d: ", i)
		if b := s.api[i]; b == nil {
			out.WriteString("none")
		} else {
			out.WriteString(b.Status.Addresses)
			for _, h := range b.Status.Holders {
				fmt.Fprintf(&out, " %s=%s%s", h.ID, h.Store, strings.Repeat("(fenced)", min(1, len(h.Fenced))))
			}
		}
		for n := range s.host {
			fmt.Fprintf(&out, ", grant %d: %q", n, s.host[n].grants[i].Addresses)
		}
		out.WriteString("]")
	}
	return out.String()
}
