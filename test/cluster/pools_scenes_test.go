package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// scenes are what has gone wrong in clusters, or could.
func (a *api) scenes(t *testing.T, users map[string]user) {
	t.Run("a dead node with wants", func(t *testing.T) { a.deadWithWants(t, users) })
	t.Run("a taken-over node", func(t *testing.T) { a.takenOverNode(t, users) })
	t.Run("a fragmented pool", func(t *testing.T) { a.fragmented(t, users) })
	t.Run("40 networks", func(t *testing.T) { a.manyNetworks(t, users) })
	if os.Getenv("RELINK_LONG") != "" { // To make them takes seconds of the API's time.
		t.Run("400 pools", func(t *testing.T) { a.manyPools(t, users) })
	}
}

// wanted are the nodes that ask for something, each once for each kind.
func (a *api) wanted(t *testing.T, users map[string]user) (all []string) {
	t.Helper()
	for _, b := range a.blocksNow(t, users) {
		for _, w := range b.Status.Want {
			what := w.Node + " any"
			if w.Address.IsValid() {
				what = w.Node + " " + w.Address.String()
			}
			if !slices.Contains(all, what) {
				all = append(all, what)
			}
		}
	}
	slices.Sort(all)
	return all
}

// A node asks for any address and for an owner's, and dies. What it asks for goes with its fence, and the addresses go to who lives.
func (a *api) deadWithWants(t *testing.T, users map[string]user) {
	a.newPool(t, users, "10.94.0.0/28")
	one, dead, third := a.member(t, "node1", users["node1"]), a.quiet(t, users, "node2"), a.member(t, "node3", users["node3"])
	owned := one.mustOwn(t, "web-0")
	_, _ = one.fill(t, 12) // 13 addresses without the gateway.
	want := []string{"node2 " + owned.address.String(), "node2 any"}
	await(t, 30*time.Second, "the node to ask", func() bool {
		if _, err := dead.startOwned(t.Context(), t, "web-0"); err == nil {
			t.Fatal("the owner's address is given twice")
		}
		if _, err := dead.inNoTime(t, dead.request(lease.Policy{}, "")); err == nil {
			t.Fatal("an address is given twice")
		}
		return slices.Equal(a.wanted(t, users), want)
	})
	dead.rest()
	a.declareDead(t, users, "node2")
	defer a.taint(t, users, "node2", false)
	if left := a.wanted(t, users); len(left) > 0 {
		t.Errorf("a dead node asks: %q", left)
	}
	one.del(t, owned)
	for a, l := range one.leased(t) {
		if l.State == lease.Held && a != owned.address {
			one.del(t, given{key: l.Newest().Key("lan")})
		}
	}
	if moved := third.mustOwn(t, "web-0"); moved.address != owned.address {
		t.Errorf("the owner has %s, and had %s", moved.address, owned.address)
	}
	third.fill(t, 4)
	for _, b := range a.blocksNow(t, users) {
		for _, h := range b.Status.Holders {
			if h.Node == "node2" {
				t.Errorf("a dead node has something: %+v", b.Status)
			}
		}
	}
}

// Somebody has the credentials of a node, and asks for all that the policies let it. It gets what its pods could use, at most, and nothing that
// a pod or an owner has. A claim of an owner whose pod runs comes back.
func (a *api) takenOverNode(t *testing.T, users map[string]user) {
	a.newPool(t, users, "10.95.0.0/28")
	admin := users["admin"]
	deletePool(t, admin, "lan")
	admin.must(t, http.MethodPost, pools, poolObject(pool.Pool{Metadata: pool.Meta{Name: "lan"}, Spec: pool.Spec{Subnet: "10.95.0.0/24", BlockSize: 64}}), nil)
	one := a.quiet(t, users, "node1")
	one.surplus = time.Hour
	one.start(t, one.watch)
	owned := one.mustOwn(t, "web-0")
	kept := one.mustOwn(t, "web-1")
	one.del(t, kept)
	pods, has := one.fill(t, 150)
	for _, p := range pods[:140] {
		one.del(t, p)
		delete(has, p.address)
	}
	has[owned.address], has[kept.address] = true, true
	one.end()
	hostile := pool.Party{Node: "node2", Network: "lan", Store: "hostile"}
	for round := range 3 {
		a.asksForAll(t, users, hostile, owned.address, round == 0)
		a.takesClaim(t, users, hostile)
		one.Reconcile(t.Context())
	}
	got := 0
	for _, b := range a.blocksNow(t, users) {
		for i := range len(b.Status.Addresses) {
			if b.HeldBy(hostile, i) {
				if got++; has[b.Address(i)] {
					t.Errorf("it has got %s", b.Address(i))
				}
			}
		}
	}
	if t.Logf("it has got %d addresses", got); got == 0 || got > pool.MaxCount {
		t.Errorf("it has got %d addresses, want some, and %d at most", got, pool.MaxCount)
	}
	var c pool.Claim
	admin.must(t, http.MethodGet, claims+"/"+pool.ClaimName("lan", "eth0", acquisition("web-0").Owner), nil, &c)
	if c.Status.Address != owned.address || c.Status.Active.Node != "node1" {
		t.Errorf("the claim of the owner whose pod runs: %+v", c.Status)
	}
	a.within(t, users, one, "beside a node in hostile hands")
}

// asksForAll asks for the owner's address, for as many as the API takes if that is asked for, and for more. It tries to take all.
func (a *api) asksForAll(t *testing.T, users map[string]user, hostile pool.Party, owned netip.Addr, many bool) {
	t.Helper()
	as := users[hostile.Node]
	put := func(b pool.Block, allowed bool) {
		t.Helper()
		if said, answer := as.send(t, http.MethodPut, blocks+"/"+b.Metadata.Name, blockObject(b)); allowed != (answer.StatusCode == http.StatusOK) {
			t.Errorf("%+v: status %d: %s", b.Status, answer.StatusCode, said)
		}
	}
	all := a.blocksNow(t, users)
	for n, b := range all {
		put(b.Request(pool.Want{Party: hostile, Count: pool.MaxCount + 1}), false)
		for _, h := range b.Status.Holders {
			if stolen := b; !h.SameParty(hostile) {
				stolen.Status.Addresses = strings.ReplaceAll(b.Status.Addresses, h.ID, string(pool.Unassigned))
				stolen.Status.Epoch++
				put(stolen, false)
			}
		}
		next := b
		if n == 0 && many {
			next = next.Request(pool.Want{Party: hostile, Count: pool.MaxCount, Epoch: b.Status.Epoch})
		}
		if b.Offset(owned) >= 0 {
			next = next.Request(pool.Want{Party: hostile, Address: owned, Claim: pool.ClaimName("lan", "eth0", acquisition("web-0").Owner)})
		}
		put(next, true)
	}
}

// takesClaim makes the claim of an owner its own, as the owner's pod on the node would, and deletes it.
func (a *api) takesClaim(t *testing.T, users map[string]user, hostile pool.Party) {
	t.Helper()
	path := claims + "/" + pool.ClaimName("lan", "eth0", acquisition("web-0").Owner)
	var c pool.Claim
	users["admin"].must(t, http.MethodGet, path, nil, &c)
	said, answer := users[hostile.Node].send(t, http.MethodDelete, path, m{})
	check(t, "another's claim", said, answer, http.StatusForbidden, "it is of node node1")
	users[hostile.Node].must(t, http.MethodPut, path, claimObject(c.MovedTo(pool.Place{Party: hostile})), nil)
	users[hostile.Node].must(t, http.MethodDelete, path, m{}, nil)
}

// Each block has one free address, on one node or another. A third node gets all of them.
func (a *api) fragmented(t *testing.T, users map[string]user) {
	nodes := a.members(t, users, "10.96.0.0/27")
	has := map[netip.Addr]string{}
	pods := map[netip.Addr]running{}
	await(t, time.Minute, "29 pods", func() bool {
		for _, m := range nodes[:2] {
			p, err := m.quickly(t, m.request(lease.Policy{}, ""))
			if err == nil && has[p.address] != "" {
				t.Fatalf("%s is held on %s and given on %s", p.address, has[p.address], m.name)
			} else if err == nil {
				has[p.address], pods[p.address] = m.name, running{m, p, ""}
			}
		}
		return len(has) == 29
	})
	free := map[netip.Addr]bool{}
	for _, b := range a.blocksNow(t, users) {
		for i := len(b.Status.Addresses) - 1; i >= 0; i-- {
			if p, is := pods[b.Address(i)]; is {
				p.on.del(t, p.pod)
				free[b.Address(i)] = true
				break
			}
		}
	}
	if len(free) != 8 {
		t.Fatalf("the pool has %d blocks", len(free))
	}
	for range 8 {
		p := nodes[2].must(t, nodes[2].request(lease.Policy{}, ""))
		if !free[p.address] {
			t.Fatalf("%s is given, and a pod has it", p.address)
		}
		delete(free, p.address)
	}
}

// addTo is add for a pod of another network, which has a store of its own.
func (m *member) addTo(t *testing.T, network string) (netip.Addr, error) {
	t.Helper()
	store, err := m.open(network)
	if err != nil {
		return netip.Addr{}, err
	}
	r := m.request(lease.Policy{}, "")
	r.Attachment = attachment.Key{Network: network, ContainerID: r.Attachment.ContainerID, IfName: "eth0"}
	got, err := store.Allocate(t.Context(), r)
	if errors.Is(err, lease.ErrExhausted) || errors.Is(err, lease.ErrUnconfirmed) {
		if err := m.Refill(t.Context(), pool.Demand{Network: network, Pools: r.Pools}); err != nil {
			return netip.Addr{}, err
		}
		got, err = store.Allocate(t.Context(), r)
	}
	if err != nil {
		return netip.Addr{}, err
	}
	return got[0].Address, nil
}

// Each of 40 networks of a node has a store, and takes of one pool. After a boot one look confirms all of them, and one fence is of all.
func (a *api) manyNetworks(t *testing.T, users map[string]user) {
	const networks = 40
	m := a.members(t, users, "10.97.0.0/24")[0]
	has := map[netip.Addr]bool{}
	start := func() {
		t.Helper()
		for i := range networks {
			var got netip.Addr
			m.starts(t, func() (given, error) {
				x, err := m.addTo(t, fmt.Sprint("net", i))
				got = x
				return given{}, err
			})
			if has[got] {
				t.Fatalf("net%d gives %s, which another network has given", i, got)
			}
			has[got] = true
		}
	}
	start()
	m.end()
	m.clock.set("boot-2", 0, 0) // Its pods are gone.
	m = a.again(t, users, m)
	m.Reconcile(t.Context())
	has = map[netip.Addr]bool{}
	start()
	if len(has) != networks {
		t.Errorf("%d networks have an address", len(has))
	}
	m.rest()
	a.declareDead(t, users, "node1")
	defer a.taint(t, users, "node1", false)
	stores := map[string]bool{}
	for _, b := range a.blocksNow(t, users) {
		for _, h := range b.Status.Holders {
			if stores[h.Store] = true; h.Fenced == "" {
				t.Errorf("%s: %+v", b.Metadata.Name, h)
			}
		}
	}
	if len(stores) != networks {
		t.Errorf("%d stores are fenced", len(stores))
	}
}

// Of 400 pools, each gives its addresses, and the controller says of all that they are ready.
func (a *api) manyPools(t *testing.T, users map[string]user) {
	const count = 400
	o := a.newOverlapping(t, users)
	name := func(i int) string { return fmt.Sprint("p", i) }
	inparallel.Do(8, count, func(i int) {
		p := pool.Pool{Metadata: pool.Meta{Name: name(i)}, Spec: pool.Spec{Subnet: fmt.Sprintf("10.%d.%d.0/28", 100+i/256, i%256), BlockSize: 4}}
		o.admin.must(t, http.MethodPost, pools, poolObject(p), nil)
	})
	t.Cleanup(func() {
		for _, m := range o.nodes {
			m.rest()
		}
		noPool(t, o.admin, "none")
		inparallel.Do(8, count, func(i int) { deletePool(t, o.admin, name(i)) })
	})
	for _, i := range []int{0, 199, 399} {
		o.start(o.nodes[0], name(i), 5)
		o.start(o.nodes[1], name(i), 5)
	}
	if s := o.status(users, name(399)); s.Problem() != "" || s.Granted < 10 {
		t.Errorf("the status of the last pool is %+v", s)
	}
	var list struct{ Items []pool.Pool }
	o.admin.must(t, http.MethodGet, pools, nil, &list)
	for _, p := range list.Items {
		if c := p.Status.Condition(pool.Ready); strings.HasPrefix(p.Metadata.Name, "p") && c.Status != pool.True {
			t.Errorf("%s is not ready: %+v", p.Metadata.Name, c)
		}
	}
}
