package restore

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

func TestMain(m *testing.M) { fresh.Main(m) }

// liveSandbox is a sandbox of this kernel. It has eth0, a macvlan on the host's lan0, and its checkpoint.
type liveSandbox struct {
	store *checkpoint.Store
	netns string
}

func newLiveSandbox(t *testing.T) *liveSandbox {
	t.Helper()
	parent(t)
	t.Cleanup(func() { fresh.IP(t, "", "link del lan0") })
	p := &liveSandbox{store: checkpoint.OpenStore(t.TempDir()), netns: fresh.Sandbox(t)}
	p.attach(t, "eth0", 1)
	return p
}

func parent(t *testing.T) {
	t.Helper()
	fresh.Run(t, "", "ip link add lan0 type veth peer name lan1; ip link set lan0 up; ip link set lan1 up")
}

// attach makes interface number n and its checkpoint.
func (p *liveSandbox) attach(t *testing.T, name string, n int) {
	t.Helper()
	host, sandbox := must(kernel.OpenHost())(t), must(kernel.Open(p.netns))(t)
	defer host.Close()
	defer sandbox.Close()
	want := netstate.Interface{
		Link: netstate.Link{Kind: netstate.KindMacvlan, Name: name, Index: 76 + n, Up: true, MAC: fmt.Sprintf("02:00:00:00:00:%02x", n), Macvlan: &netstate.Macvlan{Mode: "bridge"}},
		Addresses: []netstate.Address{
			{Prefix: netip.MustParsePrefix(fmt.Sprintf("10.%d.0.2/24", n))}, {Prefix: netip.MustParsePrefix(fmt.Sprintf("fd00:%d::2/64", n))},
		},
		Routes: []netstate.Route{{Destination: netip.MustParsePrefix(fmt.Sprintf("10.10%d.0.0/16", n)), Gateway: netip.MustParseAddr(fmt.Sprintf("10.%d.0.1", n)), Table: 254, Protocol: 3, Type: 1}},
	}
	index := must(host.Index("lan0"))(t)
	if _, err := kernel.Build(host, sandbox, index, want); err != nil {
		t.Fatal(err)
	}
	p.save(t, name, name)
}

// save writes the checkpoint of the attachment ifName from the present state of the interface called name.
func (p *liveSandbox) save(t *testing.T, ifName, name string) {
	t.Helper()
	saveCheckpoint(t, p.store, p.netns, attachment.Key{Network: "lan", ContainerID: "c1", IfName: ifName}, name)
}

// saveCheckpoint saves the checkpoint of the interface in its present state.
func saveCheckpoint(t *testing.T, store *checkpoint.Store, netns string, key attachment.Key, name string) {
	t.Helper()
	host, sandbox := must(kernel.OpenHost())(t), must(kernel.Open(netns))(t)
	defer host.Close()
	defer sandbox.Close()
	live := must(kernel.Capture(host, sandbox, must(host.Devices())(t), name, kernel.CheckpointExtent))(t)
	err := store.Save(checkpoint.Record{
		Attachment: key, Namespace: sandbox.Identity(), Interface: live,
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

// loseParent deletes the parent, and with it the devices on it. Then it makes the parent again.
func (p *liveSandbox) loseParent(t *testing.T) {
	t.Helper()
	fresh.IP(t, "", "link del lan0")
	parent(t)
}

// restore runs a restore or a dry run, and returns the outcome of eth0.
func (p *liveSandbox) restore(t *testing.T, dry bool) Outcome {
	t.Helper()
	report := must(Run(t.Context(), Options{Store: p.store, DryRun: dry}))(t)
	for _, o := range report.Outcomes {
		if o.Attachment.IfName == "eth0" {
			return o
		}
	}
	t.Fatalf("nothing of eth0: %+v", report)
	return Outcome{}
}

func (p *liveSandbox) expectOutcome(t *testing.T, o Outcome, state change.State, parts ...string) {
	t.Helper()
	if o.State != state {
		t.Errorf("%s (%s), want %s", o.State, o.FullReason(), state)
	}
	for _, part := range parts {
		if !strings.Contains(o.FullReason(), part) {
			t.Errorf("it does not say %q: %s", part, o.FullReason())
		}
	}
}

// Meanwhile the pod has made another device, which got the index.
func TestAnIndexThatIsTaken(t *testing.T) {
	p := newLiveSandbox(t)
	fresh.Run(t, p.netns, "ip link del eth0; ip link add other index 77 type veth peer name peer")
	before := fresh.Run(t, p.netns, "ip -d -o link show dev other; ip -o addr show dev other; ip route show dev other")
	p.expectOutcome(t, p.restore(t, true), ToRestore, "its index 77 is that of other now")
	p.expectOutcome(t, p.restore(t, false), Restored, "its index 77 is that of other now", "SO_BINDTODEVICE")
	if after := fresh.Run(t, p.netns, "ip -d -o link show dev other; ip -o addr show dev other; ip route show dev other"); after != before {
		t.Errorf("the other is\n%s\nand was\n%s", after, before)
	}
	// The record now has the new index. So the interface is found under another name.
	p.expectOutcome(t, p.restore(t, false), AsRecorded)
	fresh.IP(t, p.netns, "link set eth0 down name web0")
	p.expectOutcome(t, p.restore(t, false), change.Failed, "it is there as web0")
}

// Another attachment has the index. restore does not confuse the two.
func TestAnIndexThatAnotherAttachmentHas(t *testing.T) {
	p := newLiveSandbox(t)
	fresh.Run(t, p.netns, "ip link del eth0")
	p.attach(t, "net1", 2)
	host, sandbox := must(kernel.OpenHost())(t), must(kernel.Open(p.netns))(t)
	defer host.Close()
	defer sandbox.Close()
	fresh.IP(t, p.netns, "link del net1")
	link := netstate.Link{Kind: netstate.KindMacvlan, Name: "net1", Index: 77, MAC: "02:00:00:00:00:02", Macvlan: &netstate.Macvlan{Mode: "bridge"}}
	must(kernel.Create(host, sandbox, must(host.Index("lan0"))(t), link))(t)
	p.expectOutcome(t, p.restore(t, false), Restored, "its index 77 is that of net1 now")
	p.expectOutcome(t, p.restore(t, false), AsRecorded)
}

// addressesAndRoutes shows these of a pod. An address can be tentative for a moment.
const addressesAndRoutes = "ip -o addr | sed 's/ tentative//'; ip route"

// A renamed interface is not built a second time. The reason says what to do about it.
func TestARenamedInterface(t *testing.T) {
	for name, test := range map[string]struct {
		change string
		says   []string
	}{
		"renamed, without its routes": {"ip link set eth0 down; ip link set eth0 name web0 up", []string{
			"eth0 was renamed: it is there as web0", "route 10.101.0.0/16 via 10.1.0.1 is missing. Rename it back, and relink restore repairs it", "ip link set web0 name eth0",
		}},
		"renamed alone": {"ip link set eth0 down name web0 up", []string{
			"eth0 was renamed: it is there as web0", "relink capture --refresh c1), or rename it back", "ip link set web0 name eth0",
		}},
		"and given another MAC":    {"ip link set eth0 down name web0 address 02:00:00:00:0b:01 up", []string{"as web0", "with the MAC 02:00:00:00:0b:01 instead of 02:00:00:00:00:01"}},
		"and another in its place": {"ip link set eth0 down name web0 up; ip link add eth0 type veth peer name peer", []string{"as web0", "Its name is that of another device now"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newLiveSandbox(t)
			fresh.Run(t, p.netns, test.change)
			before := fresh.Run(t, p.netns, addressesAndRoutes)
			p.expectOutcome(t, p.restore(t, true), Blocked, test.says...)
			p.expectOutcome(t, p.restore(t, false), change.Failed, test.says...)
			if after := fresh.Run(t, p.netns, addressesAndRoutes); after != before {
				t.Errorf("it is\n%s\nand was\n%s", after, before)
			}
			// When the parent goes, the renamed interface goes too. Then restore builds it.
			if strings.Contains(test.change, "link add eth0") {
				return
			}
			p.loseParent(t)
			p.expectOutcome(t, p.restore(t, false), Restored, "it is gone from the sandbox")
		})
	}
}

// A half-built interface that a kill has left does not count as a renamed one.
func TestWhatAKillLeftIsNotRenamed(t *testing.T) {
	p := newLiveSandbox(t)
	fresh.IP(t, p.netns, "link set eth0 down name rlnk4abcdef0")
	o := p.restore(t, true)
	p.expectOutcome(t, o, ToRestore, "it is gone from the sandbox")
	if strings.Contains(o.FullReason(), "index") {
		t.Errorf("it says %s", o.FullReason())
	}
}

// Nothing deletes what somebody has put in the place of an interface. The reason says what a person can do, and then the interface comes back.
func TestAnotherInterfaceInItsPlace(t *testing.T) {
	for name, make := range map[string]string{
		"a kind that has no record": "ip link add eth0 type bridge", "another kind": "ip link add eth0 type veth peer name peer",
	} {
		t.Run(name, func(t *testing.T) {
			p := newLiveSandbox(t)
			fresh.Run(t, p.netns, "ip link del eth0; "+make)
			p.expectOutcome(t, p.restore(t, false), change.Failed, "left alone: delete it, and restore again")
			fresh.IP(t, p.netns, "link del eth0")
			p.expectOutcome(t, p.restore(t, false), Restored, "it is gone from the sandbox")
		})
	}
}

// The device with the index is of another kind, or on another parent. So it is not the interface.
func TestWhatIsNotRenamed(t *testing.T) {
	for name, make := range map[string]string{
		"another kind":   "ip link add web0 index 77 type veth peer name peer",
		"another parent": "ip link add inner type veth peer name peer; ip link add web0 index 77 link inner type macvlan",
	} {
		t.Run(name, func(t *testing.T) {
			p := newLiveSandbox(t)
			fresh.Run(t, p.netns, "ip link del eth0; "+make)
			p.expectOutcome(t, p.restore(t, false), Restored, "its index 77 is that of web0 now")
		})
	}
}
