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
	imported pool.Imported
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

func (p *pools) Claim(_ context.Context, c pool.ClaimedAddress) error {
	p.told = c
	return p.err
}

func (p *pools) Import(_ context.Context, in pool.Import) (pool.Imported, error) {
	p.told = in
	return p.imported, p.err
}

var anAcquisition = pool.Acquisition{
	Network: "lan", Pool: "lan-6", IfName: "net1",
	Owner: attachment.Owner{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "web", UID: "u1", Ordinal: attachment.OrdinalOf(0)},
	Pod:   attachment.Pod{Namespace: "shop", Name: "web-0", UID: "u2"}, Requested: netip.MustParseAddr("fd00::7"), Retain: time.Hour,
}

// Requests and answers about pools come over the socket as they were.
func TestPoolsComeOverAsTheyWere(t *testing.T) {
	p := &pools{
		acquired: pool.Acquired{Address: netip.MustParseAddr("fd00::7"), Migrating: true},
	}
	client, ctx := serveSources(t, serve.Sources{Pools: p}), t.Context()
	expect := func(what string, err error, want, got any) {
		t.Helper()
		if diff := cmp.Diff(want, got, sameAddress); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", what, err, diff)
		}
	}
	demand := pool.Demand{Network: "lan", Pools: []string{"lan", "lan-6"}}
	expect("Refill", client.Refill(ctx, demand), demand, p.told)
	acquired, err := client.Acquire(ctx, anAcquisition)
	expect("Acquire", err, anAcquisition, p.told)
	expect("Acquired", err, p.acquired, acquired)
	nothing := pool.Acquisition{Network: "lan", Pool: "lan", IfName: "eth0"}
	p.acquired = pool.Acquired{}
	acquired, err = client.Acquire(ctx, nothing)
	expect("Acquire without an address", err, nothing, p.told)
	expect("nothing Acquired", err, p.acquired, acquired)
	claimed := pool.ClaimedAddress{Acquisition: anAcquisition, Address: netip.MustParseAddr("fd00::7")}
	expect("Claim", client.Claim(ctx, claimed), claimed, p.told)
	in := pool.Import{Network: "lan", Pools: []string{"lan", "lan-6"}, Addresses: []netip.Addr{netip.MustParseAddr("fd00::7"), netip.MustParseAddr("10.3.0.5")}, DryRun: true}
	p.imported = pool.Imported{
		Pools: map[netip.Addr]string{netip.MustParseAddr("fd00::7"): "lan-6"}, Refused: map[netip.Addr]string{netip.MustParseAddr("10.3.0.5"): "node2 has it"}, Closed: "it is not paused",
	}
	imported, err := client.Import(ctx, in)
	expect("Import", err, in, p.told)
	expect("Imported", err, p.imported, imported)
}

// chunkImporter answers each part of an import, and notes how large it was.
type chunkImporter struct {
	pools
	sizes []int
}

func (p *chunkImporter) Import(_ context.Context, in pool.Import) (pool.Imported, error) {
	p.sizes = append(p.sizes, len(in.Addresses))
	made := pool.Imported{Pools: map[netip.Addr]string{}, Refused: map[netip.Addr]string{in.Addresses[0]: "it is the first"}}
	for _, a := range in.Addresses[1:] {
		made.Pools[a] = "lan-6"
	}
	return made, nil
}

// An import of many addresses comes over in parts. Nothing of it gets lost.
func TestALargeImportComesOverInParts(t *testing.T) {
	p := &chunkImporter{}
	client := serveSources(t, serve.Sources{Pools: p})
	var all []netip.Addr
	for i := range 2*pool.MaxImported + 1 {
		all = append(all, netip.AddrFrom16([16]byte{0: 0xfd, 1: 0xff, 2: 0xff, 3: 0xff, 4: 0xff, 5: 0xff, 14: byte(i >> 8), 15: byte(i)}))
	}
	made, err := client.Import(t.Context(), pool.Import{Network: strings.Repeat("n", 255), Pools: []string{"lan-6"}, Addresses: all})
	if err != nil || fmt.Sprint(p.sizes) != fmt.Sprint([]int{pool.MaxImported, pool.MaxImported, 1}) {
		t.Fatalf("%v, in parts of %v", err, p.sizes)
	}
	for i, a := range all {
		if first := i%pool.MaxImported == 0; first != (made.Refused[a] == "it is the first") || first != (made.Pools[a] == "") {
			t.Errorf("%s: %q, %q", a, made.Pools[a], made.Refused[a])
		}
	}
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
		if !errors.Is(err, pool.ErrUnavailable) || !strings.HasSuffix(err.Error(), "the pool gives nothing now: relink-agent has no Kubernetes API: start it with --kubeconfig, or as a DaemonSet") {
			t.Errorf("no API: %s: %v", request, err)
		}
	}
}

// refusals makes each request about pools.
func refusals(t *testing.T, c control.Client) map[string]error {
	_, acquired := c.Acquire(t.Context(), anAcquisition)
	_, imported := c.Import(t.Context(), pool.Import{Addresses: make([]netip.Addr, 1)})
	return map[string]error{
		"Refill": c.Refill(t.Context(), pool.Demand{}), "Acquire": acquired, "Claim": c.Claim(t.Context(), pool.ClaimedAddress{}), "Import": imported,
	}
}
