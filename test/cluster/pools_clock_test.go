package cluster

import (
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// clockJumps shows that no wrong clock ends a quarantine, a reservation or the wait before a return, neither early nor late.
func (a *api) clockJumps(t *testing.T, users map[string]user) {
	const day = 24 * time.Hour
	jumps := []time.Duration{-2 * time.Hour, 400 * day}
	if os.Getenv("RELINK_LONG") != "" {
		jumps = append(jumps, -400*day, -day, -time.Minute, time.Minute, 2*time.Hour, day)
	}
	for _, jump := range jumps {
		a.clockJumpsBy(t, users, jump)
	}
}

// clockJumpsBy has one node's clock jump while an address is in quarantine, another one waits for its owner, and the node has more
// than it needs.
func (a *api) clockJumpsBy(t *testing.T, users map[string]user, jump time.Duration) {
	a.newPool(t, users, "10.45.0.0/29") // Five addresses in two blocks.
	one, other := a.quiet(t, users, "node1"), a.quiet(t, users, "node2")
	one.surplus = time.Hour
	one.start(t, nil)
	one.end()
	kept := lease.Policy{Sticky: true, Retain: lease.Duration(time.Hour)}
	r := one.request(kept, "web-0")
	r.QueriedPools = r.Pools
	owned := one.must(t, r)
	resting := one.must(t, one.request(lease.Policy{}, ""))
	for _, p := range []given{owned, resting} {
		if err := one.store.Release(t.Context(), p.key, lease.Policy{}); err != nil {
			t.Fatal(err)
		}
	}
	has := one.granted(t)
	one.clock.set("", jump, 0)
	one.Reconcile(t.Context())
	if now := one.granted(t); len(now) != len(has) {
		t.Errorf("after a jump by %s the node has %v, and had %v", jump, now, has)
	}
	given := map[netip.Addr]string{}
	other.drainOf(t, given, one)
	for name, address := range map[string]netip.Addr{"in quarantine": resting.address, "reserved": owned.address} {
		if given[address] != "" {
			t.Errorf("after a jump by %s: %s is %s on one node, and given on the other", jump, address, name)
		}
	}
	order := one.drainOf(t, given, other)
	if n := len(order); n == 0 || order[n-1] != resting.address || given[owned.address] != "" {
		t.Errorf("after a jump by %s the node gives %v: %s is in quarantine and comes last, %s is reserved", jump, order, resting.address, owned.address)
	}
	a.within(t, users, one, "after a jump")
	one.clock.set("", jump, time.Hour+time.Second)
	if order = one.drainOf(t, given, other); len(order) != 1 || order[0] != owned.address {
		t.Errorf("an hour after a jump by %s the node gives %v, want %s, which waits no more", jump, order, owned.address)
	}
}

// drainOf starts pods until none starts any more, and returns their addresses. The other node's agent looks meanwhile.
func (m *member) drainOf(t *testing.T, has map[netip.Addr]string, other *member) (order []netip.Addr) {
	t.Helper()
	for last := false; ; {
		p, err := m.inNoTime(t, m.request(lease.Policy{}, ""))
		if err != nil && last {
			return order
		}
		if last = err != nil; last {
			other.Reconcile(t.Context())
			continue
		}
		if by := has[p.address]; by != "" {
			t.Fatalf("%s is held on %s and given on %s", p.address, by, m.name)
		}
		has[p.address] = m.name
		order = append(order, p.address)
	}
}
