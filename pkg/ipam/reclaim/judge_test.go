package reclaim

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/test/fresh"
)

// The tests see only their own processes. Otherwise, the sandbox of another process might have any address.
func TestMain(m *testing.M) {
	fresh.EnterAlone()
	fresh.Main(m)
}

var address = netip.MustParseAddr("10.231.77.5")

// emptyNode returns a node that was looked at without a problem.
func emptyNode() *Node {
	return &Node{
		bootID: "boot-2",
		live: map[inode]liveNamespace{
			{4, 100}: {"the network namespace at /run/netns/a", 7}, {4, 200}: {"the network namespace at /run/netns/b", 17}, {4, 1}: {"the host's network namespace", 1},
		},
		holders: map[netip.Addr][]inode{},
		cache:   Cache{dir: "/cache", entries: map[string][]cnicache.Entry{}},
	}
}

func (n *Node) cached() { n.cache.entries["c1"] = []cnicache.Entry{{}} }
func (n *Node) blind()  { n.cache.Problems = []string{"CNI cache /cache/results/x: torn"} }
func (n *Node) has() {
	n.holders[address] = []inode{{4, 200}, {4, 1}}
}
func (n *Node) addUninspected() {
	n.uninspected = []string{"the network namespace at /run/netns/c: no"}
}
func (n *Node) nothing() {
}

// Each holder is judged by what is known of it. Each verdict has its evidence.
func TestJudge(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const (
		gone       = "no mount and no process has its network namespace (inode 4:101)"
		reused     = "its network namespace is gone: the network namespace at /run/netns/a has the inode now (4:100, cookie 7; it had cookie 9)"
		noCookie   = "the network namespace at /run/netns/a has the inode of its network namespace (4:100), and may be another one: the cookies are not known"
		unrecorded = "its network namespace was not recorded"
		nowhere    = "no network namespace has the address"
		uncached   = "the CNI cache in /cache does not have it"
		owed       = "the CNI cache in /cache has it: its runtime owes a DEL"
		notKnown   = "whether its runtime owes a DEL is not known: CNI cache /cache/results/x: torn"
		elsewhere  = "the network namespace at /run/netns/b and the host's network namespace has the address"
	)
	in := func(device, number, cookie uint64) attachment.Namespace {
		return attachment.Namespace{Path: "/run/netns/a", BootID: "boot-2", Device: device, Inode: number, Cookie: cookie}
	}
	path := attachment.Namespace{Path: "/run/netns/a", BootID: "boot-2"}
	for name, test := range map[string]struct {
		namespace attachment.Namespace
		since     time.Duration
		node      func(*Node)
		want      sandbox.Verdict
		evidence  []string
	}{
		"of an earlier boot": {attachment.Namespace{BootID: "boot-1", Device: 4, Inode: 100, Cookie: 7}, time.Hour, (*Node).nothing,
			sandbox.VerdictGone, []string{"it held the address in an earlier boot (boot ID boot-1, now boot-2)"}},
		"of an earlier boot, whatever the cache says": {attachment.Namespace{BootID: "boot-1"}, time.Hour, (*Node).cached,
			sandbox.VerdictGone, []string{"it held the address in an earlier boot (boot ID boot-1, now boot-2)"}},

		"its namespace is there":                              {in(4, 100, 7), time.Hour, (*Node).nothing, sandbox.VerdictAlive, []string{"it is in the network namespace at /run/netns/a"}},
		"its namespace is there, and the cache can't be read": {in(4, 100, 7), time.Hour, (*Node).blind, sandbox.VerdictAlive, []string{"it is in the network namespace at /run/netns/a"}},
		"its namespace is gone":                               {in(4, 101, 7), time.Hour, (*Node).nothing, sandbox.VerdictGone, []string{gone, uncached}},
		"its namespace is gone a moment after it came":        {in(4, 101, 7), time.Second, (*Node).nothing, sandbox.VerdictGone, []string{gone, uncached}},
		"its namespace is gone, another has the address":      {in(4, 101, 7), time.Hour, (*Node).has, sandbox.VerdictGone, []string{gone, uncached}},
		"its namespace is gone, another can't be looked into": {in(4, 101, 7), time.Hour, (*Node).addUninspected, sandbox.VerdictGone, []string{gone, uncached}},
		"the inode is of another file system": {in(5, 100, 7), time.Hour, (*Node).nothing, sandbox.VerdictGone,
			[]string{"no mount and no process has its network namespace (inode 5:100)", uncached}},
		"its namespace is gone, and the cache has it":            {in(4, 101, 7), time.Hour, (*Node).cached, sandbox.VerdictDELDue, []string{gone, owed}},
		"its namespace is gone, and the cache can't be read":     {in(4, 101, 7), time.Hour, (*Node).blind, sandbox.VerdictUnknown, []string{gone, notKnown}},
		"the inode was given again":                              {in(4, 100, 9), time.Hour, (*Node).nothing, sandbox.VerdictGone, []string{reused, uncached}},
		"the inode was given again, and the cache has it":        {in(4, 100, 9), time.Hour, (*Node).cached, sandbox.VerdictDELDue, []string{reused, owed}},
		"the inode was given again, and the cache can't be read": {in(4, 100, 9), time.Hour, (*Node).blind, sandbox.VerdictUnknown, []string{reused, notKnown}},
		"its cookie is not known":                                {in(4, 100, 0), time.Hour, (*Node).nothing, sandbox.VerdictUnknown, []string{noCookie}},
		"its cookie is not known, and the cache has it":          {in(4, 100, 0), time.Hour, (*Node).cached, sandbox.VerdictAlive, []string{noCookie}},
		"the other's cookie is not known": {in(4, 100, 7), time.Hour,
			func(n *Node) { n.live[inode{4, 100}] = liveNamespace{"the network namespace at /run/netns/a", 0} }, sandbox.VerdictUnknown, []string{noCookie}},

		"no namespace has the address":                       {path, time.Hour, (*Node).nothing, sandbox.VerdictGone, []string{unrecorded, nowhere, uncached}},
		"not even a path was recorded":                       {attachment.Namespace{BootID: "boot-2"}, time.Hour, (*Node).nothing, sandbox.VerdictGone, []string{unrecorded, nowhere, uncached}},
		"no namespace has the address, the cache has it":     {path, time.Hour, (*Node).cached, sandbox.VerdictUnknown, []string{unrecorded, nowhere + ", but the CNI cache in /cache has it: it is alive, or its runtime owes a DEL"}},
		"a namespace has the address, and the cache has it":  {path, time.Hour, func(n *Node) { n.has(); n.cached() }, sandbox.VerdictAlive, []string{unrecorded, "the CNI cache in /cache has it, and the network namespace at /run/netns/b and the host's network namespace has the address"}},
		"a namespace has the address":                        {path, time.Hour, (*Node).has, sandbox.VerdictUnknown, []string{unrecorded, elsewhere}},
		"the address is there, another can't be looked into": {path, time.Hour, func(n *Node) { n.has(); n.addUninspected() }, sandbox.VerdictUnknown, []string{unrecorded, elsewhere}},
		"a namespace can't be looked into":                   {path, time.Hour, (*Node).addUninspected, sandbox.VerdictUnknown, []string{unrecorded, "it may be one that cannot be looked into: the network namespace at /run/netns/c: no"}},
		"no namespace has it, and the cache can't be read":   {path, time.Hour, (*Node).blind, sandbox.VerdictUnknown, []string{unrecorded, nowhere, notKnown}},
		"an ADD may be under way":                            {path, time.Minute, (*Node).nothing, sandbox.VerdictUnknown, []string{unrecorded, "it was given the address less than 10m0s ago: its ADD may not be over"}},
		"given after now, by a clock that was set":           {path, -time.Hour, (*Node).nothing, sandbox.VerdictUnknown, []string{unrecorded, "it was given the address less than 10m0s ago: its ADD may not be over"}},
		"an ADD is over":                                     {path, LongestADD, (*Node).nothing, sandbox.VerdictGone, []string{unrecorded, nowhere, uncached}},
	} {
		t.Run(name, func(t *testing.T) {
			n := emptyNode()
			test.node(n)
			h := lease.Holder{ContainerID: "c1", IfName: "eth0", Namespace: test.namespace, Since: now.Add(-test.since)}
			if diff := cmp.Diff(sandbox.Judgement{Verdict: test.want, Evidence: test.evidence}, n.Judge(address, h, now)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Evidence about another container keeps no holder.
func TestJudgeLooksForTheContainerItself(t *testing.T) {
	n := emptyNode()
	n.cached()
	n.holders[netip.MustParseAddr("10.231.77.50")] = []inode{{4, 1}}
	h := lease.Holder{ContainerID: "c10", IfName: "eth0", Namespace: attachment.Namespace{BootID: "boot-2"}}
	if j := n.Judge(address, h, time.Now()); j.Verdict != sandbox.VerdictGone {
		t.Errorf("%+v", j)
	}
}

// If only the sandbox of another holder has the address, this holder's sandbox does not.
func TestJudgeBesideOtherHolders(t *testing.T) {
	in := func(device, number, cookie uint64) lease.Holder {
		return lease.Holder{ContainerID: "c2", Namespace: attachment.Namespace{BootID: "boot-2", Device: device, Inode: number, Cookie: cookie}}
	}
	const b = "the network namespace at /run/netns/b"
	for name, test := range map[string]struct {
		having []inode
		other  lease.Holder
		want   sandbox.Verdict
		last   string
	}{
		"it alone has it":         {[]inode{{4, 200}}, in(4, 200, 17), sandbox.VerdictGone, "the CNI cache in /cache does not have it"},
		"another one has it, too": {[]inode{{4, 200}, {4, 1}}, in(4, 200, 17), sandbox.VerdictUnknown, "the host's network namespace has the address"},
		"its inode was reused":    {[]inode{{4, 200}}, in(4, 200, 16), sandbox.VerdictUnknown, b + " has the address"},
		"its cookie is unknown":   {[]inode{{4, 200}}, in(4, 200, 0), sandbox.VerdictUnknown, b + " has the address"},
		"it is unknown":           {[]inode{{4, 200}}, in(0, 0, 0), sandbox.VerdictUnknown, b + " has the address"},
	} {
		t.Run(name, func(t *testing.T) {
			n := emptyNode()
			n.holders[address] = test.having
			h := lease.Holder{ContainerID: "c1", IfName: "eth0", Namespace: attachment.Namespace{BootID: "boot-2"}}
			j := n.Judge(address, h, time.Now(), test.other)
			if j.Verdict != test.want || j.Evidence[len(j.Evidence)-1] != test.last {
				t.Errorf("%+v; want %s, %s", j, test.want, test.last)
			}
			if want := "no network namespace but that of c2 has the address"; test.want == sandbox.VerdictGone && j.Evidence[1] != want {
				t.Errorf("%q, want %q", j.Evidence[1], want)
			}
		})
	}
}
