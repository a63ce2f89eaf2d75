package attach_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/test/fresh"
)

// wrongPaths are values of CNI_NETNS although the sandbox lives on elsewhere.
var wrongPaths = map[string]string{"a relative path": "ns", "a path that is gone": "/run/netns/missing", "no path": ""}

// The address is not free before the interface is gone, whatever path the runtime gives.
func TestDelGoesByTheRecordedNamespace(t *testing.T) {
	for name, path := range wrongPaths {
		t.Run(name, func(t *testing.T) {
			n, netns := newNode(t), fresh.Sandbox(t)
			n.mustCall(t, "ADD", "c1", netns)
			n.mustCall(t, "DEL", "c1", path)
			n.expectNothing(t, netns)
		})
	}
	t.Run("another sandbox", func(t *testing.T) {
		n, netns, other := newNode(t), fresh.Sandbox(t), fresh.Sandbox(t)
		n.mustCall(t, "ADD", "c1", netns)
		n.mustCall(t, "ADD", "c2", other)
		n.mustCall(t, "DEL", "c1", other)
		if out := fresh.IP(t, netns, "-o link"); strings.Contains(out, "eth0") {
			t.Errorf("left: %s", out)
		}
		if out := fresh.IP(t, other, "-o link"); !strings.Contains(out, "eth0") {
			t.Errorf("another sandbox's interface is gone: %s", out)
		}
		n.mustCall(t, "DEL", "c2", other)
		n.expectNothing(t, other)
	})
}

// The namespace at the recorded path is now a stranger's.
func TestDelOfAStrangerAtTheRecordedPath(t *testing.T) {
	n, netns, other := newNode(t), fresh.Sandbox(t), fresh.Sandbox(t)
	n.mustCall(t, "ADD", "c1", netns)
	fresh.IP(t, other, "link add eth0 type veth peer name eth1")
	if err := unix.Mount(other, netns, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(netns, 0) }()
	n.mustCall(t, "DEL", "c1", "ns")
	if out := fresh.IP(t, other, "-o link"); !strings.Contains(out, "eth0") {
		t.Errorf("a stranger's interface is gone: %s", out)
	}
	if held := n.leasedAddresses(t); len(held) > 0 {
		t.Errorf("addresses are left: %v", held)
	}
}

// Without a record that can be read, only CNI_NETNS says where the interface is.
func TestDelByARelativePathNeedsARecord(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	n.mustCall(t, "DEL", "c1", "ns") // As after an ADD that refused the path.
	n.mustCall(t, "ADD", "c1", netns)
	file := filepath.Join(n.Store.Dir(), "c1", "eth0.json")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, msg, _ := n.code(t, "DEL", "c1", "ns", "")
	expectCode(t, "relink-macvlan", code, msg, 4, `invalid CNI_NETNS: "ns": must be an absolute path, as the checkpoint does not say where the interface is: `+file)
	if _, err := os.Stat(file); err != nil || len(n.leasedAddresses(t)) != 1 {
		t.Errorf("given up all the same: %v, addresses %v", err, n.leasedAddresses(t))
	}
	n.mustCall(t, "DEL", "c1", netns)
	n.expectNothing(t, netns)
}

// relink-checkpoint knows the sandbox from the record, and keeps captures away from its interface.
func TestChainedDelGoesByTheRecordedNamespace(t *testing.T) {
	for name, path := range wrongPaths {
		t.Run(name, func(t *testing.T) {
			s, netns := newStock(t), fresh.Sandbox(t)
			s.add(t, "c1", netns)
			r, err := s.Store.Load("c1", "eth0")
			if err != nil {
				t.Fatal(err)
			}
			s.result = ""
			if out, stderr, err := s.checkpoint("DEL", "c1", path, ""); err != nil || out+stderr != "" {
				t.Fatalf("%v\n%s%s", err, out, stderr)
			}
			if !s.Store.Detaching(r.Namespace, "eth0") {
				t.Error("a capture would remember the interface anew")
			}
			s.macvlan(t, "DEL", "c1", netns)
			s.expectNothing(t, netns)
		})
	}
	s, netns := newStock(t), fresh.Sandbox(t)
	s.add(t, "c1", netns)
	file := filepath.Join(s.Store.Dir(), "c1", "eth0.json")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.result = ""
	s.expectError(t, 4, "must be an absolute path, as the checkpoint does not say where", "DEL", "c1", "ns", "")
	s.del(t, "c1", netns)
	s.expectNothing(t, netns)
}
