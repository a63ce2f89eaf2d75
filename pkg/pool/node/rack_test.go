package node

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

var racks = pool.Choice("rack1", "rack2")

// newRacks are node1 and node2 in two racks, each with a pool of its own: 10.1.1.0 to 10.1.1.15, and 10.2.1.0 to 10.2.1.15.
func newRacks(t *testing.T) (n1, n2 *testNode) {
	t.Helper()
	n1 = newTestNode(t)
	for _, rack := range []string{"1", "2"} {
		n1.label("node"+rack, map[string]string{"rack": rack})
		p := pool.Pool{Metadata: pool.Meta{Name: "rack" + rack}, Spec: pool.Spec{Subnet: "10." + rack + ".0.0/16", BlockSize: 4, NodeSelector: map[string]string{"rack": rack}}}
		p.Spec.Ranges = []string{fmt.Sprintf("10.%s.1.0-10.%s.1.15", rack, rack)}
		n1.AddPool(p)
	}
	return n1, n1.peer("node2")
}

// label gives the node these labels.
func (s *testNode) label(name string, labels map[string]string) {
	s.AddNode(pool.Node{Name: name, UID: "uid-" + name, Labels: labels})
}

// start is an ADD as the plugin makes it, for an owner if there is one.
func (s *testNode) start(name, owner string, roam bool) (given string, key attachment.Key, err error) {
	s.t.Helper()
	s.pods++
	s.advance(time.Second)
	r := lease.Request{Attachment: attachment.Key{Network: "pods", ContainerID: fmt.Sprint("c", s.pods), IfName: "eth0"}, Pools: []string{name}, Probes: true}
	a := pool.Acquisition{Network: "pods", IfName: "eth0", Owner: ownerOf(owner), Roam: roam}
	if owner != "" {
		r.Policy, r.Owner = lease.Policy{Sticky: true}, a.Owner
	}
	for range 4 {
		var leases []lease.Lease
		var elsewhere *lease.ElsewhereError
		switch leases, err = s.store.Allocate(s.t.Context(), r); {
		case errors.As(err, &elsewhere):
			var found pool.Acquired
			a.Pool = elsewhere.Pool
			if found, err = s.Acquire(s.t.Context(), a); err != nil {
				return "", r.Attachment, err
			}
			if r.QueriedPools = append(r.QueriedPools, a.Pool); found.Address.IsValid() {
				r.OwnerAddresses = append(r.OwnerAddresses, found.Address)
			}
		case err != nil:
			if err = s.Refill(s.t.Context(), pool.Demand{Network: "pods", Pools: r.Pools, Probes: r.Probes}); err != nil {
				return "", r.Attachment, err
			}
		default:
			a.Pool = s.store.PoolAddresses()[0].Layout.Name
			if owner != "" && !leases[0].Claimed {
				s.noError(s.Controller.Claim(s.t.Context(), pool.ClaimedAddress{Acquisition: a, Address: leases[0].Address}))
				s.noError(s.store.MarkClaimed(s.t.Context(), leases[0].Address, a.Owner))
			}
			return a.Pool + " " + leases[0].Address.String(), r.Attachment, nil
		}
	}
	return "", r.Attachment, err
}

// mustStart is start that succeeds, with an address of the pool.
func (s *testNode) mustStart(name, owner string, roam bool, from string) (netip.Addr, attachment.Key) {
	s.t.Helper()
	given, key, err := s.start(name, owner, roam)
	of, address, _ := strings.Cut(given, " ")
	if err != nil || of != from {
		s.t.Fatalf("%s has given %q, %v, want one of %s\n%s", s.name, given, err, from, s.log.String())
	}
	return netip.MustParseAddr(address), key
}

// refuses expects that the pod does not start, as by a mistake in the configuration, and that nobody has changed anything in the API.
func (s *testNode) refuses(name, owner string, roam bool, want string) {
	s.t.Helper()
	before := len(s.Requests())
	given, _, err := s.start(name, owner, roam)
	if !errors.Is(err, pool.ErrUnknown) || err.Error() != "the pool cannot be used: "+want {
		s.t.Errorf("%s has given %q, %v\nwant %s", s.name, given, err, want)
	}
	if changes := s.changes(before); changes != nil {
		s.t.Errorf("it has changed %v", changes)
	}
}

// blockCount is how many blocks of the pool there are.
func (s *testNode) blockCount(name string) int {
	s.t.Helper()
	blocks, err := s.Blocks(s.t.Context(), name)
	s.noError(err)
	return len(blocks)
}

// settle lets the node look for so long that it gives back what it needs no more.
func (s *testNode) settle() {
	s.t.Helper()
	for range 3 {
		s.Reconcile(s.t.Context())
		s.advance(time.Second) // It has heard of the API a while ago.
		s.Reconcile(s.t.Context())
		s.advance(s.Surplus)
	}
	s.Reconcile(s.t.Context())
}

const remedy = ": correct ipam.pool, spec.nodeSelector or the labels of the node"

// A pool by its name gives nothing new to nodes of another rack. What a node has from before its labels changed, it gives, and gives back when
// no pod has it.
func TestAPoolOfAnotherRack(t *testing.T) {
	n1, n2 := newRacks(t)
	n2.refuses("rack1", "", false, "the pool rack1 is for nodes with rack=1, and node node2 has rack=2"+remedy)
	_, key := n1.mustStart("rack1", "", false, "rack1")
	n1.label("node1", map[string]string{"zone": "a"})
	for range 3 {
		n1.mustStart("rack1", "", false, "rack1")
	}
	n1.refuses("rack1", "", false, "the pool rack1 is for nodes with rack=1, and node node1 has no label rack"+remedy)
	n1.del(key)
	n1.mustStart("rack1", "", false, "rack1")
	n1.settle()
	if n := n1.blockCount("rack1"); n != 1 {
		t.Errorf("pods have all of a block, and there are %d\n%s", n, n1.log.String())
	}
	for i := range n1.pods {
		n1.del(attachment.Key{Network: "pods", ContainerID: fmt.Sprint("c", i+1), IfName: "eth0"})
	}
	n1.settle()
	if n := n1.blockCount("rack1"); n != 0 {
		t.Errorf("%d blocks of the pool are left", n)
	}
	n1.label("node1", map[string]string{"rack": "1", "zone": "a"})
	n1.settle()
	if n := n1.blockCount("rack1"); n != 1 {
		t.Errorf("the node is back, and has %d blocks\n%s", n, n1.log.String())
	}
}

// A pod can ask for an address, and the pool is of another rack.
func TestARequestedAddressOfAnotherRack(t *testing.T) {
	n1, n2 := newRacks(t)
	n1.mustStart("rack1", "", false, "rack1")
	_, err := n2.Acquire(t.Context(), pool.Acquisition{Network: "pods", Pool: "rack1", Owner: ownerOf("web-0"), Requested: netip.MustParseAddr("10.1.1.9")})
	wantError(t, "it asks", err, "the pod asks for 10.1.1.9 of pool rack1, which is not for this node: let the pod run on nodes with rack=1")
}

// Each node takes the pool of its rack. The store knows it, and the agent corrects it when labels or pools change.
func TestChoicesFollowLabelsAndPools(t *testing.T) {
	n1, n2 := newRacks(t)
	chosen := func(s *testNode, want string) {
		t.Helper()
		g, err := s.store.Granted(t.Context())
		if s.noError(err); !maps.Equal(g.Chosen, map[string]string{racks: want}) && (want != "" || len(g.Chosen) > 0) {
			t.Errorf("%s takes %v, want %s", s.name, g.Chosen, want)
		}
	}
	n1.mustStart(racks, "", false, "rack1")
	n2.mustStart(racks, "", false, "rack2")
	chosen(n1, "rack1")
	requests := len(n1.Requests())
	if n1.mustStart(racks, "", false, "rack1"); len(n1.Requests()) > requests {
		t.Errorf("the agent has asked %v", n1.Requests()[requests:])
	}

	n1.takeMissed()
	n1.label("node1", map[string]string{"rack": "2"})
	n, err := n1.Node(t.Context(), "node1")
	n1.noError(err)
	for _, news := range []bool{true, false} { // The kubelet changes the object all the time.
		n1.watches(t.Context(), func(h pool.Handler) { h.NodeChanged(n) })
		if n1.takeMissed() != news {
			t.Errorf("the labels have changed: %t", !news)
		}
	}
	n1.Reconcile(t.Context())
	chosen(n1, "rack2")
	n1.mustStart(racks, "", false, "rack2")

	n2.EditPool("rack1", func(p *pool.Pool) { p.Spec.NodeSelector = map[string]string{"rack": "3"} })
	n2.EditPool("rack2", func(p *pool.Pool) { p.Spec.NodeSelector = map[string]string{"rack": "4"} })
	n2.changed("rack2")
	chosen(n2, "")
	n2.refuses(racks, "", false, `of the pools in "oneOf" none is for this node: the pool rack1 is for nodes with rack=3, and node node2 has rack=2; `+
		`the pool rack2 is for nodes with rack=4, and node node2 has rack=2: correct spec.nodeSelector or the labels of the node`)
	for _, name := range []string{"rack1", "rack2"} {
		n2.EditPool(name, func(p *pool.Pool) { p.Spec.NodeSelector = nil })
	}
	n2.refuses(racks, "", false, `the pools rack1 and rack2 in "oneOf" are all for node node2, and it can take only one: correct spec.nodeSelector or the labels of the node`)
	n2.EditPool("rack2", func(p *pool.Pool) { p.Spec.NodeSelector = map[string]string{"rack": "4"} })
	n2.mustStart(racks, "", false, "rack1")
	chosen(n2, "rack1")
}

// Both racks have one subnet, in two segments. The nodes have the same addresses. A node that comes to the other rack gives none that a pod of it
// still has.
func TestRacksWithOneSubnet(t *testing.T) {
	n1 := newTestNode(t)
	for _, rack := range []string{"1", "2"} {
		n1.label("node"+rack, map[string]string{"rack": rack})
		n1.AddPool(pool.Pool{Metadata: pool.Meta{Name: "rack" + rack}, Spec: pool.Spec{
			Subnet: "10.9.0.0/16", Ranges: []string{"10.9.1.0-10.9.1.7"}, BlockSize: 4, NodeSelector: map[string]string{"rack": rack}, Segment: "rack" + rack,
		}})
	}
	n2 := n1.peer("node2")
	n2.mustStart(racks, "", false, "rack2")
	given := map[netip.Addr]attachment.Key{}
	for range 8 {
		a, key := n1.mustStart(racks, "", false, "rack1")
		given[a] = key
	}
	n1.label("node1", map[string]string{"rack": "2"})
	n1.Reconcile(t.Context())
	_, _, err := n1.start(racks, "", false)
	wantError(t, "pods of rack1 have all addresses of its block of rack2", err, "no address of the pool rack2 is free, and no other node has given one in time")
	for _, key := range given {
		n1.del(key)
	}
	again := map[netip.Addr]bool{}
	for range 4 {
		a, _ := n1.mustStart(racks, "", false, "rack2")
		again[a] = true
	}
	if len(given) != 8 || len(again) != 4 {
		t.Errorf("it has given %v, and then %v", given, again)
	}
}

// An API that does not answer changes nothing of what a node takes.
func TestChoicesWithoutAnAnswer(t *testing.T) {
	n1, _ := newRacks(t)
	n1.mustStart(racks, "", false, "rack1")
	n1.BeforeRequest = func(request string) error {
		if strings.HasPrefix(request, "get node") {
			return errAway
		}
		return nil
	}
	n1.advance(maxSilence)
	if _, err := n1.readNode(t.Context()); err == nil {
		t.Error("it has read the node")
	}
	n1.settle()
	if g, err := n1.store.Granted(t.Context()); err != nil || g.Chosen[racks] != "rack1" {
		t.Errorf("it takes %v, %v", g.Chosen, err)
	}
	n1.mustStart(racks, "", false, "rack1")
}

// An owner comes to another rack. It gets an address there only if it may roam. Then its claim on the pool before ends, and the node before
// gives the address back.
func TestAnOwnerComesToAnotherRack(t *testing.T) {
	for name, test := range map[string]struct {
		relabelled bool
	}{"another node": {false}, "the labels of its node change": {true}} {
		t.Run(name, func(t *testing.T) {
			n1, next := newRacks(t)
			x, key := n1.mustStart(racks, "web-0", false, "rack1")
			next.mustStart(racks, "", false, "rack2")
			n1.del(key)
			if test.relabelled {
				n1.label("node1", map[string]string{"rack": "2"})
				n1.Reconcile(t.Context())
				next = n1
			}
			next.refuses(racks, "web-0", false, fmt.Sprintf(`the owner has %s of pool rack1, which is not for this node: let the pod run on nodes with rack=1, or set "roam": true`, x))
			y, key := next.mustStart(racks, "web-0", true, "rack2")
			owner := ownerOf("web-0")
			if _, err := n1.storeController.API.Claim(t.Context(), pool.ClaimName("rack1", "eth0", owner)); !errors.Is(err, pool.ErrNotFound) {
				t.Errorf("its claim in rack1: %v", err)
			}
			if c, err := n1.storeController.API.Claim(t.Context(), pool.ClaimName("rack2", "eth0", owner)); err != nil || c.Status.Address != y || c.Status.Active.Node != next.name {
				t.Errorf("its claim in rack2: %+v, %v", c, err)
			}
			n1.settle()
			wantEqual(t, "the address before", n1.leaseState(x), "free")
			next.del(key)
			if again, _ := next.mustStart(racks, "web-0", false, "rack2"); again != y {
				t.Errorf("then it has %s, want %s", again, y)
			}
		})
	}
}

// An owner comes to another rack while the pool of its rack recovers: whether it has an address there is not known.
func TestAnOwnerComesToAnotherRackInARecovery(t *testing.T) {
	n1, n2 := newRacks(t)
	_, key := n1.mustStart(racks, "web-0", false, "rack1")
	n2.mustStart(racks, "", false, "rack2")
	n1.del(key)
	n1.Forget(pool.ClaimName("rack1", "eth0", ownerOf("web-0")))
	n1.EditPool("rack1", func(p *pool.Pool) { *p = p.WithRecovery(&pool.Recovery{Message: "etcd was restored"}) })
	for _, roam := range []bool{false, true} {
		_, _, err := n2.start(racks, "web-0", roam)
		if wantError(t, "in the recovery", err, "the pool rack1 recovers, and which addresses owners have is known after that: etcd was restored"); !errors.Is(err, pool.ErrUnavailable) {
			t.Errorf("the error is %v", err)
		}
	}
}

// A roaming owner's pod before is forgotten late: its node was away. It gives the address back, and makes no second claim.
func TestAnOwnerComesToAnotherRackBeforeItsPodEnds(t *testing.T) {
	n1, n2 := newRacks(t)
	x, key := n1.mustStart(racks, "web-0", true, "rack1")
	n2.mustStart(racks, "", false, "rack2")
	n2.mustStart(racks, "web-0", true, "rack2")
	n1.advance(3 * time.Minute)
	n1.Reconcile(t.Context())
	n1.del(key)
	n1.settle()
	wantEqual(t, "the address before", n1.leaseState(x), "free")
	if c, err := n1.storeController.API.Claim(t.Context(), pool.ClaimName("rack1", "eth0", ownerOf("web-0"))); !errors.Is(err, pool.ErrNotFound) {
		t.Errorf("its claim in rack1: %+v, %v", c, err)
	}
}

// A machine does not migrate to another rack: it runs on with its address.
func TestAMachineDoesNotMigrateToAnotherRack(t *testing.T) {
	n1, n2 := newRacks(t)
	n1.mustStart(racks, "", false, "rack1")
	n2.mustStart(racks, "", false, "rack2")
	x, _ := n1.mustStartVM(virtualMachine("rack1", "u1"), nil)
	a := virtualMachine("rack2", "u2", "u1")
	a.Roam = true
	_, err := n2.Acquire(t.Context(), a)
	wantError(t, "it migrates", err, "the owner has "+x.String()+" of pool rack1, which is not for this node: let the pod run on nodes with rack=1")
	a.Siblings = nil
	if found, err := n2.Acquire(t.Context(), a); err != nil || found.Address.IsValid() {
		t.Errorf("it starts anew: %+v, %v", found, err)
	}
}

// The owner's address is of a pool by its name, and the pod starts in another rack. Where the address waits, it is given whatever the labels are.
func TestAnOwnerOfAPoolOfAnotherRack(t *testing.T) {
	n1, n2 := newRacks(t)
	n2.label("node2", map[string]string{"rack": "1"})
	n2.mustStart("rack1", "", false, "rack1")
	n2.label("node2", map[string]string{"rack": "2"})
	x, key := n1.mustStart("rack1", "web-0", false, "rack1")
	n1.del(key)
	n2.refuses("rack1", "web-0", false, fmt.Sprintf("the owner has %s of pool rack1, which is not for this node: let the pod run on nodes with rack=1", x))
	n1.label("node1", nil)
	n1.settle()
	if again, _ := n1.mustStart("rack1", "web-0", false, "rack1"); again != x {
		t.Errorf("it has %s, want %s", again, x)
	}
}

// A pool that is being deleted, or is gone, keeps no owner from an address of another one.
func TestAnOwnerOfAPoolThatGoes(t *testing.T) {
	for name, finalizers := range map[string][]string{"it is being deleted": {pool.Finalizer}, "it is gone": nil} {
		t.Run(name, func(t *testing.T) {
			n1, n2 := newRacks(t)
			_, key := n1.mustStart(racks, "web-0", false, "rack1")
			n2.mustStart(racks, "", false, "rack2")
			n1.del(key)
			n1.EditPool("rack1", func(p *pool.Pool) { p.Metadata.Finalizers = finalizers })
			n1.RemovePool("rack1")
			n2.mustStart(racks, "web-0", false, "rack2")
		})
	}
}

// The pool of a rack is replaced by another one. Owners get addresses of that one at their next start.
func TestThePoolOfARackIsReplaced(t *testing.T) {
	n1, _ := newRacks(t)
	_, key := n1.mustStart(racks, "web-0", false, "rack1")
	n1.EditPool("rack2", func(p *pool.Pool) { p.Spec.NodeSelector = map[string]string{"rack": "1"} })
	n1.changed("rack2")
	n1.refuses(racks, "", false, `the pools rack1 and rack2 in "oneOf" are all for node node1, and it can take only one: correct spec.nodeSelector or the labels of the node`)
	n1.RemovePool("rack1")
	n1.del(key)
	n1.mustStart(racks, "web-0", false, "rack2")
	n1.settle()
	if n := n1.blockCount("rack1"); n != 0 {
		t.Errorf("%d blocks of the pool before are left", n)
	}
}
