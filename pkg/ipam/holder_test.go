package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/test/fresh"
)

func TestMain(m *testing.M) {
	releaseTimeout = time.Minute // This machine can be busy.
	fresh.Main(m)
}

// The ADD of a pod's new sandbox fails, and its DEL comes, while the old sandbox still runs. The old sandbox keeps the
// address, however long that takes.
func TestFailedTakeoverLeavesTheOldSandboxHolding(t *testing.T) {
	n := newNode(t, small+`, "sticky": "pod", "retain": "1h"`)
	n.add(t, "old/eth0", "web-0", "10.3.0.2")
	for range 2 {
		n.add(t, "new/eth0", "web-0", "10.3.0.2")
		n.del(t, "new/eth0")
		n.expect(t, "after the failed ADD", "10.3.0.2 held old/eth0 web-0")
	}
	n.later(48 * time.Hour)
	n.add(t, "b/eth0", "web-1", "10.3.0.3")
	n.add(t, "c/eth0", "web-2", "10.3.0.4")
	_, err := n.tryAdd(t, "d/eth0", "web-3", "")
	n.expectError(t, "the last address is the old sandbox's", err, 11,
		"relink-ipam: range set 0 (10.3.0.2-10.3.0.4) of network pods: no address is free: 3 held, 0 reserved, 0 in quarantine; relink ipam list says for whom")
	if err := n.begin(t, n.args("old/eth0", "web-0")).Check(t.Context()); err != nil {
		t.Errorf("CHECK of the old sandbox: %v", err)
	}
}

// After the ADD of the interface plugin has succeeded, an earlier sandbox that is gone holds nothing any more. One that
// still exists keeps its hold, because a later plugin of the list can still fail.
func TestCommittedTakeover(t *testing.T) {
	n := newNode(t, sticky)
	n.boot = thisBoot(t)
	gone, there := filepath.Join(t.TempDir(), "ns"), fresh.Sandbox(t)
	fresh.At(t, gone)
	for sandbox, path := range map[string]string{"gone/eth0": gone, "there/eth0": there} {
		args := n.args(sandbox, "web-0")
		args.Netns = path
		if _, err := n.begin(t, args).Add(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	n.add(t, "unknown/eth0", "web-0", "10.3.0.2")
	g, err := n.begin(t, n.args("new/eth0", "web-0")).Add(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fresh.Remove(t, gone)
	n.expectAtLast(t, "committed", func() error { return g.Commit(t.Context()) }, "10.3.0.2 held there/eth0+unknown/eth0+new/eth0 web-0")
	n.del(t, "new/eth0")
	n.del(t, "unknown/eth0")
	n.expect(t, "a later plugin failed", "10.3.0.2 held there/eth0 web-0")
}

// A path that leads nowhere, or to another sandbox, proves nothing. The namespace may be kept elsewhere, and then it
// still has the address.
func TestCommittedTakeoverFromASandboxThatOnlyItsPathLost(t *testing.T) {
	for name, again := range map[string]bool{"the path leads nowhere": false, "the path is another's": true} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, sticky)
			n.boot = thisBoot(t)
			path := filepath.Join(t.TempDir(), "ns")
			fresh.At(t, path)
			args := n.args("old/eth0", "web-0")
			args.Netns = path
			if _, err := n.begin(t, args).Add(t.Context()); err != nil {
				t.Fatal(err)
			}
			keeper, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			fresh.Remove(t, path)
			if again {
				fresh.At(t, path)
			}
			g, err := n.begin(t, n.args("new/eth0", "web-0")).Add(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			n.expect(t, "while a file keeps it", "10.3.0.2 held old/eth0+new/eth0 web-0")
			if err := keeper.Close(); err != nil {
				t.Fatal(err)
			}
			n.expectAtLast(t, "when nothing keeps it", func() error { return g.Commit(t.Context()) }, "10.3.0.2 held new/eth0 web-0")
		})
	}
}

// A plugin that runs as a program of its own lets go of what is proven gone, and of nothing else.
func TestAddThatIsExecutedLetsGoWhatIsProvenGone(t *testing.T) {
	n := newNode(t, sticky)
	n.boot = thisBoot(t)
	config := fmt.Appendf(nil, `{"cniVersion": "1.0.0", "name": "pods", "ipam": {"dataDir": %q, "sticky": "pod", "subnet": "10.3.0.0/24"}}`, n.dir)
	add := func(id, netns string) error {
		args := n.args(id+"/eth0", "web-0")
		args.Netns, args.StdinData = netns, config
		_, _, err := Add(t.Context(), args, nil)
		return err
	}
	path := filepath.Join(t.TempDir(), "ns")
	fresh.At(t, path)
	if err := errors.Join(add("c1", path), add("c2", fresh.Sandbox(t))); err != nil {
		t.Fatal(err)
	}
	n.expect(t, "while the first is there", "10.3.0.2 held c1/eth0+c2/eth0 web-0")
	fresh.Remove(t, path)
	n.expectAtLast(t, "when it is gone", func() error { return add("c3", "") }, "10.3.0.2 held c2/eth0+c3/eth0 web-0")
}

// A container that was stopped and started again keeps its ID but has another namespace.
func TestAddThatIsRepeatedByAnotherSandbox(t *testing.T) {
	n := newNode(t, sticky)
	n.boot = thisBoot(t)
	var was, is lease.Holder
	for _, h := range []*lease.Holder{&was, &is} {
		args := n.args("c1/eth0", "web-0")
		args.Netns = fresh.Sandbox(t)
		if _, err := n.begin(t, args).Add(t.Context()); err != nil {
			t.Fatal(err)
		}
		l, err := n.store(t).Get(t.Context(), addr("10.3.0.2"))
		if err != nil || len(l.Holders) != 1 || l.Newest().Namespace.Path != args.Netns {
			t.Fatalf("%+v, %v", l, err)
		}
		*h = l.Newest()
		n.later(time.Second)
	}
	if was.Namespace.Cookie == is.Namespace.Cookie || !is.Since.After(was.Since) {
		t.Errorf("was %+v, is %+v", was, is)
	}
}

// The record of a holder has everything that the plugin can know of it.
func TestHolderIsRecordedWithItsNamespace(t *testing.T) {
	n := newNode(t, sticky)
	sandbox := fresh.Sandbox(t)
	for name, netns := range map[string]string{"a namespace": sandbox, "no namespace": "/missing", "nothing": ""} {
		args := n.args("c1/eth0", "web-0")
		args.Netns, args.Args = netns, args.Args+";K8S_POD_UID=uid-1"
		if _, err := n.begin(t, args).Add(t.Context()); err != nil {
			t.Fatal(err)
		}
		l, err := n.store(t).Get(t.Context(), addr("10.3.0.2"))
		if err != nil {
			t.Fatal(err)
		}
		h := l.Newest()
		if h.Pod.UID != "uid-1" || h.Namespace.Path != netns || h.Namespace.BootID != n.boot || !h.Since.Equal(n.clock) {
			t.Errorf("%s: %+v", name, h)
		}
		if known := h.Namespace.Inode != 0 && h.Namespace.Device != 0 && h.Namespace.Cookie != 0; known != (netns == sandbox) {
			t.Errorf("%s: %+v", name, h.Namespace)
		}
		n.del(t, "c1/eth0")
	}
}

// A reservation by an operator comes before one by the policy, and the operator's newest one comes first.
func TestNewestReservationByHandGoesFirst(t *testing.T) {
	n := newNode(t, sticky)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	reserve := func(a string, retain time.Duration) lease.Lease {
		t.Helper()
		n.later(time.Second)
		l, err := n.store(t).Reserve(t.Context(), addr(a), pod("web-0"), retain)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	reserve("10.3.0.20", 0)
	reserve("10.3.0.9", 0)
	n.del(t, "c1/eth0")
	n.add(t, "c2/eth0", "web-0", "10.3.0.9")
	n.expect(t, "what the policy reserved is let go of", "10.3.0.2 quarantined c1/eth0 web-0", "10.3.0.9 held c2/eth0 web-0", "10.3.0.20 reserved / web-0")
	// This also holds while the earlier sandbox still holds an address.
	reserve("10.3.0.30", time.Hour)
	n.add(t, "c3/eth0", "web-0", "10.3.0.30")
	n.del(t, "c2/eth0")
	n.del(t, "c3/eth0")
	n.later(2 * time.Hour)
	n.add(t, "c4/eth0", "web-0", "10.3.0.9")
}

func TestReservingShortensNothing(t *testing.T) {
	n := newNode(t, sticky)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	for _, retain := range []time.Duration{0, time.Hour} {
		l, err := n.store(t).Reserve(t.Context(), addr("10.3.0.2"), pod("web-0"), retain)
		if err != nil || !l.ByHandUntil.IsZero() {
			t.Errorf("--for %s: until %s, %v", retain, l.ByHandUntil, err)
		}
	}
	n.ipam = `"subnet": "10.3.0.0/24"`
	n.del(t, "c1/eth0")
	n.later(1000 * time.Hour)
	n.expect(t, "after both", "10.3.0.2 reserved c1/eth0 web-0")
}

func TestWhatNoAddGivesIsNotReserved(t *testing.T) {
	n := newNode(t, sticky+`, "exclude": ["10.3.0.200-10.3.0.254"]`)
	reserve := func(a string) error {
		_, err := n.store(t).Reserve(t.Context(), addr(a), pod("web-0"), 0)
		return err
	}
	n.add(t, "c1/eth0", "web-9", "10.3.0.2")
	for a, want := range map[string]string{
		"10.3.0.1":   "10.3.0.1 is never given in network pods: it is the gateway",
		"10.3.0.201": "10.3.0.201 is never given in network pods: it is in exclude 10.3.0.200-10.3.0.254",
		"10.4.0.9":   "10.4.0.9 is never given in network pods: its last ADDs gave addresses of 10.3.0.1-10.3.0.254; a new range is known after its first ADD",
	} {
		if err := reserve(a); !errors.Is(err, lease.ErrNotGiven) || err.Error() != want {
			t.Errorf("%s: %v, want %s", a, err, want)
		}
	}
	if err := reserve("10.3.0.9"); err != nil {
		t.Error(err)
	}
}

// If a sticky pod takes another address of the set, it leaves none behind. It does not matter whether the sandbox with
// the first address is already gone.
func TestTakingAnotherAddressReleasesTheOneBefore(t *testing.T) {
	for name, late := range map[string]bool{"the old sandbox is gone": false, "it goes later": true} {
		n := newNode(t, sticky)
		n.add(t, "old/eth0", "web-0", "10.3.0.2")
		n.add(t, "old/net1", "web-0", "10.3.0.3")
		if !late {
			n.del(t, "old/eth0")
			n.del(t, "old/net1")
		}
		if got, err := n.tryAdd(t, "new/eth0", "web-0", "10.3.0.44"); err != nil || got != "10.3.0.44" {
			t.Fatal(got, err)
		}
		if late {
			n.del(t, "old/eth0")
			n.del(t, "old/net1")
		}
		n.expect(t, name, "10.3.0.2 quarantined old/eth0 web-0", "10.3.0.3 reserved old/net1 web-0", "10.3.0.44 held new/eth0 web-0")
		n.del(t, "new/eth0")
		n.later(time.Hour)
		n.expect(t, name+", later", "10.3.0.3 reserved old/net1 web-0", "10.3.0.44 reserved new/eth0 web-0")
	}
}

// Multus writes the addresses of both families in one CNI_ARGS.
func TestAddressesOfBothFamiliesInCNIArgs(t *testing.T) {
	for _, ip := range []string{"10.3.0.7,fd00:3::7", "10.3.0.7/24,fd00:3::7/64", "fd00:3::7, 10.3.0.7"} {
		n := newNode(t, `"ranges": [[{"subnet": "10.3.0.0/24"}], [{"subnet": "fd00:3::/64"}]]`)
		if got, err := n.tryAdd(t, "c1/eth0", "", ip); err != nil || got != "10.3.0.7 fd00:3::7" {
			t.Errorf("%s: %s, %v", ip, got, err)
		}
		_, err := n.tryAdd(t, "c2/eth0", "", "10.3.0.9,fd00:3::1")
		n.expectError(t, "the gateway", err, 4, `invalid CNI_ARGS: "IP=fd00:3::1": cannot be given: it is the gateway`)
		_, err = n.tryAdd(t, "c2/eth0", "", "10.3.0.9,")
		n.expectError(t, "nothing", err, 4, `invalid CNI_ARGS: "IP=": must be an IP address`)
	}
}

// The runtime's log reports a gateway that is a pod's address. The pod still starts.
func TestGatewayThatMovedOntoAHeldAddress(t *testing.T) {
	n := newNode(t, sticky)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	n.ipam = `"subnet": "10.3.0.0/24", "gateway": "10.3.0.2", "sticky": "pod"`
	n.add(t, "c2/eth0", "web-1", "10.3.0.3")
	want := "relink-ipam: 10.3.0.2, the gateway of 10.3.0.0/24, is held by eth0 of c1 on pods (pod default/web-0): the other pods send their traffic to that pod. " +
		"Delete that pod, and it gets another address. If its sandbox is gone, relink gc --leases --network pods frees the address\n"
	if diff := cmp.Diff(want, n.stderr.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	n.stderr.Reset()
	n.del(t, "c1/eth0")
	n.add(t, "c3/eth0", "web-0", "10.3.0.4")
	if n.stderr.Len() > 0 {
		t.Errorf("said %q", n.stderr)
	}
}

// A network that got another name keeps its store, and each owner its address. Some runtimes send DEL and CHECK with the configuration of
// the ADD, so with the old name, and others with the new one.
func TestARenamedNetworkKeepsItsStore(t *testing.T) {
	old := newNode(t, sticky)
	for i, id := range []string{"c1", "c2", "c3", "c4"} {
		old.add(t, id+"/eth0", fmt.Sprint("web-", i), fmt.Sprint("10.3.0.", 2+i))
	}
	old.del(t, "c3/eth0")
	renamed := *old
	renamed.name, renamed.ipam = "lan", sticky+`, "store": "pods"`
	renamed.add(t, "c5/eth0", "web-2", "10.3.0.4")
	renamed.add(t, "c6/eth0", "web-0", "10.3.0.2")
	renamed.add(t, "c7/eth0", "web-9", "10.3.0.6")
	for _, n := range []*node{old, &renamed} {
		args := n.args("c2/eth0", "")
		if err := Detached(t.Context(), (*Call).Check, args); err != nil {
			t.Errorf("CHECK of %s: %v", args.StdinData, err)
		}
	}
	old.del(t, "c1/eth0")
	old.del(t, "c2/eth0")
	renamed.del(t, "c4/eth0")
	renamed.expect(t, "after the DELs", "10.3.0.2 held c6/eth0 web-0", "10.3.0.3 reserved c2/eth0 web-1", "10.3.0.4 held c5/eth0 web-2",
		"10.3.0.5 reserved c4/eth0 web-3", "10.3.0.6 held c7/eth0 web-9")
	renamed.add(t, "c8/eth0", "web-1", "10.3.0.3")
	if old.stderr.Len() > 0 {
		t.Errorf("said %q", old.stderr)
	}
	if names, err := lease.Networks(old.dir); err != nil || len(names) != 1 {
		t.Errorf("stores %q, %v", names, err)
	}
}

// Two networks with one store give no address twice. A DEL, a repeated ADD or a new sandbox of one changes nothing of the other.
func TestTwoNetworksOfOneStore(t *testing.T) {
	n := newNode(t, `"subnet": "10.3.0.0/24"`)
	san := *n
	san.name, san.ipam = "san", n.ipam+`, "store": "pods"`
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	san.add(t, "c1/net1", "web-0", "10.3.0.3")
	n.add(t, "c2/eth0", "web-1", "10.3.0.4")
	san.add(t, "c2/net1", "web-1", "10.3.0.5")
	san.add(t, "c2/net1", "web-1", "10.3.0.5")
	n.del(t, "c1/eth0")
	san.del(t, "c2/net1")
	n.expect(t, "after the DELs", "10.3.0.2 quarantined c1/eth0 web-0", "10.3.0.3 held c1/net1 web-0", "10.3.0.4 held c2/eth0 web-1", "10.3.0.5 quarantined c2/net1 web-1")
	l, err := n.store(t).Get(t.Context(), addr("10.3.0.3"))
	if want := "held by net1 of c1 on san (pod default/web-0)"; err != nil || l.Describe() != want {
		t.Errorf("%s, %v, want %s", l.Describe(), err, want)
	}
}

// The agent knows a network by its store. The API is asked about the network itself.
func TestTheAgentKnowsANetworkByItsStore(t *testing.T) {
	n := newNode(t, `"pool": "lan", "store": "pods"`)
	n.name, n.dirInEnv = "vlan3", true
	t.Setenv(lease.DirEnv, n.dir)
	a := &agent{t: t, n: n, gives: map[string]string{"lan": "..++"}}
	n.owners = a
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	if got := a.requests(); got != "refill pods lan" {
		t.Errorf("asked %q", got)
	}
	n.add(t, "c2/eth0", "web-1", "10.3.0.3")
}

// If the configuration becomes "sticky" under running pods, that counts from their next DEL on.
func TestStickyThatIsTurnedOnUnderARunningPod(t *testing.T) {
	n := newNode(t, `"subnet": "10.3.0.0/24"`)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	n.add(t, "c2/eth0", "web-1", "10.3.0.3")
	n.ipam = sticky + `, "retain": "1h"`
	n.add(t, "c3/eth0", "web-2", "10.3.0.4")
	n.del(t, "c1/eth0")
	n.expect(t, "after its DEL", "10.3.0.2 reserved c1/eth0 web-0", "10.3.0.3 held c2/eth0 web-1", "10.3.0.4 held c3/eth0 web-2")
	n.ipam = `"subnet": "10.3.0.0/24"` // The runtime may have this configuration in its cache.
	n.del(t, "c2/eth0")
	n.later(2 * time.Hour)
	n.expect(t, "later", "10.3.0.4 held c3/eth0 web-2")
}

// The history of an address tells what happened to it.
func TestHistoryOfAnAddress(t *testing.T) {
	n := newNode(t, sticky+`, "retain": "1h"`)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	n.add(t, "c2/eth0", "web-0", "10.3.0.2")
	n.del(t, "c1/eth0")
	n.del(t, "c2/eth0")
	n.later(2 * time.Hour)
	n.add(t, "c3/eth0", "web-1", "10.3.0.3")
	events, err := n.store(t).History(t.Context(), addr("10.3.0.2"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		if e.Address != netip.MustParseAddr("10.3.0.2") || e.Owner != pod("web-0") {
			t.Errorf("%+v", e)
		}
		got = append(got, strings.Join([]string{string(e.Type), e.ContainerID, e.Reason, string(e.StateAfter)}, ", "))
	}
	want := []string{
		"given, c1, next in turn, held", "given, c2, taken over from the owner's sandbox before, held", "given up, c1, released, held",
		"given up, c2, released, reserved", "ended, , reserved for pod default/web-0, ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
