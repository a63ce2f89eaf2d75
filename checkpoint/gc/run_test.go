package gc

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

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/kernel/identity"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/test/fresh"
)

func TestMain(m *testing.M) {
	fresh.EnterAlone()
	os.Exit(m.Run())
}

// cluster stands for the container runtime and the Kubernetes API, which are other processes.
type cluster struct {
	sandboxes []sandbox.RuntimeSandbox
	down      error
	standing  map[attachment.Owner]owner.Standing
	// elsewhere are the UIDs of pods on other nodes.
	elsewhere map[attachment.Owner]string
	// uid is that of the namespace kube-system. The stores know this cluster, unless a test forgets it.
	uid string
	// asked has each question. then is what becomes of the API after so many questions.
	asked [][]attachment.Owner
	then  map[int]func(*cluster)
}

func (c *cluster) Sandboxes(context.Context) ([]sandbox.RuntimeSandbox, error) {
	return c.sandboxes, c.down
}

// Judge answers for the owners that it knows. For the others it fails, as an API does that has an error.
func (c *cluster) Judge(_ context.Context, owners []attachment.Owner) (all []owner.Judgement) {
	for _, o := range owners {
		j := owner.Judgement{Owner: o, Standing: owner.Unknown, Reason: "HTTP status 500", Cluster: c.uid}
		if c.uid == "" {
			j.NoCluster = "forbidden"
		}
		if s, ok := c.standing[o]; ok {
			j.Standing, j.Reason, j.RemotePodUID = s, "the API says so", c.elsewhere[o]
			j.PodLocation = fmt.Sprintf("its pod %q is elsewhere", j.RemotePodUID)
		}
		all = append(all, j)
	}
	if c.asked = append(c.asked, owners); c.then[len(c.asked)] != nil {
		c.then[len(c.asked)](c)
	}
	return all
}

// node is a node with a store of leases and one of checkpoints.
type node struct {
	store  *checkpoint.Store
	leases *lease.Store
	cluster
}

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{store: checkpoint.OpenStore(filepath.Join(t.TempDir(), "checkpoints")), leases: store(t, t.TempDir(), "lan"), cluster: cluster{uid: here, standing: map[attachment.Owner]owner.Standing{}, then: map[int]func(*cluster){}}}
	return n
}

// here is the cluster of the node.
const here = "u-here"

func store(t testing.TB, dir, network string) *lease.Store {
	t.Helper()
	s, err := lease.Open(dir, network)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var subnet = lease.RangeSet{{Span: lease.Span{First: netip.MustParseAddr("10.3.0.2"), Last: netip.MustParseAddr("10.3.255.250")}, Subnet: netip.MustParsePrefix("10.3.0.0/16")}}

func web(i int) attachment.Owner {
	return attachment.Owner{Kind: "StatefulSet", Namespace: "shop", Name: fmt.Sprintf("web-%d", i), UID: fmt.Sprintf("u%d", i)}
}

// add gives the sandbox at the path an address, and writes its checkpoint.
func (n *node) add(t testing.TB, id, netns string, of attachment.Owner) netip.Addr {
	t.Helper()
	at, err := identity.Read(netns)
	if err != nil {
		t.Fatal(err)
	}
	key := attachment.Key{Network: "lan", ContainerID: id, IfName: "eth0"}
	given, err := n.leases.Allocate(t.Context(), lease.Request{Attachment: key, Owner: of, Namespace: at, Sets: []lease.RangeSet{subnet}, Policy: lease.Policy{Sticky: true}})
	if err == nil {
		err = n.leases.SetCluster(t.Context(), here)
	}
	if err != nil {
		t.Fatal(err)
	}
	err = n.store.Save(checkpoint.Record{
		Attachment: key, Namespace: at, CapturedAt: time.Now().UTC(), Writer: "test", CNI: checkpoint.CNI{Config: []byte("{}"), Result: []byte("{}")},
		Interface: netstate.Interface{
			Link:    netstate.Link{Kind: netstate.KindMacvlan, Name: "eth0", MAC: "02:00:00:00:00:05", MTU: 1500, Macvlan: &netstate.Macvlan{Mode: "bridge"}},
			Parents: []netstate.Device{{Kind: netstate.KindNIC, Name: "lan0", MTU: 1500}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.sandboxes = append(n.sandboxes, sandbox.RuntimeSandbox{ContainerID: id, Ready: true, Netns: netns})
	return given[0].Address
}

// reserve leaves an address reserved for the owner.
func (n *node) reserve(t *testing.T, of attachment.Owner) netip.Addr {
	t.Helper()
	key := attachment.Key{Network: "lan", ContainerID: "of-" + of.UID, IfName: "eth0"}
	given, err := n.leases.Allocate(t.Context(), lease.Request{Attachment: key, Owner: of, Sets: []lease.RangeSet{subnet}, Policy: lease.Policy{Sticky: true}})
	if err == nil {
		err = errors.Join(n.leases.Release(t.Context(), key, lease.Policy{}), n.leases.SetCluster(t.Context(), here))
	}
	if err != nil {
		t.Fatal(err)
	}
	return given[0].Address
}

// options have a grace that is over at once.
func (n *node) options() Options {
	return Options{Grace: 1, Sources: audit.Sources{Store: n.store, Leases: []*lease.Store{n.leases}, Runtime: &n.cluster, Judge: &n.cluster, AllProcesses: true}}
}

func (n *node) pass(t *testing.T, o Options) PassReport {
	t.Helper()
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// states are the outcomes in short.
func states(r PassReport) string {
	var all []string
	for _, o := range r.Outcomes {
		what := "checkpoint of " + o.Attachment.ContainerID
		if o.Address.IsValid() {
			what = o.Address.String()
		}
		line := what + " " + string(o.State)
		if o.AddressState != "" {
			line += ", " + string(o.AddressState)
		}
		all = append(all, line)
	}
	return strings.Join(all, "\n")
}

func expectStates(t *testing.T, when string, r PassReport, want ...string) {
	t.Helper()
	if got := states(r); got != strings.Join(want, "\n") {
		t.Errorf("%s:\n%s\nwant\n%s\n%q", when, got, strings.Join(want, "\n"), r.Problems)
	}
}

// A sandbox goes without a DEL. Its address and its checkpoint are kept as long as anybody may need them.
func TestASandboxThatIsGone(t *testing.T) {
	n := newNode(t)
	alive, gone := fresh.Sandbox(t), fresh.Sandbox(t)
	n.add(t, "c1", alive, web(1))
	n.add(t, "c2", gone, web(2))
	n.standing[web(1)], n.standing[web(2)] = owner.Exists, owner.Exists
	expectStates(t, "both run", n.pass(t, n.options()))
	expectStates(t, "both run", n.pass(t, n.options()))

	n.sandboxes = n.sandboxes[:1]
	expectStates(t, "the runtime has forgotten it, and its namespace is there", n.pass(t, n.options()))
	n.sandboxes = append(n.sandboxes, sandbox.RuntimeSandbox{ContainerID: "c2"})
	fresh.Remove(t, gone)
	expectStates(t, "the runtime owes a DEL", n.pass(t, n.options()), "10.3.0.3 kept", "checkpoint of c2 kept")
	n.sandboxes, n.down = nil, errors.New("containerd does not answer")
	r := n.pass(t, n.options())
	expectStates(t, "the runtime does not answer", r, "10.3.0.3 kept", "checkpoint of c2 kept")
	if r.Complete() || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "containerd does not answer") {
		t.Errorf("%q", r.Problems)
	}
	n.down, n.sandboxes = nil, []sandbox.RuntimeSandbox{{ContainerID: "c1", Ready: true, Netns: alive}}
	nobody := n.options()
	nobody.Runtime, nobody.Judge, nobody.UnaskedReason = nil, nil, "no relink-agent runs on this node"
	expectStates(t, "there is nobody to ask", n.pass(t, nobody), "10.3.0.3 kept", "checkpoint of c2 kept")
	dry := n.options()
	dry.DryRun = true
	expectStates(t, "a dry run", n.pass(t, dry), "10.3.0.3 waiting", "checkpoint of c2 waiting")
	expectStates(t, "another", n.pass(t, dry), "10.3.0.3 waiting", "checkpoint of c2 waiting")
	expectStates(t, "first", n.pass(t, n.options()), "10.3.0.3 waiting", "checkpoint of c2 waiting")
	expectStates(t, "a dry run", n.pass(t, dry), "10.3.0.3 to free, reserved", "checkpoint of c2 to free")
	expectStates(t, "second", n.pass(t, n.options()), "10.3.0.3 freed, reserved", "checkpoint of c2 freed")
	expectStates(t, "after that", n.pass(t, n.options()))
	if records, _, err := n.store.List(); err != nil || len(records) != 1 || records[0].Attachment.ContainerID != "c1" {
		t.Errorf("%v, %v", records, err)
	}
	events, err := n.leases.History(t.Context(), netip.MustParseAddr("10.3.0.3"))
	if why := events[len(events)-1].Reason; err != nil || !strings.HasPrefix(why, "its sandbox is gone: its network namespace is gone: ") || !strings.Contains(why, "seen dead twice") {
		t.Errorf("%q, %v", why, err)
	}
}

// Something that keeps the namespace keeps the address, though no path leads there any more.
func TestAnOpenFileKeepsASandbox(t *testing.T) {
	n := newNode(t)
	path := fresh.Sandbox(t)
	n.add(t, "c1", path, web(1))
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	fresh.Remove(t, path)
	n.sandboxes = nil
	for range 3 {
		for _, o := range n.pass(t, n.options()).Outcomes {
			t.Errorf("%s %s: %s", o.Kind, o.State, o.Reason)
		}
	}
	_ = file.Close()
	n.pass(t, n.options())
	expectStates(t, "nothing keeps it", n.pass(t, n.options()), "10.3.0.2 freed, reserved", "checkpoint of c1 freed")
}

// The next sandbox of the owner has the address. The one before goes, and frees nothing of it.
func TestTheNextSandboxKeepsTheAddress(t *testing.T) {
	n := newNode(t)
	before, after := fresh.Sandbox(t), fresh.Sandbox(t)
	a := n.add(t, "c1", before, web(1))
	if b := n.add(t, "c2", after, web(1)); a != b {
		t.Fatalf("%s and %s", a, b)
	}
	fresh.Remove(t, before)
	n.sandboxes = n.sandboxes[1:]
	n.pass(t, n.options())
	expectStates(t, "the one before is gone", n.pass(t, n.options()), "10.3.0.2 freed, held", "checkpoint of c1 freed")
	l, err := n.leases.Get(t.Context(), a)
	if err != nil || len(l.Holders) != 1 || l.Holders[0].ContainerID != "c2" {
		t.Errorf("%+v, %v", l, err)
	}
}

// 1,000 reservations, 50 owners are gone, and the API fails for one of these. The rest is freed, and this one later.
func TestOneErrorKeepsOneReservation(t *testing.T) {
	n := newNode(t)
	var dead []netip.Addr
	for i := range 1000 {
		a := n.reserve(t, web(i))
		n.standing[web(i)] = owner.Exists
		if i%20 == 7 {
			n.standing[web(i)] = owner.Gone
			dead = append(dead, a)
		}
	}
	delete(n.standing, web(27))
	n.pass(t, n.options())
	r := n.pass(t, n.options())
	if r.Count(Freed) != 49 || r.Count(change.Kept) != 1 || len(r.Outcomes) != 50 || !r.Complete() {
		t.Errorf("%d freed, %d kept of %d: %q", r.Count(Freed), r.Count(change.Kept), len(r.Outcomes), r.Problems)
	}
	n.standing[web(27)] = owner.Gone
	expectStates(t, "the API answers", n.pass(t, n.options()), dead[1].String()+" waiting")
	expectStates(t, "again", n.pass(t, n.options()), dead[1].String()+" freed, free")
	all, err := n.leases.List(t.Context())
	if err != nil || len(all) != 950 {
		t.Errorf("%d leases, %v", len(all), err)
	}
	// What is to be freed is asked for once more, and nothing else.
	if last := n.asked[len(n.asked)-1]; len(last) != 1 || last[0] != web(27) {
		t.Errorf("%v", last)
	}
}

// An owner that comes back between the look and the end of its reservation keeps it. So does one of whom the API does not
// tell any more.
func TestTheOwnerComesBackInTheLastMoment(t *testing.T) {
	for name, then := range map[string]func(*cluster){
		"it is there":                func(c *cluster) { c.standing[web(1)] = owner.Exists },
		"the API does not answer":    func(c *cluster) { delete(c.standing, web(1)) },
		"the owner has a pod by now": nil,
	} {
		n := newNode(t)
		a := n.reserve(t, web(1))
		n.standing[web(1)] = owner.Gone
		n.pass(t, n.options())
		want := a.String() + " kept"
		if then == nil {
			want = a.String() + " changed meanwhile"
			path := fresh.Sandbox(t)
			then = func(*cluster) { n.add(t, "c1", path, web(1)) }
		}
		n.then[2] = then
		expectStates(t, name, n.pass(t, n.options()), want)
	}
}

// A pod is on another node, and the address waits for it here. Twice it must be the same pod, and once more right before.
func TestThePodIsOnAnotherNode(t *testing.T) {
	of := web(1)
	of.Ordinal = attachment.OrdinalOf(0)
	for name, test := range map[string]struct {
		then func(c *cluster)
		want string
	}{
		"it stays there":          {nil, "freed, free"},
		"it comes back":           {func(c *cluster) { c.elsewhere[of] = "" }, "kept"},
		"another one comes":       {func(c *cluster) { c.elsewhere[of] = "uid-2" }, "kept"},
		"its owner is gone":       {func(c *cluster) { c.standing[of] = owner.Gone }, "kept"},
		"the API does not answer": {func(c *cluster) { delete(c.standing, of) }, "kept"},
	} {
		n := newNode(t)
		a := n.reserve(t, of)
		n.standing[of], n.elsewhere = owner.Exists, map[attachment.Owner]string{of: "uid-0"}
		expectStates(t, name, n.pass(t, n.options()), a.String()+" waiting")
		n.elsewhere[of] = "uid-1"
		expectStates(t, name, n.pass(t, n.options()), a.String()+" waiting")
		n.then[3] = test.then
		expectStates(t, name, n.pass(t, n.options()), a.String()+" "+test.want)
	}
}

// Owners that were seen gone are asked for again, even if there are too many to ask for all.
func TestTooManyOwners(t *testing.T) {
	n := newNode(t)
	for i := range 30 {
		n.reserve(t, web(i))
		n.standing[web(i)] = owner.Gone
	}
	o := n.options()
	replace(t, &audit.MaxOwners, 10)
	if r := n.pass(t, o); r.Count(Waiting) != 10 || r.OwnersUnasked != 20 {
		t.Errorf("%d wait, %d left", r.Count(Waiting), r.OwnersUnasked)
	}
	if r := n.pass(t, o); r.Count(Freed) != 10 || r.Count(Waiting) != 10 || r.OwnersUnasked != 10 {
		t.Errorf("%d freed, %d wait, %d left", r.Count(Freed), r.Count(Waiting), r.OwnersUnasked)
	}
}

// A store that cannot be read, and notes that cannot be read, are told, and the rest goes on.
func TestWhatCannotBeRead(t *testing.T) {
	n := newNode(t)
	n.reserve(t, web(1))
	n.standing[web(1)] = owner.Gone
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "san.db"), []byte("no store"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := n.options()
	o.Leases = append(o.Leases, store(t, dir, "san"))
	n.pass(t, o)
	if err := os.WriteFile(sightingsFile(n.store), []byte(`{"bootID`), 0o600); err != nil {
		t.Fatal(err)
	}
	r := n.pass(t, o)
	expectStates(t, "torn notes", r, "10.3.0.2 waiting")
	if told := strings.Join(r.Problems, "\n"); r.Complete() || len(r.Problems) != 2 ||
		!strings.Contains(told, "gc.json: unexpected end of JSON input: what earlier passes saw does not count") || !strings.Contains(told, "san.db: not usable") {
		t.Errorf("%q", told)
	}
	expectStates(t, "whole notes", n.pass(t, o), "10.3.0.2 freed, free")
}

// One pass waits for the other.
func TestTwoPasses(t *testing.T) {
	n := newNode(t)
	unlock, err := n.store.LockNode(t.Context(), checkpoint.GCLock)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Run(ctx, n.options()); !errors.Is(err, flock.ErrBusy) {
		t.Errorf("%v", err)
	}
	unlock()
	n.pass(t, n.options())
}

// The notes are nothing that an uninstall would call foreign.
func TestNotesAreKnown(t *testing.T) {
	n := newNode(t)
	n.pass(t, n.options())
	if foreign, err := n.store.UnexpectedPaths(); err != nil || len(foreign) != 0 {
		t.Errorf("%v, %v", foreign, err)
	}
}
