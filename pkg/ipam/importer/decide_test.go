package importer

import (
	"cmp"
	"net/netip"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// fakeNode is evidence that the test gives: verdicts and pods by container ID. All other containers are alive, and no cache
// knows them.
type fakeNode struct {
	verdicts map[string]sandbox.Verdict
	pods     map[string]attachment.Pod
	// network is the network of the cache's entries. Empty means lan.
	network string
}

func (e fakeNode) Judge(_ netip.Addr, h lease.Holder, _ time.Time, _ ...lease.Holder) sandbox.Judgement {
	if v := e.verdicts[h.ContainerID]; v != "" {
		return sandbox.Judgement{Verdict: v, Evidence: []string{"seen"}}
	}
	return sandbox.Judgement{Verdict: sandbox.VerdictAlive, Evidence: []string{"seen alive"}}
}

func (e fakeNode) Entry(of attachment.Key) (cnicache.Entry, bool) {
	pod, ok := e.pods[of.ContainerID]
	if !ok || of.Network != e.network && (e.network != "" || of.Network != "lan") {
		return cnicache.Entry{}, false
	}
	return cnicache.Entry{Pod: pod}, true
}

func (e fakeNode) Has(attachment.Namespace, netip.Addr) bool { return true }

func (e fakeNode) Problems() []string { return nil }

var (
	decided = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	written = decided.Add(-time.Hour)
	subject = netip.MustParseAddr("10.231.77.5")
	web     = attachment.Pod{Namespace: "shop", Name: "web-0", UID: "uid-0"}
	db      = attachment.Pod{Namespace: "shop", Name: "db-0"}
)

func newImporter(e nodeEvidence, p lease.Policy) *importRun {
	return &importRun{
		Source:  Source{Plugin: "host-local", Path: "/networks/lan", Noun: "file"},
		network: "lan", store: "lan", Options: Options{Policy: p}, node: e, instant: decided,
		view: lease.ImportView{Time: decided, BootID: "this boot"},
	}
}

// held returns a lease with holders on eth0, given by their container IDs. All have this origin.
func held(origin lease.Origin, ids ...string) lease.Lease {
	l := lease.Lease{Address: subject, Network: "lan", State: lease.Held}
	for _, id := range ids {
		l.Holders = append(l.Holders, holderOf(id, origin))
	}
	return l
}

func holderOf(id string, origin lease.Origin) lease.Holder {
	return lease.Holder{
		ContainerID: id, IfName: "eth0", Origin: origin, Since: written, Namespace: attachment.Namespace{BootID: "this boot"},
		Policy: lease.Policy{Quarantine: lease.DefaultQuarantine},
	}
}

func ownedBy(l lease.Lease, pod attachment.Pod) lease.Lease {
	l.Owner = pod.Owner()
	return l
}

func reserved(last string, pod attachment.Pod) lease.Lease {
	l := lease.Lease{Address: subject, Network: "lan", State: lease.Reserved, Owner: pod.Owner()}
	if last != "" {
		l.Last = holderOf(last, lease.Imported)
	}
	return l
}

func byHand(l lease.Lease) lease.Lease {
	l.ByHand, l.ByHandAt, l.ByHandUntil = true, written, decided.Add(time.Hour)
	return l
}

func quarantined(last string) lease.Lease {
	return lease.Lease{
		Address: subject, Network: "lan", State: lease.Quarantined, Last: holderOf(last, lease.Imported), Reason: "released", Until: decided.Add(time.Minute),
	}
}

func backHeld() lease.Lease {
	return lease.Lease{
		Address: subject, Network: "lan", State: lease.Reserved, ReleasedAt: decided,
		Reason: "a pod may have it by host-local's /networks/lan/10.231.77.5, which is torn: it is empty",
	}
}

var sameLease = gocmp.Options{
	gocmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
}

// decision is the result for one address.
type decision struct {
	// Said are the states and reasons in their order.
	Said []string
	// Put is its new lease, or the zero Lease for none.
	Put lease.Lease
}

func (im *importRun) decision(t *testing.T) decision {
	t.Helper()
	var d decision
	for _, out := range im.files {
		said := string(out.State)
		if out.Reason != "" {
			said += ": " + out.Reason
		}
		d.Said = append(d.Said, said)
		if out.Address != subject {
			t.Errorf("it is said of %s", out.Address)
		}
	}
	if len(im.batch.Leases) > 1 {
		t.Errorf("%d leases of one address", len(im.batch.Leases))
	}
	for _, l := range im.batch.Leases {
		d.Put = l
	}
	return d
}

// The result for a file depends on the earlier lease of its address. It also depends on whether the sandbox of the file
// and those of the lease still exist.
func TestDecideAboutAFile(t *testing.T) {
	torn := Entry{Address: subject, Name: subject.String(), Torn: "it is empty", Written: written}
	eth0 := Entry{Address: subject, Name: subject.String(), ContainerID: "c1", IfName: "eth0", Written: written}
	future := eth0
	future.Written = decided.Add(time.Hour)
	now := held(lease.Imported, "c1")
	now.Holders[0].Since = decided
	gone := func(ids ...string) fakeNode {
		verdicts := map[string]sandbox.Verdict{}
		for _, id := range ids {
			verdicts[id] = sandbox.VerdictGone
		}
		return fakeNode{verdicts: verdicts}
	}
	is := func(id string, v sandbox.Verdict) fakeNode {
		return fakeNode{verdicts: map[string]sandbox.Verdict{id: v}}
	}
	pods := fakeNode{pods: map[string]attachment.Pod{"c1": web}}
	ofWeb := ownedBy(held(lease.Imported, "c1"), web)
	ofWeb.Holders[0].Pod = web
	net1 := held(lease.InTurn, "c1")
	net1.Holders[0].IfName = "net1"
	before := quarantined("c1")
	before.Last.Namespace.BootID = "the boot before"
	for name, test := range map[string]struct {
		file Entry
		was  lease.Lease
		node fakeNode
		want decision
	}{
		"free":                                  {eth0, lease.Lease{}, fakeNode{}, decision{[]string{"imported"}, held(lease.Imported, "c1")}},
		"free, and its pod is known":            {eth0, lease.Lease{}, pods, decision{[]string{"imported"}, ofWeb}},
		"free, and its sandbox is gone":         {eth0, lease.Lease{}, gone("c1"), decision{[]string{"no live sandbox: held until it is reclaimed: seen"}, held(lease.Imported, "c1")}},
		"free, and its DEL is to come":          {eth0, lease.Lease{}, is("c1", sandbox.VerdictDELDue), decision{[]string{"imported"}, held(lease.Imported, "c1")}},
		"free, and nobody knows of its sandbox": {eth0, lease.Lease{}, is("c1", sandbox.VerdictUnknown), decision{[]string{"imported"}, held(lease.Imported, "c1")}},
		"written by a clock that is ahead":      {future, lease.Lease{}, fakeNode{}, decision{[]string{"imported"}, now}},

		"held as the file says":                 {eth0, held(lease.Imported, "c1"), fakeNode{}, decision{[]string{"already there"}, lease.Lease{}}},
		"held so, and its sandbox is gone":      {eth0, held(lease.Imported, "c1"), gone("c1"), decision{[]string{"no live sandbox: held until it is reclaimed: seen"}, lease.Lease{}}},
		"held so, and its pod is known now":     {eth0, held(lease.Imported, "c1"), pods, decision{[]string{"completed"}, ofWeb}},
		"held so, and its pod was known":        {eth0, ofWeb, pods, decision{[]string{"already there"}, lease.Lease{}}},
		"held so, by another pod":               {eth0, ownedBy(held(lease.Imported, "c1"), db), pods, decision{[]string{"already there"}, lease.Lease{}}},
		"held so, as relink gave it":            {eth0, held(lease.InTurn, "c1"), pods, decision{[]string{"already there"}, lease.Lease{}}},
		"held so, and taken over by the next":   {eth0, ownedBy(lease.Lease{Address: subject, Network: "lan", State: lease.Held, Holders: []lease.Holder{holderOf("c1", lease.Imported), holderOf("c2", lease.TakenOver)}}, db), fakeNode{}, decision{[]string{"already there"}, lease.Lease{}}},
		"given up since, in quarantine":         {eth0, quarantined("c1"), gone("c1"), decision{[]string{"already there: given up since, and in quarantine: released"}, lease.Lease{}}},
		"given up since, reserved for its pod":  {eth0, reserved("c1", web), gone("c1"), decision{[]string{"already there: given up since, and reserved for pod shop/web-0"}, lease.Lease{}}},
		"given up since, its DEL is to come":    {eth0, quarantined("c1"), is("c1", sandbox.VerdictDELDue), decision{[]string{"already there: given up since, and in quarantine: released"}, lease.Lease{}}},
		"given up since, in an earlier boot":    {eth0, before, is("c1", sandbox.VerdictUnknown), decision{[]string{"already there: given up since, and in quarantine: released"}, lease.Lease{}}},
		"given up in an earlier boot, and back": {eth0, before, fakeNode{}, decision{[]string{"imported"}, held(lease.Imported, "c1")}},
		"given up since, and it is alive":       {eth0, quarantined("c1"), fakeNode{}, decision{[]string{"imported"}, held(lease.Imported, "c1")}},
		"given up since, and nobody knows":      {eth0, quarantined("c1"), is("c1", sandbox.VerdictUnknown), decision{[]string{"imported"}, held(lease.Imported, "c1")}},
		"reserved since, and it is alive":       {eth0, reserved("c1", web), pods, decision{[]string{"imported"}, ofWeb}},
		"reserved since, and its pod unknown":   {eth0, reserved("c1", web), fakeNode{}, decision{[]string{"conflict: reserved for pod shop/web-0"}, lease.Lease{}}},
		"given up by another":                   {eth0, quarantined("c2"), fakeNode{}, decision{[]string{"imported"}, held(lease.Imported, "c1")}},
		"held back before it was repaired":      {eth0, backHeld(), fakeNode{}, decision{[]string{"imported"}, held(lease.Imported, "c1")}},
		"reserved by hand for its pod":          {eth0, byHand(reserved("", web)), pods, decision{[]string{"imported"}, byHand(ofWeb)}},
		"reserved for its pod, which had it":    {eth0, reserved("c0", web), pods, decision{[]string{"imported"}, ofWeb}},
		"reserved for another pod":              {eth0, reserved("", db), pods, decision{[]string{"conflict: reserved for pod shop/db-0"}, lease.Lease{}}},
		"reserved for a pod, its own not known": {eth0, reserved("", web), fakeNode{}, decision{[]string{"conflict: reserved for pod shop/web-0"}, lease.Lease{}}},

		"held by another, as relink gave it":                       {eth0, held(lease.InTurn, "c2"), fakeNode{}, decision{[]string{"conflict: held by eth0 of c2 on lan"}, lease.Lease{}}},
		"held by another, which is gone, as relink gave it":        {eth0, held(lease.InTurn, "c2"), gone("c2"), decision{[]string{"conflict: held by eth0 of c2 on lan"}, lease.Lease{}}},
		"held by another interface":                                {eth0, net1, fakeNode{}, decision{[]string{"conflict: held by net1 of c1 on lan"}, lease.Lease{}}},
		"held by another, and the file's sandbox is gone":          {eth0, held(lease.InTurn, "c2"), gone("c1"), decision{[]string{"out of date: held by eth0 of c2 on lan; the file's sandbox is gone: seen"}, lease.Lease{}}},
		"held by another, and the file's DEL is to come":           {eth0, held(lease.InTurn, "c2"), is("c1", sandbox.VerdictDELDue), decision{[]string{"conflict: held by eth0 of c2 on lan"}, lease.Lease{}}},
		"reserved for another pod, and the file's sandbox is gone": {eth0, reserved("", db), gone("c1"), decision{[]string{"out of date: reserved for pod shop/db-0; the file's sandbox is gone: seen"}, lease.Lease{}}},

		"imported for another, which is gone":  {eth0, held(lease.Imported, "c2"), gone("c2"), decision{[]string{"conflict: held by eth0 of c2 on lan"}, lease.Lease{}}},
		"imported for another, which is alive": {eth0, held(lease.Imported, "c2"), fakeNode{}, decision{[]string{"conflict: held by eth0 of c2 on lan"}, lease.Lease{}}},

		"torn and free":                           {torn, lease.Lease{}, fakeNode{}, decision{[]string{"torn: it is empty: held back, because a pod may have the address"}, backHeld()}},
		"torn and in quarantine, which ends":      {torn, quarantined("c1"), fakeNode{}, decision{[]string{"torn: it is empty: held back, because a pod may have the address"}, backHeld()}},
		"torn and held back already":              {torn, backHeld(), fakeNode{}, decision{[]string{"torn: it is empty: held back already"}, lease.Lease{}}},
		"torn and held":                           {torn, held(lease.Imported, "c1"), gone("c1"), decision{[]string{"torn: it is empty, and its address is held by eth0 of c1 on lan"}, lease.Lease{}}},
		"torn and reserved, which might end soon": {torn, reserved("", web), fakeNode{}, decision{[]string{"torn: it is empty, and its address is reserved for pod shop/web-0"}, lease.Lease{}}},
	} {
		t.Run(name, func(t *testing.T) {
			im := newImporter(test.node, lease.Policy{})
			if test.file.Torn != "" {
				im.decideTorn(test.file, test.was)
			} else {
				im.decideEntry(test.file, test.was)
			}
			if diff := gocmp.Diff(test.want, im.decision(t), sameLease); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The network goes by another name than its store. An earlier import knew only that of the store.
func TestDecideForANetworkOfAnotherStore(t *testing.T) {
	eth0 := Entry{Address: subject, Name: subject.String(), ContainerID: "c1", IfName: "eth0", Written: written}
	ofVLAN3 := held(lease.Imported, "c1")
	ofVLAN3.Holders[0].Network = "vlan3"
	for name, test := range map[string]struct {
		was  lease.Lease
		want decision
	}{
		"free":                  {lease.Lease{}, decision{[]string{"imported"}, ofVLAN3}},
		"held as the file says": {ofVLAN3, decision{[]string{"already there"}, lease.Lease{}}},
		"imported before":       {held(lease.Imported, "c1"), decision{[]string{"already there"}, lease.Lease{}}},
	} {
		im := newImporter(fakeNode{}, lease.Policy{})
		im.network = "vlan3"
		im.decideEntry(eth0, test.was)
		if diff := gocmp.Diff(test.want, im.decision(t), sameLease); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// An imported lease without a file stays as it is: whoever reclaims asks whether its sandbox is gone.
func TestDecideWithoutAFile(t *testing.T) {
	im := newImporter(fakeNode{verdicts: map[string]sandbox.Verdict{"c1": sandbox.VerdictGone}}, lease.Policy{})
	im.decide(lease.ImportView{Time: decided, BootID: "this boot", Leases: map[netip.Addr]lease.Lease{subject: held(lease.Imported, "c1")}})
	if diff := gocmp.Diff(decision{}, im.decision(t), sameLease); diff != "" {
		t.Error(diff)
	}
}

// The policy applies to known pods. A longer reservation from before stays.
func TestDecideAboutThePolicy(t *testing.T) {
	sticky := lease.Policy{Sticky: true, Retain: lease.Duration(72 * time.Hour)}
	kept := lease.Policy{Sticky: true, Retain: sticky.Retain, Quarantine: lease.DefaultQuarantine}
	plain := lease.Policy{Quarantine: lease.DefaultQuarantine}
	pods := fakeNode{pods: map[string]attachment.Pod{"c1": {Namespace: "shop", Name: "web-0"}}}
	forEver := ownedBy(held(lease.Imported, "c1"), web)
	forEver.Holders[0].Policy = lease.Policy{Sticky: true}
	for name, test := range map[string]struct {
		was  lease.Lease
		node fakeNode
		want lease.Policy
		said string
	}{
		"new, of a pod":                {lease.Lease{}, pods, kept, "imported"},
		"new, of nobody known":         {lease.Lease{}, fakeNode{}, plain, "imported"},
		"there, of a pod":              {ownedBy(held(lease.Imported, "c1"), web), pods, kept, "completed"},
		"there, of a pod known before": {ownedBy(held(lease.Imported, "c1"), web), fakeNode{}, kept, "completed"},
		"there, of nobody known":       {held(lease.Imported, "c1"), fakeNode{}, plain, "already there"},
		"there, of a pod known now":    {held(lease.Imported, "c1"), pods, kept, "completed"},
		"there, kept for ever":         {forEver, pods, lease.Policy{Sticky: true}, "completed"},
		"there, as relink gave it":     {ownedBy(held(lease.InTurn, "c1"), web), pods, plain, "already there"},
	} {
		t.Run(name, func(t *testing.T) {
			im := newImporter(test.node, sticky)
			im.decideEntry(Entry{Address: subject, ContainerID: "c1", IfName: "eth0", Written: written}, test.was)
			d := im.decision(t)
			got := d.Put
			if got.State == "" {
				got = test.was
			}
			if p := got.Newest().Policy; p != test.want || d.Said[0] != test.said {
				t.Errorf("%+v, %q; want %+v, %q", p, d.Said, test.want, test.said)
			}
		})
	}
}

// A cache's entry counts if its network is the import's, or if the other plugin calls the network so.
func TestEntryOfTheOtherPluginsNetwork(t *testing.T) {
	for network, want := range map[string]attachment.Pod{"lan": web, "vlan3": web, "other": {}} {
		im := newImporter(fakeNode{pods: map[string]attachment.Pod{"c1": web}, network: network}, lease.Policy{})
		im.Alias = "vlan3"
		if got := im.cacheEntry(attachment.Key{Network: "lan", ContainerID: "c1", IfName: "eth0"}).Pod; got != want {
			t.Errorf("an entry of %s: %v, want %v", network, got, want)
		}
	}
}

// A report is well if nobody has to look at it. A sandbox that is gone is left to reclaim.
func TestReportWell(t *testing.T) {
	for state, want := range map[EntryState]bool{
		Imported: true, ToImport: true, Present: true, Completed: true, ToComplete: true, NoSandbox: true, OutOfDate: true,
		Torn: false, Conflict: false, Ignored: false, Missing: false, Refused: false,
	} {
		if got := (ImportReport{Files: []EntryOutcome{{State: Imported}, {State: state}}}).Complete(); got != want {
			t.Errorf("%s: %v, want %v", state, got, want)
		}
	}
}

func TestPlanned(t *testing.T) {
	for state, want := range map[EntryState]EntryState{Imported: ToImport, Completed: ToComplete, NoSandbox: NoSandbox, Torn: Torn} {
		if got := cmp.Or(planned[state], state); got != want {
			t.Errorf("%s: %s, want %s", state, got, want)
		}
	}
}
