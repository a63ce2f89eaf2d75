package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// dieAfter lets n more messages of the agent through, and none afterwards: the agent is killed then.
func (f *faulty) dieAfter(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left, f.dies = n, true
}

// An agent that is killed at any step of a take, a hand-over and a return goes on where it was, and no address gets a second pod.
func (a *api) killed(t *testing.T, users map[string]user) {
	for who := range 2 {
		for n := range 60 {
			a.killedAt(t, users, who, n)
		}
	}
}

// killedAt kills the agent of one of two nodes after n messages. Each request and each answer is one.
func (a *api) killedAt(t *testing.T, users map[string]user, who, n int) {
	t.Helper()
	a.newPool(t, users, "10.11.0.0/29") // Five addresses in two blocks.
	var all []*member
	for _, name := range []string{"node1", "node2"} {
		all = append(all, a.quiet(t, users, name))
	}
	all[who].api.dieAfter(n)
	has := map[netip.Addr]string{}
	try := func(m *member, least int) {
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		defer cancel()
		for range least {
			p, err := m.add(ctx, m.request(lease.Policy{}, ""))
			if err != nil {
				return
			}
			if by := has[p.address]; by != "" {
				t.Fatalf("node %d is killed after %d messages: %s is held on %s and given on %s", who+1, n, p.address, by, m.name)
			}
			has[p.address] = m.name
		}
	}
	step := func() {
		for _, m := range all {
			m.Reconcile(t.Context())
			a.within(t, users, m, fmt.Sprintf("node %d is killed after %d messages", who+1, n))
		}
	}
	try(all[0], 2)
	try(all[1], 1)
	step()
	try(all[1], 3)
	all[who] = a.again(t, users, all[who])
	for deadline := time.Now().Add(30 * time.Second); len(has) < 5; {
		step()
		try(all[1], 1)
		if time.Now().After(deadline) {
			t.Fatalf("node %d is killed after %d messages: only %d of 5 addresses are given\n%s", who+1, n, len(has), all[who].log.String())
		}
	}
}

// quiet is a member that does only what the test asks for.
func (a *api) quiet(t *testing.T, users map[string]user, name string) *member {
	t.Helper()
	m := a.member(t, name, users[name])
	m.end()
	return m
}

// again is the node after its agent was killed and started again.
func (a *api) again(t *testing.T, users map[string]user, was *member) *member {
	t.Helper()
	was.rest()
	m := a.quiet(t, users, was.name)
	m.dir, m.pods, m.clock, m.api = was.dir, was.pods, was.clock, &faulty{API: was.api.API}
	m.settling, m.surplus = was.settling, was.surplus
	m.reopen(t)
	m.start(t, nil)
	m.end()
	return m
}

// within fails if the node may give what the API does not say that it has.
func (a *api) within(t *testing.T, users map[string]user, m *member, when string) {
	t.Helper()
	has, err := m.store.Granted(t.Context())
	if err != nil {
		return // No pod has started there so far.
	}
	now := map[string]pool.Block{}
	for _, b := range a.blocksNow(t, users) {
		now[b.Metadata.Name] = b
	}
	for _, p := range has.Pools {
		for _, g := range p.Grants {
			for _, i := range g.Offsets(pool.GrantedChars) {
				if b, is := now[g.Name()]; !is || !b.HeldBy(pool.Party{Node: m.name, Store: has.ID}, i) {
					t.Fatalf("%s: %s may give %s, and the API does not say that it has it", when, m.name, g.Address(i))
				}
			}
		}
	}
}
