package ipam

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
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
)

// onWire is what an error says on the wire, zero for none.
type onWire struct {
	Code uint
	Msg  string
}

func wire(t *testing.T, err error) onWire {
	t.Helper()
	if err == nil {
		return onWire{}
	}
	var e *types.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v (%T) has no code", err, err)
	}
	return onWire{e.Code, e.Msg}
}

// expectError fails unless err says on the wire what is wanted, with "DIR" for the
// directory of the leases.
func (n *node) expectError(t *testing.T, what string, err error, code uint, msg string) {
	t.Helper()
	got := wire(t, err)
	got.Msg = strings.ReplaceAll(got.Msg, n.dir, "DIR")
	if diff := cmp.Diff(onWire{code, msg}, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// node is a node with one network, a clock that the test sets, and boots.
type node struct {
	dir, boot string
	clock     time.Time
	// ipam are the keys of the configuration besides dataDir, more those beside "ipam".
	ipam, more string
}

func newNode(t *testing.T, ipam string) *node {
	t.Helper()
	return &node{dir: t.TempDir(), boot: "boot-1", clock: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), ipam: ipam}
}

// newLiveNode is one with this boot and this time, for what opens the store itself.
func newLiveNode(t *testing.T, ipam string) *node {
	t.Helper()
	n := newNode(t, ipam)
	id, err := boot.ID()
	if err != nil {
		t.Fatal(err)
	}
	n.boot, n.clock = id, time.Now()
	return n
}

// later lets time go by.
func (n *node) later(d time.Duration) { n.clock = n.clock.Add(d) }

// args are those of a call for the interface of a sandbox: "sandbox/ifname", and of a
// pod if it is not empty.
func (n *node) args(sandbox, pod string) *skel.CmdArgs {
	id, ifname, _ := strings.Cut(sandbox, "/")
	args := &skel.CmdArgs{ContainerID: id, IfName: ifname, StdinData: fmt.Appendf(nil,
		`{"cniVersion": "1.1.0", "name": "pods", "ipam": {"type": "relink-ipam", "dataDir": %q, %s}%s}`, n.dir, n.ipam, n.more)}
	if pod != "" {
		args.Args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + pod
	}
	return args
}

func (n *node) begin(t *testing.T, args *skel.CmdArgs) *call {
	t.Helper()
	c, err := begin(args)
	if err != nil {
		t.Fatal(err)
	}
	n.set(c.store)
	return c
}

func (n *node) set(s *Store) { s.bootID, s.now = n.boot, func() time.Time { return n.clock } }

// store is the network's.
func (n *node) store(t *testing.T) *Store {
	t.Helper()
	s, err := OpenStore(n.dir, "pods")
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
	result, err := n.begin(t, args).add(t.Context())
	if err != nil {
		return "", err
	}
	var all []string
	for _, ip := range result.IPs {
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
	store, key, err := beginDel(n.args(sandbox, ""))
	if err != nil {
		t.Fatal(err)
	}
	n.set(store)
	if err := ifAny(store.change(t.Context(), func(l *leases) error { return l.releaseAll(key) })); err != nil {
		t.Fatal(err)
	}
}

// expect compares the leases with the lines wanted, each "address state attachment owner".
func (n *node) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	all, err := n.store(t).List(t.Context())
	if ifAny(err) != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range all {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s/%s %s", l.Address, l.State, l.Attachment.ContainerID, l.Attachment.IfName, l.Owner.Name)))
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// residue is all that the file has of leases, by bucket: what was given last in turn
// and the schema aside.
func (n *node) residue(t *testing.T) map[string]int {
	t.Helper()
	db, err := bolt.Open(n.path(), 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	counts := map[string]int{}
	_ = db.View(func(tx *bolt.Tx) error {
		for _, name := range []string{bucketLeases, bucketAttachments, bucketOwners, bucketRuns, bucketEnds} {
			counts[name] = tx.Bucket([]byte(name)).Stats().KeyN
		}
		return nil
	})
	return counts
}

// gc is a GC with the list, which is JSON.
func (n *node) gc(list string) error { return GC(context.Background(), n.gcArgs(list)) }

func (n *node) gcArgs(list string) *skel.CmdArgs {
	with := *n
	if list != "" {
		with.more += `, "cni.dev/valid-attachments": ` + list
	}
	return with.args("/", "")
}

// pod is the owner that args names.
func pod(name string) attachment.Owner {
	return attachment.Pod{Namespace: "default", Name: name}.Owner()
}
