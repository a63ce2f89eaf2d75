package cluster

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// launcher is the ADD of a pod in which the machine runs, or to which it migrates from the pods with the UIDs from.
func launcher(machine, uid string, from ...string) pool.Acquisition {
	return pool.Acquisition{
		Network: "lan", Pool: "lan", IfName: "eth0", Siblings: from,
		Owner: attachment.Owner{Group: "kubevirt.io", Kind: "VirtualMachine", Namespace: "shop", Name: machine, UID: "uid-of-" + machine},
		Pod:   attachment.Pod{Namespace: "shop", Name: "virt-launcher-" + machine + "-" + uid, UID: uid},
	}
}

// launch starts a pod of a machine as the plugin does. beside says that it has its address beside another node.
func (m *member) launch(t *testing.T, a pool.Acquisition) (p given, beside bool, err error) {
	t.Helper()
	has, err := m.Acquire(t.Context(), a)
	if err != nil {
		return p, false, err
	}
	r := m.request(lease.Policy{Sticky: true, ByOwner: true, Retain: lease.Duration(time.Hour)}, "")
	r.Owner, r.APIOwner, r.Pod, r.QueriedPools = a.Owner, a.Owner, a.Pod, r.Pools
	if has.Address.IsValid() {
		r.OwnerAddresses = []netip.Addr{has.Address}
	}
	if has.Migrating {
		r.MigratingAddresses = r.OwnerAddresses
	}
	if p, err = m.add(t.Context(), r); err != nil {
		return p, false, err
	}
	if has.Migrating {
		return p, true, nil
	}
	a.Retain = time.Duration(r.Policy.Retain)
	if err := m.Claim(t.Context(), pool.ClaimedAddress{Acquisition: a, Address: p.address}); err != nil {
		m.del(t, p) // The runtime sends a DEL after an ADD that has failed.
		return p, false, err
	}
	return p, false, nil
}

// mustLaunch is launch that succeeds within some tries.
func (m *member) mustLaunch(t *testing.T, a pool.Acquisition, beside bool) given {
	t.Helper()
	return m.starts(t, func() (given, error) {
		p, is, err := m.launch(t, a)
		if err == nil && is != beside {
			t.Fatalf("%s on %s: beside another node %v, want %v\n%s", a.Pod.UID, m.name, is, beside, m.log.String())
		}
		return p, err
	})
}

// claimNow is the claim of a machine.
func (a *api) claimNow(t *testing.T, users map[string]user, of pool.Acquisition) pool.ClaimStatus {
	t.Helper()
	var c pool.Claim
	users["admin"].must(t, http.MethodGet, claims+"/"+pool.ClaimName(of.Pool, of.IfName, of.Owner), nil, &c)
	return c.Status
}

// holderNow is the node that has the address.
func (a *api) holderNow(t *testing.T, users map[string]user, address netip.Addr) string {
	t.Helper()
	for _, b := range a.blocksNow(t, users) {
		if i := b.Offset(address); i >= 0 {
			h, _ := b.HolderOf(i)
			return h.Node
		}
	}
	return ""
}

// A machine that migrates has its address on both nodes, and nobody else gets it at any time.
func (a *api) migrates(t *testing.T, users map[string]user) {
	all := a.members(t, users, "10.12.0.0/26")
	node1, node2, node3 := all[0], all[1], all[2]
	vm := launcher("db", "u1")
	source := node1.mustLaunch(t, vm, false)

	node2.refuses(t, "node node1 has "+source.address.String(), func() (given, error) { // A machine that is started anew.
		p, _, err := node2.launch(t, launcher("db", "u2", "u0"))
		return p, err
	})
	target := node2.mustLaunch(t, launcher("db", "u2", "u1"), true)
	if c := a.claimNow(t, users, vm); target.address != source.address || c.Active.PodUID != "u1" {
		t.Errorf("%s and %s, the claim is %+v", source.address, target.address, c)
	}
	if node := a.holderNow(t, users, source.address); node != "node1" {
		t.Errorf("before the source ends, node %q has it", node)
	}
	// A second machine waits, and the address does not.
	if _, _, err := node3.launch(t, launcher("db", "u3")); !errors.Is(err, pool.ErrUnavailable) {
		t.Errorf("a pod that is no sibling: %v", err)
	}
	node1.del(t, source)
	await(t, 30*time.Second, "the address to come to node2", func() bool {
		c := a.claimNow(t, users, vm)
		return a.holderNow(t, users, source.address) == "node2" && c.Active.Node == "node2" && c.Active.PodUID == "u2" && c.Epoch == 2
	})
	node1.del(t, source) // A late DEL.
	if held, err := node2.store.HeldBy(t.Context(), target.key); err != nil || len(held) != 1 || held[0].Address != source.address {
		t.Errorf("the machine has %+v, %v", held, err)
	}
	node2.del(t, target)
	if p := node3.mustLaunch(t, launcher("db", "u4"), false); p.address != source.address {
		t.Errorf("its next start has %s, want %s", p.address, source.address)
	}
}

// A migration that ends before the machine has come leaves nothing.
func (a *api) migratesNot(t *testing.T, users map[string]user) {
	all := a.members(t, users, "10.13.0.0/26")
	node1, node2 := all[0], all[1]
	source := node1.mustLaunch(t, launcher("db", "u1"), false)
	target := node2.mustLaunch(t, launcher("db", "u2", "u1"), true)
	node2.del(t, target)
	await(t, 30*time.Second, "node2 to forget it", func() bool {
		node2.Reconcile(t.Context())
		_, err := node2.store.Get(t.Context(), source.address)
		return errors.Is(err, lease.ErrNotLeased)
	})
	if held, err := node1.store.HeldBy(t.Context(), source.key); err != nil || len(held) != 1 {
		t.Errorf("the source has %+v, %v", held, err)
	}
	if node := a.holderNow(t, users, source.address); node != "node1" {
		t.Errorf("node %q has it", node)
	}
	again := node2.mustLaunch(t, launcher("db", "u3", "u1", "u2"), true)
	node1.del(t, source)
	await(t, 30*time.Second, "the second try to end well", func() bool { return a.holderNow(t, users, again.address) == "node2" })
}

// A node that cannot answer accepts no target: it could give the address to another pod. If it is declared dead during a migration, the
// target's node takes the address.
func (a *api) migratesFromADeadNode(t *testing.T, users map[string]user) {
	all := a.members(t, users, "10.14.0.0/26")
	node2, node3 := all[1], all[2]
	silent, vm := launcher("db", "u1"), launcher("web", "w1")
	node3.mustLaunch(t, silent, false)
	source := node3.mustLaunch(t, vm, false)
	target := node2.mustLaunch(t, launcher("web", "w2", "w1"), true)
	node3.end()
	if _, _, err := node2.launch(t, launcher("db", "u2", "u1")); !errors.Is(err, pool.ErrUnavailable) {
		t.Errorf("a target that nobody has accepted: %v", err)
	}
	defer a.taint(t, users, "node3", false)
	a.declareDead(t, users, "node3")
	await(t, 30*time.Second, "node2 to take the address", func() bool { return a.holderNow(t, users, source.address) == "node2" })
	await(t, 30*time.Second, "its claim", func() bool { return a.claimNow(t, users, vm).Active.PodUID == "w2" })
	if held, err := node2.store.HeldBy(t.Context(), target.key); err != nil || len(held) != 1 || held[0].Address != source.address {
		t.Errorf("the machine has %+v, %v", held, err)
	}
}

// Claims follow what the stores have: one that somebody deletes is made again, one that tells of another address goes, and an owner with
// another address leaves the one before.
func (a *api) claimsFollow(t *testing.T, users map[string]user) {
	all := a.members(t, users, "10.15.0.0/26")
	node1, node2 := all[0], all[1]
	vm := launcher("db", "u1")
	p := node1.mustLaunch(t, vm, false)
	must(t, node1.store.MarkClaimed(t.Context(), p.address, vm.Owner))
	path := claims + "/" + pool.ClaimName(vm.Pool, vm.IfName, vm.Owner)
	users["admin"].must(t, http.MethodDelete, path, m{}, nil)
	node1.Reconcile(t.Context())
	if c := a.claimNow(t, users, vm); c.Address != p.address || c.Active.PodUID != "u1" || c.Retain != "1h0m0s" {
		t.Errorf("the claim that was made again: %+v", c)
	}
	node1.del(t, p)
	other := node2.must(t, node2.request(lease.Policy{}, "")).address
	node2.end() // Its agent would delete the claim: no lease there is the owner's.
	must(t, node2.Claim(t.Context(), pool.ClaimedAddress{Acquisition: launcher("db", "u2"), Address: other}))
	if c := a.claimNow(t, users, vm); c.Address != other || c.Active.Node != "node2" || c.Epoch != 2 || c.Retain != "" {
		t.Errorf("the claim of the other address: %+v", c)
	}
	node1.Reconcile(t.Context())
	if l, err := node1.store.Get(t.Context(), p.address); !errors.Is(err, lease.ErrNotLeased) {
		t.Errorf("the address that nobody asks for any more: %s, %v", l.Describe(), err)
	}
	if has := slices.ContainsFunc(a.blocksNow(t, users), func(b pool.Block) bool { return b.Offset(p.address) >= 0 }); !has {
		t.Error("the node has given it back at once")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
