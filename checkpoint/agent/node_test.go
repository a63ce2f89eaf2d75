package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

func TestMain(m *testing.M) { fresh.Main(m) }

// node is a host in its own namespace, with a store, pods and a running agent.
type node struct {
	store *checkpoint.Store
	agent *Agent
	log   *testnode.Log
	stop  func()
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// newNode returns a node without an agent. The end of the test deletes its parents.
func newNode(t testing.TB, parents ...string) *node {
	t.Helper()
	for _, name := range parents {
		makeParent(t, name)
		t.Cleanup(func() { fresh.Run(t, "", "ip link del "+name+" 2>/dev/null || true") })
	}
	n := &node{store: checkpoint.OpenStore(t.TempDir()), log: &testnode.Log{}}
	t.Cleanup(func() {
		testnode.Purgeable(t, n.store)
		if t.Failed() {
			t.Logf("the agent's log:\n%s", n.log)
		}
	})
	return n
}

func makeParent(t testing.TB, name string) {
	t.Helper()
	fresh.Run(t, "", fmt.Sprintf("ip link add %[1]s type veth peer name %[1]sp; ip link set %[1]s up; ip link set %[1]sp up", name))
}

// start runs an agent until the test ends or stop is called.
func (n *node) start(t testing.TB, change func(*Options)) {
	t.Helper()
	opts := Options{Store: n.store, Log: slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Version: "test"}
	ready := make(chan struct{})
	opts.Ready = func() { close(ready) }
	if change != nil {
		change(&opts)
	}
	n.agent = must(New(opts))(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.agent.Run(ctx) }()
	var once sync.Once
	n.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("the agent ended with %v", err)
			}
			n.agent.Close()
		})
	}
	t.Cleanup(n.stop)
	select {
	case <-ready:
	case <-time.After(10 * time.Second):
		t.Fatal("the agent is not ready")
	}
}

// pod is a sandbox with an interface and its checkpoint.
type pod struct {
	key   attachment.Key
	netns string
}

// attach makes the interface of pod number i on the parent, and its checkpoint.
func (n *node) attach(t testing.TB, parent string, i int) pod {
	t.Helper()
	return n.attachTo(t, fresh.Sandbox(t), parent, "eth0", i)
}

func (n *node) attachTo(t testing.TB, netns, parent, ifName string, i int) pod {
	t.Helper()
	host, sandbox := must(kernel.OpenHost())(t), must(kernel.Open(netns))(t)
	defer host.Close()
	defer sandbox.Close()
	high, low := 1+i/250, 1+i%250
	want := netstate.Interface{
		Link:      netstate.Link{Kind: netstate.KindMacvlan, Name: ifName, Up: true, MAC: fmt.Sprintf("02:00:00:00:%02x:%02x", high, low), Macvlan: &netstate.Macvlan{Mode: "bridge"}},
		Addresses: []netstate.Address{{Prefix: netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.2/24", high, low))}},
		Routes: []netstate.Route{{Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr(fmt.Sprintf("10.%d.%d.1", high, low)),
			Table: 254, Protocol: 3, Type: 1}},
	}
	if ifName != "eth0" {
		want.Routes = nil
	}
	if _, err := kernel.Build(host, sandbox, must(host.Index(parent))(t), want); err != nil {
		t.Fatal(err)
	}
	p := pod{key: attachment.Key{Network: "lan", ContainerID: fmt.Sprintf("c%d", i), IfName: ifName}, netns: netns}
	n.save(t, p)
	return p
}

// save writes a checkpoint of the pod's interface as it is now.
func (n *node) save(t testing.TB, p pod) {
	t.Helper()
	host, sandbox := must(kernel.OpenHost())(t), must(kernel.Open(p.netns))(t)
	defer host.Close()
	defer sandbox.Close()
	live := must(kernel.Capture(host, sandbox, must(host.Devices())(t), p.key.IfName, kernel.CheckpointExtent))(t)
	err := n.store.Save(checkpoint.Record{
		Attachment: p.key, Namespace: sandbox.Identity(), Interface: live, Pod: attachment.Pod{Namespace: "shop", Name: p.key.ContainerID},
		CNI: checkpoint.CNI{Config: []byte("{}"), Result: []byte("{}")}, Writer: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
}

// forget forgets the pod's checkpoint as a DEL does.
func (n *node) forget(t testing.TB, p pod) {
	t.Helper()
	unlock := must(n.store.Lock(context.Background(), p.key.ContainerID))(t)
	defer unlock()
	if err := n.store.Forget(p.key.ContainerID, p.key.IfName); err != nil {
		t.Fatal(err)
	}
}

// state returns the state of the pod's interface as one text.
func (p pod) state(t testing.TB) string {
	t.Helper()
	return fresh.Run(t, p.netns, fmt.Sprintf("ip -o -d link show dev %[1]s 2>/dev/null | grep -o 'link/ether [0-9a-f:]*' || true; ip -o -4 addr show dev %[1]s 2>/dev/null || true; ip -4 route show dev %[1]s 2>/dev/null | sed 's/ linkdown//' || true", p.key.IfName))
}

// patience is how long a test waits for something that comes at once on an idle machine.
const patience = 30 * time.Second

// within waits until f returns true.
func within(t testing.TB, limit time.Duration, what string, f func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !f() {
		if time.Since(start) > limit {
			t.Fatalf("not within %s: %s", limit, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return time.Since(start)
}

// chain returns what the agent says about a base.
func (n *node) chain(base string) control.Chain {
	for _, c := range n.agent.Status().Chains {
		if c.Base == base {
			return c
		}
	}
	return control.Chain{}
}

func (n *node) awaitState(t testing.TB, base string, state control.ChainState) {
	t.Helper()
	within(t, patience, fmt.Sprintf("%s is %s", base, state), func() bool { return n.chain(base).State == state })
}
