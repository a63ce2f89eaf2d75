package lease

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	bolt "go.etcd.io/bbolt"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/pool"
)

// lan is a pool of 16 addresses in blocks of 4, without its gateway and one more.
var lan = pool.Layout{
	Name: "lan", UID: "uid-of-lan", Subnet: netip.MustParsePrefix("10.3.0.0/24"), Gateway: addr("10.3.0.1"),
	Ranges: []pool.Span{{First: addr("10.3.0.0"), Last: addr("10.3.0.15")}}, Exclude: []pool.Span{{First: addr("10.3.0.6"), Last: addr("10.3.0.6")}},
	Routes: []pool.Route{{Dst: "10.0.0.0/8", GW: "10.3.0.1"}, {Dst: "0.0.0.0/0"}}, BlockSize: 4,
}

// lan6 is a pool of IPv6.
var lan6 = pool.Layout{
	Name: "lan6", UID: "uid-of-lan6", Subnet: netip.MustParsePrefix("fd00:3::/64"), Ranges: []pool.Span{{First: addr("fd00:3::10"), Last: addr("fd00:3::1f")}}, BlockSize: 8,
}

// granted returns the grant of a block with these characters.
func granted(l pool.Layout, index int64, chars string) pool.Grant {
	span, _ := l.Block(index)
	return pool.Grant{
		Pool: l.Name, PoolUID: l.UID, Index: index, Block: "uid-of-" + pool.BlockName(l.Name, index), Epoch: 1, First: span.First, Addresses: chars,
	}
}

// grant gives the node these addresses of the pool: "++-." for the first block, and so on. The agent has read the API.
func (n *node) grant(t *testing.T, l pool.Layout, blocks ...string) {
	t.Helper()
	var all []pool.Grant
	for i, chars := range blocks {
		all = append(all, granted(l, int64(i), chars))
	}
	if _, err := n.store(t).Granted(t.Context()); err != nil {
		must(t, n.store(t).SetPools(t.Context(), []string{l.Name}))
	}
	must(t, n.store(t).PutGrants(t.Context(), l, all))
	must(t, n.store(t).Confirm(t.Context()))
}

// granted returns what the store has of its pools.
func (n *node) granted(t *testing.T) Granted {
	t.Helper()
	g, err := n.store(t).Granted(t.Context())
	must(t, err)
	return g
}

// chars returns the characters of the pool's grants, with spaces between them.
func (n *node) chars(t *testing.T, name string) string {
	t.Helper()
	var all []string
	for _, p := range n.granted(t).Pools {
		for _, g := range p.Grants {
			if p.Name == name {
				all = append(all, g.Addresses)
			}
		}
	}
	return strings.Join(all, " ")
}

// fromPools is a request for an address of each pool. Its attachment can probe.
func (n *node) fromPools(sandbox, owner string, pools ...string) Request {
	r := n.request(sandbox, owner)
	r.Sets, r.Pools, r.Probes = nil, pools, true
	return r
}

// addFrom is an ADD that gives an address of lan.
func (n *node) addFrom(t *testing.T, sandbox, owner, address string) {
	t.Helper()
	given, err := n.store(t).Allocate(t.Context(), n.fromPools(sandbox, owner, "lan"))
	if err != nil || given[0].Address.String() != address {
		t.Fatalf("ADD of %s gives %v, %v, want %s", sandbox, given, err, address)
	}
}

var sameGrant = cmp.Options{sameLease, cmpopts.EquateComparable(netip.Prefix{})}

// A store has an identity from the first word about a pool on, and keeps it. What it is told, it tells again.
func TestPoolsAreStoredAsTheyWere(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	must(t, n.store(t).SetPools(t.Context(), []string{"lan6", "lan"}))
	first := n.granted(t)
	if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(first.ID) || first.Confirmed || first.Boot != "boot-1" {
		t.Errorf("a new store: %+v", first)
	}
	must(t, n.store(t).PutGrants(t.Context(), lan, []pool.Grant{granted(lan, 2, "+.?-"), granted(lan, 0, "....")}))
	must(t, n.store(t).PutGrants(t.Context(), lan6, nil))
	must(t, n.store(t).Confirm(t.Context()))
	n.addFrom(t, "c1/eth0", "", "10.3.0.8")
	must(t, n.store(t).SetPools(t.Context(), []string{"lan6"}))
	want := Granted{ID: first.ID, Boot: "boot-1", Time: n.day, Confirmed: true, Pools: []PoolState{
		{Name: "lan6", Time: n.day, Named: true, Layout: lan6, Leased: map[netip.Addr]Lease{}},
		{Name: "lan", Time: n.day, Layout: lan, Grants: []pool.Grant{granted(lan, 0, "...."), granted(lan, 2, "+.?-")}, Used: 1,
			Leased: map[netip.Addr]Lease{addr("10.3.0.8"): n.get(t, "10.3.0.8")}},
	}}
	if diff := cmp.Diff(want, n.granted(t), sameGrant); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	n.expectVerified(t)
}

// Who tells the store what it knows costs no write: an ADD names its pools each time, and the agent reads all the time.
func TestToldAgainNothingIsWritten(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.grant(t, lan, "++++", "....")
	before := sumOf(t, n.path())
	n.later(time.Minute)
	must(t, n.store(t).SetPools(t.Context(), []string{"lan"}))
	must(t, n.store(t).PutGrants(t.Context(), lan, []pool.Grant{granted(lan, 1, "...."), granted(lan, 0, "++++")}))
	must(t, n.store(t).Confirm(t.Context()))
	_, err := n.store(t).mark(t, 1, nil)
	must(t, err)
	must(t, n.store(t).CancelIncoming(t.Context(), "lan", addr("10.3.0.2"), pod("web-0")))
	if sumOf(t, n.path()) != before {
		t.Error("the file has changed")
	}
}

// A network that was never asked for an address has no store, and a look makes none. Only an ADD and the agent's answer to one do.
func TestPoolsWithoutAStore(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	ctx, s := t.Context(), n.store(t)
	for what, f := range map[string]func() error{
		"Granted":     func() error { _, err := s.Granted(ctx); return err },
		"PutGrants":   func() error { return s.PutGrants(ctx, lan, nil) },
		"Confirm":     func() error { return s.Confirm(ctx) },
		"Reconcile":   func() error { _, err := s.mark(t, 0, nil); return err },
		"Expect":      func() error { return s.ReserveIncoming(ctx, addr("10.3.0.2"), pod("a"), "eth0", sticky, "it moves") },
		"Unexpect":    func() error { return s.CancelIncoming(ctx, "lan", addr("10.3.0.2"), pod("a")) },
		"MarkClaimed": func() error { return s.MarkClaimed(ctx, addr("10.3.0.2"), pod("a")) },
	} {
		n.refused(t, what, f(), ErrNotLeased, "network pods: nothing is leased (no DIR/pods.db)")
	}
}

// A store has no pools, and gets them with the first word about one. A network that had ranges keeps what its pods have.
func TestANetworkGetsPools(t *testing.T) {
	n := goldenNode(t)
	if g := n.granted(t); g.ID != "" || len(g.Pools) > 0 {
		t.Errorf("before: %+v", g)
	}
	before := n.lines(t)
	n.grant(t, lan, "++++", "++++", "++++", "++++")
	if g := n.granted(t); len(g.ID) != 32 || !g.Confirmed || len(g.Pools) != 1 || len(g.Pools[0].Leased) == 0 {
		t.Errorf("after: %+v", g)
	}
	n.expect(t, "after", before...)
}

// After a reboot, a store gives nothing of its pools until the agent has read the API.
func TestAfterARebootNothingIsConfirmed(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.grant(t, lan, "..++")
	n.reboot("boot-2", time.Minute)
	if n.granted(t).Confirmed {
		t.Error("confirmed by an earlier boot")
	}
	_, err := n.store(t).Allocate(t.Context(), n.fromPools("c1/eth0", "", "lan"))
	n.refused(t, "before", err, ErrUnconfirmed,
		"pool lan of network pods: this node has not read its address pools since its boot: relink-agent reads them as soon as the Kubernetes API answers")
	must(t, n.store(t).Confirm(t.Context()))
	n.addFrom(t, "c1/eth0", "", "10.3.0.2")
	if !n.granted(t).Confirmed {
		t.Error("not confirmed")
	}
}

// Whoever has a lease uses an address, in whatever state. Leases at addresses that the node does not have any more are told.
func TestUsedAndLeasedOfAPool(t *testing.T) {
	n := newNode(t, "10.3.0.20", sticky)
	n.grant(t, lan, "..++", "++.+")
	for i, owner := range []string{"a", "b", ""} {
		r := n.fromPools("c"+string(rune('1'+i))+"/eth0", owner, "lan")
		r.QueriedPools = r.Pools
		_, err := n.store(t).Allocate(t.Context(), r)
		must(t, err)
	}
	n.del(t, "c1/eth0")
	n.del(t, "c3/eth0")
	must(t, n.store(t).ReserveIncoming(t.Context(), addr("10.3.0.15"), pod("d"), "eth0", sticky, "it moves here"))
	must(t, n.store(t).PutGrants(t.Context(), lan, []pool.Grant{granted(lan, 0, "..+.")}))
	p := n.granted(t).Pools[0]
	var leased []string
	for a, l := range p.Leased {
		leased = append(leased, a.String()+" "+string(l.State))
	}
	slices.Sort(leased)
	want := []string{"10.3.0.15 reserved", "10.3.0.2 reserved", "10.3.0.3 held", "10.3.0.4 quarantined"}
	if diff := cmp.Diff(want, leased); diff != "" || p.Used != 2 {
		t.Errorf("%d used, want 2 (-want +got):\n%s", p.Used, diff)
	}
	n.later(2 * time.Minute)
	if p := n.granted(t).Pools[0]; p.Used != 1 {
		t.Errorf("after the quarantine: %d used", p.Used)
	}
}

// bucketPut puts a value into a bucket, as a damaged file has it.
func bucketPut(bucket, key, value string) func(*bolt.Tx) error {
	return func(tx *bolt.Tx) error { return tx.Bucket([]byte(bucket)).Put([]byte(key), []byte(value)) }
}

// A node that leaves hands over what waits for owners, but not what waits there only.
func TestWhatWaitsHereOnly(t *testing.T) {
	day := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	sticky := Lease{State: Reserved, Owner: attachment.Owner{Name: "web"}, Last: Holder{Policy: Policy{Sticky: true}}, Claimed: true}
	for name, test := range map[string]struct {
		change func(*Lease)
		stays  bool
	}{
		"the API has its claim":                {func(*Lease) {}, false},
		"the API has no claim so far":          {func(l *Lease) { l.Claimed = false }, true},
		"its owner has several pods at a time": {func(l *Lease) { l.Claimed, l.Last.Policy.Shared, l.Last.Policy.ByOwner = false, true, true }, false},
		"it waits for a time":                  {func(l *Lease) { l.Until = day.Add(time.Minute) }, true},
		"a person has reserved it":             {func(l *Lease) { l.ByHand = true }, true},
		"a person had reserved it":             {func(l *Lease) { l.ByHand, l.ByHandUntil = true, day.Add(-time.Minute) }, false},
	} {
		l := sticky
		test.change(&l)
		p := PoolState{Name: "lan", Time: day, Leased: map[netip.Addr]Lease{addr("10.3.0.2"): l}}
		if use := p.Uses()[addr("10.3.0.2")]; use.Stays != test.stays || !use.Waiting {
			t.Errorf("%s: %+v, want stays %t", name, use, test.stays)
		}
	}
}
