package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/test/binaries"
	"github.com/relink-cni/relink/test/fresh"
)

// Bin is the directory of the programs that Main has built.
var Bin string

// Main is for a package's TestMain, and does not return. It builds the programs, which the tests run as an operator or
// a runtime would. Before that it calls prepare, for what has to be downloaded. Then it does the same as fresh.Main.
func Main(m *testing.M, prepare ...func(context.Context) error) {
	makePrograms(prepare)
	fresh.Main(m)
}

// MainAlone is like Main, and the tests see no other process of this machine. Otherwise, a new namespace of such a process
// might have the inode of one that is gone.
func MainAlone(m *testing.M) {
	makePrograms(nil)
	fresh.EnterAlone()
	fresh.Main(m)
}

// makePrograms exits if it fails.
func makePrograms(prepare []func(context.Context) error) {
	root, err := binaries.Root()
	if err == nil {
		Bin = filepath.Join(root, "bin", "test")
		if !fresh.Inside() { // There, nothing can be downloaded.
			err = build(prepare)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func build(prepare []func(context.Context) error) error {
	for _, fill := range prepare {
		if err := fill(context.Background()); err != nil {
			return err
		}
	}
	return binaries.Build(Bin)
}

// Node is a host with a parent for pods, lan0, and a checkpoint store.
type Node struct {
	// Dir is a directory that the test can use for its files.
	Dir   string
	Store *checkpoint.Store
}

// Purgeable fails the test if relink uninstall --purge would refuse the directory of the checkpoints. Whatever relink has
// kept there during the test must be known as its own.
func Purgeable(t testing.TB, s *checkpoint.Store) {
	t.Helper()
	if foreign, err := s.UnexpectedPaths(); err != nil || len(foreign) > 0 {
		t.Errorf("relink uninstall --purge would refuse the directory of the checkpoints: %q, %v", foreign, err)
	}
}

// New returns a node with an empty store. The end of the test removes its parent.
func New(t testing.TB) *Node {
	t.Helper()
	n := &Node{Dir: t.TempDir()}
	n.Store = checkpoint.OpenStore(filepath.Join(n.Dir, "checkpoints"))
	if err := os.Mkdir(n.Store.Dir(), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Purgeable(t, n.Store) })
	t.Cleanup(func() { fresh.IP(t, "", "link del lan0") })
	addParent(t)
	return n
}

// addParent makes lan0 and its peer on the wire, and sets both up.
func addParent(t testing.TB) {
	t.Helper()
	fresh.Run(t, "", "ip link add lan0 type veth peer name lan1; ip link set lan0 up; ip link set lan1 up")
}

// LoseParent deletes lan0, and with it everything on it. Then it makes lan0 again as a driver does: down.
func (n *Node) LoseParent(t testing.TB) {
	t.Helper()
	fresh.IP(t, "", "link del lan0")
	addParent(t)
	fresh.IP(t, "", "link set lan0 down")
}

// Records returns the checkpoints. It fails the test if one of them cannot be read.
func (n *Node) Records(t testing.TB) []checkpoint.Record {
	t.Helper()
	records, unreadable, err := n.Store.List()
	if err != nil || len(unreadable) > 0 {
		t.Fatal(unreadable, err)
	}
	return records
}

// Command prepares a run of relink.
func (n *Node) Command(args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(Bin, "relink"), append([]string{"--checkpoint-dir", n.Store.Dir()}, args...)...)
}

// Relink runs relink and returns its output.
func (n *Node) Relink(args ...string) (string, error) {
	out, err := n.Command(args...).CombinedOutput()
	return string(out), err
}

// Says runs relink with the words of args. It expects this exit status, and each of the parts in the output.
func (n *Node) Says(t testing.TB, status int, args string, parts ...string) string {
	t.Helper()
	out, err := n.Relink(strings.Fields(args)...)
	got := 0
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if got != status {
		t.Errorf("relink %s: status %d, wanted %d\n%s", args, got, status, out)
	}
	for _, part := range parts {
		if !strings.Contains(out, part) {
			t.Errorf("relink %s does not say %q:\n%s", args, part, out)
		}
	}
	return out
}
