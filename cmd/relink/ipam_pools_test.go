package main

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/pkg/pool"
)

// shared are pools that are shown.
type shared struct {
	pool.Agent
	pool.Importer
	pools  []pool.Pool
	blocks map[string][]pool.Block
	// standings are of an address. Of any other one err is the answer.
	standings map[string][]pool.AddressStatus
	err       error
}

func (s shared) Show(context.Context) ([]pool.Pool, error) { return s.pools, nil }

func (s shared) ShowBlocks(_ context.Context, name string) ([]pool.Block, error) {
	if all, is := s.blocks[name]; is {
		return all, nil
	}
	return nil, fmt.Errorf("%w: there is no AddressPool %s", pool.ErrUnknown, name)
}

func (s shared) ShowAddress(_ context.Context, a netip.Addr) ([]pool.AddressStatus, error) {
	if all, is := s.standings[a.String()]; is {
		return all, nil
	}
	return nil, s.err
}

// serves lets an agent answer that has these pools, nil for one without a Kubernetes API.
func serves(t *testing.T, p serve.Pools) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.sock")
	t.Setenv(control.SocketEnv, path)
	listener, err := serve.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = serve.Serve(t.Context(), listener, serve.Handler(nil, serve.Sources{Pools: p}, nil)) }()
}

func TestPoolsAreShown(t *testing.T) {
	lan := pool.Pool{Metadata: pool.Meta{Name: "lan", UID: "1"}, Spec: pool.Spec{Subnet: "10.3.0.0/24", BlockSize: 4}, Status: pool.Status{Blocks: 64, Existing: 1, Addresses: "254", Granted: 4}}
	l, err := lan.Layout()
	if err != nil {
		t.Fatal(err)
	}
	party := func(node string) pool.Party { return pool.Party{Node: node, Network: "lan", Store: node + "-store"} }
	block, _ := pool.NewBlock(l, 2, party("node1"), "boot")
	block = block.HandOver(party("node1"), []int{3}, party("node2")).Release(party("node1"), []int{0})
	block = block.Request(pool.Want{Party: party("node3"), Count: 2})
	paused := lan
	paused.Metadata.Name, paused.Spec.Paused = "wan", true
	lost := lan.WithRecovery(&pool.Recovery{Since: "2026-01-02T03:04:05Z", Reason: "node node1: a block is missing", Asserted: []string{"node1"}})
	lost.Metadata.Name = "old"
	fenced, _ := block.Fence(func(p pool.Party) bool { return p.Node == "node2" }, "out of service")
	both := lost
	both.Metadata.Name, both.Spec.Paused = "restored", true
	two, _ := block.Fence(func(p pool.Party) bool { return p.Node == "node1" }, "out of service")
	serves(t, shared{pools: []pool.Pool{lan, lost, both, paused}, blocks: map[string][]pool.Block{"lan": {block}, "wan": nil, "old": {block, fenced}, "two": {two}}})
	for _, test := range []struct {
		command string
		code    int
		want    string
	}{
		{"ipam pools", exitOK, `
POOL      SUBNET       ADDRESSES  ON NODES  BLOCKS  TAKEN
lan       10.3.0.0/24  254        4         64      1
old       10.3.0.0/24  254        4         64      1
restored  10.3.0.0/24  254        4         64      1
wan       10.3.0.0/24  254        4         64      1
old gives nothing new: since 2026-01-02T03:04:05Z the nodes say what they have, and 1 have said it: node node1: a block is missing
restored gives nothing new: spec.paused is true, and since 2026-01-02T03:04:05Z the nodes say what they have, and 1 have said it: node node1: a block is missing
wan gives nothing new: spec.paused is true
`},
		{"ipam blocks lan", exitOK, `
BLOCK  ADDRESSES           NODES               FREE  ASKED
lan-2  10.3.0.9-10.3.0.12  node1: 2, node2: 1  1     node3
`},
		{"ipam pools old", exitOK, `
NODE   NETWORK  ADDRESSES  BLOCKS  FENCED  ASKS  BOOT
node1  lan      4          2       -       -     boot
node2  lan      2          2       1       -     -
node3  lan      0          0       -       4     -
node2: others may take 1 address: out of service
`},
		{"ipam pools old --quiet", exitOK, "\nnode2: others may take 1 address: out of service\n"},
		{"ipam pools two --quiet", exitOK, "\nnode1: others may take 2 addresses: out of service\n"},
		{"ipam pools wan", exitOK, "\nrelink: no node has any address of the pool\n"},
		{"ipam pools other", exitUsage, "\nrelink: the pool cannot be used: there is no AddressPool other\n"},
		{"ipam pools lan wan", exitUsage, "\nrelink: unexpected argument \"wan\": relink ipam pools [POOL]\n"},
		{"ipam blocks wan", exitOK, "\nrelink: no node has any address of the pool\n"},
		{"ipam blocks lan --quiet", exitOK, "\n"},
		{"ipam blocks other", exitUsage, "\nrelink: the pool cannot be used: there is no AddressPool other\n"},
		{"ipam blocks", exitUsage, "\nrelink: an argument is missing: "},
	} {
		code, out := runsTo(strings.Fields(test.command)...)
		if want := test.want[1:]; code != test.code || !strings.HasPrefix(out, want) || want == "" && out != "" {
			t.Errorf("relink %s: status %d\n%s\nwant %d\n%s", test.command, code, out, test.code, want)
		}
	}
	if b := netip.MustParseAddr("10.3.0.9"); block.Spec.First != b {
		t.Errorf("the block begins at %s", block.Spec.First)
	}
}

// Without an agent a node goes on giving what it has: nobody is told that the pool gives nothing.
func TestPoolsAreNotShownWithoutAnAgent(t *testing.T) {
	t.Setenv(control.SocketEnv, filepath.Join(t.TempDir(), "agent.sock"))
	for _, command := range []string{"ipam pools", "ipam pools lan", "ipam blocks lan"} {
		code, out := runsTo(strings.Fields(command)...)
		if want := "relink: no relink-agent runs on this node: nothing listens on "; code != exitUsage || !strings.HasPrefix(out, want) {
			t.Errorf("relink %s: status %d\n%s\nwant %d\n%s", command, code, out, exitUsage, want)
		}
	}
}
