package lease

import (
	"errors"
	"os"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

// freeze marks the store as if a Rename was killed just before it moved the leases into the other store.
func (n *node) freeze(t *testing.T, to *node) {
	t.Helper()
	s := n.store(t)
	must(t, s.open(t.Context(), false, func(o *opened) error {
		_, err := s.freeze(o, to.network)
		return err
	}))
}

// A rename was killed after it had merged the leases and before it removed the file. It is run again. Meanwhile nothing
// is given by the old name, because that would be lost.
func TestRenameThatWasKilledIsRunAgain(t *testing.T) {
	n := newNode(t, "10.3.0.20", sticky)
	to := n.withNetwork("new")
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
	n.refused(t, "ADD", err, ErrRenaming, again)
	n.refused(t, "list", n.store(t).BeingRenamed(t.Context()), ErrRenaming, again)
	must(t, to.store(t).BeingRenamed(t.Context()))
	_, err = n.store(t).Reserve(t.Context(), addr("10.3.0.8"), pod("late"), 0)
	n.refused(t, "reserve", err, ErrRenaming, again)
	_, err = n.rename(t, n.withNetwork("third"))
	n.refused(t, "rename to another name", err, ErrRenaming, again)
	must(t, n.store(t).Release(t.Context(), n.key("c5/eth0"), Policy{}))
	to.del(t, "c1/eth0")
	want, events := to.lines(t), len(to.eventLines(t, "10.3.0.2"))
	if count, err := n.rename(t, to); count != 4 || err != nil {
		t.Errorf("run again: %d leases, %v", count, err)
	}
	n.expectNoStore(t)
	to.expect(t, "run again", want...)
	to.expect(t, "what the DELs left", "10.3.0.2 held c2/eth0 web-0", "10.3.0.3 reserved c3/eth0 web-1", "10.3.0.4 quarantined c4/eth0",
		"10.3.0.5 quarantined c5/eth0", "10.3.0.9 held n1/eth0 x")
	if again := len(to.eventLines(t, "10.3.0.2")); again != events {
		t.Errorf("%d events, there were %d", again, events)
	}
}

// A rename was killed before it put anything into the other store. A DEL works as before. The next run moves the rest.
func TestRenameThatWasKilledBeforeItMergedIsRunAgain(t *testing.T) {
	for name, gone := range map[string]bool{"the other store is there": false, "the other store has been moved away": true} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "10.3.0.20", minute)
			to := n.withNetwork("new")
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

// A lease was given up after the rename was killed. The next run does not bring it back, and another pod's lease of
// that address is not in the way.
func TestRenameThatWasKilledBringsNothingBack(t *testing.T) {
	for name, next := range map[string]string{"into the same store": "new", "which has another name by now": "newest"} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "10.3.0.20", minute)
			to := n.withNetwork("new")
			n.add(t, "c1/eth0", "", "10.3.0.2")
			n.add(t, "c2/eth0", "", "10.3.0.3")
			to.addWanted(t, "n1/eth0", "x", "10.3.0.9")
			// This is the state after a kill between the changes of the two stores.
			n.freeze(t, to)
			copyFile(t, n.path(), n.path()+".copy")
			_, err := n.rename(t, to)
			must(t, err)
			must(t, os.Rename(n.path()+".copy", n.path()))
			if next != to.network {
				_, err := to.rename(t, n.withNetwork(next))
				must(t, err)
				to = n.withNetwork(next)
			}
			to.del(t, "c1/eth0")
			to.later(time.Hour)
			to.addWanted(t, "n2/eth0", "y", "10.3.0.2")
			_, err = n.rename(t, n.withNetwork("new"))
			must(t, err)
			n.expectNoStore(t)
			to.expect(t, "run again", "10.3.0.2 held n2/eth0 y", "10.3.0.3 held c2/eth0", "10.3.0.9 held n1/eth0 x")
		})
	}
}

// A rename that cannot work changes nothing. ADDs by the old name still work.
func TestRenameThatFailsFreezesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(t *testing.T, n, to *node)
		want  error
	}{
		"the other store is damaged": {func(t *testing.T, _, to *node) { must(t, os.WriteFile(to.path(), []byte("x"), 0o600)) }, ErrDamaged},
		"one of its leases is damaged": {func(t *testing.T, n, _ *node) {
			edit(t, n.path(), func(tx *bolt.Tx) error {
				return tx.Bucket([]byte(bucketLeases)).Put(addressKey(addr("10.3.0.2")), []byte("{"))
			})
		}, ErrDamaged},
		"they are one file": {func(t *testing.T, n, to *node) {
			must(t, errors.Join(os.Remove(to.path()), os.Symlink(n.path(), to.path())))
		}, nil},
		"the other store is being renamed": {func(t *testing.T, _, to *node) { to.freeze(t, to.withNetwork("third")) }, ErrRenaming},
		"both have one of the addresses":   {func(t *testing.T, _, to *node) { to.addWanted(t, "n2/eth0", "x", "10.3.0.2") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "10.3.0.20", minute)
			to := n.withNetwork("new")
			n.add(t, "c1/eth0", "", "10.3.0.2")
			to.addWanted(t, "n1/eth0", "x", "10.3.0.9")
			test.spoil(t, n, to)
			if _, err := n.rename(t, to); err == nil || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
			n.add(t, "c2/eth0", "", "10.3.0.3")
		})
	}
}

// A lease that a DEL gave up by the new names does not come back, whatever the stores are called by then.
func TestRenameThatWasKilledAndItsSuccessorRenamed(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	to, last := n.withNetwork("new"), n.withNetwork("newest")
	n.add(t, "c1/eth0", "", "10.3.0.2")
	to.addWanted(t, "n1/eth0", "x", "10.3.0.9")
	last.addWanted(t, "x1/eth0", "y", "10.3.0.10")
	n.freeze(t, to)
	copyFile(t, n.path(), n.path()+".copy")
	_, err := n.rename(t, to)
	must(t, err)
	must(t, os.Rename(n.path()+".copy", n.path()))
	_, err = to.rename(t, last)
	must(t, err)
	must(t, last.store(t).Release(t.Context(), last.key("c1/eth0"), Policy{}))
	_, err = n.rename(t, to)
	must(t, err)
	last.expect(t, "at last", "10.3.0.2 quarantined c1/eth0", "10.3.0.9 held n1/eth0 x", "10.3.0.10 held x1/eth0 y")
	n.expectNoStore(t)
}

// A DEL by the oldest name finds its holder wherever it is, however many renames were killed.
func TestDELByTheOldNameInAStoreThatIsBeingRenamed(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	to, last := n.withNetwork("new"), n.withNetwork("newest")
	n.add(t, "c1/eth0", "", "10.3.0.2")
	n.add(t, "c2/eth0", "", "10.3.0.3")
	_, err := n.rename(t, to)
	must(t, err)
	last.addWanted(t, "x1/eth0", "y", "10.3.0.10")
	to.freeze(t, last)
	must(t, n.store(t).Release(t.Context(), n.key("c1/eth0"), Policy{}))
	to.expect(t, "not put into the other one yet", "10.3.0.2 quarantined c1/eth0", "10.3.0.3 held c2/eth0")
	copyFile(t, to.path(), to.path()+".copy")
	_, err = to.rename(t, last)
	must(t, err)
	must(t, os.Rename(to.path()+".copy", to.path()))
	must(t, n.store(t).Release(t.Context(), n.key("c2/eth0"), Policy{}))
	last.expect(t, "put into the other one", "10.3.0.2 quarantined c1/eth0", "10.3.0.3 quarantined c2/eth0", "10.3.0.10 held x1/eth0 y")
	// This goes through the first name once more.
	_, err = to.rename(t, last)
	must(t, err)
	back := n.withNetwork("pods")
	_, err = last.rename(t, back)
	must(t, err)
	back.freeze(t, back.withNetwork("other"))
	must(t, back.store(t).Release(t.Context(), back.key("x1/eth0"), Policy{}))
	back.expect(t, "back", "10.3.0.2 quarantined c1/eth0", "10.3.0.3 quarantined c2/eth0", "10.3.0.10 quarantined x1/eth0 y")
}
