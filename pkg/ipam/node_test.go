package ipam

import (
	"bytes"
	stdcmp "cmp"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	bolt "go.etcd.io/bbolt"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
)

// printedError is an error as CNI prints it, zero for none.
type printedError struct {
	Code uint
	Msg  string
}

func parseError(t *testing.T, err error) printedError {
	t.Helper()
	if err == nil {
		return printedError{}
	}
	var e *types.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v (%T) has no code", err, err)
	}
	return printedError{e.Code, e.Msg}
}

// expectError fails the test unless CNI would print err in this way. "DIR" stands for the directory of the leases.
func (n *node) expectError(t *testing.T, what string, err error, code uint, msg string) {
	t.Helper()
	got := parseError(t, err)
	got.Msg = strings.ReplaceAll(got.Msg, n.dir, "DIR")
	if diff := cmp.Diff(printedError{code, msg}, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// node is a node with one network. The test sets its clock and its boots.
type node struct {
	dir, boot string
	// clock is the time of day. up is the time since the boot.
	clock time.Time
	up    time.Duration
	// stderr is the output besides results.
	stderr *bytes.Buffer
	// name is the network's name, empty for pods.
	name string
	// ipam are the keys of "ipam" other than dataDir. more are the keys beside "ipam".
	ipam, more string
	// owners is who an ADD asks. Nil stands for a node without an agent.
	owners owner.Asker
	// dirInEnv says that only the environment names the directory of the leases.
	dirInEnv bool
}

func newNode(t *testing.T, ipam string) *node {
	t.Helper()
	return &node{dir: t.TempDir(), boot: "boot-1", clock: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), ipam: ipam, stderr: &bytes.Buffer{}}
}

// later lets time pass.
func (n *node) later(d time.Duration) { n.clock, n.up = n.clock.Add(d), n.up+d }

// reboot starts the node again after it was off for that long.
func (n *node) reboot(off time.Duration) { n.boot, n.clock, n.up = n.boot+"+", n.clock.Add(off), 0 }

// args returns the arguments of a call for "sandbox/ifname", and for a pod if it is not empty.
func (n *node) args(sandbox, pod string) *skel.CmdArgs {
	id, ifname, _ := strings.Cut(sandbox, "/")
	dataDir := fmt.Sprintf(`"dataDir": %q, `, n.dir)
	if n.dirInEnv {
		dataDir = ""
	}
	args := &skel.CmdArgs{ContainerID: id, IfName: ifname, StdinData: fmt.Appendf(nil,
		`{"cniVersion": "1.1.0", "name": %q, "ipam": {"type": "relink-ipam", %s%s}%s}`, stdcmp.Or(n.name, "pods"), dataDir, n.ipam, n.more)}
	if pod != "" {
		args.Args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + pod
	}
	return args
}

// begin starts a call at the node's time.
func (n *node) begin(t *testing.T, args *skel.CmdArgs) *Call {
	t.Helper()
	c, err := newCall(args, n.owners)
	if err != nil {
		t.Fatal(err)
	}
	c.stderr = n.stderr
	if store, err := c.openStore(); err == nil {
		n.set(store)
	}
	return c
}

func (n *node) set(s *lease.Store) {
	s.SetClock(n.boot, func() time.Time { return n.clock }, func() (time.Duration, error) { return n.up, nil })
}

// store returns the store of the network.
func (n *node) store(t *testing.T) *lease.Store {
	t.Helper()
	s, err := lease.Open(n.dir, "pods")
	if err != nil {
		t.Fatal(err)
	}
	n.set(s)
	return s
}

func (n *node) path() string { return filepath.Join(n.dir, "pods.db") }

// tryAdd returns the addresses that an ADD gives, with spaces between them.
func (n *node) tryAdd(t *testing.T, sandbox, pod, want string) (string, error) {
	t.Helper()
	args := n.args(sandbox, pod)
	if want != "" {
		args.Args = strings.TrimPrefix(args.Args+";IP="+want, ";")
	}
	g, err := n.begin(t, args).Add(t.Context())
	if err != nil {
		return "", err
	}
	var all []string
	for _, ip := range g.Result.IPs {
		all = append(all, ip.Address.IP.String())
	}
	return strings.Join(all, " "), nil
}

// add is an ADD that gives the addresses.
func (n *node) add(t *testing.T, sandbox, pod, addresses string) {
	t.Helper()
	if got, err := n.tryAdd(t, sandbox, pod, ""); err != nil || got != addresses {
		t.Fatalf("ADD of %s gives %q, %v, want %s", sandbox, got, err, addresses)
	}
}

func (n *node) del(t *testing.T, sandbox string) {
	t.Helper()
	if err := n.begin(t, n.args(sandbox, "")).Del(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// sandboxes names the attachments that hold the address, or the last one that held it.
func sandboxes(l lease.Lease) string {
	if len(l.Holders) == 0 {
		return l.Last.ContainerID + "/" + l.Last.IfName
	}
	var all []string
	for _, h := range l.Holders {
		all = append(all, h.ContainerID+"/"+h.IfName)
	}
	return strings.Join(all, "+")
}

// expect compares the leases with the lines wanted, each "address state attachments owner".
func (n *node) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, n.leases(t), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// expectAtLast repeats something that proves namespaces gone until the leases are as wanted, for three minutes at most.
// While another namespace of this machine has the inode of one that is gone, nothing proves that.
func (n *node) expectAtLast(t *testing.T, when string, repeat func() error, want ...string) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if err := repeat(); err != nil {
			t.Fatal(err)
		}
		if slices.Equal(n.leases(t), want) {
			return
		}
		if time.Now().After(deadline) {
			break
		}
	}
	n.expect(t, when, want...)
}

// leases returns a line for each lease.
func (n *node) leases(t *testing.T) []string {
	t.Helper()
	all, err := n.store(t).List(t.Context())
	if ignoreNotLeased(err) != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range all {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", l.Address, l.State, sandboxes(l), l.Owner.Name)))
	}
	return got
}

// residue returns the number of entries about leases in the file, by bucket. It leaves out the last address given, the
// events, and the schema.
func (n *node) residue(t *testing.T) map[string]int {
	t.Helper()
	db, err := bolt.Open(n.path(), 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	counts := map[string]int{}
	_ = db.View(func(tx *bolt.Tx) error {
		for _, name := range []string{"leases", "attachments", "owners", "runs", "ends"} {
			counts[name] = tx.Bucket([]byte(name)).Stats().KeyN
		}
		return nil
	})
	return counts
}

func (n *node) status(t *testing.T) error {
	t.Helper()
	return n.begin(t, n.args("/", "")).Status(t.Context())
}

// gc runs a GC with the list, which is JSON.
func (n *node) gc(t *testing.T, list string) error {
	t.Helper()
	if _, err := newCall(n.gcArgs(list), nil); err != nil {
		return err
	}
	return n.begin(t, n.gcArgs(list)).GC(t.Context())
}

func (n *node) gcArgs(list string) *skel.CmdArgs {
	with := *n
	if list != "" {
		with.more += `, "cni.dev/valid-attachments": ` + list
	}
	return with.args("/", "")
}

// pod returns the owner that args names.
func pod(name string) attachment.Owner {
	return attachment.Pod{Namespace: "default", Name: name}.Owner()
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// thisBoot returns the kernel's ID of this boot.
func thisBoot(t *testing.T) string {
	t.Helper()
	id, err := boot.ID()
	if err != nil {
		t.Fatal(err)
	}
	return id
}
