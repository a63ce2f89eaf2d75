package move

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/selection"
	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
	"github.com/relink-cni/relink/test/traffic"
)

func TestMain(m *testing.M) { fresh.Main(m) }

// node is a host with the uplinks lan0 and lan2. A bridge joins them, and has the gateway's addresses. The pods are on lan0.
type node struct {
	store *checkpoint.Store
	host  *kernel.Namespace
	pods  []string
}

func newNode(t *testing.T, pods int) *node {
	t.Helper()
	fresh.Run(t, "", `printf '%s\n' 'link add lan0 up type veth peer name lan1' 'link add lan2 up type veth peer name lan3' 'link add name wire0 type bridge' \
		'link set lan1 up master wire0' 'link set lan3 up master wire0' 'link set wire0 up' \
		'addr add 10.9.0.1/24 dev wire0' 'addr add fd00:9::1/64 dev wire0 nodad' | ip -batch -`)
	t.Cleanup(func() {
		fresh.Run(t, "", "for device in lan0 lan2 wire0; do ! ip link show $device >/dev/null 2>&1 || ip link del $device; done")
	})
	n := &node{store: checkpoint.OpenStore(t.TempDir()), host: must(kernel.OpenHost())(t)}
	t.Cleanup(func() { testnode.Purgeable(t, n.store) })
	t.Cleanup(n.host.Close)
	for i := range pods {
		n.pods = append(n.pods, fresh.Sandbox(t))
		n.attach(t, i, "eth0", netstate.Link{Kind: netstate.KindMacvlan, Macvlan: &netstate.Macvlan{Mode: "bridge"}})
	}
	return n
}

// attach makes an interface of the pod on lan0, and its checkpoint.
func (n *node) attach(t *testing.T, i int, name string, link netstate.Link) {
	t.Helper()
	sandbox := must(kernel.Open(n.pods[i]))(t)
	defer sandbox.Close()
	link.Name, link.Up, link.MAC = name, true, fmt.Sprintf("02:00:00:00:%02x:%02x", name[0], i)
	want := netstate.Interface{Link: link}
	if name == "eth0" {
		want.Addresses = []netstate.Address{
			{Prefix: netip.MustParsePrefix(fmt.Sprintf("10.9.0.%d/24", 2+i))}, {Prefix: netip.MustParsePrefix(fmt.Sprintf("fd00:9::%d/64", 2+i))},
		}
		want.Routes = []netstate.Route{
			{Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("10.9.0.1"), Table: 254, Protocol: 3, Type: 1},
			{Destination: netip.MustParsePrefix("::/0"), Gateway: netip.MustParseAddr("fd00:9::1"), Table: 254, Protocol: 3, Type: 1, Priority: 1024},
		}
		want.Settings = map[string]string{"ipv4/arp_notify": "1", "ipv6/keep_addr_on_down": "1", "ipv6/ndisc_notify": "1"}
	}
	if _, err := kernel.Build(n.host, sandbox, must(n.host.Index("lan0"))(t), want); err != nil {
		t.Fatal(err)
	}
	n.saveCheckpoint(t, i, name)
}

// saveCheckpoint writes the checkpoint of the pod's interface as it is.
func (n *node) saveCheckpoint(t *testing.T, i int, name string) {
	t.Helper()
	sandbox := must(kernel.Open(n.pods[i]))(t)
	defer sandbox.Close()
	live := must(kernel.Capture(n.host, sandbox, must(n.host.Devices())(t), name, kernel.CheckpointExtent))(t)
	err := n.store.Save(checkpoint.Record{
		Attachment: attachment.Key{Network: "lan", ContainerID: fmt.Sprintf("c%d", i), IfName: name},
		Pod:        attachment.Pod{Namespace: "shop", Name: fmt.Sprintf("web-%d", i)}, Namespace: sandbox.Identity(), Interface: live,
		CNI: checkpoint.CNI{Config: []byte("{}"), Result: []byte("{}")}, Writer: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (n *node) options(from, to string) Options {
	return Options{Store: n.store, Source: from, Target: to, Wait: 20 * time.Second}
}

// states returns the pods' names with the states of the attachments and the reasons.
func states(r UplinkReport) (all []string) {
	for _, o := range r.Outcomes {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", o.Pod.Name, o.Attachment.IfName, o.State, o.Reason)))
	}
	return append(all, r.Problems...)
}

// expectParent expects that the interfaces are on the device as recorded, and that nothing is left over.
func (n *node) expectParent(t *testing.T, parent string, index int) {
	t.Helper()
	report := must(restore.Run(t.Context(), restore.Options{Store: n.store, DryRun: true}))(t)
	if !report.Complete() {
		t.Errorf("not as recorded: %+v %v", report.Outcomes, report.Problems)
	}
	for i, path := range n.pods {
		sandbox := must(kernel.Open(path))(t)
		live := must(kernel.Capture(n.host, sandbox, must(n.host.Devices())(t), "eth0", kernel.Extent{}))(t)
		if live.Parents[0].Name != parent || index != 0 && live.Link.Index != index {
			t.Errorf("pod %d is on %s with index %d, want %s, %d", i, live.Parents[0].Name, live.Link.Index, parent, index)
		}
		if slices.ContainsFunc(must(sandbox.Devices())(t), func(d netstate.LiveDevice) bool { return strings.HasPrefix(d.Name, "rlnk") }) {
			t.Errorf("pod %d has devices left over", i)
		}
		sandbox.Close()
		fresh.Run(t, path, "ping -q -c 1 -W 2 10.9.0.1; ping -q -c 1 -W 2 fd00:9::1")
	}
}

func TestMoveThereAndBack(t *testing.T) {
	n := newNode(t, 3)
	const first = 2 // lo has index 1.
	n.expectParent(t, "lan0", first)
	opts := n.options("lan0", "lan2")
	opts.DryRun = true
	if r := must(Run(t.Context(), opts))(t); !r.Complete() || !slices.Equal(states(r), []string{"web-0 eth0 to move", "web-1 eth0 to move", "web-2 eth0 to move"}) {
		t.Errorf("dry run: %q", states(r))
	}
	n.expectParent(t, "lan0", first)
	for range 2 {
		if r := must(Run(t.Context(), n.options("lan0", "lan2")))(t); !r.Complete() || len(r.Outcomes) != 3 {
			t.Fatalf("there: %q", states(r))
		}
		n.expectParent(t, "lan2", 0)
		if r := must(Run(t.Context(), n.options("lan2", "lan0")))(t); !r.Complete() {
			t.Fatalf("back: %q", states(r))
		}
		n.expectParent(t, "lan0", first)
	}
}

// If one pod cannot be moved, none is moved. With Force, only that pod is left out.
func TestMoveRefusesBeforeAnythingIsTouched(t *testing.T) {
	n := newNode(t, 3)
	fresh.IP(t, n.pods[1], "link add link eth0 name vrrp.1 type macvlan")
	want := []string{"web-0 eth0 to move", "web-1 eth0 refused vrrp.1 of the pod is on lan0 too and has no checkpoint: it would stay behind", "web-2 eth0 to move"}
	if r := must(Run(t.Context(), n.options("lan0", "lan2")))(t); r.Complete() || !r.Unchanged() || !slices.Equal(states(r), want) {
		t.Errorf("%q", states(r))
	}
	n.expectParent(t, "lan0", 2)
	opts := n.options("lan0", "lan2")
	opts.Force = true
	want[0], want[2] = "web-0 eth0 moved", "web-2 eth0 moved"
	if r := must(Run(t.Context(), opts))(t); r.Complete() || !slices.Equal(states(r), want) {
		t.Errorf("%q", states(r))
	}
	opts.Select = selection.Selection{Names: []string{"web-1"}}
	fresh.IP(t, n.pods[1], "link del vrrp.1")
	if r := must(Run(t.Context(), opts))(t); !r.Complete() || len(r.Outcomes) != 1 {
		t.Errorf("%q", states(r))
	}
	n.expectParent(t, "lan2", 0)
}

func TestMoveRefusesAnUplinkWithoutTheGateway(t *testing.T) {
	n := newNode(t, 1)
	// It has carrier, but leads to another network.
	fresh.Run(t, "", "ip link set lan3 nomaster; echo 1 >/proc/sys/net/ipv4/conf/lan3/arp_ignore")
	opts := n.options("lan0", "lan2")
	opts.Wait = 0
	want := []string{"web-0 eth0 refused its gateway 10.9.0.1 does not answer on lan2: look whether the switch's port carries the VLAN"}
	if r := must(Run(t.Context(), opts))(t); !r.Unchanged() || !slices.Equal(states(r), want) {
		t.Errorf("%q", states(r))
	}
	n.expectParent(t, "lan0", 2)
	fresh.IP(t, "", "link set lan3 down")
	if _, err := Run(t.Context(), opts); err == nil || err.Error() != "lan2 has no carrier: look at the link, the cable and the switch's port" {
		t.Error(err)
	}
	// The move waits for a late carrier.
	opts.Wait = 20 * time.Second
	late := time.AfterFunc(300*time.Millisecond, func() { fresh.Run(t, "", "ip link set lan3 up master wire0") })
	defer late.Stop()
	if r := must(Run(t.Context(), opts))(t); !r.Complete() {
		t.Errorf("%q", states(r))
	}
	n.expectParent(t, "lan2", 0)
}

func TestAMoveThatIsInterruptedBeforeItBegins(t *testing.T) {
	n := newNode(t, 1)
	fresh.Run(t, "", "ip link set lan3 nomaster") // Nobody answers.
	ctx, interrupt := context.WithCancel(t.Context())
	time.AfterFunc(time.Second, interrupt)
	want := []string{"web-0 eth0 not tried interrupted before its turn"}
	if r := must(Run(ctx, n.options("lan0", "lan2")))(t); !r.Interrupted || !slices.Equal(states(r), want) {
		t.Errorf("interrupted: %v, %q", r.Interrupted, states(r))
	}
	n.expectParent(t, "lan0", 2)
}

// Revert moves back what the move has moved, and nothing else.
func TestBackByJournal(t *testing.T) {
	n := newNode(t, 2)
	opts := n.options("lan0", "lan2")
	opts.Journal, opts.Select = filepath.Join(t.TempDir(), "journal"), selection.Selection{Names: []string{"web-0"}}
	if r := must(Run(t.Context(), opts))(t); !r.Complete() {
		t.Fatalf("%q", states(r))
	}
	other := n.options("lan0", "lan2")
	if r := must(Run(t.Context(), other))(t); !r.Complete() || len(r.Outcomes) != 1 {
		t.Fatalf("%q", states(r))
	}
	// Now the driver of lan0 is reloaded.
	fresh.Run(t, "", "ip link del lan0; ip link add lan0 type veth peer name lan1; ip link set lan1 up master wire0")
	for range 2 { // The second time nothing is left to do.
		if r := must(Revert(t.Context(), opts))(t); !r.Complete() {
			t.Fatalf("back: %q", states(r))
		}
	}
	if r := must(Run(t.Context(), n.options("lan2", "lan0")))(t); !r.Complete() || len(r.Outcomes) != 1 || r.Outcomes[0].Pod.Name != "web-1" {
		t.Errorf("the other one: %q", states(r))
	}
	n.expectParent(t, "lan0", 2)
	if err := os.WriteFile(opts.Journal, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Revert(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "torn") {
		t.Error(err)
	}
}

// A move was killed, and then its attachment was detached. The pod lives on, without what the move left in it.
func TestADetachedPodLivesOn(t *testing.T) {
	n := newNode(t, 2)
	if r := must(Run(t.Context(), n.options("lan0", "lan2")))(t); !r.Complete() {
		t.Fatalf("%q", states(r))
	}
	note := must(n.store.LoadMove(attachment.Key{ContainerID: "c0", IfName: "eth0"}))(t)
	note.State = checkpoint.MoveSwitched
	if err := errors.Join(n.store.SaveMove(note), n.store.Forget("c0", "eth0")); err != nil {
		t.Fatal(err)
	}
	fresh.Run(t, n.pods[0], "ip link del eth0")
	sandbox := must(kernel.Open(n.pods[0]))(t)
	defer sandbox.Close()
	left := netstate.Link{Kind: netstate.KindMacvlan, Name: "eth0", Index: note.Index, Macvlan: &netstate.Macvlan{Mode: "bridge"}}
	must(kernel.Create(n.host, sandbox, must(n.host.Index("lan0"))(t), left))(t)
	fresh.Run(t, n.pods[0], "ip link set eth0 name rlnk40000000")
	if err := FinishKilled(t.Context(), n.store); err != nil {
		t.Fatal(err)
	}
	if devices := must(sandbox.Devices())(t); len(devices) != 1 {
		t.Errorf("%d devices are there, want lo alone", len(devices))
	}
	if notes := must(n.store.Moves())(t); len(notes) != 1 || notes[0].Attachment.ContainerID != "c1" {
		t.Errorf("the notes are %v", notes)
	}
}

// Two interfaces of one pod move together.
func TestMoveOfAPodWithTwoInterfaces(t *testing.T) {
	n := newNode(t, 1)
	n.attach(t, 0, "net1", netstate.Link{Kind: netstate.KindMacvlan, Macvlan: &netstate.Macvlan{Mode: "private"}})
	if r := must(Run(t.Context(), n.options("lan0", "lan2")))(t); !r.Complete() || len(r.Outcomes) != 2 {
		t.Fatalf("%q", states(r))
	}
	n.expectParent(t, "lan2", 0)
}

// Pods answer a ping every 5 ms and have an open TCP stream. They notice nothing when they move there and back.
func TestPodsNoticeNothing(t *testing.T) {
	n := newNode(t, 3)
	const here, interval, enough = "/proc/self/ns/net", 5 * time.Millisecond, 500 * time.Millisecond
	pings := must(traffic.StartPings(here, []netip.Addr{netip.MustParseAddr("10.9.0.2"), netip.MustParseAddr("10.9.0.3"), netip.MustParseAddr("10.9.0.4")}, interval))(t)
	t.Cleanup(pings.Stop)
	streams := must(traffic.StartStreams(here, netip.MustParseAddr("10.9.0.1"), n.pods, 4*interval))(t)
	t.Cleanup(streams.Stop)
	start := time.Now()
	for _, way := range [][2]string{{"lan0", "lan2"}, {"lan2", "lan0"}} {
		if r := must(Run(t.Context(), n.options(way[0], way[1])))(t); !r.Complete() {
			t.Fatalf("%q", states(r))
		}
		time.Sleep(enough)
	}
	pinged := must(pings.Since(start))(t)
	must(streams.Since(start))(t) // No connection broke.
	// A gap of a second would mean that the kernel probes for an address, or that a neighbour does not know of the
	// move.
	if most := 50 * time.Millisecond; pinged.Sent < 100 || pinged.Longest() > most+pinged.Late {
		t.Errorf("%d of %d pings lost, the longest gap %s", pinged.Lost, pinged.Sent*len(n.pods), pinged.Longest())
	}
}

// A pod's DHCP client leases an address. A move there and back leaves it the rest of the lease, and a lease that the checkpoint
// does not know for so long is no reason to refuse the move.
func TestMoveKeepsTheRestOfALease(t *testing.T) {
	n := newNode(t, 1)
	const lease = "ip addr replace 10.9.0.77/24 dev eth0 valid_lft %d preferred_lft %d; ip addr replace fd00:9::77/128 dev eth0 nodad valid_lft %d preferred_lft %d"
	fresh.Run(t, n.pods[0], fmt.Sprintf(lease, 600, 300, 600, 300))
	n.saveCheckpoint(t, 0, "eth0")
	fresh.Run(t, n.pods[0], fmt.Sprintf(lease, 900, 800, 900, 800))
	for _, to := range [][]string{{"lan0", "lan2"}, {"lan2", "lan0"}} {
		if r := must(Run(t.Context(), n.options(to[0], to[1])))(t); !r.Complete() {
			t.Fatalf("from %s to %s: %q", to[0], to[1], states(r))
		}
		n.expectParent(t, to[1], 0)
		out := fresh.IP(t, n.pods[0], "-o addr show dev eth0")
		for _, address := range []string{"10.9.0.77/24", "fd00:9::77/128"} {
			var valid, preferred int
			for _, line := range strings.Split(out, "\n") {
				if _, lifetimes, ok := strings.Cut(line, "valid_lft "); ok && strings.Contains(line, " "+address+" ") {
					_, _ = fmt.Sscanf(lifetimes, "%dsec preferred_lft %dsec", &valid, &preferred)
				}
			}
			if valid > 900 || valid < 800 || preferred > 800 || preferred < 700 {
				t.Errorf("on %s %s has the lifetimes %d and %d:\n%s", to[1], address, valid, preferred, out)
			}
		}
	}
}
