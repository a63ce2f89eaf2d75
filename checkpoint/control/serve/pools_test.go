package serve_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/pool"
)

// pools answers with what it has, or with err.
type pools struct {
	acquired pool.Acquired
	all      []pool.Pool
	blocks   []pool.Block
	err      error
	// told is the last request.
	told any
}

func (p *pools) Refill(_ context.Context, d pool.Demand) error {
	p.told = d
	return p.err
}

func (p *pools) Acquire(_ context.Context, a pool.Acquisition) (pool.Acquired, error) {
	p.told = a
	return p.acquired, p.err
}

func (p *pools) Claim(_ context.Context, c pool.Claimed) error {
	p.told = c
	return p.err
}

func (p *pools) Show(context.Context) ([]pool.Pool, error) { return p.all, p.err }

func (p *pools) ShowBlocks(_ context.Context, name string) ([]pool.Block, error) {
	p.told = name
	return p.blocks, p.err
}

var anAcquisition = pool.Acquisition{
	Network: "lan", Pool: "lan-6", IfName: "net1",
	Owner: attachment.Owner{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "web", UID: "u1", Ordinal: attachment.OrdinalOf(0)},
	Pod:   attachment.Pod{Namespace: "shop", Name: "web-0", UID: "u2"}, Wanted: netip.MustParseAddr("fd00::7"), Retain: time.Hour,
}

// Requests and answers about pools come over the socket as they were.
func TestPoolsComeOverAsTheyWere(t *testing.T) {
	p := &pools{
		acquired: pool.Acquired{Address: netip.MustParseAddr("fd00::7"), Migrating: true},
		all:      []pool.Pool{{Metadata: pool.Meta{Name: "lan-6"}, Spec: pool.Spec{Subnet: "fd00::/64"}}},
		blocks:   []pool.Block{{Metadata: pool.Meta{Name: "lan-6-0"}, Spec: pool.BlockSpec{Pool: "lan-6", First: netip.MustParseAddr("fd00::"), Last: netip.MustParseAddr("fd00::1"), Addresses: ".."}}},
	}
	client, ctx := serveSources(t, serve.Sources{Pools: p}), t.Context()
	same := func(what string, err error, want, got any) {
		t.Helper()
		if diff := cmp.Diff(want, got, sameAddress); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", what, err, diff)
		}
	}
	demand := pool.Demand{Network: "lan", Pools: []string{"lan", "lan-6"}}
	same("Refill", client.Refill(ctx, demand), demand, p.told)
	acquired, err := client.Acquire(ctx, anAcquisition)
	same("Acquire", err, anAcquisition, p.told)
	same("Acquired", err, p.acquired, acquired)
	nothing := pool.Acquisition{Network: "lan", Pool: "lan", IfName: "eth0"}
	p.acquired = pool.Acquired{}
	acquired, err = client.Acquire(ctx, nothing)
	same("Acquire without an address", err, nothing, p.told)
	same("nothing Acquired", err, p.acquired, acquired)
	claimed := pool.Claimed{Acquisition: anAcquisition, Address: netip.MustParseAddr("fd00::7")}
	same("Claim", client.Claim(ctx, claimed), claimed, p.told)
	all, err := client.Pools(ctx)
	same("Pools", err, p.all, all)
	blocks, err := client.Blocks(ctx, "a&b")
	same("Blocks", err, p.blocks, blocks)
	same("Blocks of", err, "a&b", p.told)
}

// A plugin can tell a pool that does not exist from one that gives something later.
func TestARefusedRequestForAddressesKeepsItsMeaning(t *testing.T) {
	for text, test := range map[string]struct {
		err  error
		is   error
		want string
	}{
		"unknown":     {fmt.Errorf("%w: AddressPool x does not exist", pool.ErrUnknown), pool.ErrUnknown, "the pool cannot be used: AddressPool x does not exist"},
		"unavailable": {fmt.Errorf("%w: node b has it", pool.ErrUnavailable), pool.ErrUnavailable, "the pool gives nothing now: node b has it"},
		"another":     {errors.New("boom"), pool.ErrUnavailable, "the pool gives nothing now: boom"},
	} {
		client := serveSources(t, serve.Sources{Pools: &pools{err: test.err}})
		for request, err := range refusals(t, client) {
			if !errors.Is(err, test.is) || err.Error() != test.want {
				t.Errorf("%s: %s: %v", text, request, err)
			}
		}
	}
	none := control.Client{Path: filepath.Join(t.TempDir(), "none")}
	for request, err := range refusals(t, none) {
		if !errors.Is(err, pool.ErrUnavailable) || !errors.Is(err, control.ErrNoAgent) {
			t.Errorf("no agent: %s: %v", request, err)
		}
	}
	for request, err := range refusals(t, serveSources(t, serve.Sources{})) {
		if !errors.Is(err, pool.ErrUnavailable) || !strings.HasSuffix(err.Error(), "which has the address pools: start it with --kubeconfig, or as a DaemonSet") {
			t.Errorf("no API: %s: %v", request, err)
		}
	}
}

// refusals makes each request about pools.
func refusals(t *testing.T, c control.Client) map[string]error {
	_, acquired := c.Acquire(t.Context(), anAcquisition)
	_, shown := c.Pools(t.Context())
	_, blocks := c.Blocks(t.Context(), "lan")
	return map[string]error{
		"Refill": c.Refill(t.Context(), pool.Demand{}), "Acquire": acquired, "Claim": c.Claim(t.Context(), pool.Claimed{}), "Pools": shown, "Blocks": blocks,
	}
}
