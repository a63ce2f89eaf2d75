package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/hostlocal"
	"github.com/relink-cni/relink/pkg/ipam/importer"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
	"github.com/relink-cni/relink/pkg/ipam/whereabouts"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/test/fresh"
)

// before is a node with pods that have their addresses by another IPAM plugin.
type before struct {
	*member
	// cache has the CNI caches of the node.
	cache     string
	sandboxes []started
}

type started struct{ id, path string }

// pod starts a pod: its sandbox has the address, and the runtime remembers it.
func (b *before) pod(t *testing.T, id, name, address string) {
	t.Helper()
	path := fresh.Sandbox(t)
	b.sandboxes = append(b.sandboxes, started{id, path})
	fresh.Run(t, path, fmt.Sprintf("ip link add e type veth peer name f; ip addr add %s/26 dev e", address))
	write(t, filepath.Join(b.cache, "results", "lan-"+id+"-eth0"), fmt.Sprintf(
		`{"kind":"cniCacheV1","containerId":%q,"ifName":"eth0","networkName":"lan","netns":%q,"cniArgs":[["K8S_POD_NAMESPACE","shop"],["K8S_POD_NAME",%q],["K8S_POD_UID",%q]],`+
			`"result":{"cniVersion":"1.0.0","ips":[{"address":"%s/26"}]}}`, id, path, name, "uid-"+id, address))
}

// gone ends the sandboxes. One machine has all nodes of the test, and each node would find those of the others as its own.
func (b *before) gone(t *testing.T) {
	t.Helper()
	for _, s := range b.sandboxes {
		fresh.Remove(t, s.path)
	}
	b.sandboxes = nil
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// ipPools are the IPPools of Whereabouts with these allocations, by the distance from 10.12.0.0.
func ipPools(t *testing.T, allocations map[int]string) whereabouts.Pools {
	t.Helper()
	var all []string
	for offset, id := range allocations {
		all = append(all, fmt.Sprintf(`"%d":{"id":%q,"podref":"shop/of-%s","ifname":"eth0"}`, offset, id, id))
	}
	p, err := whereabouts.Read([]byte(`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"whereabouts.cni.cncf.io/v1alpha1","kind":"IPPool",` +
		`"metadata":{"name":"10.12.0.0-26","namespace":"kube-system"},"spec":{"range":"10.12.0.0/26","allocations":{` + strings.Join(all, ",") + `}}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// options are those of an import into the pool.
func (b *before) options(policy lease.Policy) importer.Options {
	return importer.Options{Sources: reclaim.Sources{CacheDir: b.cache, AllProcesses: true}, Policy: policy, Pools: []string{"lan"}, Agent: control.Client{}}
}

// takes takes over what Whereabouts has given on this node, and says what became of it.
func (b *before) takes(t *testing.T, p whereabouts.Pools, o importer.Options) (said []string, r importer.ImportReport, err error) {
	t.Helper()
	b.socket(t)
	r, err = whereabouts.Import(t.Context(), b.store, p, "ippools.json", o)
	for _, f := range r.Files {
		said = append(said, fmt.Sprint(f.Address, " ", f.Attachment.ContainerID, " ", f.State))
	}
	return said, r, err
}

// pause pauses the pool, or ends that.
func (a *api) pause(t *testing.T, users map[string]user, paused bool) {
	t.Helper()
	users["admin"].must(t, http.MethodPatch, pools+"/lan", m{"spec": m{"paused": paused}}, nil)
}

// nodesBefore are two nodes that use another plugin for now.
func (a *api) nodesBefore(t *testing.T, users map[string]user, subnet string) (one, two *before) {
	t.Helper()
	all := a.members(t, users, subnet)
	return &before{member: all[0], cache: t.TempDir()}, &before{member: all[1], cache: t.TempDir()}
}

// expect compares what an import says of the addresses.
func expect(t *testing.T, what string, got []string, err error, want ...string) {
	t.Helper()
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%s: %v\n%s\nwant\n%s", what, err, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// takenOver moves a cluster from Whereabouts to a pool, node by node.
func (a *api) takenOver(t *testing.T, users map[string]user) {
	one, two := a.nodesBefore(t, users, "10.12.0.0/26")
	given := ipPools(t, map[int]string{5: "c1", 6: "c2", 7: "c3", 20: "c4", 9: "stale", 1: "gateway", 70: "outside"})
	one.pod(t, "c1", "web-0", "10.12.0.5")
	one.pod(t, "c2", "job", "10.12.0.6")
	one.pod(t, "gateway", "wrong", "10.12.0.1")
	_, _, err := one.takes(t, given, one.options(sticky))
	if want := "the pool lan is not paused, so other nodes could take addresses that pods have whose nodes are not imported yet: kubectl patch addresspool lan "; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a pool that is not paused: %v, want %s", err, want)
	}
	if there, err := one.store.Exists(); there || err != nil {
		t.Errorf("there is a store: %v, %v", there, err)
	}
	a.pause(t, users, true)
	dry := one.options(sticky)
	dry.DryRun = true
	said, r, err := one.takes(t, given, dry)
	expect(t, "a dry run", said, err, "10.12.0.1 gateway refused", "10.12.0.5 c1 to import", "10.12.0.6 c2 to import", "invalid IP  ignored")
	if there, _ := one.store.Exists(); there || len(a.blocksNow(t, users)) > 0 || r.OnOtherNodes != 3 || r.Closed != "" {
		t.Errorf("a dry run: a store %v, %d blocks, %+v", there, len(a.blocksNow(t, users)), r)
	}
	said, r, err = one.takes(t, given, one.options(sticky))
	expect(t, "the first node", said, err, "10.12.0.1 gateway refused", "10.12.0.5 c1 imported", "10.12.0.6 c2 imported", "invalid IP  ignored")
	if want := "the pool lan gives it to no pod, by spec.exclude, spec.gateway or spec.subnet: correct that, or delete the pod"; r.Files[0].Reason != want || r.OnOtherNodes != 3 || len(r.Failed) > 0 {
		t.Errorf("%+v, want %s", r, want)
	}
	again, _, err := one.takes(t, given, one.options(sticky))
	expect(t, "the first node again", again, err, "10.12.0.1 gateway refused", "10.12.0.5 c1 already there", "10.12.0.6 c2 already there", "invalid IP  ignored")
	one.gone(t)
	two.pod(t, "c3", "db", "10.12.0.7")
	two.pod(t, "c4", "cron", "10.12.0.20")
	said, _, err = two.takes(t, given, two.options(lease.Policy{}))
	expect(t, "the second node", said, err, "10.12.0.7 c3 imported", "10.12.0.20 c4 imported", "invalid IP  ignored")
	for _, n := range []*before{one, two} {
		a.within(t, users, n.member, "after the imports")
		if p, err := n.add(t.Context(), n.request(lease.Policy{}, "")); !errors.Is(err, pool.ErrUnavailable) {
			t.Errorf("%s gives %s while the pool is paused: %v", n.name, p.address, err)
		}
	}
	if b := a.blocksNow(t, users); len(b) != 2 || b[0].Status.Addresses+b[1].Status.Addresses != "AAB....A" && b[0].Status.Addresses+b[1].Status.Addresses != "...AAAB." {
		t.Errorf("the blocks: %+v", b)
	}
	a.pause(t, users, false)
	a.afterwards(t, users, one, two)
}

// afterwards shows that the pods' addresses are as if relink had given them.
func (a *api) afterwards(t *testing.T, users map[string]user, one, two *before) {
	t.Helper()
	held := attachment.Key{Network: "lan", ContainerID: "c1", IfName: "eth0"}
	var c pool.Claim
	users["admin"].must(t, http.MethodGet, claims+"/"+pool.ClaimName("lan", "eth0", acquisition("web-0").Owner), nil, &c)
	if c.Status.Active.Node != "node1" || c.Status.Address != netip.MustParseAddr("10.12.0.5") {
		t.Errorf("the claim is %+v", c.Status)
	}
	two.refusesOwner(t, "node node1 has "+c.Status.Address.String()+" of the pool lan, and has not handed it over")
	one.del(t, given{key: held})
	if moved := two.mustOwn(t, "web-0"); moved.address != c.Status.Address {
		t.Errorf("the owner's next pod on the other node: %s", moved.address)
	}
	has := map[netip.Addr]string{}
	for _, taken := range []string{"10.12.0.5", "10.12.0.6", "10.12.0.7", "10.12.0.20"} {
		has[netip.MustParseAddr(taken)] = "an imported pod"
	}
	for i := range 61 - len(has) {
		n := []*before{one, two}[i%2]
		p := n.must(t, n.request(lease.Policy{}, ""))
		if by := has[p.address]; by != "" {
			t.Fatalf("pod %d: %s is of %s, and %s has given it", i, p.address, by, n.name)
		}
		has[p.address] = n.name
	}
	if p, err := one.add(t.Context(), one.request(lease.Policy{}, "")); err == nil {
		t.Errorf("%s is given, and all are taken", p.address)
	}
	two.del(t, given{key: attachment.Key{Network: "lan", ContainerID: "c3", IfName: "eth0"}})
	if p := two.must(t, two.request(lease.Policy{}, "")); p.address != netip.MustParseAddr("10.12.0.7") {
		t.Errorf("after the DEL of the imported pod, %s is given", p.address)
	}
}

// twice has two nodes whose pods have one address, as after a fault of the plugin before. One of them gets it.
func (a *api) twice(t *testing.T, users map[string]user) {
	one, two := a.nodesBefore(t, users, "10.12.0.0/26")
	a.pause(t, users, true)
	one.pod(t, "c1", "web-0", "10.12.0.5")
	said, _, err := one.takes(t, ipPools(t, map[int]string{5: "c1"}), one.options(lease.Policy{}))
	expect(t, "the first node", said, err, "10.12.0.5 c1 imported")
	one.gone(t)
	two.pod(t, "c2", "web-1", "10.12.0.5")
	two.pod(t, "c3", "web-2", "10.12.0.6")
	said, r, err := two.takes(t, ipPools(t, map[int]string{5: "c2", 6: "c3"}), two.options(lease.Policy{}))
	expect(t, "the second node", said, err, "10.12.0.5 c2 refused", "10.12.0.6 c3 imported")
	if want := "network lan of node node1 has it: if pods of both have it, delete one of them"; r.Files[0].Reason != want || r.Complete() {
		t.Errorf("%+v, want %s", r, want)
	}
	users["admin"].must(t, http.MethodPatch, pools+"/lan/status", m{"status": m{"recovery": m{"message": "etcd was restored"}}}, nil)
	two.pod(t, "c4", "web-3", "10.12.0.9")
	_, _, err = two.takes(t, ipPools(t, map[int]string{5: "c2", 6: "c3", 9: "c4"}), two.options(lease.Policy{}))
	if want := "the pool lan gives nothing new: the API has lost what nodes have, and waits for all nodes: etcd was restored"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a pool that recovers: %v, want %s", err, want)
	}
}

// directory takes over what host-local has given.
func (a *api) directory(t *testing.T, users map[string]user) {
	one, _ := a.nodesBefore(t, users, "10.12.0.0/26")
	a.pause(t, users, true)
	dir := hostLocal(t, one, 12)
	// Its sandbox is gone: the pool is not asked for it.
	write(t, filepath.Join(dir, "10.12.0.40"), "c40\r\neth0")
	if err := os.Chtimes(filepath.Join(dir, "10.12.0.40"), time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	// A pod may have the address of a torn file.
	write(t, filepath.Join(dir, "10.12.0.41"), "")
	// Its file is gone, and the pod runs on.
	one.pod(t, "c50", "web-c50", "10.12.0.50")
	one.socket(t)
	r, err := hostlocal.Import(t.Context(), one.store, dir, one.options(sticky))
	states := map[importer.EntryState]int{}
	for _, f := range r.Files {
		states[f.State]++
	}
	if err != nil || len(r.Failed) > 0 || states[importer.OutOfDate] != 1 || states[importer.Torn] != 1 || states[importer.Imported] != 12 || states[importer.Missing] != 1 {
		t.Errorf("%v, %v: %+v", err, states, r)
	}
	var list struct {
		Items []pool.Claim `json:"items"`
	}
	users["admin"].must(t, http.MethodGet, claims, nil, &list)
	if n := a.hasAll(t, users); n != 13 || len(list.Items) != 12 {
		t.Errorf("the node has %d addresses and %d claims, want 13 and 12", n, len(list.Items))
	}
	a.pause(t, users, false)
	if err := hostLocalsDEL(t, one, dir, "10.12.0.2", "c2"); err != nil {
		t.Fatal(err)
	}
	r, err = hostlocal.Import(t.Context(), one.store, dir, one.options(sticky))
	if err != nil || len(r.Failed) > 0 || slices.ContainsFunc(r.Files, func(f importer.EntryOutcome) bool { return f.Attachment.ContainerID == "c2" }) {
		t.Errorf("after the pause, and after a DEL of host-local: %v, %+v", err, r)
	}
}

// hostLocal starts pods whose addresses host-local has given.
func hostLocal(t *testing.T, b *before, pods int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	write(t, filepath.Join(dir, "lock"), "")
	for i := 2; i < 2+pods; i++ {
		address, id := fmt.Sprint("10.12.0.", i), fmt.Sprint("c", i)
		b.pod(t, id, "web-"+id, address)
		write(t, filepath.Join(dir, address), id+"\r\neth0")
	}
	return dir
}

// hostLocalsDEL ends the pod by host-local. relink hears nothing of it.
func hostLocalsDEL(t *testing.T, b *before, dir, address, id string) error {
	t.Helper()
	i := slices.IndexFunc(b.sandboxes, func(s started) bool { return s.id == id })
	fresh.Remove(t, b.sandboxes[i].path)
	return errors.Join(os.Remove(filepath.Join(dir, address)), os.Remove(filepath.Join(b.cache, "results", "lan-"+id+"-eth0")))
}

// hasAll is how many addresses nodes have.
func (a *api) hasAll(t *testing.T, users map[string]user) (n int) {
	t.Helper()
	for _, b := range a.blocksNow(t, users) {
		for i := range len(b.Status.Addresses) {
			if _, held := b.HolderOf(i); held {
				n++
			}
		}
	}
	return n
}

// killedImport kills the agent in the middle of an import. The next one completes it.
func (a *api) killedImport(t *testing.T, users map[string]user) {
	a.newPool(t, users, "10.12.0.0/26")
	a.pause(t, users, true)
	b := &before{cache: t.TempDir(), member: a.quiet(t, users, "node1")}
	dir := hostLocal(t, b, 7)
	every := 9
	if os.Getenv("RELINK_LONG") != "" {
		every = 1
	}
	for n, done := 0, false; !done; n += every {
		users["admin"].must(t, http.MethodDelete, blocks, m{}, nil)
		users["admin"].must(t, http.MethodDelete, claims, m{}, nil)
		b.member = a.quiet(t, users, "node1")
		b.api.dieAfter(n)
		b.socket(t)
		r, err := hostlocal.Import(t.Context(), b.store, dir, b.options(sticky))
		a.within(t, users, b.member, fmt.Sprintf("the agent is killed after %d messages", n))
		done = err == nil && r.Complete()
		b.member = a.again(t, users, b.member)
		b.socket(t)
		r, err = hostlocal.Import(t.Context(), b.store, dir, b.options(sticky))
		if has := a.hasAll(t, users); err != nil || !r.Complete() || has != 7 {
			t.Fatalf("after %d messages: %v, %+v, the node has %d addresses", n, err, r, has)
		}
		a.within(t, users, b.member, "after the next import")
	}
}
