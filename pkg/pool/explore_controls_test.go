package pool

import (
	"strings"
	"testing"
)

// fault is a mistake that the protocol must not make. A model has one at most.
type fault int

const (
	noFault fault = iota
	ignoresVersion
	createsTwice
	settlesUnmarked
	unmarks
	forgetsEarly
	confirmsUnread
	confirmsUnwritten
	fencesAlive
	adoptsStale
	marksLeased
	forgetsMark
	movesHeld
	ignoresRack
)

// The promises that are broken.
const (
	gives  = "a node may give an address that it does not have"
	leased = "two nodes have leased an address"
	owners = "two nodes have leased the sticky address"
	// elsewhere is about what a node asks for when it knows its labels.
	elsewhere = "a node asks for something of a pool that is for other nodes"
)

// TestExploreFindsFaults shows that the exploration sees mistakes: each of them breaks a promise.
func TestExploreFindsFaults(t *testing.T) {
	for _, c := range []struct {
		name   string
		broken fault
		sticky bool
		most   budget
		want   string
	}{
		{"the API ignores UID and version", ignoresVersion, false, budget{0, 0, 0, 3, 0}, gives},
		{"the API makes a block that exists", createsTwice, false, budget{0, 0, 0, 2, 0}, gives},
		{"an address is given back without a mark", settlesUnmarked, false, budget{0, 0, 0, 2, 0}, gives},
		{"a mark is taken back", unmarks, false, budget{0, 0, 0, 2, 0}, gives},
		{"the store forgets before the answer", forgetsEarly, false, budget{1, 0, 0, 2, 0}, gives},
		{"a node gives after a boot without a read", confirmsUnread, false, budget{0, 1, 1, 2, 0}, gives},
		{"a node gives after a boot without a write", confirmsUnwritten, false, budget{0, 1, 1, 2, 0}, gives},
		{"a node is fenced alive", fencesAlive, false, budget{0, 0, 1, 2, 0}, gives},
		{"a stale read is adopted", adoptsStale, false, budget{0, 0, 0, 2, 0}, gives},
		{"a leased address is marked", marksLeased, false, budget{0, 0, 0, 2, 0}, leased},
		{"a mark is not synced", forgetsMark, false, budget{1, 0, 0, 2, 0}, gives},
		{"the owner's address moves while a pod has it", movesHeld, true, budget{0, 0, 0, 3, 0}, owners},
		{"a node takes of a pool for other nodes", ignoresRack, false, budget{0, 0, 0, 2, 0}, elsewhere},
		{"a node asks for the owner's address of a pool for other nodes", ignoresRack, true, budget{0, 0, 0, 2, 1}, elsewhere},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newModel(1, 1, c.most)
			m.sticky, m.broken, m.racks = c.sticky, c.broken, c.broken == ignoresRack
			found := m.explore(1 << 30)
			if found.wrong != c.want {
				t.Errorf("%q in %d states, want %q:\n%s", found.wrong, found.states, c.want, strings.Join(found.trace, "\n"))
			}
			t.Logf("%s, after %d states and %d steps", found.wrong, found.states, len(found.trace))
		})
	}
}
