package watch

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	testnet "github.com/relink-cni/relink/test/fresh"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// node is a host with a store, and pods that each have an interface eth0 on a parent of their own.
type node struct {
	host  *kernel.Namespace
	store *checkpoint.Store
	pods  []*pod
}

type pod struct {
	id, path, parent string
	namespace        *kernel.Namespace
	want             netstate.Interface
}

// newNode returns a node with this number of pods. Each pod has IPv4 and IPv6 addresses and routes, and a checkpoint.
func newNode(t testing.TB, pods int) *node {
	t.Helper()
	host, err := kernel.OpenHost()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(host.Close)
	n := &node{host: host, store: newStore(t)}
	for i := range pods {
		p := &pod{id: fmt.Sprintf("c%d", i), path: testnet.Sandbox(t), parent: fmt.Sprintf("lan%d", i), want: wanted(i)}
		if p.namespace, err = kernel.Open(p.path); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.namespace.Close)
		n.pods = append(n.pods, p)
	}
	t.Cleanup(func() { n.deleteParent(t) })
	n.build(t)
	for _, p := range n.pods {
		p.want = n.capture(t, p)
		n.save(t, p)
	}
	return n
}

// newStore returns an empty store in memory, like the store of a real node.
func newStore(t testing.TB) *checkpoint.Store {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return checkpoint.OpenStore(dir)
}

// wanted returns the interface of pod i.
func wanted(i int) netstate.Interface {
	v4, v6 := netip.AddrFrom4([4]byte{10, 9, byte(i), 2}), netip.MustParseAddr(fmt.Sprintf("fd00:9:%x::2", i))
	return netstate.Interface{
		Link: netstate.Link{
			Kind: netstate.KindMacvlan, Name: "eth0", MAC: fmt.Sprintf("02:00:00:00:01:%02x", i), Up: true, MTU: 1500,
			Macvlan: &netstate.Macvlan{Mode: "bridge"},
		},
		Addresses: []netstate.Address{{Prefix: netip.PrefixFrom(v4, 24)}, {Prefix: netip.PrefixFrom(v6, 64), Flags: unix.IFA_F_NODAD}},
		Routes: []netstate.Route{
			defaultRoute("0.0.0.0/0", netip.AddrFrom4([4]byte{10, 9, byte(i), 1}).String()),
			defaultRoute("::/0", fmt.Sprintf("fd00:9:%x::1", i)),
		},
	}
}

func defaultRoute(destination, gateway string) netstate.Route {
	return netstate.Route{
		Destination: netip.MustParsePrefix(destination), Gateway: netip.MustParseAddr(gateway),
		Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST, Protocol: unix.RTPROT_BOOT,
	}
}

// build makes all parents, and eth0 of all pods. eth0 is as recorded, or as wanted if there is no checkpoint yet.
func (n *node) build(t testing.TB) {
	t.Helper()
	var batch strings.Builder
	for _, p := range n.pods {
		fmt.Fprintf(&batch, "link add %s group 7 up type veth peer name w%s\nlink set w%s up\n", p.parent, p.parent, p.parent)
	}
	testnet.Run(t, "", "ip -batch - <<'X'\n"+batch.String()+"X")
	for _, p := range n.pods {
		index, err := n.host.Index(p.parent)
		if err != nil {
			t.Fatal(err)
		}
		want := p.want
		if r, err := n.store.Load(p.id, "eth0"); err == nil {
			want = r.Interface
		}
		if _, err := kernel.Build(n.host, p.namespace, index, want); err != nil {
			t.Fatal(err)
		}
	}
}

// deleteParent deletes all parents, and with them everything on them.
func (n *node) deleteParent(t testing.TB) { testnet.IP(t, "", "link del group 7") }

// capture returns the pod's eth0 as it is now.
func (n *node) capture(t testing.TB, p *pod) netstate.Interface {
	t.Helper()
	devices, err := n.host.Devices()
	if err != nil {
		t.Fatal(err)
	}
	is, err := kernel.Capture(n.host, p.namespace, devices, "eth0", kernel.CheckpointExtent)
	if err != nil {
		t.Fatal(err)
	}
	return is
}

// save writes the pod's checkpoint as an ADD does.
func (n *node) save(t testing.TB, p *pod) {
	t.Helper()
	record := checkpoint.Record{
		Version: checkpoint.Version, Attachment: attachment.Key{Network: "lan", ContainerID: p.id, IfName: "eth0"},
		Pod: attachment.Pod{Namespace: "shop", Name: p.id}, Namespace: p.namespace.Identity(), Interface: n.capture(t, p),
		CNI: checkpoint.CNI{Config: []byte("{}"), Result: []byte("{}")}, Writer: "relink-macvlan", CapturedAt: time.Now().UTC(),
	}
	if err := n.store.Save(record); err != nil {
		t.Fatal(err)
	}
}

// record returns the pod's checkpoint.
func (n *node) record(t testing.TB, p *pod) checkpoint.Record {
	t.Helper()
	r, err := n.store.Load(p.id, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// refresher returns a refresher of the node that does not run.
func (n *node) refresher(t testing.TB) *Refresher {
	t.Helper()
	r, err := New(Options{
		Store: n.store, Host: n.host, OnError: func(_ attachment.Namespace, err error) { t.Error(err) }, OnRefusals: func() {}, OnRead: func(...string) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// newWithSandbox returns a refresher that reads only when the test says so, and the sandbox of the first pod.
func (n *node) newWithSandbox(t testing.TB) (*Refresher, *sandbox) {
	t.Helper()
	r := n.refresher(t)
	t.Cleanup(func() { r.watch.Close(); r.hostWatch.Close() })
	p := n.pods[0]
	r.setRecords(p.id, []checkpoint.Record{n.record(t, p)})
	return r, r.sandboxes[withoutPath(p.namespace.Identity())]
}

// Refusals returns why checkpoints are not renewed.
func (r *Refresher) Refusals() (all []control.Drift) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.refusals {
		all = append(all, f.Drift)
	}
	return all
}

// startRefresher starts a refresher, and returns when the refresher has looked at all pods. The end of the test ends it.
func (n *node) startRefresher(t testing.TB) *Refresher {
	t.Helper()
	r := n.refresher(t)
	n.start(t, r)
	return r
}

// start is run for this refresher.
func (n *node) start(t testing.TB, r *Refresher) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	for _, p := range n.pods {
		r.CheckpointsChanged(p.id, []checkpoint.Record{n.record(t, p)})
	}
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	waitUntil(t, "all pods are read", func() bool { return r.Counters().Readings >= uint64(len(n.pods)) })
}

// awaitIdle waits until the pods cause no more readings by themselves. The kernel checks IPv6 addresses for a second or two, and then reports
// them once more.
func (n *node) awaitIdle(t testing.TB, r *Refresher) {
	t.Helper()
	for _, p := range n.pods {
		waitUntil(t, "no address is tentative", func() bool { return testnet.Run(t, p.path, "ip -6 addr show tentative") == "" })
	}
	waitUntil(t, "nothing is read", func() bool {
		before := r.Counters().Readings
		time.Sleep(settleDelay + 100*time.Millisecond)
		return before >= uint64(len(n.pods)) && r.Counters().Readings == before
	})
}

// patience is how long a test waits for something that takes at most a second on an idle machine. On a very busy one, a proof that a
// sandbox is gone does not end in time, and the next one comes twenty seconds later.
const patience = time.Minute

// waitUntil waits until f is true.
func waitUntil(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}
