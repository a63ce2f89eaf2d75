package reclaim

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/test/fresh"
)

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(t.Context())
}

// node is a store and the sandboxes that hold its addresses.
type node struct {
	t     *testing.T
	store *lease.Store
	dir   string
}

func newNode(t *testing.T, network string) *node {
	t.Helper()
	dir := t.TempDir()
	store, err := lease.Open(dir, network)
	if err != nil {
		t.Fatal(err)
	}
	return &node{t: t, store: store, dir: dir}
}

var set = lease.RangeSet{{
	Span:   lease.Span{First: netip.MustParseAddr("10.231.77.1"), Last: netip.MustParseAddr("10.231.77.254")},
	Subnet: netip.MustParsePrefix("10.231.77.0/24"), Gateway: netip.MustParseAddr("10.231.77.1"),
}}

// add gives the address to the attachment, as an ADD does.
func (n *node) add(a, id string, namespace attachment.Namespace, pod string, p lease.Policy) {
	n.t.Helper()
	r := lease.Request{
		Attachment: attachment.Key{Network: n.store.Network(), ContainerID: id, IfName: "eth0"}, Namespace: namespace,
		Sets: []lease.RangeSet{set}, RequestedAddresses: []netip.Addr{netip.MustParseAddr(a)}, Policy: p,
	}
	if pod != "" {
		r.Owner = attachment.Pod{Namespace: "shop", Name: pod}.Owner()
	}
	if _, err := n.store.Allocate(n.t.Context(), r); err != nil {
		n.t.Fatal(err)
	}
}

// imported adds a holder as an import without a CNI cache leaves it.
func (n *node) imported(a, id string, since time.Duration) {
	n.t.Helper()
	bootID, err := boot.ID()
	if err != nil {
		n.t.Fatal(err)
	}
	err = n.store.Import(n.t.Context(), false, func(lease.ImportView) lease.Import {
		return lease.Import{Leases: []lease.Lease{{
			Address: netip.MustParseAddr(a), Network: n.store.Network(), State: lease.Held,
			Holders: []lease.Holder{{
				ContainerID: id, IfName: "eth0", Origin: lease.Imported, Namespace: attachment.Namespace{BootID: bootID},
				Since: time.Now().Add(-since).UTC().Truncate(time.Millisecond), Policy: lease.Policy{Quarantine: lease.DefaultQuarantine},
			}},
		}}}
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) run(dryRun bool, cacheDir string) HolderReport {
	n.t.Helper()
	r, err := Run(n.t.Context(), []*lease.Store{n.store}, Options{Sources: Sources{CacheDir: cacheDir, AllProcesses: true}, DryRun: dryRun})
	if err != nil {
		n.t.Fatal(err)
	}
	return r
}

// leases returns the addresses that are not free, each with its state and the containers that hold it.
func (n *node) leases() []string {
	n.t.Helper()
	all, err := n.store.List(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	var lines []string
	for _, l := range all {
		line := fmt.Sprint(l.Address, " ", l.State)
		for _, h := range l.Holders {
			line += " " + h.ContainerID
		}
		lines = append(lines, line)
	}
	return lines
}

// lines returns the findings without their evidence.
func lines(r HolderReport) []string {
	var all []string
	for _, f := range r.Holders {
		all = append(all, strings.TrimSpace(fmt.Sprint(f.Address, " ", f.Holder.ContainerID, " ", f.Verdict, ", ", f.State, " ", f.StateAfter)))
	}
	return all
}

// goneNamespace returns the identity of a namespace that no longer exists.
func goneNamespace(t *testing.T) attachment.Namespace {
	t.Helper()
	path := fresh.Sandbox(t)
	id := idOf(t, path)
	fresh.Remove(t, path)
	return id
}

func TestRun(t *testing.T) {
	n := newNode(t, "lan")
	plain, sticky, none := lease.Policy{Quarantine: lease.DefaultQuarantine}, lease.Policy{Sticky: true}, lease.Policy{}
	path := fresh.Sandbox(t)
	alive, gone := idOf(t, path), goneNamespace(t)
	reused := alive
	reused.Cookie++
	fresh.Run(t, path, "ip link add one type veth peer name two; ip addr add 10.231.77.14/24 dev one")

	n.add("10.231.77.2", "alive", alive, "web-2", plain)
	n.add("10.231.77.3", "gone", gone, "web-3", plain)
	n.add("10.231.77.4", "gone-sticky", gone, "web-4", sticky)
	n.add("10.231.77.5", "gone-free", gone, "", none)
	n.add("10.231.77.6", "reused", reused, "web-6", plain)
	n.add("10.231.77.7", "cached", gone, "web-7", plain)
	n.add("10.231.77.8", "multus", gone, "web-8", plain)
	n.add("10.231.77.9", "old", gone, "web-9", sticky)
	n.add("10.231.77.9", "new", alive, "web-9", sticky)
	n.add("10.231.77.10", "first", gone, "web-10", sticky)
	n.add("10.231.77.10", "second", gone, "web-10", sticky)
	n.add("10.231.77.11", "early", attachment.Namespace{}, "web-11", plain)
	n.imported("10.231.77.12", "imported-gone", time.Hour)
	n.imported("10.231.77.13", "imported-now", time.Second)
	n.imported("10.231.77.14", "imported-there", time.Hour)
	// The pod now has another address of the set, so nobody would ask for this one again.
	n.add("10.231.77.15", "elsewhere", gone, "web-15", sticky)
	n.add("10.231.77.16", "elsewhere-new", alive, "web-15", sticky)
	if _, err := n.store.Reserve(t.Context(), netip.MustParseAddr("10.231.77.20"), attachment.Pod{Namespace: "shop", Name: "db-0"}.Owner(), 0); err != nil {
		t.Fatal(err)
	}
	cacheDir := caches(t, map[string]string{
		"results/lan-cached-eth0":        cachedResult("lan", "cached", "eth0", "web-7"),
		"multus/results/lan-multus-net1": cachedResult("lan", "multus", "net1", "web-8"),
	})

	kept := []string{
		"10.231.77.7 cached DEL due, kept",
		"10.231.77.8 multus DEL due, kept",
		"10.231.77.11 early unknown, kept",
		"10.231.77.13 imported-now unknown, kept",
		"10.231.77.14 imported-there unknown, kept",
	}
	found := func(state HolderState) []string {
		is := "gone, " + string(state) + " "
		return []string{
			"10.231.77.3 gone " + is + "quarantined",
			"10.231.77.4 gone-sticky " + is + "reserved",
			"10.231.77.5 gone-free " + is + "free",
			"10.231.77.6 reused " + is + "quarantined",
			kept[0], kept[1],
			"10.231.77.9 old " + is + "held",
			"10.231.77.10 first " + is + "reserved",
			"10.231.77.10 second " + is + "reserved",
			kept[2],
			"10.231.77.12 imported-gone " + is + "quarantined",
			kept[3], kept[4],
			"10.231.77.15 elsewhere " + is + "free",
		}
	}
	before := n.leases()
	r := n.run(true, cacheDir)
	if diff := cmp.Diff(found(ToReclaim), lines(r)); diff != "" {
		t.Errorf("dry run: %s", diff)
	}
	if diff := cmp.Diff(before, n.leases()); diff != "" || r.Alive != 3 || !r.DryRun || !r.Complete() {
		t.Errorf("dry run: %d alive, well %v, changed %s", r.Alive, r.Complete(), diff)
	}
	r = n.run(false, cacheDir)
	if diff := cmp.Diff(found(Reclaimed), lines(r)); diff != "" {
		t.Error(diff)
	}
	if r.Alive != 3 || r.DryRun || !r.Complete() {
		t.Errorf("%d alive, well %v", r.Alive, r.Complete())
	}
	want := []string{
		"10.231.77.2 held alive", "10.231.77.3 quarantined", "10.231.77.4 reserved", "10.231.77.6 quarantined", "10.231.77.7 held cached",
		"10.231.77.8 held multus", "10.231.77.9 held new", "10.231.77.10 reserved", "10.231.77.11 held early", "10.231.77.12 quarantined",
		"10.231.77.13 held imported-now", "10.231.77.14 held imported-there", "10.231.77.16 held elsewhere-new", "10.231.77.20 reserved",
	}
	if diff := cmp.Diff(want, n.leases()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(kept, lines(n.run(false, cacheDir))); diff != "" {
		t.Errorf("again: %s", diff)
	}
	if err := n.store.Verify(t.Context()); err != nil {
		t.Error(err)
	}
}

// The history says what was given up, and gives the proof.
func TestRunLeavesTheEvidence(t *testing.T) {
	n := newNode(t, "lan")
	gone := goneNamespace(t)
	n.add("10.231.77.3", "gone", gone, "web-3", lease.Policy{Quarantine: lease.DefaultQuarantine})
	cacheDir := caches(t, nil)
	n.run(false, cacheDir)
	events, err := n.store.History(t.Context(), netip.MustParseAddr("10.231.77.3"))
	if err != nil || len(events) != 2 {
		t.Fatal(events, err)
	}
	want := fmt.Sprintf("its sandbox is gone: no mount and no process has its network namespace (inode %d:%d); the CNI cache in %s does not have it",
		gone.Device, gone.Inode, cacheDir)
	if last := events[1]; last.Type != lease.GaveUp || last.ContainerID != "gone" || last.Reason != want {
		t.Errorf("%+v, want %s", last, want)
	}
}

// Without the caches nobody is proven gone, and the report says why.
func TestRunWithoutACache(t *testing.T) {
	n := newNode(t, "lan")
	n.add("10.231.77.3", "gone", goneNamespace(t), "web-3", lease.Policy{})
	r := n.run(false, filepath.Join(t.TempDir(), "cni"))
	if diff := cmp.Diff([]string{"10.231.77.3 gone unknown, kept"}, lines(r)); diff != "" {
		t.Error(diff)
	}
	if r.Complete() || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "there is no CNI cache in") {
		t.Errorf("well %v, problems %q", r.Complete(), r.Problems)
	}
	alive := newNode(t, "lan")
	alive.add("10.231.77.3", "alive", idOf(t, fresh.Sandbox(t)), "web-3", lease.Policy{})
	if r := alive.run(false, filepath.Join(t.TempDir(), "cni")); !r.Complete() || r.Alive != 1 {
		t.Errorf("of one that is alive: %+v", r)
	}
}

// A store that has never given an address has no holders. A store that cannot be read does not stop the
// others.
func TestRunOfSeveralStores(t *testing.T) {
	none, damaged, n := newNode(t, "none"), newNode(t, "damaged"), newNode(t, "lan")
	damaged.add("10.231.77.3", "c1", attachment.Namespace{}, "", lease.Policy{})
	if err := os.Truncate(filepath.Join(damaged.dir, "damaged.db"), 100); err != nil {
		t.Fatal(err)
	}
	n.add("10.231.77.3", "gone", goneNamespace(t), "web-3", lease.Policy{})
	r, err := Run(t.Context(), []*lease.Store{none.store, damaged.store, n.store}, Options{Sources: Sources{CacheDir: caches(t, nil), AllProcesses: true}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"10.231.77.3 gone gone, reclaimed free"}, lines(r)); diff != "" {
		t.Error(diff)
	}
	want := []string{"store " + damaged.dir + "/damaged.db: not usable: invalid database: it was cut short to 100 bytes"}
	if diff := cmp.Diff(want, r.Failures); diff != "" || r.Complete() {
		t.Errorf("well %v, failures %s", r.Complete(), diff)
	}
}

// judge lists and judges the holders. The test then acts itself.
func (n *node) judge() []HolderFinding {
	n.t.Helper()
	r := run{}
	r.list(n.t.Context(), n.store)
	return r.judge(look(n.t, caches(n.t, nil)), r.held[0])
}

// A holder that has changed since it was judged is left alone.
func TestReclaimComparesTheHolder(t *testing.T) {
	n := newNode(t, "lan")
	gone, alive := goneNamespace(t), idOf(t, fresh.Sandbox(t))
	n.add("10.231.77.3", "c1", gone, "", lease.Policy{})
	n.add("10.231.77.4", "c2", gone, "", lease.Policy{})
	n.add("10.231.77.5", "c3", gone, "", lease.Policy{})
	n.add("10.231.77.6", "c4", gone, "", lease.Policy{})
	found := n.judge()
	for _, id := range []string{"c1", "c2", "c3"} {
		if err := n.store.Release(t.Context(), attachment.Key{Network: "lan", ContainerID: id, IfName: "eth0"}, lease.Policy{}); err != nil {
			t.Fatal(err)
		}
	}
	n.add("10.231.77.4", "other", alive, "", lease.Policy{})
	n.add("10.231.77.5", "c3", alive, "", lease.Policy{})
	reclaim(t.Context(), n.store, found)
	want := []string{"10.231.77.3 c1 gone, given up meanwhile", "10.231.77.4 c2 gone, given up meanwhile", "10.231.77.5 c3 gone, given up meanwhile", "10.231.77.6 c4 gone, reclaimed free"}
	if diff := cmp.Diff(want, lines(HolderReport{Holders: found})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"10.231.77.4 held other", "10.231.77.5 held c3"}, n.leases()); diff != "" {
		t.Error(diff)
	}
}

// An address that cannot be given up does not stop the others.
func TestReclaimGoesOnAfterAFailure(t *testing.T) {
	n := newNode(t, "lan")
	gone := goneNamespace(t)
	n.add("10.231.77.3", "c1", gone, "", lease.Policy{})
	n.add("10.231.77.4", "c2", gone, "", lease.Policy{})
	found := n.judge()
	a := netip.MustParseAddr("10.231.77.3").As16()
	db, err := bolt.Open(filepath.Join(n.dir, "lan.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(db.Update(func(tx *bolt.Tx) error { return tx.Bucket([]byte("leases")).Put(a[:], []byte("torn")) }), db.Close())
	if err != nil {
		t.Fatal(err)
	}
	reclaim(t.Context(), n.store, found)
	if found[0].State != Failed || !strings.Contains(found[0].Error, "lease: not usable: ") || found[1].State != Reclaimed {
		t.Errorf("%+v", found)
	}
	if (HolderReport{Holders: found}).Complete() {
		t.Error("a failure is called well")
	}
	if _, err := n.store.Get(t.Context(), netip.MustParseAddr("10.231.77.4")); !errors.Is(err, lease.ErrNotLeased) {
		t.Errorf("10.231.77.4: %v", err)
	}
}

// An interrupted run reports which holders it did not reach.
func TestReclaimThatIsInterrupted(t *testing.T) {
	n := newNode(t, "lan")
	n.add("10.231.77.3", "c1", goneNamespace(t), "", lease.Policy{})
	found := n.judge()
	ctx, cancel := contextOf(t)
	cancel()
	reclaim(ctx, n.store, found)
	if found[0].State != Failed || found[0].Error != context.Canceled.Error() || len(n.leases()) != 1 {
		t.Errorf("%+v, leases %v", found[0], n.leases())
	}
}
