package attach_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/test/fresh"
)

// Runtimes evict pods from a node whose STATUS fails. So a problem that passes by itself is no failure.
func TestStatusFailsWhereAnAddIsSureTo(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	n.mustCall(t, "ADD", "c1", netns)
	n.onBond(t, func(*checkpoint.Record) {})
	status := func(name, more string, wantCode int, want string) {
		t.Helper()
		code, msg, _ := n.code(t, "STATUS", "", "", more)
		expectCode(t, name, code, msg, wantCode, want)
	}
	const carrier = `, "statusCarrier": true`
	status("all is well", carrier, 0, "")
	status("the first master is away", bondFirst, 0, "")
	status("no master", `, "master": ["bond4", "lan9"]`, 50, `invalid "master": "bond4, lan9": none of them exists`)
	status("no default route", `, "master": ""`, 50, "there is no default route to take it from")
	status("a master in the sandbox", `, "master": "lan9", "linkInContainer": true`, 0, "")
	status("no directory for checkpoints", `, "checkpointDir": "/proc/relink"`, 50, "checkpoint directory: mkdir /proc/relink")
	status("an IPAM plugin that has nothing to give", `, "ipam": {"type": "nosuch"}`, 999, "IPAM plugin nosuch: ")
	fresh.IP(t, "", "link set lan1 down")
	status("no carrier", "", 0, "")
	status("no carrier, and that is asked for", carrier, 51, "master lan0 has no carrier")
	fresh.IP(t, "", "link set lan0 down")
	status("down", "", 0, "")
	status("down, and that is asked for", carrier, 51, "master lan0 is down: set it up")
	end, err := n.Store.BeginGuard()
	if err != nil {
		t.Fatal(err)
	}
	status("down, while a guard is under way", carrier, 0, "")
	status("away, while a guard is under way", `, "master": "lan9"`, 0, "")
	end()
	status("away, and the guard's note is left", `, "master": "lan9"`, 50, `invalid "master": "lan9": does not exist`)
	status("no true or false", `, "statusCarrier": "yes"`, 7, `invalid "statusCarrier": "yes": must be true or false`)
}

func TestStatusOfAReadOnlyStore(t *testing.T) {
	s := newStock(t)
	dir := filepath.Join(s.Dir, "read-only")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	keys := fmt.Sprintf(`, "checkpointDir": %q`, dir)
	s.expectError(t, 50, "read-only file system", "STATUS", "", "", keys)
	code, msg, _ := s.code(t, "STATUS", "", "", keys)
	expectCode(t, "relink-macvlan", code, msg, 50, "read-only file system")
}

// Every ADD takes the lock of the parents.
func TestStatusOfAStoreThatCannotBeLocked(t *testing.T) {
	s, netns := newStock(t), fresh.Sandbox(t)
	lock := filepath.Join(s.Store.Dir(), ".parents.lock")
	if err := os.MkdirAll(lock, 0o700); err != nil {
		t.Fatal(err)
	}
	s.expectError(t, 50, lock+": is a directory", "STATUS", "", "", "")
	code, msg, _ := s.code(t, "STATUS", "", "", "")
	expectCode(t, "relink-macvlan", code, msg, 50, lock+": is a directory")
	code, msg, _ = s.code(t, "ADD", "c1", netns, "")
	expectCode(t, "ADD", code, msg, 5, lock+": is a directory")
}

// Others have filled the store, and others can empty it.
func TestStatusOfAFullStore(t *testing.T) {
	s := newStock(t)
	keys := fmt.Sprintf(`, "checkpointDir": %q`, fullDir(t))
	if out, _, err := s.checkpoint("STATUS", "", "", keys); err != nil {
		t.Errorf("relink-checkpoint: %s", out)
	}
	code, msg, _ := s.code(t, "STATUS", "", "", keys)
	expectCode(t, "relink-macvlan", code, msg, 0, "")
	code, msg, _ = s.code(t, "ADD", "c1", fresh.Sandbox(t), keys)
	expectCode(t, "ADD", code, msg, 5, "no space left on device")
}

// fullDir returns a directory in which nothing can be made.
func fullDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "nr_inodes=1"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	return dir
}
