package reclaim

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

// verdicts returns the verdict on each holder.
func (n *node) verdicts(cacheDir string) (verdicts []string, looked *Node) {
	n.t.Helper()
	all, err := n.store.List(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	looked = look(n.t, cacheDir)
	for _, l := range all {
		for _, h := range l.Holders {
			j := looked.Judge(l.Address, h, time.Now(), OtherHolders(l, h)...)
			verdicts = append(verdicts, fmt.Sprint(l.Address, " ", h.ContainerID, " ", j.Verdict))
		}
	}
	return verdicts, looked
}

// goneNamespace returns the identity of a namespace that no longer exists.
func goneNamespace(t *testing.T) attachment.Namespace {
	t.Helper()
	path := fresh.Sandbox(t)
	id := idOf(t, path)
	fresh.Remove(t, path)
	return id
}

func TestJudgeHolders(t *testing.T) {
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
	cacheDir := caches(t, map[string]string{
		"results/lan-cached-eth0":        cachedResult("lan", "cached", "eth0", "web-7"),
		"multus/results/lan-multus-net1": cachedResult("lan", "multus", "net1", "web-8"),
	})

	want := []string{
		"10.231.77.2 alive alive", "10.231.77.3 gone gone", "10.231.77.4 gone-sticky gone", "10.231.77.5 gone-free gone", "10.231.77.6 reused gone",
		"10.231.77.7 cached DEL due", "10.231.77.8 multus DEL due", "10.231.77.9 old gone", "10.231.77.9 new alive",
		"10.231.77.10 first gone", "10.231.77.10 second gone", "10.231.77.11 early unknown", "10.231.77.12 imported-gone gone",
		"10.231.77.13 imported-now unknown", "10.231.77.14 imported-there unknown",
	}
	got, looked := n.verdicts(cacheDir)
	if diff := cmp.Diff(want, got); diff != "" || len(looked.Problems()) > 0 {
		t.Errorf("%s, problems %q", diff, looked.Problems())
	}
}

// Without the caches nobody is proven gone, and the problems say why.
func TestJudgeWithoutACache(t *testing.T) {
	n := newNode(t, "lan")
	n.add("10.231.77.3", "gone", goneNamespace(t), "web-3", lease.Policy{})
	n.add("10.231.77.4", "alive", idOf(t, fresh.Sandbox(t)), "web-4", lease.Policy{})
	got, looked := n.verdicts(filepath.Join(t.TempDir(), "cni"))
	if diff := cmp.Diff([]string{"10.231.77.3 gone unknown", "10.231.77.4 alive alive"}, got); diff != "" {
		t.Error(diff)
	}
	if p := looked.Problems(); len(p) != 1 || !strings.Contains(p[0], "there is no CNI cache in") {
		t.Errorf("problems %q", p)
	}
}
