package lease

import (
	"errors"
	"strings"
	"testing"
)

// A copy of a disk gives nothing, and changes nothing but by the DEL of what it has. An operator can say that it is no copy.
func TestAStoreOfAnotherMachine(t *testing.T) {
	n := newNode(t, "10.3.0.9", sticky)
	n.machine = strings.Repeat("a", 32)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	n.add(t, "c2/eth0", "web-1", "10.3.0.3")
	n.machine = strings.Repeat("b", 32)
	want := "store DIR/pods.db: it is the store of another machine: that one's machine ID is " + strings.Repeat("a", 32) + " (node unknown), and this one's is " +
		strings.Repeat("b", 32) + ". If this is a copy of that machine's disk, run rm DIR/pods.db. If it is the same node and only its machine ID has changed, " +
		"run relink ipam reset-machine --network pods --data-dir DIR"
	_, err := n.try(t, "c3/eth0", "web-2")
	n.refused(t, "ADD", err, ErrForeign, want)
	_, err = n.store(t).List(t.Context())
	n.refused(t, "list", err, ErrForeign, want)
	n.refused(t, "GC", n.store(t).Collect(t.Context(), func(Holder) bool { return false }), ErrForeign, want)
	if held, err := n.store(t).AllowForeign().HeldBy(t.Context(), n.key("c2/eth0")); err != nil || len(held) != 1 {
		t.Errorf("CHECK finds %v, %v", held, err)
	}
	n.del(t, "c1/eth0")
	n.machine = "" // A container does not know it.
	n.add(t, "c4/eth0", "web-4", "10.3.0.4")
	n.machine = strings.Repeat("b", 32)
	if changed, err := n.store(t).ResetMachine(t.Context()); !changed || err != nil {
		t.Fatalf("reset-machine: %v, %v", changed, err)
	}
	n.add(t, "c5/eth0", "web-0", "10.3.0.2")
	n.expectVerified(t)
}

// In the agent's container nobody knows the machine's ID. A reset there leaves the ID to the next change on the machine.
func TestResetMachineWhereNobodyKnowsTheMachine(t *testing.T) {
	for name, before := range map[string]string{"the store knows the machine": strings.Repeat("a", 32), "it does not": ""} {
		n := newNode(t, "10.3.0.9", sticky)
		n.machine = before
		n.add(t, "c1/eth0", "web-0", "10.3.0.2")
		n.machine = ""
		must(t, n.store(t).SetCluster(t.Context(), "u1"))
		if changed, err := n.store(t).ResetMachine(t.Context()); !changed || err != nil {
			t.Fatalf("%s: %v, %v", name, changed, err)
		}
		n.machine = strings.Repeat("b", 32)
		n.add(t, "c2/eth0", "web-1", "10.3.0.3")
		n.machine = strings.Repeat("c", 32)
		if _, err := n.try(t, "c3/eth0", "web-2"); !errors.Is(err, ErrForeign) {
			t.Errorf("%s: a copy of the disk gives addresses: %v", name, err)
		}
	}
}

// Clones can have one machine ID. The agent tells by the node's name, and an ADD is refused then, too. The name can come back.
func TestAStoreOfAnotherNode(t *testing.T) {
	n := newNode(t, "10.3.0.9", sticky)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	on := func(name, uid string) error { return n.store(t).SetNode(t.Context(), name, uid) }
	if err := errors.Join(on("node1", "u1"), on("node1", ""), n.store(t).Confirm(t.Context()), on("node1", "u2")); err != nil {
		t.Fatal(err) // The machine has run since.
	}
	want := "store DIR/pods.db: it is the store of another machine: it is node node1's, and this is node node2. If this is a copy of that node's disk, or the node " +
		"got another name, run rm DIR/pods.db"
	n.refused(t, "the agent", on("node2", "u3"), ErrForeign, want)
	_, err := n.try(t, "c2/eth0", "web-1")
	n.refused(t, "ADD", err, ErrForeign, want)
	if err := on("node1", "u2"); err != nil {
		t.Fatal(err)
	}
	n.add(t, "c2/eth0", "web-1", "10.3.0.3")
}

// A node that was made anew from an image has its name and its machine ID, and a boot in which nobody has read the pools under the
// old UID.
func TestAStoreOfANodeMadeAnew(t *testing.T) {
	n := newNode(t, "10.3.0.9", sticky)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	on := func(uid string) error { return n.store(t).SetNode(t.Context(), "node1", uid) }
	if err := errors.Join(on("u1"), n.store(t).Confirm(t.Context())); err != nil {
		t.Fatal(err)
	}
	n.boot = "another boot"
	want := "store DIR/pods.db: it is the store of another machine: the object of node node1 was made anew in Kubernetes, and its UID is another one than " +
		"u1. If this machine was made from an image, run rm DIR/pods.db. If it is the machine that has written the store, run relink ipam " +
		"reset-machine --network pods --data-dir DIR"
	n.refused(t, "the agent", on("u2"), ErrForeign, want)
	_, err := n.try(t, "c2/eth0", "web-1")
	n.refused(t, "ADD", err, ErrForeign, want)
	if changed, err := n.store(t).ResetMachine(t.Context()); !changed || err != nil {
		t.Fatalf("reset-machine: %v, %v", changed, err)
	}
	if err := on("u2"); err != nil {
		t.Fatal(err)
	}
	n.add(t, "c2/eth0", "web-1", "10.3.0.3")
	n.refused(t, "the agent", on("u1"), ErrForeign, strings.ReplaceAll(want, "than u1", "than u2"))
}

// Nobody judges owners by another cluster's API. A check changes nothing.
func TestOwnersOfAnotherCluster(t *testing.T) {
	n := newNode(t, "10.3.0.9", sticky)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	of := func(uid string, want error) {
		t.Helper()
		if err := n.store(t).CheckCluster(t.Context(), uid); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", uid, err, want)
		}
	}
	becomes := func(uid string, want error) {
		t.Helper()
		if err := n.store(t).SetCluster(t.Context(), uid); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", uid, err, want)
		}
	}
	of("u9", ErrNoCluster)
	of("", ErrNoCluster)
	becomes("u1", nil)
	becomes("u1", nil)
	of("u1", nil)
	for _, uid := range []string{"u2", ""} {
		of(uid, ErrCluster)
		becomes(uid, ErrCluster)
	}
	if _, err := n.store(t).ResetMachine(t.Context()); err != nil {
		t.Fatal(err)
	}
	of("u1", ErrNoCluster)
	becomes("u2", nil)
	of("u2", nil)
}
