package restore

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/selection"
	"github.com/relink-cni/relink/test/fresh"
)

// lan is a host with the parent lan0, and a sandbox with a macvlan on it. The macvlan has a checkpoint. lan0 has
// carrier while its other end, lan1, is up.
type lan struct {
	store *checkpoint.Store
	// sandbox and wire are the namespaces of the pod and of lan1.
	sandbox, wire string
}

func newLAN(t *testing.T) *lan {
	t.Helper()
	l := &lan{store: checkpoint.OpenStore(t.TempDir()), sandbox: fresh.Sandbox(t), wire: fresh.Sandbox(t)}
	l.makeParent(t)
	t.Cleanup(func() { fresh.IP(t, "", "link del lan0") })
	l.connect(t)
	fresh.Run(t, "", "ip link add pod0 link lan0 type macvlan mode bridge; ip link set pod0 netns "+l.sandbox+" name eth0")
	fresh.Run(t, l.sandbox, "ip addr add 10.9.0.2/24 dev eth0; ip link set eth0 up")
	l.saveCheckpoint(t, "eth0")
	return l
}

// saveCheckpoint saves the checkpoint of the interface in its present state.
func (l *lan) saveCheckpoint(t *testing.T, ifName string) {
	t.Helper()
	host := must(kernel.OpenHost())(t)
	defer host.Close()
	sandbox := must(kernel.Open(l.sandbox))(t)
	defer sandbox.Close()
	live := must(kernel.Capture(host, sandbox, must(host.Devices())(t), ifName, kernel.Extent{}))(t)
	err := l.store.Save(checkpoint.Record{
		Attachment: attachment.Key{Network: "lan", ContainerID: "c1", IfName: ifName},
		Pod:        attachment.Pod{Namespace: "shop", Name: "web-0"},
		Namespace:  sandbox.Identity(), Interface: live, Writer: "test",
		CNI: checkpoint.CNI{Config: []byte("{}"), Result: []byte("{}")},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// makeParent makes lan0 without carrier, and a neighbour behind it that learns from announcements.
func (l *lan) makeParent(t *testing.T) {
	t.Helper()
	fresh.Run(t, "", "ip link add lan0 up type veth peer name lan1; ip link set lan1 netns "+l.wire)
	fresh.Run(t, l.wire, "ip addr add 10.9.0.1/24 dev lan1; echo 1 >/proc/sys/net/ipv4/conf/lan1/arp_accept")
}

// deleteParent deletes lan0 and makes it again without carrier.
func (l *lan) deleteParent(t *testing.T) {
	t.Helper()
	fresh.IP(t, "", "link del lan0")
	l.makeParent(t)
}

func (l *lan) connect(t *testing.T) {
	t.Helper()
	fresh.IP(t, l.wire, "link set lan1 up")
	// The kernel notices the carrier of lan0 a moment later, and after that the carrier of the devices on it.
	fresh.Run(t, "", "until ip link show lan0 | grep -q 'state UP'; do sleep 0.05; done")
	fresh.Run(t, l.sandbox, "until ip link show up | grep -q 'eth0.*state UP' || ! ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done")
}

func (l *lan) disconnect(t *testing.T) {
	t.Helper()
	fresh.IP(t, l.wire, "link set lan1 down")
}

// run runs a restore and returns its report, and the outcome of the one attachment.
func (l *lan) run(t *testing.T, opts Options) (Report, Outcome) {
	t.Helper()
	opts.Store = l.store
	report := must(Run(t.Context(), opts))(t)
	if len(report.Outcomes) != 1 {
		t.Fatalf("attachments: %+v", report.Outcomes)
	}
	return report, report.Outcomes[0]
}

// neighbourKnows reports whether the neighbour knows where the sandbox's address is.
func (l *lan) neighbourKnows(t *testing.T) bool {
	t.Helper()
	deadline := time.Now().Add(time.Second)
	for ; time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if strings.Contains(fresh.IP(t, l.wire, "neigh show 10.9.0.2 dev lan1"), "lladdr") {
			return true
		}
	}
	return false
}

// In the first moment of carrier, the kernel drops what is sent. The restore waits until that moment is over.
func TestNoAnnouncementIsLostWhenCarrierComesMeanwhile(t *testing.T) {
	l := newLAN(t)
	l.saveCheckpoint(t, "eth0")
	for range 10 {
		l.deleteParent(t)
		fresh.IP(t, l.wire, "link set lan1 up") // The restore begins at once.
		report, o := l.run(t, Options{Wait: 10 * time.Second})
		if o.State != Restored || !o.Announced || !l.neighbourKnows(t) {
			t.Fatalf("%s, announced %t, problems %q; the neighbour was told nothing", o.State, o.Announced, report.Problems)
		}
	}
}

// Every restore and every check reports an interface that was built without carrier. Only the first restore with
// carrier announces it.
func TestMissingCarrierIsSaidEachTime(t *testing.T) {
	l := newLAN(t)
	l.deleteParent(t)
	report, o := l.run(t, Options{})
	if o.State != Restored || o.NoCarrier != "lan0" || !o.AnnouncementOwed {
		t.Errorf("the first restore: %+v", o)
	}
	const says = "lan0 has no carrier: attachments cut off: 1, not announced yet: 1: relink restore announces them when there is carrier"
	if !slices.Equal(report.Problems, []string{says}) {
		t.Errorf("the first restore says %q", report.Problems)
	}
	for name, opts := range map[string]Options{"the second restore": {}, "check": {DryRun: true}} {
		report, o := l.run(t, opts)
		if o.State != AsRecorded || !slices.Equal(report.Problems, []string{says}) || report.Complete() {
			t.Errorf("%s: %s, problems %q", name, o.State, report.Problems)
		}
	}
	l.connect(t)
	if report, _ := l.run(t, Options{DryRun: true}); !slices.Equal(report.Problems, []string{"lan0 has carrier, but the neighbours do not know yet: " +
		"attachments cut off: 1, not announced yet: 1: relink restore announces them when there is carrier"}) {
		t.Errorf("check, with carrier: %q", report.Problems)
	}
	if l.neighbourKnows(t) {
		t.Error("a check announces")
	}
	if report, o := l.run(t, Options{}); !o.Announced || !report.Complete() {
		t.Errorf("with carrier: %+v, problems %q", o, report.Problems)
	}
	if !l.neighbourKnows(t) {
		t.Error("the neighbour was not told")
	}
	if report, o := l.run(t, Options{}); o.Announced || !report.Complete() {
		t.Errorf("it is announced again: %+v, problems %q", o, report.Problems)
	}
}

// What was detached, or has lost its address, before there was carrier is not announced: another pod can have the address.
func TestWhatWentMeanwhileIsNotAnnounced(t *testing.T) {
	for name, test := range map[string]struct {
		change func(l *lan, r checkpoint.Record) error
		// knows is the address that the neighbour hears of, empty for none.
		knows string
	}{
		"it is detached": {func(l *lan, _ checkpoint.Record) error { return l.store.Forget("c1", "eth0") }, ""},
		"it is moved": {func(l *lan, r checkpoint.Record) error {
			r.Interface.Parents[0].Name, r.Interface.Parents[0].IfIndex = "wan0", 1
			return l.store.Save(r)
		}, ""},
		"another sandbox has its ID": {func(l *lan, r checkpoint.Record) error {
			r.Namespace.Inode++
			return l.store.Save(r)
		}, ""},
		"it has another address": {func(l *lan, r checkpoint.Record) error {
			r.Interface.Addresses[0].Prefix = netip.MustParsePrefix("10.9.0.3/24")
			return l.store.Save(r)
		}, "10.9.0.3"},
		"nothing": {func(*lan, checkpoint.Record) error { return nil }, "10.9.0.2"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLAN(t)
			l.deleteParent(t)
			restorer := must(NewRestorer(l.store))(t)
			defer restorer.Close()
			result := must(restorer.Run(t.Context(), Options{Store: l.store}))(t)
			if err := test.change(l, must(l.store.Load("c1", "eth0"))(t)); err != nil {
				t.Fatal(err)
			}
			l.connect(t)
			for end := time.Now().Add(10 * time.Second); must(result.AnnounceConnected())(t) > 0; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("it is owed for ever")
				}
			}
			l.neighbourKnows(t)
			known := fresh.IP(t, l.wire, "neigh show dev lan1 nud reachable nud stale nud delay nud probe")
			if (strings.Contains(known, "10.9.0.")) != (test.knows != "") || !strings.Contains(known, test.knows) {
				t.Errorf("the neighbour knows %q", known)
			}
		})
	}
}

// The restore stops waiting when carrier comes.
func TestRestoreWaitsForCarrier(t *testing.T) {
	l := newLAN(t)
	l.deleteParent(t)
	var waiting []string
	report, o := l.run(t, Options{Wait: time.Minute, Waiting: func(reasons []string) {
		waiting = append(waiting, reasons...)
		l.connect(t)
	}})
	if o.State != Restored || !o.Announced || !report.Complete() {
		t.Errorf("%+v, problems %q", o, report.Problems)
	}
	if len(waiting) == 0 || !strings.HasPrefix(waiting[0], "lan0 has no carrier") {
		t.Errorf("it waits for %q", waiting)
	}
	if !l.neighbourKnows(t) {
		t.Error("the neighbour was not told")
	}
	if r := must(l.store.Load("c1", "eth0"))(t); r.AnnouncementOwed {
		t.Error("the checkpoint says that it is owed yet")
	}
}

// An attachment that lost only its carrier is reported. No announcement is owed for it.
func TestCarrierThatWasLostIsSaid(t *testing.T) {
	l := newLAN(t)
	l.disconnect(t)
	report, o := l.run(t, Options{DryRun: true})
	if o.State != AsRecorded || !slices.Equal(report.Problems, []string{"lan0 has no carrier: attachments cut off: 1"}) {
		t.Errorf("%s, problems %q", o.State, report.Problems)
	}
	l.connect(t)
	if report, o := l.run(t, Options{}); o.Announced || !report.Complete() {
		t.Errorf("with carrier: %+v, problems %q", o, report.Problems)
	}
}

// The interface itself can lack carrier while its parent has some.
func TestCarrierOfTheInterfaceItself(t *testing.T) {
	l := newLAN(t)
	// The pod stacks a macvlan of its own on a veth of its own.
	fresh.Run(t, l.sandbox, `ip link add up0 up type veth peer name down0; ip link set down0 up
		ip link add net1 link up0 type macvlan mode bridge; ip addr add 10.8.0.2/24 dev net1; ip link set net1 up`)
	if err := l.store.Forget("c1", "eth0"); err != nil {
		t.Fatal(err)
	}
	l.saveCheckpoint(t, "net1")
	// The carrier of up0 is gone. The kernel passes that on to the devices on up0 a moment later.
	fresh.Run(t, l.sandbox, "ip link set down0 down; while ip link show net1 | grep -q LOWER_UP; do sleep 0.05; done")
	report, o := l.run(t, Options{DryRun: true})
	if o.State != AsRecorded || !slices.Equal(report.Problems, []string{"net1 of shop/web-0 has no carrier: attachments cut off: 1"}) {
		t.Errorf("%s, problems %q", o.State, report.Problems)
	}
	report, _ = l.run(t, Options{Wait: time.Minute, Waiting: func([]string) { fresh.IP(t, l.sandbox, "link set down0 up") }})
	if !report.Complete() {
		t.Errorf("with carrier: problems %q", report.Problems)
	}
}

// restoreKilled restores a lost interface, and leaves all as a kill does before the record is written: it has the old indices.
func (l *lan) restoreKilled(t *testing.T) {
	t.Helper()
	old := must(l.store.Load("c1", "eth0"))(t)
	l.deleteParent(t)
	if _, o := l.run(t, Options{}); o.State != Restored || o.Announced {
		t.Fatalf("%+v", o)
	}
	save(t, l.store, old)
	l.connect(t)
}

// A killed restore may not have announced what it built. The next restore of an attachment announces it.
func TestKilledRestoreIsAnnouncedByTheNext(t *testing.T) {
	l := newLAN(t)
	l.restoreKilled(t)
	if report, _ := l.run(t, Options{DryRun: true}); report.Complete() {
		t.Error("check says that all is well")
	}
	if _, o := l.run(t, Options{Select: selection.Selection{Names: []string{"shop/web-0"}}}); !o.Announced || !l.neighbourKnows(t) {
		t.Errorf("a restore of one sandbox: %+v", o)
	}
	if report, o := l.run(t, Options{}); o.Announced || !report.Complete() {
		t.Errorf("once more: %+v", o)
	}
}

// While the parents have their recorded indices, nothing else tells after a kill that an announcement is owed. So the record says it
// before an interface or a parent is changed.
func TestAnAnnouncementIsOwedFromBeforeAChange(t *testing.T) {
	l := newLAN(t)
	host := must(kernel.OpenHost())(t)
	defer host.Close()
	record := must(l.store.Load("c1", "eth0"))(t)
	rebuilt := record
	rebuilt.Interface.Parents = slices.Clone(record.Interface.Parents)
	rebuilt.Interface.Parents[0].IfIndex += 1000
	fresh.IP(t, "", "link set lan0 down")
	for name, test := range map[string]struct {
		record checkpoint.Record
		want   bool
	}{"the recorded parents": {record, true}, "new parents": {rebuilt, false}} {
		for what, note := range map[string]func(*chainRestore){
			"a parent": (*chainRestore).noteOwedByParents,
			"an interface": func(c *chainRestore) {
				changed := &Outcome{Steps: []Step{{Action: SetMTU}}}
				state := &attachmentState{foundParents: record.Interface.Parents}
				(&attachmentRestore{node: c.run.node, record: test.record, state: state, outcome: changed}).noteOwed()
			},
		} {
			save(t, l.store, test.record)
			c := &chainRestore{
				run: &restoreRun{node: &Restorer{store: l.store, host: host}}, records: []checkpoint.Record{test.record},
				host: parentRestore{namespace: host, chains: [][]netstate.Device{test.record.Interface.Parents}},
			}
			if err := c.host.look(); err != nil {
				t.Fatal(err)
			}
			note(c)
			if owed := must(l.store.Load("c1", "eth0"))(t).AnnouncementOwed; owed != test.want {
				t.Errorf("%s on %s is changed: owed %t", what, name, owed)
			}
		}
	}
}

// Once a repair is announced, the record says that nothing is owed any more.
func TestNothingIsOwedAfterARepair(t *testing.T) {
	l := newLAN(t)
	fresh.IP(t, l.sandbox, "link set eth0 mtu 1400")
	if _, o := l.run(t, Options{}); o.State != Repaired || !o.Announced {
		t.Errorf("%+v", o)
	}
	if report, _ := l.run(t, Options{DryRun: true}); !report.Complete() || must(l.store.Load("c1", "eth0"))(t).AnnouncementOwed {
		t.Errorf("problems %q", report.Problems)
	}
}

// An interface that was built is announced or the announcement is owed, even if another step failed. A pod without one
// route still has all the others.
func TestWhatFailsInPartIsAnnounced(t *testing.T) {
	l := newLAN(t)
	whole := must(l.store.Load("c1", "eth0"))(t)
	bad := whole
	bad.Interface.Routes = []netstate.Route{{
		Destination: netip.MustParsePrefix("192.0.2.0/24"), Gateway: netip.MustParseAddr("198.51.100.1"), Table: 254, Protocol: 3, Type: 1,
	}}
	for _, connected := range []bool{true, false} {
		save(t, l.store, bad)
		l.deleteParent(t)
		if connected {
			l.connect(t)
		}
		if _, o := l.run(t, Options{}); o.State != change.Failed || o.Announced != connected || o.AnnouncementOwed == connected {
			t.Errorf("carrier %v: %+v", connected, o)
		}
		if l.neighbourKnows(t) != connected {
			t.Errorf("carrier %v: the neighbour knows: %v", connected, !connected)
		}
		if owed := must(l.store.Load("c1", "eth0"))(t).AnnouncementOwed; owed == connected {
			t.Errorf("carrier %v: the checkpoint says that it is owed: %v", connected, owed)
		}
	}
	// Now the route is right, and there is carrier.
	mended := must(l.store.Load("c1", "eth0"))(t)
	mended.Interface.Routes = whole.Interface.Routes
	save(t, l.store, mended)
	l.connect(t)
	if report, o := l.run(t, Options{}); !o.Announced || !report.Complete() || !l.neighbourKnows(t) {
		t.Errorf("mended: %+v, problems %q", o, report.Problems)
	}
}

// An interrupted restore does not finish what a killed one has left. The next one still does.
func TestInterruptedRestoreForgetsNothing(t *testing.T) {
	l := newLAN(t)
	l.restoreKilled(t)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if report := must(Run(ctx, Options{Store: l.store}))(t); report.Complete() {
		t.Error("all is well")
	}
	if _, o := l.run(t, Options{}); !o.Announced || !l.neighbourKnows(t) {
		t.Errorf("after it: %+v", o)
	}
	if report, o := l.run(t, Options{}); o.Announced || !report.Complete() {
		t.Errorf("once more: %+v", o)
	}
}

// While another chain is at work on the sandbox, only the note of an announcement is missing. The chain does not wait for that, and
// does not say that the neighbours do not know.
func TestTheNoteOfAnAnnouncementIsNotWaitedFor(t *testing.T) {
	store := checkpoint.OpenStore(t.TempDir())
	record := checkpoint.Record{
		Attachment: attachment.Key{Network: "lan", ContainerID: "c1", IfName: "net1"}, Namespace: attachment.Namespace{Path: "/run/netns/gone", BootID: "b", Inode: 1},
		Interface: netstate.Interface{Link: netstate.Link{Name: "net1", Kind: netstate.KindNIC, MAC: "02:00:00:00:00:01", MTU: 1500, NIC: &netstate.NIC{BusAddress: "b"}}}, AnnouncementOwed: true,
	}
	save(t, store, record)
	unlock := must(store.Lock(t.Context(), "c1"))(t)
	host := must(kernel.OpenHost())(t)
	defer host.Close()
	s := newState(&record)
	s.sandbox = &sandboxRestore{chains: 2}
	o := &s.outcome
	o.State, o.AnnouncementOwed = Restored, true // Nothing is announced for one that is gone.
	r := &Restorer{store: store, host: host}
	c := newTestChain(r, Options{Wait: time.Minute, Waiting: func(reasons []string) { t.Errorf("it waits for %q", reasons) }}, s)
	c.awaitCarrier(t.Context())
	if !o.Announced || !o.AnnouncementOwed || c.report.WaitDuration >= 10*pollInterval {
		t.Errorf("announced %v, owed %v, waited %s", o.Announced, o.AnnouncementOwed, c.report.WaitDuration)
	}

	// The agent's own reading holds the lock for a moment. Without the note, the pod would not count as connected until the next round.
	a := &announcements{node: r, comesAgain: true, states: []*attachmentState{s}}
	for range 20 { // On a busy machine, the lock can be held for longer than noteLimit.
		time.AfterFunc(noteLimit/4, unlock)
		if a.announceConnected(); !o.AnnouncementOwed {
			break
		}
		unlock = must(store.Lock(t.Context(), "c1"))(t)
	}
	if o.AnnouncementOwed || must(store.Load("c1", "net1"))(t).AnnouncementOwed {
		t.Errorf("owed %v", o.AnnouncementOwed)
	}
	o.AnnouncementOwed = true
	save(t, store, record)
	unlock = must(store.Lock(t.Context(), "c1"))(t)
	if a.announceConnected(); !o.AnnouncementOwed {
		t.Error("nothing is owed")
	}
	unlock()
}

// Another chain of the run can build an interface again that was announced already. It waits for carrier like any other.
func TestAnAttachmentThatIsBuiltAgainWaitsForCarrier(t *testing.T) {
	host := must(kernel.OpenHost())(t)
	defer host.Close()
	var waiting []string
	opts := Options{Wait: 10 * pollInterval, Waiting: func(reasons []string) { waiting = reasons }}
	again := &attachmentState{outcome: Outcome{Outcome: change.Outcome{State: Restored}, Announced: true, AnnouncementOwed: true, NoCarrier: "lan0"}}
	c := newTestChain(&Restorer{host: host}, opts, again)
	c.awaitCarrier(t.Context())
	if len(waiting) != 1 || !strings.HasPrefix(waiting[0], "lan0 has no carrier") || c.report.WaitDuration < opts.Wait {
		t.Errorf("it waits for %q, for %s", waiting, c.report.WaitDuration)
	}
}

// newTestChain returns a chain whose attachments were restored.
func newTestChain(r *Restorer, opts Options, states ...*attachmentState) *chainRestore {
	c := &chainRestore{run: &restoreRun{node: r, opts: opts}, attachments: &announcements{node: r, states: states}}
	c.run.chains = []*chainRestore{c}
	return c
}

func save(t *testing.T, store *checkpoint.Store, r checkpoint.Record) {
	t.Helper()
	if err := store.Save(r); err != nil {
		t.Fatal(err)
	}
}

// A pod may make its own link dormant. No restore waits for that: it sends on the parent.
func TestADormantInterfaceHoldsNobodyUp(t *testing.T) {
	p := newLiveSandbox(t)
	fresh.Run(t, p.netns, "ip link set eth0 mode dormant state dormant")
	report := must(Run(t.Context(), Options{Store: p.store, Wait: time.Hour}))(t)
	if o := report.Outcomes[0]; !report.Complete() || o.State != AsRecorded || o.NoCarrier != "" {
		t.Errorf("%+v", report)
	}
}
