package hostlocal

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/importer"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
	"github.com/relink-cni/relink/pkg/kernel/identity"
	"github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/test/fresh"
)

// machine is a node with host-local: its directory for the network lan, the CNI caches, and the store of relink-ipam.
type machine struct {
	t               *testing.T
	store           *lease.Store
	dir, cache      string
	sandboxes       map[string]string
	cacheFiles      map[string]string
	lastSandboxAddr int
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	return &machine{
		t: t, store: importInto(t), dir: hostLocalWith(t, map[string]string{"lock": ""}), cache: cacheWith(t, nil),
		sandboxes: map[string]string{}, cacheFiles: map[string]string{},
	}
}

// pod attaches a sandbox of a pod. It leaves what host-local and the runtime leave: the file, the cache's entry, and a
// namespace with the address.
func (m *machine) pod(a, id, pod string) {
	m.t.Helper()
	path := fresh.Sandbox(m.t)
	m.sandboxes[id] = path
	m.file(a, id)
	m.addressIn(id, a)
	m.remember("results/lan-"+id+"-eth0", "lan", id, "eth0", pod)
}

func (m *machine) file(a, id string) {
	m.t.Helper()
	filesIn(m.t, m.dir, map[string]string{a: id + "\r\neth0"})
	m.age(a)
}

// age makes the file so old that no ADD can be running.
func (m *machine) age(a string) {
	m.t.Helper()
	then := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(m.dir, a), then, then); err != nil {
		m.t.Fatal(err)
	}
}

// addressIn gives the sandbox the address.
func (m *machine) addressIn(id, a string) {
	m.t.Helper()
	m.lastSandboxAddr++
	name := fmt.Sprint("e", m.lastSandboxAddr)
	fresh.Run(m.t, m.sandboxes[id], fmt.Sprintf("ip link add %s type veth peer name %sp; ip addr add %s/24 dev %s", name, name, a, name))
}

// remember writes an entry of a cache as libcni does.
func (m *machine) remember(name, network, id, ifName, pod string) {
	m.t.Helper()
	m.cacheFiles[id] = name
	filesIn(m.t, m.cache, map[string]string{name: fmt.Sprintf(`{"kind":"cniCacheV1","containerId":%q,"config":%q,"ifName":%q,"networkName":%q,"netns":%q,`+
		`"cniArgs":[["IgnoreUnknown","1"],["K8S_POD_NAMESPACE","shop"],["K8S_POD_NAME",%q],["K8S_POD_INFRA_CONTAINER_ID",%q],["K8S_POD_UID",%q]],"result":{"cniVersion":"1.0.0"}}`,
		id, base64.StdEncoding.EncodeToString([]byte(`{"name":"`+network+`"}`)), ifName, network, m.sandboxes[id], pod, id, "uid-of-"+pod)})
}

// end ends the sandbox without any DEL.
func (m *machine) end(id string) {
	m.t.Helper()
	fresh.Remove(m.t, m.sandboxes[id])
	delete(m.sandboxes, id)
}

// forget removes the cache entry, as a runtime does at the end of a DEL.
func (m *machine) forget(id string) {
	m.t.Helper()
	m.unlink(filepath.Join(m.cache, m.cacheFiles[id]))
}

func (m *machine) unlink(path string) {
	m.t.Helper()
	if err := os.Remove(path); err != nil {
		m.t.Fatal(err)
	}
}

// delByHostLocal is a DEL with the configuration in the runtime's cache. relink-ipam learns nothing of it.
func (m *machine) delByHostLocal(a, id string) {
	m.t.Helper()
	m.end(id)
	m.unlink(filepath.Join(m.dir, a))
	m.forget(id)
}

// delByRelink is a DEL with the present configuration. host-local learns nothing of it.
func (m *machine) delByRelink(id string) {
	m.t.Helper()
	m.end(id)
	if err := m.store.Release(m.t.Context(), onLan(id, "eth0"), lease.Policy{}); err != nil {
		m.t.Fatal(err)
	}
	m.forget(id)
}

// imports runs an import and returns its result for each address, without the reasons.
func (m *machine) imports(p lease.Policy) (said []string, r importer.ImportReport) {
	m.t.Helper()
	r = importWith(m.t, m.store, m.dir, importer.Options{Sources: reclaim.Sources{CacheDir: m.cache, AllProcesses: true}, Policy: p})
	for _, f := range r.Files {
		said = append(said, fmt.Sprint(f.Address, " ", f.Attachment.ContainerID, " ", f.State))
	}
	return said, r
}

// leases returns the addresses that are not free, each with its state, owner and holders.
func (m *machine) leases() []string {
	m.t.Helper()
	var lines []string
	for _, l := range listed(m.t, m.store) {
		line := fmt.Sprint(l.Address, " ", l.State, " ", l.Owner)
		for _, h := range l.Holders {
			line += " " + h.ContainerID
		}
		lines = append(lines, line)
	}
	if err := m.store.Verify(m.t.Context()); err != nil {
		m.t.Error(err)
	}
	return lines
}

func (m *machine) expect(what string, got, want []string) {
	m.t.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		m.t.Errorf("%s: %s", what, diff)
	}
}

// reclaims has the holders that are proven gone give up their addresses.
func (m *machine) reclaims() (said []string) {
	m.t.Helper()
	looked, err := reclaim.Look(m.t.Context(), reclaim.Sources{CacheDir: m.cache, AllProcesses: true})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, l := range listed(m.t, m.store) {
		for _, h := range l.Holders {
			switch j := looked.Judge(l.Address, h, time.Now(), reclaim.OtherHolders(l, h)...); j.Verdict {
			case sandbox.VerdictAlive:
			case sandbox.VerdictGone:
				if err := m.store.GiveUp(m.t.Context(), []lease.SeenHolder{{Address: l.Address, Holder: h}}, "its sandbox is gone: "+j.Reason()); err != nil {
					m.t.Error(err)
				}
				said = append(said, fmt.Sprint(l.Address, " ", h.ContainerID, " reclaimed"))
			default:
				said = append(said, fmt.Sprint(l.Address, " ", h.ContainerID, " kept"))
			}
		}
	}
	return said
}

// The caches name the pod, and lead to the namespace.
func TestImportTakesThePodFromTheCaches(t *testing.T) {
	m := newMachine(t)
	m.pod("10.231.77.2", "c1", "web-1")
	// Multus and the first interface are in the runtime's cache. Multus keeps a cache of its own for its delegates.
	m.pod("10.231.77.3", "c2", "web-2")
	m.forget("c2")
	m.remember("results/multus-c2-eth0", "multus", "c2", "eth0", "web-2")
	filesIn(t, m.cache, map[string]string{"multus/c2": `[{"Conf":{"name":"cluster"}},{"Conf":{"name":"lan"}}]`})
	filesIn(t, m.dir, map[string]string{"10.231.77.3": "c2\r\nnet1"})
	// No cache has this interface.
	filesIn(t, m.dir, map[string]string{"10.231.77.4": "c1\r\nnet7"})
	// The namespace of this sandbox is gone from its path.
	m.pod("10.231.77.5", "c5", "web-5")
	path := m.sandboxes["c5"]
	m.end("c5")

	said, r := m.imports(lease.Policy{})
	m.expect("the import", said, []string{"10.231.77.2 c1 imported", "10.231.77.3 c2 imported", "10.231.77.4 c1 imported", "10.231.77.5 c5 imported"})
	if !r.Complete() || len(r.Problems) > 0 {
		t.Errorf("%+v", r)
	}
	m.expect("the leases", m.leases(), []string{"10.231.77.2 held pod shop/web-1 c1", "10.231.77.3 held pod shop/web-2 c2", "10.231.77.4 held - c1", "10.231.77.5 held pod shop/web-5 c5"})
	all := listed(t, m.store)
	for i, id := range []string{"c1", "c2"} {
		want, err := identity.Read(m.sandboxes[id])
		if err != nil || want.Cookie == 0 {
			t.Fatal(want, err)
		}
		if h := all[i].Holders[0]; h.Namespace != want || h.Pod.UID != fmt.Sprint("uid-of-web-", i+1) {
			t.Errorf("%s: %+v, want the namespace %+v", all[i].Address, h, want)
		}
	}
	if h := all[2].Holders[0]; h.Namespace.Inode != 0 || h.Namespace.Path != "" || h.Namespace.BootID == "" || h.Pod.UID != "" {
		t.Errorf("10.231.77.4: %+v", h)
	}
	if h := all[3].Holders[0]; h.Namespace.Inode != 0 || h.Namespace.Path != path || h.Namespace.BootID == "" {
		t.Errorf("10.231.77.5: %+v", h)
	}
}

// A sandbox that is gone keeps its address until it is reclaimed. The import reports that.
func TestImportMarksSandboxesThatAreGone(t *testing.T) {
	m := newMachine(t)
	m.pod("10.231.77.2", "c1", "web-1")
	m.file("10.231.77.3", "long-gone")
	m.file("10.231.77.4", "not-cached")
	m.addressIn("c1", "10.231.77.4")
	filesIn(t, m.dir, map[string]string{"10.231.77.5": "being-added\r\neth0"})
	m.pod("10.231.77.6", "owed", "web-6")
	m.end("owed")
	states := []string{"10.231.77.2 c1 imported", "10.231.77.3 long-gone no live sandbox", "10.231.77.4 not-cached imported", "10.231.77.5 being-added imported", "10.231.77.6 owed imported"}
	said, r := m.imports(lease.Policy{})
	m.expect("the import", said, states)
	want := "held until it is reclaimed: its network namespace was not recorded; no network namespace has the address; the CNI cache in " + m.cache + " does not have it"
	if r.Files[1].Reason != want || !r.Complete() {
		t.Errorf("%q, well %v; want %q", r.Files[1].Reason, r.Complete(), want)
	}
	m.expect("the leases", m.leases(), []string{"10.231.77.2 held pod shop/web-1 c1", "10.231.77.3 held - long-gone", "10.231.77.4 held - not-cached", "10.231.77.5 held - being-added", "10.231.77.6 held pod shop/web-6 owed"})
	for i := range states {
		states[i] = strings.Replace(states[i], "imported", "already there", 1)
	}
	said, _ = m.imports(lease.Policy{})
	m.expect("again", said, states)
	m.expect("reclaim", m.reclaims(), []string{"10.231.77.3 long-gone reclaimed", "10.231.77.4 not-cached kept", "10.231.77.5 being-added kept", "10.231.77.6 owed kept"})
	said, r = m.imports(lease.Policy{})
	states[1] = "10.231.77.3 long-gone already there"
	m.expect("after the reclaim", said, states)
	if !strings.HasPrefix(r.Files[1].Reason, "given up since, and in quarantine: its sandbox is gone: ") {
		t.Errorf("%q", r.Files[1].Reason)
	}
}

// CRI-O and Multus send a pod's DEL with the configuration of its ADD, and relink-ipam hears nothing of it. Another import changes nothing
// for the pods without a file; what is proven gone is reclaimed.
func TestReclaimWhereDELsWentToHostLocal(t *testing.T) {
	m := newMachine(t)
	for i := 2; i <= 6; i++ {
		m.pod(fmt.Sprint("10.231.77.", i), fmt.Sprint("c", i), fmt.Sprint("web-", i))
	}
	sticky := lease.Policy{Sticky: true}
	m.imports(sticky)
	m.delByHostLocal("10.231.77.2", "c2")
	// This pod already has its next sandbox. relink-ipam gave it the same address.
	m.delByHostLocal("10.231.77.3", "c3")
	m.sandboxes["c13"] = fresh.Sandbox(t)
	id, err := identity.Read(m.sandboxes["c13"])
	if err != nil {
		t.Fatal(err)
	}
	next := lease.Request{Attachment: onLan("c13", "eth0"), Owner: attachment.Pod{Namespace: "shop", Name: "web-3"}.Owner(), Namespace: id, Policy: sticky}
	if a := added(t, m.store, next); a.String() != "10.231.77.3" {
		t.Fatalf("the next sandbox was given %s", a)
	}
	// Here the DEL failed after host-local's part. The runtime will call again.
	m.end("c4")
	m.unlink(filepath.Join(m.dir, "10.231.77.4"))
	// Somebody removed the file of a live pod.
	m.unlink(filepath.Join(m.dir, "10.231.77.5"))
	before := []string{
		"10.231.77.2 held pod shop/web-2 c2", "10.231.77.3 held pod shop/web-3 c3 c13", "10.231.77.4 held pod shop/web-4 c4", "10.231.77.5 held pod shop/web-5 c5",
		"10.231.77.6 held pod shop/web-6 c6",
	}
	m.expect("before", m.leases(), before)
	said, _ := m.imports(sticky)
	m.expect("the second import", said, []string{"10.231.77.6 c6 already there"})
	m.expect("after the second import", m.leases(), before)
	m.expect("reclaim", m.reclaims(), []string{"10.231.77.2 c2 reclaimed", "10.231.77.3 c3 reclaimed", "10.231.77.4 c4 kept"})
	m.forget("c4")
	m.expect("reclaim after the runtime's second call", m.reclaims(), []string{"10.231.77.4 c4 reclaimed"})
	m.expect("after", m.leases(), []string{
		"10.231.77.2 reserved pod shop/web-2", "10.231.77.3 held pod shop/web-3 c13", "10.231.77.4 reserved pod shop/web-4", "10.231.77.5 held pod shop/web-5 c5",
		"10.231.77.6 held pod shop/web-6 c6",
	})
}

// containerd sends a DEL with the present configuration, so host-local's file stays.
func TestImportAgainWhereDELsWentToRelink(t *testing.T) {
	m := newMachine(t)
	for i := 2; i <= 4; i++ {
		m.pod(fmt.Sprint("10.231.77.", i), fmt.Sprint("c", i), fmt.Sprint("web-", i))
	}
	m.imports(lease.Policy{})
	for _, id := range []string{"c2", "c3"} {
		m.delByRelink(id)
	}
	// Another pod has one of the addresses now, and its sandbox has it too.
	m.sandboxes["c9"] = fresh.Sandbox(t)
	m.addressIn("c9", "10.231.77.3")
	id, err := identity.Read(m.sandboxes["c9"])
	if err != nil {
		t.Fatal(err)
	}
	r := lease.Request{Attachment: onLan("c9", "eth0"), Namespace: id, RequestedAddresses: []netip.Addr{netip.MustParseAddr("10.231.77.3")}}
	added(t, m.store, r)
	said, report := m.imports(lease.Policy{})
	m.expect("the second import", said, []string{"10.231.77.2 c2 already there", "10.231.77.3 c3 out of date", "10.231.77.4 c4 already there"})
	if !report.Complete() || !strings.Contains(report.Files[1].Reason, "no network namespace but that of c9 has the address") {
		t.Errorf("well %v, %q", report.Complete(), report.Files[1].Reason)
	}
	m.expect("the leases", m.leases(), []string{"10.231.77.2 quarantined pod shop/web-2", "10.231.77.3 held - c9", "10.231.77.4 held pod shop/web-4 c4"})
	// The address has become free since. It is held again, and marked.
	seen, err := m.store.Get(t.Context(), netip.MustParseAddr("10.231.77.2"))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.store.End(t.Context(), seen, lease.ByHand); err != nil {
		t.Fatal(err)
	}
	said, _ = m.imports(lease.Policy{})
	m.expect("the third import", said, []string{"10.231.77.2 c2 no live sandbox", "10.231.77.3 c3 out of date", "10.231.77.4 c4 already there"})
	m.expect("reclaim", m.reclaims(), []string{"10.231.77.2 c2 reclaimed"})
}

// Somebody emptied the directory. No live pod loses its address, however little relink knows of it.
func TestImportOfADirectoryThatWasEmptied(t *testing.T) {
	nothing := cacheWith(t, nil)
	for name, test := range map[string]struct {
		// first and then are the caches of the two imports. Empty means the machine's caches.
		first, then string
		pod         string
	}{
		"the caches know the pods":         {"", "", "pod shop/web-1"},
		"they did not before":              {nothing, "", "-"},
		"they do no more":                  {"", nothing, "pod shop/web-1"},
		"they never knew a pod of the two": {nothing, nothing, "-"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.pod("10.231.77.2", "c1", "web-1")
			m.pod("10.231.77.3", "c2", "web-2")
			importWith(t, m.store, m.dir, importer.Options{Sources: reclaim.Sources{CacheDir: cmp.Or(test.first, m.cache), AllProcesses: true}})
			m.delByHostLocal("10.231.77.3", "c2")
			m.unlink(filepath.Join(m.dir, "10.231.77.2"))
			r := importWith(t, m.store, m.dir, importer.Options{Sources: reclaim.Sources{CacheDir: cmp.Or(test.then, m.cache), AllProcesses: true}})
			if len(r.Files) != 0 {
				t.Errorf("%+v", r.Files)
			}
			if l := m.leases(); l[0] != "10.231.77.2 held "+test.pod+" c1" || !strings.HasPrefix(l[1], "10.231.77.3 held") {
				t.Errorf("leases: %q", l)
			}
		})
	}
}

// An import completes what an earlier import could not know, because it had no caches.
func TestImportCompletesAnEarlierOne(t *testing.T) {
	m := newMachine(t)
	m.pod("10.231.77.2", "c1", "web-1")
	m.pod("10.231.77.3", "c2", "web-2")
	imported(t, m.store, m.dir)
	m.expect("the first import", m.leases(), []string{"10.231.77.2 held - c1", "10.231.77.3 held - c2"})
	said, r := m.imports(lease.Policy{Sticky: true})
	m.expect("the second import", said, []string{"10.231.77.2 c1 completed", "10.231.77.3 c2 completed"})
	if !r.Complete() {
		t.Errorf("%+v", r)
	}
	m.expect("the leases", m.leases(), []string{"10.231.77.2 held pod shop/web-1 c1", "10.231.77.3 held pod shop/web-2 c2"})
	said, _ = m.imports(lease.Policy{Sticky: true})
	m.expect("the third import", said, []string{"10.231.77.2 c1 already there", "10.231.77.3 c2 already there"})
	// The pod's next sandbox gets the address.
	m.delByRelink("c1")
	next := lease.Request{Attachment: onLan("c11", "eth0"), Owner: attachment.Pod{Namespace: "shop", Name: "web-1"}.Owner(), Policy: lease.Policy{Sticky: true}}
	if a := added(t, m.store, next); a.String() != "10.231.77.2" {
		t.Errorf("the pod's next sandbox was given %s", a)
	}
}

// The path in a cache now leads to a stranger's namespace. Whatever happens to that namespace, the pod keeps its
// address.
func TestImportBelievesNoPathOfACache(t *testing.T) {
	m := newMachine(t)
	m.pod("10.231.77.2", "c1", "web-1")
	own := m.sandboxes["c1"]
	m.sandboxes["c1"] = fresh.Sandbox(t)
	m.remember("results/lan-c1-eth0", "lan", "c1", "eth0", "web-1")
	m.pod("10.231.77.3", "c2", "web-2")
	m.sandboxes["c2"] = "/proc/self/ns/net"
	m.remember("results/lan-c2-eth0", "lan", "c2", "eth0", "web-2")
	m.imports(lease.Policy{})
	for _, l := range listed(t, m.store) {
		if h := l.Holders[0]; h.Namespace.Inode != 0 {
			t.Errorf("%s is recorded with a stranger's namespace: %+v", l.Address, h.Namespace)
		}
	}
	m.end("c1")
	m.forget("c1")
	m.expect("reclaim", m.reclaims(), []string{"10.231.77.2 c1 kept"})
	fresh.Remove(t, own)
	m.expect("reclaim when it is gone", m.reclaims(), []string{"10.231.77.2 c1 reclaimed"})
}
