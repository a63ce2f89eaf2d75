package cluster

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// quickly is add that does not wait for long.
func (m *member) quickly(t *testing.T, r lease.Request) (given, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return m.add(ctx, r)
}

// refusesForTheTaint expects that no pod starts on a node that was declared dead, and that the refusal says what to do.
func (m *member) refusesForTheTaint(t *testing.T) {
	t.Helper()
	m.refuses(t, "remove the taint", func() (given, error) { return m.quickly(t, m.request(lease.Policy{}, "")) })
}

// inNoTime is add on a node whom nobody answers meanwhile.
func (m *member) inNoTime(t *testing.T, r lease.Request) (given, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patienceOfStep)
	defer cancel()
	return m.add(ctx, r)
}

// taint declares the node dead, or takes that back.
func (a *api) taint(t *testing.T, users map[string]user, node string, dead bool) {
	t.Helper()
	var taints []m
	if dead {
		taints = []m{{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute", "value": "nodeshutdown"}}
	}
	users["admin"].must(t, http.MethodPatch, "/api/v1/nodes/"+node, m{"spec": m{"taints": taints}}, nil)
}

// declareDead has the controller fence the node. It looks again if somebody changes a block at the same time, as its watch would have it do.
func (a *api) declareDead(t *testing.T, users map[string]user, node string) {
	t.Helper()
	a.taint(t, users, node, true)
	keep := a.controller(t, users)
	await(t, time.Minute, node+" to be fenced", func() bool {
		if err := keep.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(a.blocksNow(t, users), func(b pool.Block) bool {
			return slices.ContainsFunc(b.Status.Holders, func(h pool.Holder) bool { return h.Node == node && h.Fenced == "" })
		})
	})
}

// pods starts pods on the node, and returns their addresses.
func (m *member) startPods(t *testing.T, n int) map[netip.Addr]bool {
	t.Helper()
	had := map[netip.Addr]bool{}
	for range n {
		had[m.must(t, m.request(lease.Policy{}, "")).address] = true
	}
	return had
}

// drainProbed starts pods until none starts any more. It returns how many of the addresses of had they got: these must be probed
// for.
func (m *member) drainProbed(t *testing.T, had map[netip.Addr]bool) (got int) {
	t.Helper()
	for {
		p, err := m.quickly(t, m.request(lease.Policy{}, ""))
		if err != nil {
			return got
		}
		if !had[p.address] {
			continue
		}
		if got++; !p.probe {
			t.Fatalf("%s of the dead node is given without a probe", p.address)
		}
	}
}

// getsOf starts pods until this node has got n of the addresses that the dead node had. A busy machine takes a while.
func (m *member) getsOf(t *testing.T, had map[netip.Addr]bool, n int) {
	t.Helper()
	got := 0
	for deadline := time.Now().Add(time.Minute); got < n; got += m.drainProbed(t, had) {
		if time.Now().After(deadline) {
			t.Fatalf("%d addresses of the dead node were given, want %d\n%s", got, n, m.log.String())
		}
	}
}

// silentNode shows a node that does not answer: it keeps its addresses, until it is declared dead. Then others get them.
func (a *api) silentNode(t *testing.T, users map[string]user) {
	all := a.members(t, users, "10.7.0.0/28")
	silent, other := all[2], all[0]
	owned := silent.mustOwn(t, "web-0")
	had := silent.startPods(t, 4)
	had[owned.address] = true
	silent.end()
	if err := a.controller(t, users).Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := other.drainProbed(t, had); n > 0 {
		t.Errorf("%d addresses of a silent node were given", n)
	}
	all[1].refusesOwner(t, "node node3 has "+owned.address.String())
	a.declareDead(t, users, "node3")
	defer a.taint(t, users, "node3", false)
	if moved := all[1].mustOwn(t, "web-0"); moved.address != owned.address || !moved.probe {
		t.Errorf("the owner of a dead node: %s, probe %t, want %s", moved.address, moved.probe, owned.address)
	}
	other.getsOf(t, had, len(had)-1)
}

// late is an API whose first change of a block waits until it is released. Nobody hears the answer.
type late struct {
	pool.API
	begun          sync.Once
	waits, release chan struct{}
	said           chan error
}

func (l *late) change(do func() error) error {
	err := errLost
	l.begun.Do(func() {
		close(l.waits)
		<-l.release
		l.said <- do()
	})
	return err
}

func (l *late) UpdateBlock(ctx context.Context, b pool.Block) (pool.Block, error) {
	return b, l.change(func() error {
		_, err := l.API.UpdateBlock(ctx, b)
		return err
	})
}

func (l *late) DeleteBlock(ctx context.Context, b pool.Block) error {
	return l.change(func() error { return l.API.DeleteBlock(ctx, b) })
}

// backFromTheDead shows a node that is declared dead while it is on its way to change a block, and that boots again.
func (a *api) backFromTheDead(t *testing.T, users map[string]user) {
	all := a.members(t, users, "10.7.1.0/28")
	dead, other := all[2], all[0]
	had := dead.startPods(t, 6)
	dead.end()
	request := &late{API: dead.api.API, waits: make(chan struct{}), release: make(chan struct{}), said: make(chan error, 1)}
	dead.api.API, dead.surplus = request, time.Millisecond
	dead.start(t, nil)
	dead.end()
	for _, l := range dead.leased(t) {
		dead.del(t, given{key: l.Newest().Key("lan")})
	}
	var looks sync.WaitGroup
	looks.Go(func() {
		for range 3 { // The second one gives back.
			dead.Reconcile(t.Context())
			time.Sleep(10 * time.Millisecond)
		}
	})
	<-request.waits
	a.declareDead(t, users, "node3")
	close(request.release)
	if err := <-request.said; !errors.Is(err, pool.ErrConflict) && !errors.Is(err, pool.ErrRefused) && !errors.Is(err, pool.ErrNotFound) {
		t.Errorf("the late change of a dead node: %v", err)
	}
	looks.Wait()
	other.getsOf(t, had, 1)
	dead.api.API = request.API
	dead.clock.set("boot-2", 0, 0)
	back := a.again(t, users, dead)
	back.refusesForTheTaint(t)
	a.taint(t, users, "node3", false)
	back.Reconcile(t.Context())
	a.within(t, users, back, "after it has come back")
	for _, b := range a.blocksNow(t, users) {
		for _, h := range b.Status.Holders {
			if h.Fenced != "" {
				t.Errorf("%s still has node %s as declared dead: %s", b.Metadata.Name, h.Node, h.Fenced)
			}
		}
	}
	has := map[netip.Addr]string{}
	for address, l := range other.leased(t) {
		if l.State == lease.Held {
			has[address] = other.name
		}
	}
	back.drain(t, has)
}

// storeLost shows a node that has lost its store: what the old one had stays taken, until the node is declared dead.
func (a *api) storeLost(t *testing.T, users map[string]user) {
	all := a.members(t, users, "10.7.2.0/28")
	lost, other := all[2], all[0]
	had := lost.startPods(t, 4)
	reinstall := func(boot string) {
		lost.rest()
		if err := os.Remove(lost.store.Path()); err != nil {
			t.Fatal(err)
		}
		lost.clock.set(boot, 0, 0)
		lost = a.again(t, users, lost)
	}
	before := lost.storeID(t)
	reinstall("boot-2")
	p := lost.must(t, lost.request(lease.Policy{}, ""))
	if had[p.address] || lost.storeID(t) == before {
		t.Errorf("the new store %s gives %s, which the old one %s had", lost.storeID(t), p.address, before)
	}
	if n := other.drainProbed(t, had); n > 0 {
		t.Errorf("%d addresses of the lost store were given", n)
	}
	a.declareDead(t, users, "node3")
	reinstall("boot-3")
	lost.refusesForTheTaint(t)
	a.taint(t, users, "node3", false)
	other.getsOf(t, had, 1) // After the runbook.
	has := map[netip.Addr]string{}
	for address := range other.leased(t) {
		has[address] = other.name
	}
	lost.drain(t, has)
}

// ownerGone shows an owner of a dead node that does not come back: its address waits until somebody deletes its claim.
func (a *api) ownerGone(t *testing.T, users map[string]user) {
	all := a.members(t, users, "10.7.3.0/28")
	owned := all[2].mustOwn(t, "web-0")
	all[2].end()
	a.declareDead(t, users, "node3")
	defer a.taint(t, users, "node3", false)
	had := map[netip.Addr]bool{owned.address: true}
	if all[0].drainProbed(t, had) > 0 {
		t.Error("another pod gets the owner's address")
	}
	users["admin"].must(t, http.MethodDelete, claims+"/"+pool.ClaimName("lan", "eth0", acquisition("web-0").Owner), m{}, nil)
	all[0].getsOf(t, had, 1)
}
