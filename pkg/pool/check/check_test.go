package check

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/pool"
)

func party(node string) pool.Party {
	return pool.Party{Node: node, Network: "net", Store: "store-" + node}
}

// db is an owner, with a claim of 10.3.0.1 that node1 has.
var db = attachment.Owner{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "db", UID: "u1", Ordinal: attachment.OrdinalOf(0)}

func claimOf(o attachment.Owner, address, node string) pool.Claim {
	return pool.Claim{Metadata: pool.Meta{Name: "lan-c"}, Spec: pool.ClaimSpec{Pool: "lan", IfName: "eth0", Owner: o},
		Status: pool.ClaimStatus{Address: netip.MustParseAddr(address), Active: pool.Place{Party: party(node)}}}
}

// healthy is a cluster with the pool lan, 10.3.0.1 to 10.3.0.8 in two blocks, and two nodes. node1 has the first block, but for 10.3.0.4,
// which node2 has. An owner has 10.3.0.1.
func healthy(t *testing.T) Cluster {
	t.Helper()
	p := pool.Pool{Metadata: pool.Meta{Name: "lan", UID: "p1", CreationTimestamp: "2026-01-02T00:00:00Z"}, Spec: pool.Spec{Subnet: "10.3.0.0/24", Ranges: []string{"10.3.0.1-10.3.0.8"}, BlockSize: 4}}
	return Cluster{
		Pools: []pool.Pool{p}, Blocks: []pool.Block{block(t, p, 0).HandOver(party("node1"), []int{3}, party("node2"))},
		Claims: []pool.Claim{claimOf(db, "10.3.0.1", "node1")}, Nodes: []pool.Node{{Name: "node1", Ready: true}, {Name: "node2", Ready: true}},
		Judgements: []owner.Judgement{{Owner: db, Standing: owner.Exists, Reason: "it uses the ordinal 0"}},
	}
}

// block is one that node1 has.
func block(t *testing.T, p pool.Pool, index int64) pool.Block {
	t.Helper()
	l, err := p.Layout()
	if err != nil {
		t.Fatal(err)
	}
	b, ok := pool.NewBlock(l, index, party("node1"), "boot")
	if !ok {
		t.Fatalf("there is no block %d", index)
	}
	return b
}

func dead(node string) func(pool.Party) bool {
	return func(p pool.Party) bool { return p.Node == node }
}

// Each finding names the object, what the API says, and what ends it.
func TestFindings(t *testing.T) {
	gone := func(c *Cluster) {
		c.Judgements[0].Standing, c.Judgements[0].Reason = owner.Gone, "it is scaled to 0 replicas"
	}
	without := func(c *Cluster, node string) {
		var left []pool.Node
		for _, n := range c.Nodes {
			if n.Name != node {
				left = append(left, n)
			}
		}
		c.Nodes = left
	}
	asks := func(c *Cluster, w pool.Want) { c.Blocks[0] = c.Blocks[0].Request(w) }
	const deletes = "kubectl annotate addressblock lan-0 ipam.relink.dev/delete=lan-0 && kubectl delete addressblock lan-0"
	for name, test := range map[string]struct {
		change func(*Cluster)
		want   []Finding
	}{
		"nothing":                              {func(*Cluster) {}, nil},
		"a paused pool is what somebody wants": {func(c *Cluster) { c.Pools[0].Spec.Paused = true }, nil},
		"a wrong spec": {func(c *Cluster) { c.Pools[0].Spec.Exclude = []string{"10.9.0.1"} }, []Finding{{WrongSpec, "AddressPool lan",
			`AddressPool lan: invalid spec.exclude[0] "10.9.0.1": must have addresses of the subnet, such as 10.3.0.1-10.3.0.254`, "correct the spec: kubectl edit addresspool lan"}}},
		"two pools share addresses": {func(c *Cluster) {
			c.Pools = append(c.Pools, pool.Pool{Metadata: pool.Meta{Name: "old", UID: "p2", CreationTimestamp: "2026-01-01T00:00:00Z"}, Spec: pool.Spec{Subnet: "10.3.0.0/28"}})
		}, []Finding{{Overlapping, "AddressPool lan", "10.3.0.1-10.3.0.8 of it is in AddressPool old (10.3.0.1-10.3.0.14), too: make a pool of other addresses", "kubectl delete addresspool lan, once no network names it"}}},
		"no address is left": {func(c *Cluster) {
			c.Blocks = append(c.Blocks, block(t, c.Pools[0], 1))
			asks(c, pool.Want{Party: party("node2"), Count: 3})
		}, []Finding{{Exhausted, "AddressPool lan", "nodes have all its 8 addresses; nodes ask for 3", "add a range at the end of spec.ranges, or free what nobody needs: relink ipam list --state reserved, on the nodes"}}},
		"one address is left": {func(c *Cluster) {
			c.Blocks = append(c.Blocks, block(t, c.Pools[0], 1).Release(party("node1"), []int{2}, nil))
		}, nil},
		"the one that is left is excluded by now": {func(c *Cluster) {
			c.Blocks = append(c.Blocks, block(t, c.Pools[0], 1).Release(party("node1"), []int{2}, nil))
			c.Pools[0].Spec.Exclude = []string{"10.3.0.7"}
			c.Blocks[0], _ = c.Blocks[0].Fence(dead("node2"), "taint")
		}, []Finding{{Exhausted, "AddressPool lan", "nodes have all its 7 addresses, 1 of them fenced", "add a range at the end of spec.ranges, or free what nobody needs: relink ipam list --state reserved, on the nodes"}}},
		"a recovery": {func(c *Cluster) {
			c.Pools[0] = c.Pools[0].WithRecovery(&pool.Recovery{Message: "a block is missing", Asserted: []string{"node1"}})
		}, []Finding{{Recovering, "AddressPool lan", "a block is missing; it waits for node2", `see that relink-agent and relink-controller run. Declare a node dead that is off for good. docs/pool-runbooks.md says when a person may end it`}}},
		"a recovery that the controller has to end": {func(c *Cluster) {
			c.Pools[0] = c.Pools[0].WithRecovery(&pool.Recovery{Message: "a block is missing", Asserted: []string{"node1", "node2"}})
		}, []Finding{{Recovering, "AddressPool lan", "a block is missing; it waits for relink-controller", `see that relink-agent and relink-controller run. Declare a node dead that is off for good. docs/pool-runbooks.md says when a person may end it`}}},
		"a deleted pool": {func(c *Cluster) { c.Pools[0].Metadata.DeletionTimestamp = "2026" }, []Finding{{Terminating, "AddressPool lan",
			"it was deleted, and nodes have addresses of it: node1 (3), node2 (1)", "end the pods that have its addresses: relink ipam list, on these nodes"}}},
		"a deleted pool that nobody has": {func(c *Cluster) {
			c.Pools[0].Metadata.DeletionTimestamp, c.Pools[0].Metadata.Finalizers, c.Blocks, c.Claims = "2026", []string{pool.Finalizer}, nil, nil
		}, []Finding{{Terminating, "AddressPool lan", "it was deleted, and no node has any of it: the finalizers are ipam.relink.dev/blocks", "end the pods that have its addresses: relink ipam list, on these nodes"}}},
		"unproven addresses": {func(c *Cluster) {
			c.Blocks[0], _ = c.Blocks[0].Fence(dead("node2"), "taint")
			c.Blocks[0], _ = c.Blocks[0].Take(party("node1"), []int{3})
		}, []Finding{{Unproven, "AddressPool lan", "pods of dead nodes may still answer for 1 address: 10.3.0.4",
			"relink probes before it gives one; it ends when the dead node is back and has left the block, or with the block"}}},
		"a node is gone": {func(c *Cluster) { without(c, "node2") }, []Finding{{NoNode, "node node2", "there is no such Node, and it has 1 address of lan-0",
			"switch the machine off, then: kubectl relink fence node2"}}},
		"a fenced node is gone": {func(c *Cluster) {
			without(c, "node2")
			c.Blocks[0], _ = c.Blocks[0].Fence(dead("node2"), "burnt")
		}, []Finding{{NoNodeFenced, "node node2", "there is no such Node, and it has 1 address of lan-0. It is declared dead: burnt",
			"others take these addresses, each after a probe. What claims name waits for its owner: kubectl delete addressclaim, if it does not come back"}}},
		"a fenced node is gone, and others have its addresses": {func(c *Cluster) {
			without(c, "node2")
			c.Blocks[0], _ = c.Blocks[0].Fence(dead("node2"), "burnt")
			c.Blocks[0], _ = c.Blocks[0].Take(party("node1"), []int{3})
			c.Blocks[0].Status.Unproven = nil
		}, []Finding{{NoNodeFenced, "node node2", "there is no such Node, and it has 0 addresses of lan-0. It is declared dead: burnt",
			"nothing is kept from others. When no pod has any address of the block: " + deletes}}},
		"a fenced node that is there": {func(c *Cluster) { c.Blocks[0], _ = c.Blocks[0].Fence(dead("node2"), "burnt") }, nil},
		"a block that relink would not write": {func(c *Cluster) {
			c.Blocks[0].Status.Addresses, c.Claims[0] = "A", claimOf(db, "10.3.0.3", "node1")
		}, []Finding{
			{WrongBlock, "AddressBlock lan-0", "AddressBlock lan-0 is not as relink writes it: it has 1 characters for the addresses 10.3.0.1-10.3.0.4", "when no pod has any address of it: " + deletes},
		}},
		"a block of other addresses": {func(c *Cluster) {
			c.Blocks[0].Spec.First, c.Blocks[0].Spec.Last, c.Claims = netip.MustParseAddr("10.2.9.1"), netip.MustParseAddr("10.2.9.4"), nil
		}, []Finding{
			{WrongBlock, "AddressBlock lan-0", "it has the addresses 10.2.9.1-10.2.9.4, and AddressPool lan has none or others there", "when no pod has any address of it: " + deletes},
		}},
		"a pool is gone": {func(c *Cluster) { c.Pools = nil }, []Finding{
			{NoPool, "AddressBlock lan-0", "there is no AddressPool lan", "when no pod has any address of it: " + deletes},
			{NoPool, "AddressClaim lan-c", "there is no AddressPool lan", "kubectl delete addressclaim lan-c"},
		}},
		"a request": {func(c *Cluster) { asks(c, pool.Want{Party: party("node2"), Count: 2}) }, nil},
		"a request of a node that is gone": {func(c *Cluster) { asks(c, pool.Want{Party: party("node3"), Count: 2}) }, []Finding{{UselessRequest, "AddressBlock lan-0",
			"node node3 asks for 2 addresses, and there is no such Node", "switch the machine off, then: kubectl relink fence node3"}}},
		"a request of a fenced node": {func(c *Cluster) {
			c.Blocks[0], _ = c.Blocks[0].Fence(dead("node2"), "burnt")
			asks(c, pool.Want{Party: party("node2"), Count: 1})
		}, []Finding{{UselessRequest, "AddressBlock lan-0", "node node2 asks for 1 address, and it is declared dead in this block", "end the pods there that have addresses of the block: the node leaves it then"}}},
		"a request for what the node has": {func(c *Cluster) {
			asks(c, pool.Want{Party: party("node2"), Address: netip.MustParseAddr("10.3.0.4"), Claim: "lan-d"})
		}, []Finding{{UselessRequest, "AddressBlock lan-0", "node node2 asks for 10.3.0.4, and it has it", "relink-agent of node2 withdraws it within minutes: see that it runs"}}},
		"a request of a node that is not ready": {func(c *Cluster) {
			c.Nodes[1].Ready = false
			asks(c, pool.Want{Party: party("node2"), Count: 1})
		}, []Finding{{UselessRequest, "AddressBlock lan-0", "node node2 asks for 1 address, and it is not Ready: no pod of it waits for that",
			"relink-agent of node2 withdraws it within minutes: see that it runs; if the machine is dead: kubectl relink fence node2"}}},
		"a request for an owner that is gone": {func(c *Cluster) {
			gone(c)
			asks(c, pool.Want{Party: party("node2"), Address: netip.MustParseAddr("10.3.0.1"), Claim: "lan-c"})
		}, []Finding{
			{UselessRequest, "AddressBlock lan-0", "node node2 asks for 10.3.0.1, and the owner is gone: it is scaled to 0 replicas", "relink-agent of node2 withdraws it within minutes: see that it runs"},
			{NoOwner, "AddressClaim lan-c", "10.3.0.1 is the address of StatefulSet shop/db, ordinal 0, and the owner is gone: it is scaled to 0 replicas",
				"relink-agent of node1 deletes it when it frees the address: relink gc --leases --dry-run says there when"},
		}},
		"an owner is gone with its node": {func(c *Cluster) {
			gone(c)
			without(c, "node1")
			c.Blocks[0], _ = c.Blocks[0].Fence(dead("node1"), "burnt")
		}, []Finding{
			{NoNodeFenced, "node node1", "there is no such Node, and it has 3 addresses of lan-0. It is declared dead: burnt",
				"others take these addresses, each after a probe. What claims name waits for its owner: kubectl delete addressclaim, if it does not come back"},
			{NoOwner, "AddressClaim lan-c", "10.3.0.1 is the address of StatefulSet shop/db, ordinal 0, and the owner is gone: it is scaled to 0 replicas", "kubectl delete addressclaim lan-c"},
		}},
		"an owner that nobody has judged": {func(c *Cluster) { c.Judgements = nil }, nil},
		"a claim of an address in no block": {func(c *Cluster) { c.Claims[0] = claimOf(db, "10.3.0.7", "node1") }, []Finding{{NotHeld, "AddressClaim lan-c",
			"10.3.0.7 of StatefulSet shop/db, ordinal 0 is on node node1, network net, by the claim, and no AddressBlock has the address", "start the owner's pod: its node asks for the address; or let it have another one: kubectl delete addressclaim lan-c"}}},
		"a claim of nobody's address": {func(c *Cluster) { c.Blocks[0] = c.Blocks[0].Release(party("node1"), []int{0}, nil) }, []Finding{{NotHeld, "AddressClaim lan-c",
			"10.3.0.1 of StatefulSet shop/db, ordinal 0 is on node node1, network net, by the claim, and nobody has it in AddressBlock lan-0", "start the owner's pod: its node asks for the address; or let it have another one: kubectl delete addressclaim lan-c"}}},
		"a claim of another node's address": {func(c *Cluster) { c.Claims[0] = claimOf(db, "10.3.0.4", "node1") }, []Finding{{NotHeld, "AddressClaim lan-c",
			"10.3.0.4 of StatefulSet shop/db, ordinal 0 is on node node1, network net, by the claim, and node node2 has it in AddressBlock lan-0, in store store-node2", "start the owner's pod: its node asks for the address; or let it have another one: kubectl delete addressclaim lan-c"}}},
		"a claim of an old disk's address": {func(c *Cluster) { c.Claims[0].Status.Active.Store = "old" }, []Finding{{NotHeld, "AddressClaim lan-c",
			"10.3.0.1 of StatefulSet shop/db, ordinal 0 is on node node1, network net, by the claim, and node node1 has it in AddressBlock lan-0, in store store-node1", "start the owner's pod: its node asks for the address; or let it have another one: kubectl delete addressclaim lan-c"}}},
		"a machine that migrates": {func(c *Cluster) {
			c.Claims[0].Status.Active = pool.Place{Party: party("node2"), PodUID: "u2"}
			c.Blocks[0].Status.Holders[0].Accepted = []string{"u2"}
		}, nil},
		"an address that waits for its owner": {func(c *Cluster) {
			c.Blocks[0], _ = c.Blocks[0].Fence(dead("node1"), "taint")
			c.Blocks[0] = c.Blocks[0].Unfence(party("node1"), []netip.Addr{netip.MustParseAddr("10.3.0.1")})
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := healthy(t)
			test.change(&c)
			if diff := cmp.Diff(test.want, c.Find()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Owners without a UID are not asked about, and one that is asked about in vain is not gone.
func TestOwners(t *testing.T) {
	c := healthy(t)
	byName := claimOf(attachment.Pod{Namespace: "shop", Name: "web-0"}.Owner(), "10.3.0.2", "node1")
	c.Claims = append(c.Claims, byName, c.Claims[0])
	if got := c.Owners(); len(got) != 1 || got[0] != db {
		t.Errorf("it asks about %v", got)
	}
	c.Judgements[0].Standing = owner.Unknown
	if got := c.Undecided(); len(got) != 1 || got[0].Owner != db || len(c.Find()) != 0 {
		t.Errorf("%v, %v", got, c.Find())
	}
}

// A node with many blocks is one finding.
func TestManyBlocksAreOneFinding(t *testing.T) {
	p := pool.Pool{Metadata: pool.Meta{Name: "lan", UID: "p1"}, Spec: pool.Spec{Subnet: "10.3.0.0/24", BlockSize: 4}}
	c := Cluster{Pools: []pool.Pool{p}}
	for i := range int64(9) {
		c.Blocks = append(c.Blocks, block(t, p, i))
	}
	got := c.Find()
	if want := "there is no such Node, and it has 36 addresses of lan-0, lan-1, lan-2, lan-3, lan-4"; len(got) != 1 || !strings.HasPrefix(got[0].Evidence, want) {
		t.Errorf("%s", fmt.Sprint(got))
	}
}
