package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/test/pooltest"
)

// shown returns what a screen shows.
func shown(quiet bool, write func(*cli.Screen)) string {
	var out bytes.Buffer
	write(&cli.Screen{Verbosity: cli.Verbosity{Quiet: quiet}, Format: cli.FormatTable, Out: &out, Err: &out})
	return out.String()
}

func party(node string) pool.Party {
	return pool.Party{Node: node, Network: "lan", Store: node + "-store"}
}

// lan is a pool with a block of which node1 has two addresses and node2 one. node3 asks for some.
func lan(t *testing.T) (pool.Pool, pool.Block) {
	t.Helper()
	p := pool.Pool{Metadata: pool.Meta{Name: "lan", UID: "1"}, Spec: pool.Spec{Subnet: "10.3.0.0/24", BlockSize: 4}, Status: pool.Status{Blocks: 64, Existing: 1, Addresses: "254", Granted: 4}}
	l, err := p.Layout()
	if err != nil {
		t.Fatal(err)
	}
	b, _ := pool.NewBlock(l, 2, party("node1"), "boot")
	b = b.HandOver(party("node1"), []int{3}, party("node2")).Release(party("node1"), []int{0}, nil)
	return p, b.Request(pool.Want{Party: party("node3"), Count: 2})
}

func TestPoolsAreShown(t *testing.T) {
	lan, block := lan(t)
	paused, ready := lan, lan
	paused.Metadata.Name = "wan"
	paused.Status.Conditions = []pool.Condition{{Type: pool.Ready, Status: pool.False, Reason: pool.Paused, Message: "spec.paused is true"}}
	ready.Status.Conditions = []pool.Condition{{Type: pool.Ready, Status: pool.True, Message: "nodes may take addresses of it"}}
	fenced, _ := block.Fence(func(p pool.Party) bool { return p.Node == "node2" }, "out of service")
	two, _ := block.Fence(func(p pool.Party) bool { return p.Node == "node1" }, "out of service")
	shares := func(blocks ...pool.Block) func(*cli.Screen) {
		return func(s *cli.Screen) { writeShares(pool.Shares(blocks), s) }
	}
	for name, test := range map[string]struct {
		quiet bool
		write func(*cli.Screen)
		want  string
	}{
		"pools": {false, func(s *cli.Screen) { writePools([]pool.Pool{lan, paused, ready}, s) }, `POOL  SUBNET       ADDRESSES  ON NODES  BLOCKS  TAKEN
lan   10.3.0.0/24  254        4         64      1
wan   10.3.0.0/24  254        4         64      1
lan   10.3.0.0/24  254        4         64      1
wan gives nothing new: spec.paused is true
`},
		"no pools": {false, func(s *cli.Screen) { writePools(nil, s) }, "relink: the cluster has no AddressPool\n"},
		"blocks": {false, func(s *cli.Screen) { writeBlocks([]pool.Block{block}, s) }, `BLOCK  ADDRESSES           NODES               FREE  ASKED
lan-2  10.3.0.9-10.3.0.12  node1: 2, node2: 1  1     node3
`},
		"no blocks":     {false, func(s *cli.Screen) { writeBlocks(nil, s) }, "relink: no node has any address of the pool\n"},
		"blocks, quiet": {true, func(s *cli.Screen) { writeBlocks([]pool.Block{block}, s) }, ""},
		"shares": {false, shares(block, fenced), `NODE   NETWORK  ADDRESSES  BLOCKS  FENCED  ASKS  BOOT
node1  lan      4          2       -       -     boot
node2  lan      2          2       1       -     -
node3  lan      0          0       -       4     -
node2: others may take 1 address: out of service
`},
		"shares, quiet":           {true, shares(block, fenced), "node2: others may take 1 address: out of service\n"},
		"two shares, quiet":       {true, shares(two), "node1: others may take 2 addresses: out of service\n"},
		"shares of an empty pool": {false, shares(), "relink: no node has any address of the pool\n"},
	} {
		if got := shown(test.quiet, test.write); got != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, test.want)
		}
	}
}

// Blocks come in the order of the addresses. A pool that does not exist is not one without blocks.
func TestBlocksOfAPool(t *testing.T) {
	p, _ := lan(t)
	l, err := p.Layout()
	if err != nil {
		t.Fatal(err)
	}
	api := &pooltest.API{}
	api.AddPool(p)
	for _, i := range []int64{10, 2} {
		b, _ := pool.NewBlock(l, i, party("node1"), "boot")
		api.AddBlock(b)
	}
	blocks, err := blocksOf(t.Context(), api, "lan")
	if err != nil || len(blocks) != 2 || blocks[0].Metadata.Name != "lan-2" || blocks[1].Metadata.Name != "lan-10" {
		t.Errorf("%+v, %v", blocks, err)
	}
	for _, name := range []string{"", "a/b"} {
		if _, err := blocksOf(t.Context(), api, name); err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("invalid POOL %q: ", name)) {
			t.Errorf("%q: %v", name, err)
		}
	}
	// Somebody has removed the labels of the block.
	api.EditBlock("lan-2", func(b *pool.Block) { b.Metadata.Labels = nil })
	api.Forget("lan-10")
	if r, err := awaitDrained(t.Context(), api, "node1", 0); err != nil || len(r.Blocks) != 1 || len(r.Blocks[0].Addresses) != 4 {
		t.Errorf("a drained node: %+v, %v", r, err)
	}
	if _, err := blocksOf(t.Context(), api, "other"); !errors.Is(err, pool.ErrNotFound) {
		t.Errorf("a pool that does not exist: %v", err)
	}
}

// Of an address the API tells who has it and whose it is, for each pool that has it.
func TestWhoHasAnAddress(t *testing.T) {
	p, block := lan(t)
	p.Spec.Gateway = "10.3.0.1"
	block, _ = block.Fence(func(p pool.Party) bool { return p.Node == "node2" }, "out of service")
	block = block.Request(pool.Want{Party: party("node3"), Address: block.Address(3), Claim: "lan-c"})
	block.Status.Unproven = []netip.Addr{block.Address(3)}
	api := &pooltest.API{}
	p = api.AddPool(p)
	api.AddPool(pool.Pool{Metadata: pool.Meta{Name: "wrong"}, Spec: pool.Spec{Subnet: "10.3.0.0/33"}})
	api.AddBlock(block)
	api.AddClaim(pool.Claim{Metadata: pool.Meta{Name: "lan-c"}, Spec: pool.ClaimSpec{Pool: "lan", IfName: "eth0", Owner: attachment.Owner{Kind: attachment.OwnerPod, Namespace: "shop", Name: "web-0"}},
		Status: pool.ClaimStatus{Address: block.Address(3), Active: pool.Place{Party: party("node2"), PodUID: "u2"}}})
	api.AddClaim(pool.Claim{Metadata: pool.Meta{Name: "wan-c"}, Spec: pool.ClaimSpec{Pool: "wan"}, Status: pool.ClaimStatus{Address: block.Address(3)}})
	for address, test := range map[string]struct{ shows, not string }{
		"10.3.0.12": {`Address:       10.3.0.12
Pool:          lan
Block:         lan-2
Node:          node2
Network:       lan
Store:         node2-store
Since:         epoch 2 of the block, or before
Fenced:        out of service
Probe:         a pod gets it only after a probe: pods of a dead node may still answer for it
Asked for by:  node node3, network lan, for AddressClaim lan-c
Owner:         pod shop/web-0, interface eth0
Claim:         lan-c
Active:        on node node2, network lan, pod UID u2

`, ""},
		"10.3.0.9": {"Address:  10.3.0.9\nPool:     lan\nBlock:    lan-2\nNode:     nobody\nOwner:    nobody\n\n", "no node has 10.3.0.9"},
		"10.3.0.1": {"Address:  10.3.0.1\nPool:     lan\nBlock:    lan-0\nNode:     nobody: the pool never gives this address\nOwner:    nobody\n\n", "no node has 10.3.0.1, and the pool lan never gives it"},
		"10.9.0.9": {"", "10.9.0.9 is of no AddressPool"},
	} {
		found, err := lookUp(t.Context(), api, netip.MustParseAddr(address))
		if err != nil {
			t.Fatal(err)
		}
		got := shown(false, func(s *cli.Screen) {
			for _, status := range found {
				describe(status, s)
			}
		})
		not := ""
		if err := notHeld(netip.MustParseAddr(address), found); err != nil {
			not = err.Error()
		}
		if got != test.shows || not != test.not {
			t.Errorf("%s:\n%s%s\nwant\n%s%s", address, got, not, test.shows, test.not)
		}
	}
	// The second one makes the spec wrong.
	for exclude, not := range map[string]string{"10.3.0.9": "no node has 10.3.0.9, and the pool lan never gives it", "10.9.0.2": "no node has 10.3.0.9"} {
		api.EditPool("lan", func(p *pool.Pool) { p.Spec.Exclude = []string{exclude} })
		for address, not := range map[string]string{"10.3.0.9": not, "10.3.0.10": ""} {
			found, err := lookUp(t.Context(), api, netip.MustParseAddr(address))
			if err == nil {
				err = notHeld(netip.MustParseAddr(address), found)
			}
			if (not == "") != (err == nil) || err != nil && err.Error() != not {
				t.Errorf("%s, with %s in spec.exclude: %v, want %q", address, exclude, err, not)
			}
		}
	}
	api.EditPool("lan", func(p *pool.Pool) { p.Spec.Exclude = nil })
	away := errors.New("the API is away")
	api.BeforeRequest = func(request string) error {
		if request == "get block lan-2" {
			return away
		}
		return nil
	}
	if _, err := lookUp(t.Context(), api, block.Address(0)); !errors.Is(err, away) {
		t.Errorf("a block that is not read: %v", err)
	}
}
