package main

import (
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// atNode2 is an address that another node has, atNobody one that nobody has.
var (
	atNode2 = pool.AddressStatus{
		Pool: "shared", Block: "shared-1", Address: netip.MustParseAddr("10.4.0.5"), Unproven: true,
		Holder: &pool.Holder{ID: "B", Party: pool.Party{Node: "node2", Network: "wan", Store: "s2"}, Epoch: 7, Boot: "boot-9", Fenced: "out of service"},
		Want:   []pool.Want{{Party: pool.Party{Node: "node3", Network: "wan", Store: "s3"}, Address: netip.MustParseAddr("10.4.0.5"), Claim: "shared-c"}},
		Claims: []pool.Claim{{Metadata: pool.Meta{Name: "shared-c"}, Spec: pool.ClaimSpec{
			Pool: "shared", IfName: "eth0", Owner: attachment.Owner{Kind: attachment.OwnerPod, Namespace: "shop", Name: "web-0"},
			Active: pool.Place{Party: pool.Party{Node: "node2", Network: "wan"}, PodUID: "u2"}, Target: &pool.Place{Party: pool.Party{Node: "node3", Network: "wan"}},
		}}},
	}
	atNobody = pool.AddressStatus{Pool: "shared", Block: "shared-0", Address: netip.MustParseAddr("10.4.0.2")}
	atNever  = pool.AddressStatus{Pool: "shared", Block: "shared-0", Address: netip.MustParseAddr("10.4.0.1"), Excluded: true}
)

// An address of a pool that this node does not have can be another node's: the agent knows.
func TestWhoHasAnAddressOfAPool(t *testing.T) {
	dir := t.TempDir()
	reservedFor(t, dir, "lan", "10.3.0.9", "shop", "db-0")
	reservedFor(t, dir, "wan", "10.4.0.4", "shop", "db-0")
	l, err := pool.Pool{Metadata: pool.Meta{Name: "shared"}, Spec: pool.Spec{Subnet: "10.4.0.0/24", BlockSize: 4}}.Layout()
	if err != nil {
		t.Fatal(err)
	}
	store, err := lease.Open(dir, "wan")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(store.SetPools(t.Context(), []string{"shared"}), store.PutGrants(t.Context(), l, nil)); err != nil {
		t.Fatal(err)
	}
	g, err := store.Granted(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	here := pool.AddressStatus{Pool: "shared", Block: "shared-0", Address: netip.MustParseAddr("10.4.0.3"), Holder: &pool.Holder{Party: pool.Party{Node: "node1", Network: "wan", Store: g.ID}, Epoch: 1}}
	const nobody, elsewhere = "Address:  10.4.0.2\nPool:     shared\nBlock:    shared-0\nNode:     nobody\nOwner:    nobody\n\n", `Address:       10.4.0.5
Pool:          shared
Block:         shared-1
Node:          node2
Network:       wan
Store:         s2
Since:         epoch 7 of the block, or before
Boot:          boot-9
Fenced:        out of service
Probe:         a pod gets it only after a probe: pods of a dead node may still answer for it
Asked for by:  node node3, network wan, for AddressClaim shared-c
Owner:         pod shop/web-0, interface eth0
Claim:         shared-c
Active:        on node node2, network wan, pod UID u2
Moves to:      on node node3, network wan

`
	all := shared{standings: map[string][]pool.AddressStatus{"10.4.0.5": {atNode2}, "10.4.0.2": {atNobody}, "10.4.0.3": {here}, "10.4.0.1": {atNever}, "10.9.0.9": nil}, err: errors.New("the API is away")}
	for name, test := range map[string]struct {
		// pools are the agent's, nil for an agent without an API. Without an agent there is none.
		pools   serve.Pools
		agent   bool
		address string
		code    int
		want    string
	}{
		"of another node": {all, true, "10.4.0.5", exitOK, elsewhere},
		"of this node, and free": {all, true, "10.4.0.3", exitDiffers, "Address:  10.4.0.3\nPool:     shared\nBlock:    shared-0\nNode:     node1\nNetwork:  wan\nStore:    " + g.ID +
			"\nSince:    epoch 1 of the block, or before\nOwner:    nobody\n\nrelink: 10.4.0.3 is free in network lan and network wan\n"},
		"of nobody":                    {all, true, "10.4.0.2", exitDiffers, nobody + "relink: 10.4.0.2 is free in network lan and network wan\n"},
		"never given":                  {all, true, "10.4.0.1", exitDiffers, "Address:  10.4.0.1\nPool:     shared\nBlock:    shared-0\nNode:     nobody: the pool never gives this address\nOwner:    nobody\n\nrelink: no pod has 10.4.0.1, and the pool shared never gives it\n"},
		"of no pool":                   {all, true, "10.9.0.9", exitDiffers, "relink: 10.9.0.9 is free in network lan and network wan\n"},
		"of no pool, nobody answers":   {all, true, "10.9.0.8", exitDiffers, "relink: which node has 10.9.0.8 is unknown: the API is away\nrelink: 10.9.0.8 is free in network lan and network wan\n"},
		"leased, of no pool":           {all, true, "10.3.0.9", exitOK, "Address:   10.3.0.9\nNetwork:   lan\nState:     reserved\n"},
		"leased, nobody answers":       {all, true, "10.4.0.4", exitOK, "relink: which node has 10.4.0.4 is unknown: the API is away\nAddress:"},
		"of a pool, without an API":    {nil, true, "10.4.0.2", exitDiffers, "relink: which node has 10.4.0.2 is unknown: no address pools are known: relink-agent has no Kubernetes API"},
		"of a pool, without an agent":  {nil, false, "10.4.0.2", exitDiffers, "relink: which node has 10.4.0.2 is unknown: no relink-agent runs on this node"},
		"of a pool, nobody answers":    {all, true, "10.4.0.7", exitDiffers, "relink: which node has 10.4.0.7 is unknown: the API is away\nrelink: no pod of this node has 10.4.0.7\n"},
		"of no pool, without an API":   {nil, true, "10.9.0.9", exitDiffers, "relink: 10.9.0.9 is free in network lan and network wan\n"},
		"of no pool, without an agent": {nil, false, "10.9.0.9", exitDiffers, "relink: 10.9.0.9 is free in network lan and network wan\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(control.SocketEnv, filepath.Join(t.TempDir(), "none.sock"))
			if test.agent {
				serves(t, test.pools)
			}
			code, out := runsTo("ipam", "--data-dir", dir, "show", test.address)
			if code != test.code || !strings.HasPrefix(out, test.want) {
				t.Errorf("status %d\n%s\nwant %d\n%s", code, out, test.code, test.want)
			}
		})
	}
	serves(t, all)
	code, out := runsTo("ipam", "--data-dir", dir, "show", "10.4.0.5", "-o", "json")
	for _, want := range []string{`"history": []`, `"block": "shared-1"`, `"fenced": "out of service"`, `"node": "node3"`} {
		if code != exitOK || !strings.Contains(out, want) {
			t.Errorf("status %d, without %s:\n%s", code, want, out)
		}
	}
}
