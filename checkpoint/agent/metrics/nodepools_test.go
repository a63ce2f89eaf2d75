package metrics_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint/agent/metrics"
	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/pool/controller"
)

// fakeNodeController is a node.Controller with fixed answers.
type fakeNodeController struct {
	at   time.Time
	uses bool
}

func (k fakeNodeController) LastAnswer() (time.Time, bool) { return k.at, k.uses }

// fakePools are pools that have an address for no network but lan.
type fakePools struct{ serve.Pools }

func (fakePools) Refill(_ context.Context, d pool.Demand) error { return failUnlessLAN(d.Network) }

func (fakePools) Acquire(_ context.Context, a pool.Acquisition) (pool.Acquired, error) {
	return pool.Acquired{Address: netip.MustParseAddr("10.3.0.9")}, failUnlessLAN(a.Network)
}

func (fakePools) Claim(_ context.Context, c pool.ClaimedAddress) error {
	return failUnlessLAN(c.Network)
}

func failUnlessLAN(network string) error {
	if network == "lan" {
		return nil
	}
	return errors.New("no address is free")
}

// fakeController is a controller that has seen this.
type fakeController struct {
	found []controller.Observation
	at    time.Time
	leads bool
}

func (l fakeController) Seen() ([]controller.Observation, time.Time, bool) {
	return l.found, l.at, l.leads
}

var lookedAt = fakeController{[]controller.Observation{
	{Pool: "lan", Status: pool.Status{Blocks: 16, Existing: 3, Addresses: "250", Granted: 40}, Fenced: 2},
	{Pool: "big", Status: pool.Status{Blocks: 1 << 20, Addresses: "18446744073709551614"}, Stopped: true, Recovering: true, Unasserted: 4},
	{Pool: "held", Status: pool.Status{Addresses: "6"}, Stopped: true, Paused: true},
	{Pool: "wrong", Status: pool.Status{Conditions: []pool.Condition{{Type: pool.Exhausted, Reason: pool.InvalidSpec, Message: "invalid spec.subnet"}}}, Stopped: true},
}, time.Unix(900, 0), true}

// grant lets a network have a block of the pool 10.4.0.0/24, in blocks of 4 addresses.
func grant(t testing.TB, dir, network, addresses string) *lease.Store {
	t.Helper()
	store, err := lease.Open(dir, network)
	if err != nil {
		t.Fatal(err)
	}
	l, err := pool.Pool{Metadata: pool.Meta{Name: "shared", UID: "u"}, Spec: pool.Spec{Subnet: "10.0.0.0/8", Ranges: []string{"10.4.0.0-10.4.0.255"}, BlockSize: 4}}.Layout()
	if err != nil {
		t.Fatal(err)
	}
	g := pool.Grant{Pool: "shared", PoolUID: "u", Block: "b", Epoch: 1, First: netip.MustParseAddr("10.4.0.0"), Addresses: addresses}
	for _, err := range []error{store.SetPools(t.Context(), []string{"shared"}), store.PutGrants(t.Context(), l, []pool.Grant{g})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return store
}

// A node shows what it has of pools that nodes share. The sets of the last ADD are of ranges only: what a node has of a pool grows.
func TestWhatANodeHasOfPools(t *testing.T) {
	dir := t.TempDir()
	allocate(t, dir, "lan", 1)
	metrics.DisableCache(t)
	m := metrics.New("v1", dir)
	store := grant(t, dir, "wan", "++?-")
	const of = `{network="wan",pool="shared"} `
	got := scrape(t, m)
	expectLines(t, got,
		`relink_pool_node_addresses{network="wan",pool="shared",state="gives"} 2`, `relink_pool_node_addresses{network="wan",pool="shared",state="gives_probed"} 1`,
		`relink_pool_node_addresses{network="wan",pool="shared",state="given_back"} 1`, "relink_pool_node_used_addresses"+of+"0", "relink_pool_node_target_addresses"+of+"4",
		"relink_pool_node_lost_addresses"+of+"0", `relink_pool_node_confirmed{network="wan"} 0`,
	)
	if strings.Contains(got, `relink_pool_node_confirmed{network="lan"}`) {
		t.Error("a network without pools is shown as one that has them")
	}
	if err := store.Confirm(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"c1", "c2", "c3"} {
		if _, err := store.Allocate(t.Context(), lease.Request{Attachment: attachment.Key{Network: "wan", ContainerID: id, IfName: "eth0"}, Pools: []string{"shared"}, Probes: true}); err != nil {
			t.Fatal(err)
		}
	}
	got = scrape(t, m)
	expectLines(t, got, "relink_pool_node_used_addresses"+of+"3", "relink_pool_node_target_addresses"+of+"8", `relink_pool_node_confirmed{network="wan"} 1`)
	if strings.Contains(got, `relink_ipam_pool_addresses{network="wan"`) {
		t.Error("what the node has of the pool is shown as a range that gets full")
	}
	// The node was declared dead, and two of its three addresses are gone.
	grant(t, dir, "wan", "+..-")
	expectLines(t, scrape(t, m), "relink_pool_node_lost_addresses"+of+"2", "relink_pool_node_used_addresses"+of+"1", `relink_pool_node_addresses{network="wan",pool="shared",state="gives"} 1`)
}

// A pool that the configuration names no more is shown as long as the node has something of it.
func TestAPoolThatIsNamedNoMore(t *testing.T) {
	dir := t.TempDir()
	metrics.DisableCache(t)
	m := metrics.New("v1", dir)
	store := grant(t, dir, "wan", "+...")
	if err := store.SetPools(t.Context(), []string{"other"}); err != nil {
		t.Fatal(err)
	}
	expectLines(t, scrape(t, m), `relink_pool_node_addresses{network="wan",pool="shared",state="gives"} 1`, `relink_pool_node_target_addresses{network="wan",pool="other"} 0`)
	l, err := store.Granted(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g := l.Pools[1].Grants[0]
	g.Addresses = "...."
	if err := store.PutGrants(t.Context(), l.Pools[1].Layout, []pool.Grant{g}); err != nil {
		t.Fatal(err)
	}
	if got := scrape(t, m); strings.Contains(got, `pool="shared"`) {
		t.Error("a pool is shown of which the network has nothing any more")
	}
}

// What ADDs ask for is counted by its result, and goes on to the pools.
func TestWhatADDsAskFor(t *testing.T) {
	m := metrics.New("v1", t.TempDir())
	p := m.MeasureRequests(fakePools{})
	expectLines(t, scrape(t, m), `relink_pool_request_duration_seconds_count{request="owners_address"} 0`)
	ctx := t.Context()
	for _, network := range []string{"lan", "lan", "wan"} {
		err := p.Refill(ctx, pool.Demand{Network: network})
		acquired, acquires := p.Acquire(ctx, pool.Acquisition{Network: network})
		claims := p.Claim(ctx, pool.ClaimedAddress{Acquisition: pool.Acquisition{Network: network}})
		for what, err := range map[string]error{"Refill": err, "Acquire": acquires, "Claim": claims} {
			if (err == nil) != (network == "lan") {
				t.Errorf("%s for %s: %v", what, network, err)
			}
		}
		if acquired.Address != netip.MustParseAddr("10.3.0.9") {
			t.Errorf("Acquire: %s", acquired.Address)
		}
	}
	var want []string
	for _, request := range []string{"any_address", "owners_address", "claim"} {
		want = append(want, `relink_pool_request_duration_seconds_count{request="`+request+`"} 3`,
			`relink_pool_requests_total{network="lan",request="`+request+`",result="succeeded"} 2`, `relink_pool_requests_total{network="lan",request="`+request+`",result="failed"} 0`,
			`relink_pool_requests_total{network="wan",request="`+request+`",result="succeeded"} 0`, `relink_pool_requests_total{network="wan",request="`+request+`",result="failed"} 1`)
	}
	expectLines(t, scrape(t, m), want...)
}

// A node without pools asks the API seldom. So it does not show when that was.
func TestWhenTheAPIAnswered(t *testing.T) {
	for uses, want := range map[bool]bool{true: true, false: false} {
		m := metrics.New("v1", t.TempDir())
		m.RegisterNodeController(fakeNodeController{time.Unix(800, 0), uses}.LastAnswer)
		got := scrape(t, m)
		if shown := strings.Contains(got, "\nrelink_pool_api_last_answer_timestamp_seconds 800\n"); shown != want {
			t.Errorf("it uses pools: %t\n%s", uses, got)
		}
	}
}

func TestWhatAControllerShows(t *testing.T) {
	got := get(t, metrics.ControllerHandler("v1", lookedAt.Seen))
	expectLines(t, got,
		`relink_pool_controller_build_info{version="v1"} 1`, `relink_pool_controller_leader 1`, `relink_pool_controller_last_look_timestamp_seconds 900`,
		`relink_pool_addresses{pool="lan"} 250`, `relink_pool_granted_addresses{pool="lan"} 40`, `relink_pool_blocks{pool="lan"} 16`, `relink_pool_taken_blocks{pool="lan"} 3`,
		`relink_pool_fenced_holders{pool="lan"} 2`, `relink_pool_stopped{pool="lan"} 0`, `relink_pool_problem{pool="lan"} 0`, `relink_pool_recovering{pool="lan"} 0`,
		`relink_pool_paused{pool="lan"} 0`, `relink_pool_unasserted_nodes{pool="lan"} 0`,
		`relink_pool_addresses{pool="big"} 1.8446744073709552e+19`, `relink_pool_recovering{pool="big"} 1`, `relink_pool_unasserted_nodes{pool="big"} 4`, `relink_pool_stopped{pool="big"} 1`,
		`relink_pool_paused{pool="held"} 1`, `relink_pool_stopped{pool="held"} 1`, `relink_pool_problem{pool="held"} 0`,
		`relink_pool_addresses{pool="wrong"} 0`, `relink_pool_problem{pool="wrong"} 1`, `relink_pool_stopped{pool="wrong"} 1`,
	)
	waits := get(t, metrics.ControllerHandler("v1", fakeController{}.Seen))
	expectLines(t, waits, `relink_pool_controller_leader 0`)
	if strings.Contains(waits, "last_look") || strings.Contains(waits, "pool=") {
		t.Errorf("a controller that waits has seen something:\n%s", waits)
	}
}
