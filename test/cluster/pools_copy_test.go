package cluster

import (
	"errors"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// copies makes nodes from the disk of another one, and puts an older disk into one.
func (a *api) copies(t *testing.T, users map[string]user) {
	t.Run("of another machine ID", func(t *testing.T) { a.copied(t, users, strings.Repeat("b", 32)) })
	t.Run("of the same machine ID", func(t *testing.T) { a.copied(t, users, strings.Repeat("a", 32)) })
	t.Run("under the same name", func(t *testing.T) { a.madeAnew(t, users) })
	t.Run("the object was made anew while the agent runs", func(t *testing.T) { a.madeAnewBeside(t, users) })
	t.Run("an older disk", func(t *testing.T) { a.olderDisk(t, users) })
}

// addresses are who has which address of the pool lan, as the test has seen pods start.
type addresses map[netip.Addr]string

// starts notes a pod that has started.
func (has addresses) starts(t *testing.T, m *member, p given) given {
	t.Helper()
	if by := has[p.address]; by != "" {
		t.Fatalf("%s is held on %s and given on %s\n%s", p.address, by, m.name, m.log.String())
	}
	has[p.address] = m.name
	return p
}

// image is a node whose pods are running, and one whose disk is a copy of the first one's: its kernel has booted since.
func (a *api) image(t *testing.T, users map[string]user, subnet, machine string) (one, other *member, has addresses) {
	t.Helper()
	a.newPool(t, users, subnet)
	one, has = a.quiet(t, users, "node1"), addresses{}
	one.is(t, strings.Repeat("a", 32))
	one.start(t, nil)
	one.end()
	for range 3 {
		has.starts(t, one, one.must(t, one.request(lease.Policy{}, "")))
	}
	one.delOwned(t, one.mustOwn(t, "web-0"))
	other = a.quiet(t, users, "node2")
	other.is(t, machine)
	other.boots(t, one.dir, "the copy's first boot")
	return one, other, has
}

// is gives the node a machine ID.
func (m *member) is(t *testing.T, machine string) {
	t.Helper()
	m.machine = machine
	m.reopen(t)
}

// boots starts the node's agent with a copy of the disk, in another boot.
func (m *member) boots(t *testing.T, disk, boot string) {
	t.Helper()
	if err := os.RemoveAll(m.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(m.dir, os.DirFS(disk)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(m.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	m.clock.set(boot, 0, 0)
	m.reopen(t)
	m.start(t, nil)
	m.end()
}

// stranger tries each way to an address of the pool, and expects that the node's store is refused with these words.
func (m *member) stranger(t *testing.T, want ...string) {
	t.Helper()
	_, plain := m.add(t.Context(), m.request(lease.Policy{}, ""))
	_, owned := m.startOwned(t.Context(), t, "web-0")
	for _, err := range []error{plain, owned} {
		if err == nil {
			t.Fatalf("a copy of a store gives an address\n%s", m.log.String())
		}
		for _, words := range want {
			if !strings.Contains(err.Error(), words) {
				t.Errorf("%v, want %s", err, words)
			}
		}
	}
}

// goesOn expects that the pool gives addresses, and that the nodes hand the owner over.
func (a *api) goesOn(t *testing.T, users map[string]user, has addresses, all ...*member) {
	t.Helper()
	if r := a.recovery(t, users); r.Message != "" {
		t.Fatalf("the pool was stopped for all nodes: %+v", r)
	}
	for _, m := range all {
		has.starts(t, m, m.must(t, m.request(lease.Policy{}, "")))
	}
}

// copied is a node with another name whose disk is a copy.
func (a *api) copied(t *testing.T, users map[string]user, machine string) {
	one, other, has := a.image(t, users, "10.48.0.0/26", machine)
	third := a.member(t, "node3", users["node3"])
	way := "rm " + lease.PathIn(other.dir, "lan")
	for range 2 { // Whichever of them comes first: an ADD, or the agent's look.
		other.stranger(t, "store of another machine", way)
		other.Reconcile(t.Context())
		one.Reconcile(t.Context())
	}
	a.goesOn(t, users, has, one, third)
	one.start(t, one.watch) // It hands the owner over.
	web := has.starts(t, third, third.mustOwn(t, "web-0"))
	other.Reconcile(t.Context())
	other.stranger(t, "store of another machine", way)
	s, err := other.open("lan")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ResetMachine(t.Context()); !errors.Is(err, lease.ErrForeign) {
		t.Errorf("reset-machine on a copy: %v", err)
	}
	other.stranger(t, "store of another machine", way)
	for _, b := range a.blocksNow(t, users) {
		for _, h := range b.Status.Holders {
			if h.Node == "node2" {
				t.Errorf("the copy takes part in the pool: %+v", b.Status)
			}
		}
	}

	if err := os.Remove(lease.PathIn(other.dir, "lan")); err != nil {
		t.Fatal(err)
	}
	other.start(t, other.watch)
	for range 4 {
		has.starts(t, other, other.must(t, other.request(lease.Policy{}, "")))
	}
	third.delOwned(t, web)
	delete(has, web.address)
	if moved := has.starts(t, other, other.mustOwn(t, "web-0")); moved.address != web.address {
		t.Errorf("the owner has %s on the mended copy, and had %s", moved.address, web.address)
	}
	a.goesOn(t, users, has, one, third, other)
	for _, m := range []*member{one, third, other} {
		a.within(t, users, m, "in the end")
	}
}

// madeAnew is a node that was deleted and made again from an image of its disk: only the UID of its object is another one. If only
// the object was made again, under a machine that runs, it is no copy.
func (a *api) madeAnew(t *testing.T, users map[string]user) {
	one, _, has := a.image(t, users, "10.49.0.0/26", strings.Repeat("b", 32))
	disk := t.TempDir()
	if err := os.CopyFS(filepath.Join(disk, "ipam"), os.DirFS(one.dir)); err != nil {
		t.Fatal(err)
	}
	a.anew(t, users)
	one.start(t, nil) // The machine has run since.
	one.end()
	one.Reconcile(t.Context())
	has.starts(t, one, one.must(t, one.request(lease.Policy{}, "")))

	one.boots(t, filepath.Join(disk, "ipam"), "the image's first boot")
	one.stranger(t, "the object of node node1 was made anew", "rm "+lease.PathIn(one.dir, "lan"), "relink ipam reset-machine --network lan")
	one.Reconcile(t.Context())
	one.stranger(t, "the object of node node1 was made anew")
	third := a.member(t, "node3", users["node3"])
	a.goesOn(t, users, has, third)
	s, err := one.open("lan")
	if err != nil {
		t.Fatal(err)
	}
	if changed, err := s.ResetMachine(t.Context()); !changed || err != nil {
		t.Fatalf("reset-machine: %t, %v", changed, err)
	}
	one.Reconcile(t.Context())
	for address, by := range has {
		if by == "node1" { // Its pods ended with its machine.
			delete(has, address)
		}
	}
	a.goesOn(t, users, has, one, third)
}

// anew deletes the object of node1, and makes it again.
func (a *api) anew(t *testing.T, users map[string]user) {
	t.Helper()
	users["admin"].must(t, http.MethodDelete, "/api/v1/nodes/node1", m{}, nil)
	a.create(t, "/api/v1/nodes", m{"metadata": m{"name": "node1"}}, &struct{}{})
}

// madeAnewBeside is a node whose object was made anew while its agent, which is no pod, went on. Then the machine boots.
func (a *api) madeAnewBeside(t *testing.T, users map[string]user) {
	one, _, has := a.image(t, users, "10.50.0.0/26", strings.Repeat("b", 32))
	a.anew(t, users)
	one.Reconcile(t.Context())
	disk := filepath.Join(t.TempDir(), "ipam")
	if err := os.CopyFS(disk, os.DirFS(one.dir)); err != nil {
		t.Fatal(err)
	}
	one.boots(t, disk, "the next boot")
	one.Reconcile(t.Context())
	clear(has) // Its pods have ended.
	a.goesOn(t, users, has, one)
}

// olderDisk is a node whose disk is put back to what it was before the node gave addresses back, and others took them.
func (a *api) olderDisk(t *testing.T, users map[string]user) {
	a.newPool(t, users, "10.51.0.0/28")
	one, has := a.quiet(t, users, "node1"), addresses{}
	one.surplus = time.Nanosecond
	one.start(t, nil)
	one.end()
	var pods []given
	for range 9 {
		pods = append(pods, one.must(t, one.request(lease.Policy{}, "")))
	}
	disk := filepath.Join(t.TempDir(), "ipam")
	if err := os.CopyFS(disk, os.DirFS(one.dir)); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		one.del(t, p)
	}
	await(t, 20*time.Second, "most blocks to go back", func() bool { one.Reconcile(t.Context()); return len(one.granted(t)) <= 4 })
	second, third := a.member(t, "node2", users["node2"]), a.member(t, "node3", users["node3"])
	for range 8 {
		has.starts(t, third, third.must(t, third.request(lease.Policy{}, "")))
	}

	one.boots(t, disk, "the boot of the older disk")
	give := func() {
		for _, m := range []*member{one, third} {
			if p, err := m.quickly(t, m.request(lease.Policy{}, "")); err == nil {
				has.starts(t, m, p)
			}
		}
	}
	give()
	keep := a.controller(t, users)
	await(t, 40*time.Second, "the pool to give addresses again", func() bool {
		one.Reconcile(t.Context())
		second.Reconcile(t.Context()) // A recovery waits for each node.
		third.Reconcile(t.Context())
		_ = keep.Reconcile(t.Context())
		give()
		return a.recovered(t, users)
	})
	for range 4 {
		give()
	}
	for _, b := range a.blocksNow(t, users) {
		for address, by := range has {
			if i := b.Offset(address); i >= 0 && !b.HeldBy(pool.Party{Node: by, Store: map[string]*member{"node1": one, "node3": third}[by].storeID(t)}, i) {
				t.Errorf("a pod on %s has %s, and that is not the node's: %+v", by, address, b.Status)
			}
		}
	}
}
