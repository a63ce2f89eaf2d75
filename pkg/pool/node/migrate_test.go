package node

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// peer is another node on the API of the site, with the network pods and the pools. It has confirmed what it has: nothing.
func (s *testNode) peer(name string, pools ...string) *testNode {
	s.t.Helper()
	n := &testNode{API: s.API, t: s.t, name: name, time: s.time, boot: "boot of " + name, booted: s.booted}
	n.restart(s.t.TempDir())
	if len(pools) == 0 {
		pools = []string{"lan"}
	}
	s.noError(n.store.SetPools(s.t.Context(), pools))
	s.noError(n.sync(s.t.Context()))
	return n
}

// virtualMachine is the ADD of a pod in which a virtual machine runs, or to which it migrates from the pods with the UIDs from.
func virtualMachine(of, uid string, from ...string) pool.Acquisition {
	return pool.Acquisition{
		Network: "pods", Pool: of, IfName: "eth0", Siblings: from,
		Owner: attachment.Owner{Group: "kubevirt.io", Kind: "VirtualMachine", Namespace: "shop", Name: "db", UID: "uid-of-db"},
		Pod:   attachment.Pod{Namespace: "shop", Name: "virt-launcher-" + uid, UID: uid},
	}
}

// startVM is the ADD as the plugin does it. ask lets the other nodes answer between two tries of the agent.
func (s *testNode) startVM(a pool.Acquisition, ask func()) (netip.Addr, attachment.Key, error) {
	s.t.Helper()
	r := lease.Request{
		Attachment: attachment.Key{Network: "pods", ContainerID: "c-" + a.Pod.UID, IfName: "eth0"}, Pools: []string{a.Pool}, Probes: true,
		Policy: lease.Policy{Sticky: true, ByOwner: true}, Owner: a.Owner, APIOwner: a.Owner, Pod: a.Pod,
	}
	if s.grants() == "" {
		s.Reconcile(s.t.Context())
	}
	given, err := s.store.Allocate(s.t.Context(), r)
	var elsewhere *lease.ElsewhereError
	if errors.As(err, &elsewhere) {
		r.QueriedPools = r.Pools
		c, wrong := s.Claim(s.t.Context(), pool.ClaimName(a.Pool, a.IfName, a.Owner))
		l, unknown := s.readPool(s.t.Context(), a.Pool)
		s.noError(unknown)
		if wrong == nil && (l.Assignable(c.Status.Address) || isSource(c, a)) {
			found, wrong := s.acquireAddress(a, c.Status.Address, ask)
			if wrong != nil {
				return netip.Addr{}, r.Attachment, wrong
			}
			r.OwnerAddresses = []netip.Addr{found.Address}
			if found.Migrating {
				r.MigratingAddresses = r.OwnerAddresses
			}
		}
		given, err = s.store.Allocate(s.t.Context(), r)
	}
	if err != nil {
		return netip.Addr{}, r.Attachment, err
	}
	if l := given[0]; !l.Claimed && !s.store.PoolAddresses()[0].Migrating {
		s.noError(s.Controller.Claim(s.t.Context(), pool.ClaimedAddress{Acquisition: a, Address: l.Address}))
		s.noError(s.store.MarkClaimed(s.t.Context(), l.Address, a.Owner))
	}
	return given[0].Address, r.Attachment, nil
}

// acquireAddress is bring without a wait.
func (s *testNode) acquireAddress(a pool.Acquisition, address netip.Addr, ask func()) (found pool.Acquired, err error) {
	s.t.Helper()
	for range 4 {
		var has string
		found, has, err = s.tryAcquire(s.t.Context(), a, address)
		if found.Address.IsValid() {
			return found, err
		}
		if err == nil {
			err = fmt.Errorf("%s has it", has)
		}
		if ask != nil {
			ask()
		}
	}
	return found, err
}

// reconcileAll is one look of the agents.
func reconcileAll(all ...*testNode) func() {
	return func() {
		for _, s := range all {
			s.Reconcile(s.t.Context())
		}
	}
}

func (s *testNode) mustStartVM(a pool.Acquisition, ask func()) (netip.Addr, attachment.Key) {
	s.t.Helper()
	address, key, err := s.startVM(a, ask)
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", a.Pod.UID, err, s.log.String())
	}
	return address, key
}

// holder is the node that has the address by the API.
func (s *testNode) holder(name string, a netip.Addr) string {
	s.t.Helper()
	all, err := s.Blocks(s.t.Context(), name)
	s.noError(err)
	for _, b := range all {
		if i := b.Offset(a); i >= 0 {
			h, _ := b.HolderOf(i)
			return h.Node
		}
	}
	return ""
}

// leaseState is the state of the lease at an address.
func (s *testNode) leaseState(a netip.Addr) string {
	s.t.Helper()
	l, err := s.store.Get(s.t.Context(), a)
	if errors.Is(err, lease.ErrNotLeased) {
		return "free"
	}
	s.noError(err)
	return string(l.State)
}

// A migration ends before the machine has come, and the machine migrates to a third node at once. Its address goes there, or waits
// for the machine: nobody else gets it.
func TestAMigrationThatFailsAndThenAnother(t *testing.T) {
	n1 := newTestNode(t)
	n2, n3 := n1.peer("node2"), n1.peer("node3")
	x, source := n1.mustStartVM(virtualMachine("lan", "u1"), nil)
	_, failed := n2.mustStartVM(virtualMachine("lan", "u2", "u1"), reconcileAll(n1))
	n2.del(failed)
	reconcileAll(n2)()
	if a, _ := n3.mustStartVM(virtualMachine("lan", "u3", "u1", "u2"), reconcileAll(n1)); a != x {
		t.Fatalf("%s and %s", a, x)
	}
	n1.del(source)
	reconcileAll(n1)()
	wantEqual(t, "the address is that of", n1.holder("lan", x), "node3")
}

// A migration ends before the machine has come. Then the machine ends, too. Its address waits for it.
func TestAMigrationThatFailsAndThenTheEnd(t *testing.T) {
	for name, before := range map[string]func(n1, n2 *testNode){
		"the target's node has looked":     func(_, n2 *testNode) { reconcileAll(n2)() },
		"the target's node has not looked": func(_, _ *testNode) {},
		"somebody changes the blocks as it looks": func(n1, n2 *testNode) {
			n1.BeforeRequest = conflicting("update block lan-0", "update block lan-1", "update block lan-2", "update block lan-3")
			reconcileAll(n2)()
			n1.BeforeRequest = nil
		},
		"it begins to look at that moment": func(n1, n2 *testNode) {
			done := false
			n1.BeforeRequest = func(r string) error {
				if strings.HasPrefix(r, "update block") && !done {
					done = true
					n1.del(attachment.Key{Network: "pods", ContainerID: "c-u1", IfName: "eth0"})
					reconcileAll(n1)()
				}
				return nil
			}
			reconcileAll(n2)()
		},
	} {
		t.Run(name, func(t *testing.T) {
			n1 := newTestNode(t)
			n2 := n1.peer("node2")
			x, source := n1.mustStartVM(virtualMachine("lan", "u1"), nil)
			_, failed := n2.mustStartVM(virtualMachine("lan", "u2", "u1"), reconcileAll(n1))
			n2.del(failed)
			before(n1, n2)
			n1.del(source)
			for range 3 {
				reconcileAll(n1, n2)()
			}
			n1.advance(time.Hour)
			n2.advance(time.Hour)
			reconcileAll(n1, n2)()
			has := map[string]*testNode{"node1": n1, "node2": n2}[n1.holder("lan", x)]
			if has == nil || has.leaseState(x) != "reserved" {
				t.Fatalf("%s is that of %q", x, n1.holder("lan", x))
			}
			c, err := n1.Claim(t.Context(), pool.ClaimName("lan", "eth0", virtualMachine("lan", "").Owner))
			if err != nil || c.Status.Address != x || c.Status.Active.Node != has.Controller.Node {
				t.Errorf("the claim is %+v, %v", c.Spec, err)
			}
		})
	}
}

// handOverTooLate brings an owner's address from node1 to node2, after the owner's pod is gone from there.
func handOverTooLate(n1, n2 *testNode) netip.Addr {
	n1.t.Helper()
	x, before := n1.mustStartVM(virtualMachine("lan", "u1"), nil)
	if _, _, err := n2.startVM(virtualMachine("lan", "u2"), reconcileAll(n1)); err == nil {
		n1.t.Fatal("it has come although the pod before runs")
	}
	n1.del(before)
	reconcileAll(n1)()
	wantEqual(n1.t, "it is that of", n1.holder("lan", x), "node2")
	return x
}

// An owner's address comes to a node too late: its pod is gone from there. It waits there for the owner.
func TestAnOwnersAddressComesTooLate(t *testing.T) {
	n1 := newTestNode(t)
	n2 := n1.peer("node2")
	x := handOverTooLate(n1, n2)
	n2.advance(time.Hour)
	reconcileAll(n2)()
	n2.advance(time.Hour)
	reconcileAll(n2)()
	wantEqual(t, "it is", n2.leaseState(x), "reserved")
	if a, _ := n1.mustStartVM(virtualMachine("lan", "u3"), reconcileAll(n2)); a != x {
		t.Errorf("the next start has %s, want %s", a, x)
	}
}

// Pools whose names begin alike, as in the documents. A migration that takes long goes on.
func TestPoolsWhoseNamesBeginAlike(t *testing.T) {
	n1 := newTestNode(t)
	n1.AddPool(pool.Pool{Metadata: pool.Meta{Name: "lan-ipv6"}, Spec: pool.Spec{Subnet: "fd00:7::/64", Ranges: []string{"fd00:7::100-fd00:7::10f"}, BlockSize: 4}})
	n1.noError(n1.store.SetPools(t.Context(), []string{"lan", "lan-ipv6"}))
	n2 := n1.peer("node2", "lan", "lan-ipv6")
	x, source := n1.mustStartVM(virtualMachine("lan-ipv6", "u1"), nil)
	if a, _ := n2.mustStartVM(virtualMachine("lan-ipv6", "u2", "u1"), reconcileAll(n1)); a != x {
		t.Fatalf("%s and %s", a, x)
	}
	n2.noError(n2.store.SetPools(t.Context(), []string{"lan", "lan-ipv6"}))
	for range 2 {
		n1.advance(time.Hour)
		n2.advance(time.Hour)
		reconcileAll(n1, n2)()
	}
	n1.del(source)
	for range 3 {
		reconcileAll(n1, n2)()
	}
	wantEqual(t, "it is that of", n1.holder("lan-ipv6", x), "node2")
}

// A machine that was started anew on its node migrates, too.
func TestAMachineMigratesAfterAStartOnTheSameNode(t *testing.T) {
	n1 := newTestNode(t)
	n2 := n1.peer("node2")
	x, first := n1.mustStartVM(virtualMachine("lan", "u1"), nil)
	n1.del(first)
	if a, _ := n1.mustStartVM(virtualMachine("lan", "u2"), nil); a != x {
		t.Fatalf("%s and %s", a, x)
	}
	if a, _ := n2.mustStartVM(virtualMachine("lan", "u3", "u2"), reconcileAll(n1)); a != x {
		t.Errorf("%s and %s", a, x)
	}
}

// The store's time is ahead of the time of day by a year. A machine that has come is claimed.
func TestClaimsOfAStoreWhoseTimeIsAhead(t *testing.T) {
	n1 := newTestNode(t)
	n2 := n1.peer("node2")
	x, source := n1.mustStartVM(virtualMachine("lan", "u1"), nil)
	ahead := 365 * 24 * time.Hour
	reconcileAll(n2)()
	n2.advance(ahead)
	n2.noError(n2.store.Confirm(t.Context()))
	n2.add("")
	n2.time, n2.booted = n2.time.Add(-ahead), n2.booted.Add(-ahead)
	if a, _ := n2.mustStartVM(virtualMachine("lan", "u2", "u1"), reconcileAll(n1)); a != x {
		t.Fatalf("%s and %s", a, x)
	}
	n1.del(source)
	reconcileAll(n1)()
	n2.advance(time.Minute)
	reconcileAll(n2)()
	c, err := n1.Claim(t.Context(), pool.ClaimName("lan", "eth0", virtualMachine("lan", "").Owner))
	n1.noError(err)
	wantEqual(t, "the claim is that of", c.Status.Active.Node, "node2")
}

// An ADD that claims while the agent compares claims with leases keeps its claim.
func TestAClaimIsMadeWhileClaimsAreRead(t *testing.T) {
	s := newTestNode(t)
	s.Reconcile(t.Context())
	var x netip.Addr
	done := false
	s.BeforeRequest = func(r string) error {
		if r == "list claims of node node1" && !done {
			done = true
			x, _ = s.mustStartVM(virtualMachine("lan", "u1"), nil)
		}
		return nil
	}
	s.syncClaims()
	c, err := s.Claim(t.Context(), pool.ClaimName("lan", "eth0", virtualMachine("lan", "").Owner))
	if !done || err != nil || c.Status.Address != x {
		t.Errorf("the claim of %s: %+v, %v", x, c.Spec, err)
	}
}

// The address that an owner had on a dead node is the owner's. A pod that asks for it by an annotation does not get it.
func TestAnOwnersAddressOnADeadNode(t *testing.T) {
	for name, test := range map[string]struct {
		owner, has, want string
	}{
		"the owner":  {"web-0", "nobody", "B.A. node2! me"},
		"a stranger": {"db-0", "another owner's claim", "A.A. node2!"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestNode(t)
			x := netip.MustParseAddr("10.3.0.4")
			s.putBlock(1, "A.A. node2!")
			s.AddClaim(pool.Claim{Metadata: pool.Meta{Name: pool.ClaimName("lan", "eth0", ownerOf("web-0"))}, Spec: pool.ClaimSpec{
				Pool: "lan", IfName: "eth0", Owner: ownerOf("web-0"),
			}, Status: pool.ClaimStatus{Address: x, Epoch: 1, Active: pool.Place{Party: partyOf("node2")}}})
			a := pool.Acquisition{Network: "pods", Pool: "lan", IfName: "eth0", Owner: ownerOf(test.owner), Requested: x}
			_, has, err := s.tryAcquire(t.Context(), a, x)
			s.noError(err)
			wantEqual(t, "who has it", has, test.has)
			wantEqual(t, "the block", s.blockText(1), test.want)
		})
	}
}

// The claim of an owner whose time is over goes, also if the node has given the address back before it looks.
func TestAClaimOfAnAddressThatNobodyHas(t *testing.T) {
	for name, test := range map[string]struct {
		block string
		goes  bool
	}{
		"nobody has the address":            {"..A. node2", true},
		"the block is gone":                 {"", true},
		"another node has it":               {"A.A. node2", false},
		"a dead node has it":                {"A.A. node2!", false},
		"this node was declared dead there": {"A.B. me! node2", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestNode(t)
			if test.block != "" {
				s.putBlock(1, test.block)
			}
			claim := pool.ClaimName("lan", "eth0", ownerOf("web-0"))
			s.AddClaim(pool.Claim{Metadata: pool.Meta{Name: claim}, Spec: pool.ClaimSpec{
				Pool: "lan", IfName: "eth0", Owner: ownerOf("web-0"),
			}, Status: pool.ClaimStatus{Address: netip.MustParseAddr("10.3.0.4"), Epoch: 1, Active: pool.Place{Party: s.party()}}})
			s.syncClaims()
			if _, err := s.Claim(t.Context(), claim); errors.Is(err, pool.ErrNotFound) != test.goes {
				t.Errorf("the claim: %v", err)
			}
		})
	}
}

// A node that was declared dead comes back. What its owners had there, and no owner has got elsewhere, waits for them, on whatever node.
func TestOwnersOfANodeThatComesBack(t *testing.T) {
	s := newTestNode(t)
	s.putBlock(1, "AAAA me")
	s.adoptBlocks(1)
	x, key := s.add("web-0")
	s.del(key)
	y, key := s.add("web-1")
	s.del(key)
	for a, owner := range map[netip.Addr]string{x: "web-0", y: "web-1"} {
		s.AddClaim(pool.Claim{Metadata: pool.Meta{Name: pool.ClaimName("lan", "eth0", ownerOf(owner))}, Spec: pool.ClaimSpec{
			Pool: "lan", IfName: "eth0", Owner: ownerOf(owner),
		}, Status: pool.ClaimStatus{Address: a, Epoch: 1, Active: pool.Place{Party: s.party()}, Retain: "1h0m0s"}})
		s.noError(s.store.MarkClaimed(t.Context(), a, ownerOf(owner)))
	}
	s.EditBlock("lan-1", func(b *pool.Block) {
		*b, _ = b.Fence(func(p pool.Party) bool { return p.SameParty(s.party()) }, "proof")
		*b, _ = b.Take(partyOf("node2"), []int{b.Offset(y)})
	})
	s.reboot()
	for range 3 {
		s.Reconcile(t.Context())
		s.advance(time.Minute)
	}
	wantEqual(t, "it is that of", s.holder("lan", x), "")
	wantEqual(t, "it is", s.leaseState(x), "free")
	wantEqual(t, "the block", s.blockText(1), "=B.. node2")
	wantEqual(t, "what another node has got is that of", s.holder("lan", y), "node2")
	wantEqual(t, "it is", s.leaseState(y), "free")
	c, err := s.Claim(t.Context(), pool.ClaimName("lan", "eth0", ownerOf("web-0")))
	if err != nil || c.Status.Address != x || c.Status.Active.Node != "node1" {
		t.Errorf("the claim is %+v, %v", c.Spec, err)
	}
}

// A machine has migrated to a node that is drained meanwhile. The node that it comes from dies: the machine keeps its address.
func TestAMachineOnADrainedNodeKeepsItsAddress(t *testing.T) {
	n1 := newTestNode(t)
	n2 := n1.peer("node2")
	x, _ := n1.mustStartVM(virtualMachine("lan", "u1"), nil)
	n2.mustStartVM(virtualMachine("lan", "u2", "u1"), reconcileAll(n1))
	drained := pool.Node{Name: "node2", UID: "uid-node2", Labels: map[string]string{pool.DrainLabel: ""}}
	n1.AddNode(drained)
	n2.watches(t.Context(), func(h pool.Handler) { h.NodeChanged(drained) })
	blocks, err := n1.Blocks(t.Context(), "lan")
	n1.noError(err)
	for _, b := range blocks {
		n1.EditBlock(b.Metadata.Name, func(b *pool.Block) {
			*b, _ = b.Fence(func(p pool.Party) bool { return p.Node == "node1" }, "proof")
		})
	}
	for range 4 {
		reconcileAll(n2)()
		n2.advance(time.Minute)
	}
	wantEqual(t, "the address is that of", n1.holder("lan", x), "node2")
	_, err = n2.openPool(t.Context(), "lan", false)
	wantError(t, "another ADD", err, "the node is drained")
}
