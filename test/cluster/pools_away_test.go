package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/ipam"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// load is pods that start and end on all nodes at the same time.
type load struct {
	mu sync.Mutex
	// has says on which node an address has a pod.
	has                map[netip.Addr]string
	started, ended     int
	doubles, unclear   []string
	stopped            chan struct{}
	running            sync.WaitGroup
	podsOfNodeAtATime  int
	pauseBetweenChange time.Duration
}

// newLoad begins the load. stop ends it.
func newLoad(t *testing.T, all []*member) *load {
	t.Helper()
	l := &load{has: map[netip.Addr]string{}, stopped: make(chan struct{}), podsOfNodeAtATime: 8, pauseBetweenChange: 10 * time.Millisecond}
	for _, m := range all {
		l.running.Go(func() { l.of(t, m) })
	}
	return l
}

// of is the load of one node.
func (l *load) of(t *testing.T, m *member) {
	var pods []given
	for {
		select {
		case <-l.stopped:
			return
		case <-time.After(rand.N(l.pauseBetweenChange)):
		}
		if len(pods) == l.podsOfNodeAtATime || len(pods) > 0 && rand.IntN(2) == 0 {
			i := rand.IntN(len(pods))
			l.endPod(t, m, pods[i])
			pods = slices.Delete(pods, i, i+1)
			continue
		}
		p, err := m.add(t.Context(), m.request(lease.Policy{}, ""))
		l.began(m, p, err)
		if err == nil {
			pods = append(pods, p)
		}
	}
}

func (l *load) endPod(t *testing.T, m *member, p given) {
	l.mu.Lock()
	delete(l.has, p.address)
	l.ended++
	l.mu.Unlock()
	if err := m.store.Release(t.Context(), p.key, lease.Policy{}); err != nil {
		t.Errorf("%s: a DEL fails: %v", m.name, err)
	}
}

func (l *load) began(m *member, p given, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil && l.has[p.address] != "":
		l.doubles = append(l.doubles, fmt.Sprintf("%s is held on %s and given on %s", p.address, l.has[p.address], m.name))
	case err == nil:
		l.has[p.address] = m.name
		l.started++
	case !errors.Is(err, pool.ErrUnavailable) && !errors.Is(err, lease.ErrExhausted):
		l.unclear = append(l.unclear, err.Error())
	}
}

// counts are how many pods have started and ended so far.
func (l *load) counts() (started, ended int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.started, l.ended
}

// stop ends the load, and fails if an address had two pods, or if an ADD failed for another reason than that nothing is there.
func (l *load) stop(t *testing.T) {
	t.Helper()
	close(l.stopped)
	l.running.Wait()
	for _, what := range append(l.doubles, l.unclear...) {
		t.Error(what)
	}
}

// The API server is killed under load, and comes back. Meanwhile pods end, and start with what the nodes have.
func (a *api) killedUnderLoad(t *testing.T, users map[string]user) {
	all := a.members(t, users, "10.6.0.0/26")
	l := newLoad(t, all)
	await(t, 30*time.Second, "pods to start", func() bool { n, _ := l.counts(); return n > 30 })
	a.stop()
	started, ended := l.counts()
	await(t, 30*time.Second, "pods to start and end without the API", func() bool {
		s, e := l.counts()
		return s > started+10 && e > ended+10
	})
	one := all[0]
	await(t, 30*time.Second, "a node to have no address left", func() bool {
		_, err := one.add(t.Context(), one.request(lease.Policy{}, ""))
		switch {
		case err == nil, errors.Is(err, lease.ErrExhausted): // The load can take what a pod that ended has left.
			return false
		case !errors.Is(err, pool.ErrUnavailable) || !strings.Contains(err.Error(), "connect"):
			t.Errorf("a node without an address left: %v, want %v", err, pool.ErrUnavailable)
		}
		return true
	})
	a.start(t)
	started, _ = l.counts()
	await(t, 20*time.Second, "pods to start again", func() bool { n, _ := l.counts(); return n > started+30 })
	one.must(t, one.request(lease.Policy{}, ""))
	l.stop(t)
	for _, m := range all {
		m.end()
		m.Reconcile(t.Context())
		a.within(t, users, m, "after the API has come back")
	}
}

// A node that is cut off from the API goes on with what it has. The others do not touch that.
func (a *api) cutOff(t *testing.T, users map[string]user) {
	all := a.members(t, users, "10.6.0.0/28")
	one, other := all[0], all[1]
	owned := one.mustOwn(t, "web-0")
	p := one.must(t, one.request(lease.Policy{}, ""))
	one.api.set(0, true)
	defer one.api.set(0, false)
	has := map[netip.Addr]string{owned.address: one.name}
	started := one.drain(t, has)
	if started < 1 {
		t.Error("no pod started without the API")
	}
	first := other.must(t, other.request(lease.Policy{}, "")) // It tries again if the machine is busy.
	if by := has[first.address]; by != "" {
		t.Errorf("%s is held on %s and given on %s", first.address, by, other.name)
	}
	has[first.address] = other.name
	more := 0
	await(t, 30*time.Second, "three more pods on another node", func() bool {
		more += other.drain(t, has)
		return more >= 3
	})
	one.del(t, p)
	if again := one.must(t, one.request(lease.Policy{}, "")); again.address != p.address {
		t.Errorf("the address that is free is %s, and %s is given", p.address, again.address)
	}
	one.del(t, owned)
	other.refusesOwner(t, "has not handed it over")
	one.api.set(0, false)
	await(t, 30*time.Second, "the owner to come to the other node", func() bool {
		one.Reconcile(t.Context())
		moved, err := other.startOwned(t.Context(), t, "web-0")
		return err == nil && moved.address == owned.address
	})
}

// drain starts pods until none starts any more. has gets their addresses.
func (m *member) drain(t *testing.T, has map[netip.Addr]string) (started int) {
	t.Helper()
	for {
		p, err := m.quickly(t, m.request(lease.Policy{}, ""))
		if err != nil {
			if !errors.Is(err, pool.ErrUnavailable) {
				t.Errorf("%s: after %d pods: %v", m.name, started, err)
			}
			return started
		}
		started++
		if by := has[p.address]; by != "" {
			t.Fatalf("%s is held on %s and given on %s", p.address, by, m.name)
		}
		has[p.address] = m.name
	}
}

const noQuarantine = `"pool": "lan", "quarantine": "0s"`

// agentAway shows a node whose agent does not run, through the plugin.
func (a *api) agentAway(t *testing.T, users map[string]user) {
	all := a.members(t, users, "10.10.0.0/27")
	one, other := all[0], all[1]
	one.must(t, one.request(lease.Policy{}, ""))
	await(t, 30*time.Second, "the node to have more than it needs now", func() bool { return one.freeNow(t) >= 2 })
	one.end()
	other.must(t, other.request(lease.Policy{}, ""))
	t.Setenv(control.SocketEnv, filepath.Join(t.TempDir(), "nobody.sock"))
	t.Setenv(lease.DirEnv, one.dir)
	var started []string
	for i := range 20 {
		container := fmt.Sprintf("c%d", i)
		_, _, err := ipam.Add(t.Context(), call(container, container, noQuarantine), control.Client{})
		if err == nil {
			started = append(started, container)
			continue
		}
		if !isTryAgain(err) || !strings.Contains(err.Error(), "agent") {
			t.Errorf("without an agent: %v, want code %d", err, types.ErrTryAgainLater)
		}
		break
	}
	if len(started) < 2 || len(started) == 20 {
		t.Fatalf("%d pods started without an agent", len(started))
	}
	for _, c := range started {
		if err := ipam.Detached(t.Context(), (*ipam.Call).Del, call(c, c, noQuarantine)); err != nil {
			t.Errorf("a DEL without an agent: %v", err)
		}
	}
	has := map[netip.Addr]string{}
	other.drain(t, has)
	for address := range has {
		for _, b := range a.blocksNow(t, users) {
			if i := b.Offset(address); i >= 0 && !b.HeldBy(pool.Party{Node: other.name, Store: other.storeID(t)}, i) {
				t.Errorf("%s is given by node2, and the API does not say that it has it", address)
			}
		}
	}
	one.start(t, one.watch)
	await(t, 30*time.Second, "the agent to hand over what is free", func() bool {
		_, err := other.add(t.Context(), other.request(lease.Policy{}, ""))
		return err == nil
	})
}

// freeNow is how many addresses the node can give at once.
func (m *member) freeNow(t *testing.T) (n int) {
	t.Helper()
	has, err := m.store.Granted(t.Context())
	if err != nil {
		return 0
	}
	for _, p := range has.Pools {
		for _, g := range p.Grants {
			n += len(g.Offsets(pool.GrantedChars))
		}
		n -= p.Used
	}
	return n
}

func (m *member) storeID(t *testing.T) string {
	t.Helper()
	has, err := m.store.Granted(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return has.ID
}

// controllerAway shows that nodes need no controller, but for the end of a recovery and of a pool.
func (a *api) controllerAway(t *testing.T, users map[string]user) {
	all := a.members(t, users, "10.4.0.0/27")
	has := map[netip.Addr]string{}
	owned := all[0].mustOwn(t, "web-0")
	all[0].del(t, owned)
	moved := all[1].mustOwn(t, "web-0")
	if moved.address != owned.address {
		t.Fatalf("on another node: %s, want %s", moved.address, owned.address)
	}
	has[moved.address] = "node2"
	await(t, time.Minute, "29 addresses to be given without a controller", func() bool { // 32 without the network, the broadcast and the gateway.
		for _, m := range all {
			m.drain(t, has)
		}
		return len(has) == 29
	})
	a.beginRecovery(t, users)
	await(t, 30*time.Second, "all nodes to assert what they have", func() bool {
		for _, m := range all {
			m.Reconcile(t.Context())
		}
		return len(a.recovery(t, users).Asserted) == len(all)
	})
	if a.recovered(t, users) {
		t.Error("the recovery has ended without a controller")
	}
	if err := a.controller(t, users).Reconcile(t.Context()); err != nil || !a.recovered(t, users) {
		t.Errorf("the controller does not end the recovery: %v", err)
	}
}

// noPool shows networks whose pool is not there, or is gone.
func (a *api) noPool(t *testing.T, users map[string]user) {
	m := a.members(t, users, "10.5.0.0/27")[0]
	m.must(t, m.request(lease.Policy{}, ""))
	await(t, 30*time.Second, "the node to have more than it needs now", func() bool { return m.freeNow(t) >= 2 })
	r := m.request(lease.Policy{}, "")
	r.Pools = []string{"wan"}
	if _, err := m.add(t.Context(), r); !errors.Is(err, pool.ErrUnknown) || !strings.Contains(err.Error(), "there is no AddressPool wan: make it, or correct ipam.pool") {
		t.Errorf("a pool that does not exist: %v", err)
	}
	deletePool(t, users["admin"], "lan")
	for m.freeNow(t) > 0 {
		if _, err := m.add(t.Context(), m.request(lease.Policy{}, "")); err != nil {
			t.Fatalf("with what the node has: %v", err)
		}
	}
	if _, err := m.add(t.Context(), m.request(lease.Policy{}, "")); !errors.Is(err, pool.ErrUnknown) {
		t.Errorf("with nothing left: %v, want %v", err, pool.ErrUnknown)
	}
}
