package ipam

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/pool"
)

// What the node has it gives alone. The agent is asked only once nothing is left, and only once.
func TestADDFromAPool(t *testing.T) {
	const address = "10.3.0.%d/24 via 10.3.0.1, to 10.0.0.0/8 via 10.3.0.1"
	n, a := newPoolNode(t, `"pool": "lan"`)
	a.gives = map[string]string{"lan": "+++"}
	for _, step := range []struct {
		sandbox, want, asked string
	}{
		{"c1/eth0", fmt.Sprintf(address, 0), "refill pods lan"}, {"c2/eth0", fmt.Sprintf(address, 2), ""}, {"c1/eth0", fmt.Sprintf(address, 0), ""},
	} {
		got, g, err := n.addCommitted(t, step.sandbox, "", "")
		if was := a.requests(); err != nil || got != step.want || was != step.asked || g.Migrating {
			t.Errorf("%s: %s %v, and the agent was asked %q, want %s and %q", step.sandbox, got, err, was, step.want, step.asked)
		}
	}
	_, _, err := n.addCommitted(t, "c3/eth0", "", "")
	n.expectError(t, "nothing is left", err, 11,
		"relink-ipam: pool lan of network pods: no address is free of the 2 that this node has: 2 held, 0 reserved, 0 in quarantine; relink ipam list says for whom")
	if was := a.requests(); was != "refill pods lan" {
		t.Errorf("the agent was asked %q", was)
	}
	n.del(t, "c1/eth0")
	if got, _, err := n.addCommitted(t, "c4/eth0", "", ""); err != nil || got != fmt.Sprintf(address, 0) {
		t.Errorf("one in quarantine: %s %v", got, err)
	}
}

// The agent may not be there, or not be able to give anything. The message says why, and what the store lacks.
func TestWithoutAnAgentForPools(t *testing.T) {
	const none = "relink-ipam: pool lan of network pods: no address is free: no address of it is granted to this node: "
	away := fmt.Errorf("%w: no relink-agent runs on this node: nothing listens on /x", pool.ErrUnavailable)
	for name, test := range map[string]struct {
		blocks string
		reboot bool
		change func(*node, *agent)
		code   uint
		msg    string
	}{
		"away": {"....", false, func(_ *node, a *agent) { a.refill = away }, 11, none + "the pool gives nothing now: no relink-agent runs on this node: nothing listens on /x"},
		"nobody can be asked": {"....", false, func(n *node, _ *agent) { n.owners = &fakeOwners{err: owner.ErrNoAsker} }, 11,
			none + "the pool gives nothing now: nobody can be asked on this node"},
		"no such pool": {"....", false, func(_ *node, a *agent) { a.refill = fmt.Errorf("%w: AddressPool lan does not exist", pool.ErrUnknown) }, 7,
			none + "the pool cannot be used: AddressPool lan does not exist"},
		"it gives nothing": {"....", false, func(*node, *agent) {}, 11, strings.TrimSuffix(none, ": ")},
		"after a reboot": {"++++", true, func(_ *node, a *agent) { a.refill = away }, 11,
			"relink-ipam: pool lan of network pods: this node has not read its address pools since its boot: relink-agent reads them as soon as the Kubernetes API answers: " +
				"the pool gives nothing now: no relink-agent runs on this node: nothing listens on /x"},
	} {
		t.Run(name, func(t *testing.T) {
			n, a := newPoolNode(t, `"pool": "lan"`)
			n.grant(t, "lan", 0, test.blocks)
			if test.reboot {
				n.reboot(time.Minute)
			}
			test.change(n, a)
			_, _, err := n.addCommitted(t, "c1/eth0", "", "")
			n.expectError(t, "ADD", err, test.code, test.msg)
			n.expect(t, "afterwards")
		})
	}
}

// After a reboot the agent reads the API once. Then the node gives what it had.
func TestAfterARebootTheAgentConfirms(t *testing.T) {
	n, a := newPoolNode(t, `"pool": "lan", "sticky": "pod"`)
	n.grant(t, "lan", 0, "..+")
	if _, _, err := n.addCommitted(t, "c1/eth0", "web-0", ""); err != nil {
		t.Fatal(err)
	}
	a.requests()
	n.reboot(time.Minute)
	a.gives = map[string]string{"lan": "..++"}
	got, _, err := n.addCommitted(t, "c2/eth0", "web-0", "")
	if was := a.requests(); err != nil || !strings.HasPrefix(got, "10.3.0.2/24") || was != "refill pods lan" {
		t.Errorf("%s %v, asked %q", got, err, was)
	}
}

// A first ADD that fails leaves the names of its pools behind: an agent that comes later knows what the node needs.
func TestAFailedADDNamesItsPools(t *testing.T) {
	n, a := newPoolNode(t, `"pool": ["lan", "lan6"]`)
	a.refill = pool.ErrUnavailable
	if _, _, err := n.addCommitted(t, "c1/eth0", "", ""); err == nil {
		t.Fatal("it has got an address")
	}
	g, err := n.store(t).Granted(t.Context())
	if err != nil || len(g.ID) != 32 || len(g.Pools) != 2 || g.Pools[0].Name != "lan" || g.Pools[1].Name != "lan6" {
		t.Errorf("%+v %v", g, err)
	}
	for what, err := range map[string]error{
		"STATUS": n.status(t), "CHECK": n.begin(t, n.args("c1/eth0", "")).Check(t.Context()), "GC": n.gc(t, "[]"), "DEL": n.begin(t, n.args("c1/eth0", "")).Del(t.Context()),
	} {
		if msg := parseError(t, err).Msg; msg != "" && what != "CHECK" {
			t.Errorf("%s: %s", what, msg)
		}
	}
}

// Without a store, STATUS is content: the first ADD has the agent take addresses.
func TestStatusOfAPoolWithoutAStore(t *testing.T) {
	n, _ := newPoolNode(t, `"pool": "lan"`)
	if err := n.status(t); err != nil {
		t.Error(err)
	}
	if there, _ := n.store(t).Exists(); there {
		t.Error("it has made a store")
	}
}

// A pod can get an address of each of several pools. Routes of the configuration take the place of those of the pools.
func TestADDFromTwoPools(t *testing.T) {
	for keys, want := range map[string]string{
		``:                                      "10.3.0.2/24 via 10.3.0.1, fd00:3::10/64, to 10.0.0.0/8 via 10.3.0.1, to ::/0",
		`, "routes": [{"dst": "192.0.2.0/24"}]`: "10.3.0.2/24 via 10.3.0.1, fd00:3::10/64, to 192.0.2.0/24",
		`, "routes": []`:                        "10.3.0.2/24 via 10.3.0.1, fd00:3::10/64, to 10.0.0.0/8 via 10.3.0.1, to ::/0",
	} {
		n, a := newPoolNode(t, `"pool": ["lan", "lan6"]`+keys)
		a.gives = map[string]string{"lan": "..+", "lan6": "+"}
		got, _, err := n.addCommitted(t, "c1/eth0", "", "")
		if was := a.requests(); err != nil || got != want || was != "refill pods lan lan6" {
			t.Errorf("%s: %s %v, asked %q, want %s", keys, got, err, was, want)
		}
	}
}

// Of a choice the agent says once which pool the node takes. Then the store knows it.
func TestADDFromAChoice(t *testing.T) {
	n, a := newPoolNode(t, `"pool": [{"oneOf": ["lan", "other"]}, "lan6"], "sticky": "pod", "roam": true`)
	const unchosen = "relink-ipam: network pods: this node does not know which of these pools it takes: lan, other"
	a.refill = fmt.Errorf("%w: none is for this node", pool.ErrUnknown)
	_, _, err := n.addCommitted(t, "c1/eth0", "web-0", "")
	n.expectError(t, "none is for the node", err, 7, unchosen+": the pool cannot be used: none is for this node")
	a.refill = nil
	_, _, err = n.addCommitted(t, "c1/eth0", "web-0", "")
	n.expectError(t, "the agent chooses none", err, 11, unchosen)
	a.gives, a.takes = map[string]string{"lan": "..++", "lan6": "++"}, map[string]string{"lan|other": "lan"}
	a.requests()
	for i, want := range []string{
		"refill pods lan|other lan6, acquire lan eth0 web-0, acquire lan6 eth0 web-0, claim lan eth0 web-0 10.3.0.2, claim lan6 eth0 web-0 fd00:3::10",
		"acquire lan eth0 web-1, acquire lan6 eth0 web-1, claim lan eth0 web-1 10.3.0.3, claim lan6 eth0 web-1 fd00:3::11",
	} {
		got, _, err := n.addCommitted(t, fmt.Sprintf("c%d/eth0", i), fmt.Sprintf("web-%d", i), "")
		if was := a.requests(); err != nil || was != want || !a.acquired.Roam {
			t.Errorf("%s, %v, asked %q (may roam: %v), want %q", got, err, was, a.acquired.Roam, want)
		}
	}
}

// An owner's address can be on any node. It is never given another one without a look there. If it is here, nobody is asked.
func TestAStickyPodOfAPool(t *testing.T) {
	n, a := newPoolNode(t, `"pool": "lan", "sticky": "pod", "retain": "2h"`)
	n.grant(t, "lan", 0, "..+++")
	for _, step := range []struct {
		what, sandbox, pod string
		before             func()
		want, asked        string
	}{
		{"the first pod", "c1/net1", "web-0", nil, "10.3.0.2", "acquire lan net1 web-0, claim lan net1 web-0 10.3.0.2"},
		{"a repeated ADD", "c1/net1", "web-0", nil, "10.3.0.2", ""},
		{"the next pod", "c2/net1", "web-0", func() { n.del(t, "c1/net1") }, "10.3.0.2", ""},
		{"it comes from another node", "c3/net1", "web-1", func() { a.has = map[string]string{"web-1": "10.3.0.9"} }, "10.3.0.9",
			"acquire lan net1 web-1, claim lan net1 web-1 10.3.0.9"},
		{"another interface", "c3/net2", "web-1", func() { a.has = nil }, "10.3.0.3", "acquire lan net2 web-1, claim lan net2 web-1 10.3.0.3"},
	} {
		if step.before != nil {
			step.before()
		}
		got, _, err := n.addCommitted(t, step.sandbox, step.pod, "")
		if was := a.requests(); err != nil || !strings.HasPrefix(got, step.want+"/24") || was != step.asked {
			t.Errorf("%s: %s %v, asked %q, want %s and %q", step.what, got, err, was, step.want, step.asked)
		}
	}
	want := pool.ClaimedAddress{
		Acquisition: pool.Acquisition{
			Network: "pods", Pool: "lan", IfName: "net2", Owner: pod("web-1"), Pod: attachment.Pod{Namespace: "default", Name: "web-1"}, Retain: 2 * time.Hour,
		},
		Address: addr("10.3.0.3"),
	}
	if diff := cmp.Diff(want, a.claimed, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What a sticky pod needs may not come. Then its ADD fails, and tells why.
func TestAStickyPodWaitsForItsAddress(t *testing.T) {
	const begins = "relink-ipam: the address that pod default/web-0 has of pool lan may be on another node: "
	for name, test := range map[string]struct {
		change func(*node, *agent)
		msg    string
	}{
		"no agent": {func(n *node, _ *agent) { n.owners = nil }, begins + "the pool gives nothing now: nobody can be asked on this node"},
		"it does not come": {func(_ *node, a *agent) {
			a.acquire = fmt.Errorf("%w: node b has 10.3.0.9, and has not handed it over", pool.ErrUnavailable)
		},
			begins + "the pool gives nothing now: node b has 10.3.0.9, and has not handed it over"},
		"it was said to be here": {func(_ *node, a *agent) { a.has, a.lost = map[string]string{"web-0": "10.3.0.9"}, true },
			"relink-ipam: 10.3.0.9 of pool lan is not available: the Kubernetes API has it for the owner, and this node has not got it"},
		"it cannot be claimed": {func(_ *node, a *agent) { a.claim = fmt.Errorf("%w: 503", pool.ErrUnavailable) },
			"relink-ipam: the address of pod default/web-0: the pool gives nothing now: 503"},
	} {
		t.Run(name, func(t *testing.T) {
			n, a := newPoolNode(t, `"pool": "lan", "sticky": "pod"`)
			n.grant(t, "lan", 0, "..++")
			test.change(n, a)
			_, _, err := n.addCommitted(t, "c1/eth0", "web-0", "")
			n.expectError(t, "ADD", err, 11, test.msg)
		})
	}
}

// A claim that was not made is made by the next ADD, although the address waits here by then. The owner can have another one since: the
// agent is asked.
func TestAClaimIsMadeByTheNextADD(t *testing.T) {
	n, a := newPoolNode(t, `"pool": "lan", "sticky": "pod"`)
	n.grant(t, "lan", 0, "..++")
	a.claim = pool.ErrUnavailable
	if _, _, err := n.addCommitted(t, "c1/eth0", "web-0", ""); err == nil {
		t.Fatal("the ADD has succeeded")
	}
	n.expect(t, "it waits for the pod", "10.3.0.2 reserved c1/eth0 web-0")
	a.requests()
	a.claim = nil
	for i, want := range []string{"acquire lan eth0 web-0, claim lan eth0 web-0 10.3.0.2", ""} {
		sandbox := fmt.Sprintf("c%d/eth0", i+2)
		if _, _, err := n.addCommitted(t, sandbox, "web-0", ""); err != nil {
			t.Error(err)
		}
		if was := a.requests(); was != want {
			t.Errorf("asked %q, want %q", was, want)
		}
		n.del(t, sandbox)
	}
}

// By owner: one with one pod at a time is known to the API. Of one with several, each address waits where it was.
func TestOwnersOfAPool(t *testing.T) {
	several := replica(0)
	several.Owner.Kind, several.Owner.Name, several.Owner.Ordinal, several.SinglePod = "ReplicaSet", "rs", attachment.Ordinal(0), false
	for name, test := range map[string]struct {
		answer owner.Answer
		asked  string
	}{
		"a virtual machine":          {vm("db"), "acquire lan eth0 db, claim lan eth0 db 10.3.0.2"},
		"a StatefulSet's pod":        {replica(1), "acquire lan eth0 web, claim lan eth0 web 10.3.0.2"},
		"a pod of its own":           {plain("x"), ""},
		"one with several at a time": {several, ""},
	} {
		n, a := newPoolNode(t, `"pool": "lan", "sticky": "owner"`)
		n.grant(t, "lan", 0, "..++")
		a.fakeOwners = fakeOwners{answers: map[string]owner.Answer{"p": test.answer}}
		if _, _, err := n.addCommitted(t, "c1/eth0", "p", ""); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if was := a.requests(); was != test.asked {
			t.Errorf("%s: asked %q, want %q", name, was, test.asked)
		}
	}
}

// An address that a pod asks for comes from wherever it is.
func TestAnAddressOfAPoolThatIsAskedFor(t *testing.T) {
	zero := 0
	for name, test := range map[string]struct {
		pod, ip string
		change  func(*agent)
		want    string
		code    uint
		asked   string
	}{
		"here":                       {"", "10.3.0.3", nil, "10.3.0.3/24", 0, ""},
		"elsewhere":                  {"a", "10.3.0.9", withRemoteAddresses("10.3.0.9"), "10.3.0.9/24", 0, "acquire lan eth0 a 10.3.0.9"},
		"elsewhere, and stays there": {"a", "10.3.0.9", nil, "relink-ipam: 10.3.0.9 of pool lan is not on this node: the pool gives nothing now: node b has 10.3.0.9", 11, "acquire lan eth0 a 10.3.0.9"},
		"elsewhere, for no pod": {"", "10.3.0.9", withRemoteAddresses("10.3.0.9"),
			"relink-ipam: 10.3.0.9 of pool lan is not on this node, and only a pod with a name can get it from another one: CNI_ARGS must have K8S_POD_NAMESPACE and K8S_POD_NAME", 11, ""},
		"the gateway":         {"a", "10.3.0.1", nil, `invalid CNI_ARGS: "IP=10.3.0.1": cannot be given: it is the gateway`, 4, ""},
		"of no pool":          {"a", "10.9.0.1", nil, `invalid CNI_ARGS: "IP=10.9.0.1": is in none of the range sets`, 4, ""},
		"an annotation":       {"a", "", static(nil, "10.3.0.9"), "10.3.0.9/24", 0, "acquire lan eth0 a 10.3.0.9"},
		"one of a list, here": {"a", "", static(nil, "10.3.0.9", "10.3.0.3"), "10.3.0.3/24", 0, ""},
		"one of a list, the second": {"a", "", func(g *agent) { static(nil, "10.3.0.8", "10.3.0.9")(g); delete(g.has, "10.3.0.8") }, "10.3.0.9/24", 0,
			"acquire lan eth0 a 10.3.0.8, acquire lan eth0 a 10.3.0.9"},
		"one of a list, none": {"a", "", func(g *agent) { static(nil, "10.3.0.8", "10.3.0.9")(g); g.has = nil },
			"relink-ipam: 10.3.0.9 of pool lan is not on this node: the pool gives nothing now: node b has 10.3.0.9", 11, "acquire lan eth0 a 10.3.0.8, acquire lan eth0 a 10.3.0.9"},
		"the replica's": {"a", "", static(&zero, "10.3.0.9", "10.3.0.3"), "10.3.0.9/24", 0, "acquire lan eth0 a 10.3.0.9"},
		"annotated, and of no pool": {"a", "", static(nil, "10.9.0.1"),
			`invalid "annotation ipam.relink.dev/pods": "10.9.0.1": is in none of the range sets`, 7, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n, a := newPoolNode(t, `"pool": "lan"`)
			n.grant(t, "lan", 0, "..++")
			if test.change != nil {
				test.change(a)
			}
			got, _, err := n.addCommitted(t, "c1/eth0", test.pod, test.ip)
			if test.code != 0 {
				n.expectError(t, "ADD", err, test.code, test.want)
			} else if err != nil || !strings.HasPrefix(got, test.want) {
				t.Errorf("%s %v, want %s", got, err, test.want)
			}
			if was := a.requests(); was != test.asked {
				t.Errorf("asked %q, want %q", was, test.asked)
			}
			if strings.HasPrefix(test.asked, "acquire") && a.acquired.Retain != minRetain {
				t.Errorf("it would wait for %s", a.acquired.Retain)
			}
		})
	}
}

// withRemoteAddresses lets other nodes hand over the addresses.
func withRemoteAddresses(all ...string) func(*agent) {
	return func(a *agent) {
		a.has = map[string]string{}
		for _, address := range all {
			a.has[address] = address
		}
	}
}

// static has pod "a" ask for addresses, which other nodes hand over.
func static(replica *int, all ...string) func(*agent) {
	return func(a *agent) {
		withRemoteAddresses(all...)(a)
		a.fakeOwners = fakeOwners{answers: map[string]owner.Answer{"a": askingFor(plain("a"), "ipam.relink.dev/pods", replica, all...)}}
	}
}

// An annotation's addresses are divided among the pools. A pool that the node has not read so far is read first.
func TestAnAnnotationForTwoPools(t *testing.T) {
	n, a := newPoolNode(t, `"pool": ["lan", "lan6"]`)
	second := 1
	a.fakeOwners = fakeOwners{answers: map[string]owner.Answer{"a": askingFor(plain("a"), "k", &second, "10.3.0.2", "10.3.0.3", "fd00:3::10", "fd00:3::11")}}
	a.gives = map[string]string{"lan": "..++"}
	_, _, err := n.addCommitted(t, "c1/eth0", "a", "")
	n.expectError(t, "lan6 does not come", err, 11, "relink-ipam: pool lan6 of network pods: no address is free: no address of it is granted to this node")
	a.requests()
	a.gives["lan6"] = "++"
	got, _, err := n.addCommitted(t, "c1/eth0", "a", "")
	if was := a.requests(); err != nil || !strings.HasPrefix(got, "10.3.0.3/24 via 10.3.0.1, fd00:3::11/64") || was != "refill pods lan lan6" {
		t.Errorf("%s %v, asked %q", got, err, was)
	}
}

// A virtual machine that moves keeps its address, which the other node still uses. Nobody probes for it.
func TestAVirtualMachineMoves(t *testing.T) {
	n, a := newPoolNode(t, `"pool": "lan", "sticky": "owner", "conflictDetection": true`)
	n.grant(t, "lan", 0, "..++")
	machine := vm("db")
	machine.Siblings = []string{"uid-of-virt-launcher-1"}
	a.fakeOwners = fakeOwners{answers: map[string]owner.Answer{"virt-launcher-2": machine}}
	a.has, a.migrating = map[string]string{"db": "10.3.0.9"}, true
	for _, asked := range []string{"acquire lan eth0 db", ""} { // A repeated ADD, too.
		got, g, err := n.addCommitted(t, "c2/eth0", "virt-launcher-2", "")
		if was := a.requests(); err != nil || !strings.HasPrefix(got, "10.3.0.9/24") || was != asked {
			t.Errorf("%s %v, asked %q, want %q", got, err, was, asked)
		}
		if !g.Migrating || g.Detection != nil {
			t.Errorf("quiet %v, probes %+v", g.Migrating, g.Detection)
		}
		n.expect(t, "it is held beside the other node", "10.3.0.9 held c2/eth0 db")
	}
	if diff := cmp.Diff(machine.Siblings, a.acquired.Siblings); diff != "" {
		t.Errorf("the agent hears of the pod before (-want +got):\n%s", diff)
	}
	n.grant(t, "lan", 1, ".+")
	got, g, err := n.addCommitted(t, "c2/eth0", "virt-launcher-2", "")
	if was := a.requests(); err != nil || g.Migrating || was != "claim lan eth0 db 10.3.0.9" {
		t.Errorf("after it has come: %s %v, quiet %v, asked %q", got, err, g.Migrating, was)
	}
}

// A pod of a dead node may still answer for an address. It is probed for even without conflictDetection. A program of its own cannot
// probe, and does not give it.
func TestAnAddressThatMustBeProbedFor(t *testing.T) {
	usual := &Detection{Probes: defaultProbes, Wait: defaultWait}
	for name, test := range map[string]struct {
		blocks, keys string
		want         *Detection
	}{
		"sure":                 {"..+", "", nil},
		"doubtful":             {"..?", "", usual},
		"doubtful, as it says": {"..?", `, "conflictDetection": {"probes": 1, "wait": "1s"}`, &Detection{Probes: 1, Wait: time.Second}},
	} {
		n, _ := newPoolNode(t, `"pool": "lan"`+test.keys)
		n.grant(t, "lan", 0, test.blocks)
		_, g, err := n.addCommitted(t, "c1/eth0", "", "")
		if diff := cmp.Diff(test.want, g.Detection); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	n, a := newPoolNode(t, `"pool": "lan"`)
	n.grant(t, "lan", 0, "..??")
	a.refill = pool.ErrUnavailable
	_, _, err := n.addCommitted(t, "c1/eth0", "", "", func(c *Call) { c.standalone = true })
	n.expectError(t, "a program", err, 11, "relink-ipam: pool lan of network pods: no address is free: this node has 2 that must be probed for, "+
		"which relink-ipam cannot do as a program of its own: the pool gives nothing now")
}

// After a conflict, the next address may need no probe.
func TestAConflictOnAPool(t *testing.T) {
	n, _ := newPoolNode(t, `"pool": "lan"`)
	n.grant(t, "lan", 0, "..?")
	_, g, err := n.addCommitted(t, "c1/eth0", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if exchanged, err := g.call.Conflict(t.Context(), addr("10.3.0.2"), "02:00:00:00:00:01"); err != nil || !exchanged {
		t.Fatalf("%v %v", exchanged, err)
	}
	n.grant(t, "lan", 1, "+")
	g, err = g.call.Add(t.Context())
	if err != nil || g.Result.IPs[0].Address.String() != "10.3.0.8/24" || g.Detection != nil {
		t.Fatalf("%+v %v", g, err)
	}
	n.expect(t, "afterwards", "10.3.0.2 quarantined c1/eth0", "10.3.0.8 held c1/eth0")
}
