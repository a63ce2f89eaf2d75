package lease

import (
	"os"
	"testing"
	"time"
)

// freeze marks the store as one that a Rename which was killed was about to put into the other one.
func (n *node) freeze(t *testing.T, to *node) {
	t.Helper()
	s := n.store(t)
	must(t, s.open(t.Context(), false, func(o *opened) error { return s.freeze(o, to.network) }))
}

// One that was killed after the leases were merged, and before the file went, is run again. Meanwhile
// nothing is given by the old name: it would be lost.
func TestRenameThatWasKilledIsRunAgain(t *testing.T) {
	n := newNode(t, "10.3.0.20", sticky)
	to := n.as("new")
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	n.add(t, "c2/eth0", "web-0", "10.3.0.2")
	n.add(t, "c3/eth0", "web-1", "10.3.0.3")
	n.del(t, "c3/eth0")
	n.policy = minute
	n.add(t, "c4/eth0", "", "10.3.0.4")
	n.del(t, "c4/eth0")
	n.add(t, "c5/eth0", "", "10.3.0.5")
	to.addWanted(t, "n1/eth0", "x", "10.3.0.9")
	n.freeze(t, to)
	copyFile(t, n.path(), n.path()+".copy")
	if count, err := n.rename(t, to); count != 4 || err != nil {
		t.Fatalf("%d leases, %v", count, err)
	}
	must(t, os.Rename(n.path()+".copy", n.path()))

	const again = "network pods is being renamed: run relink ipam rename pods new again"
	_, err := n.try(t, "c9/eth0", "late")
	n.refused(t, "ADD", err, ErrRenaming, "network pods is being renamed: run relink ipam rename pods new again")
	_, err = n.store(t).Reserve(t.Context(), addr("10.3.0.8"), pod("late"), 0)
	n.refused(t, "reserve", err, ErrRenaming, again)
	_, err = n.rename(t, n.as("third"))
	n.refused(t, "rename to another name", err, ErrRenaming, again)
	must(t, n.store(t).Release(t.Context(), n.key("c5/eth0"), Policy{}))
	to.del(t, "c1/eth0")
	want, events := to.lines(t), len(to.told(t, "10.3.0.2"))
	if count, err := n.rename(t, to); count != 4 || err != nil {
		t.Errorf("run again: %d leases, %v", count, err)
	}
	n.gone(t)
	to.expect(t, "run again", want...)
	to.expect(t, "what the DELs left", "10.3.0.2 held c2/eth0 web-0", "10.3.0.3 reserved c3/eth0 web-1", "10.3.0.4 quarantined c4/eth0",
		"10.3.0.5 quarantined c5/eth0", "10.3.0.9 held n1/eth0 x")
	if again := len(to.told(t, "10.3.0.2")); again != events {
		t.Errorf("%d events, there were %d", again, events)
	}
}

// One that was killed before anything was put into the other store: a DEL is as good as before, and
// when it is run again the rest goes over.
func TestRenameThatWasKilledBeforeItMergedIsRunAgain(t *testing.T) {
	for name, gone := range map[string]bool{"the other store is there": false, "the other store has been moved away": true} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "10.3.0.20", minute)
			to := n.as("new")
			n.add(t, "c1/eth0", "", "10.3.0.2")
			n.add(t, "c2/eth0", "", "10.3.0.3")
			to.addWanted(t, "n1/eth0", "x", "10.3.0.9")
			n.freeze(t, to)
			must(t, n.store(t).Release(t.Context(), n.key("c1/eth0"), Policy{}))
			want := []string{"10.3.0.2 quarantined c1/eth0", "10.3.0.3 held c2/eth0"}
			if gone {
				must(t, os.Rename(to.path(), to.path()+".moved"))
			} else {
				want = append(want, "10.3.0.9 held n1/eth0 x")
			}
			if count, err := n.rename(t, to); count != 2 || err != nil {
				t.Fatalf("%d leases, %v", count, err)
			}
			to.expect(t, "run again", want...)
			to.addWanted(t, "n2/eth0", "y", "10.3.0.4")
		})
	}
}

// What was given up since a Rename was killed does not come back when it is run again, and what
// another pod has by then is not in the way.
func TestRenameThatWasKilledBringsNothingBack(t *testing.T) {
	for name, next := range map[string]string{"into the same store": "new", "which has another name by now": "newest"} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "10.3.0.20", minute)
			to := n.as("new")
			n.add(t, "c1/eth0", "", "10.3.0.2")
			n.add(t, "c2/eth0", "", "10.3.0.3")
			to.addWanted(t, "n1/eth0", "x", "10.3.0.9")
			// The state after a kill between the two stores' changes.
			n.freeze(t, to)
			copyFile(t, n.path(), n.path()+".copy")
			_, err := n.rename(t, to)
			must(t, err)
			must(t, os.Rename(n.path()+".copy", n.path()))
			if next != to.network {
				_, err := to.rename(t, n.as(next))
				must(t, err)
				to = n.as(next)
			}
			to.del(t, "c1/eth0")
			to.later(time.Hour)
			to.addWanted(t, "n2/eth0", "y", "10.3.0.2")
			_, err = n.rename(t, n.as("new"))
			must(t, err)
			n.gone(t)
			to.expect(t, "run again", "10.3.0.2 held n2/eth0 y", "10.3.0.3 held c2/eth0", "10.3.0.9 held n1/eth0 x")
		})
	}
}
