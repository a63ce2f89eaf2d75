package cluster

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/test/fresh"
)

// onTheWire has nodes share pools on one VLAN. What counts is what a host there hears: it never hears two pods with one address.
func (a *api) onTheWire(t *testing.T, users map[string]user) {
	t.Run("pods come and go", func(t *testing.T) { a.comeAndGo(t, users) })
	t.Run("as many pods as addresses", func(t *testing.T) { a.handedOver(t, users) })
	t.Run("a node is off", func(t *testing.T) { a.nodeOff(t, users) })
	t.Run("a node that is declared dead is not off", func(t *testing.T) { a.nodeNotOff(t, users) })
	t.Run("a machine behind a bridge", func(t *testing.T) { a.machineMoves(t, users) })
	t.Run("an address is given by hand", func(t *testing.T) { a.byHand(t, users) })
}

// Pods start and end on all nodes, as many as there are addresses. Four of them keep theirs and change the node, so the other pods
// get those that are left.
func (a *api) comeAndGo(t *testing.T, users map[string]user) {
	const size, owners, fewest = 12, 4, 5
	v := a.vlan(t, users, 51, size)
	least, length := 4*time.Second, 2*time.Minute
	if os.Getenv("RELINK_LONG") != "" {
		least = length
	}
	begun, has := time.Now(), make([][]netip.Addr, owners)
	// done says whether the test has lasted long enough. On a busy machine pods are slow.
	done := func() bool {
		lasts := time.Since(begun)
		return t.Failed() || lasts > length || lasts > least && v.moved(netip.Addr.Is4) >= fewest && v.moved(netip.Addr.Is6) >= fewest
	}
	var all sync.WaitGroup
	for i := range size {
		keys, name := forgets, fmt.Sprintf("job-%d", i)
		if i < owners {
			keys, name = keeps, fmt.Sprintf("web-%d", i)
		}
		all.Go(func() {
			for !done() {
				on := v.nodes[rand.IntN(3)]
				p, refused := v.start(on, name, keys)
				for refused != nil && refused.Code == types.ErrTryAgainLater && !done() { // A kubelet does not try it on another node.
					p, refused = v.start(on, name, keys)
				}
				if refused != nil {
					if refused.Code != types.ErrTryAgainLater {
						t.Errorf("%s: %s", p.name, refused)
					}
					continue
				}
				if i < owners && has[i] != nil && !slices.Equal(has[i], p.addresses) {
					t.Errorf("%s has %v, and its owner %v", p.name, p.addresses, has[i])
				}
				if i < owners {
					has[i] = p.addresses
				}
				time.Sleep(2*askEvery + rand.N(200*time.Millisecond))
				v.endSomehow(p)
			}
		})
	}
	all.Wait()
	v.unconfused()
	for family, of := range map[string]func(netip.Addr) bool{"IPv4": netip.Addr.Is4, "IPv6": netip.Addr.Is6} {
		if ports := v.moved(of); ports < fewest {
			t.Errorf("an %s address was heard on another node than before only %d times", family, ports)
		}
	}
}

// moved is how often an address was heard on another node than before.
func (v *vlan) moved(of func(netip.Addr) bool) int {
	_, ports := addressMoves(v.ears.heard(), of)
	return ports
}

// endSomehow ends a pod in one of the ways in which pods end.
func (v *vlan) endSomehow(p *vlanPod) {
	v.Helper()
	switch rand.IntN(4) {
	case 0: // The namespace goes first.
		v.ends(p)
		fresh.Remove(v.T, p.ns)
		v.del(p)
	case 1: // A second DEL comes late.
		v.end(p)
		time.Sleep(rand.N(300 * time.Millisecond))
		v.del(p)
	default:
		v.end(p)
	}
}

// All addresses are in use. The next pod starts only after another one has ended, with its addresses, on another node.
func (a *api) handedOver(t *testing.T, users map[string]user) {
	v := a.vlan(t, users, 52, 8)
	var pods []*vlanPod
	for i := range 8 {
		pods = append(pods, v.must(v.nodes[i%2], fmt.Sprintf("job-%d", i), forgets))
	}
	v.hears(pods...)
	v.refused(v.nodes[2], "next", forgets, "is free, and no other node has given one in time")
	for _, p := range []*vlanPod{pods[0], pods[5]} {
		v.end(p)
		next := v.must(v.nodes[2], "next", forgets)
		if !slices.Equal(next.addresses, p.addresses) {
			t.Errorf("%s has %v, want those that are left: %v", next.name, next.addresses, p.addresses)
		}
		v.hears(next)
	}
	v.unconfused()
}

// tainted has node3 declared dead, and fenced. Its agent ends. On it are web-0, which keeps its addresses, and two others. The network
// has eight addresses.
func (a *api) tainted(t *testing.T, users map[string]user, number int, before func(v *vlan, dead []*vlanPod)) (v *vlan, dead []*vlanPod) {
	t.Helper()
	v = a.vlan(t, users, number, 8)
	dead = append(dead, v.must(v.nodes[2], "web-0", keeps))
	for _, name := range []string{"job-0", "job-1"} {
		dead = append(dead, v.must(v.nodes[2], name, forgets))
	}
	v.hears(append(dead, v.must(v.nodes[0], "job-2", forgets), v.must(v.nodes[1], "job-3", forgets))...)
	v.nodes[2].end()
	before(v, dead)
	t.Cleanup(func() { a.taint(t, users, "node3", false) })
	a.declareDead(t, users, "node3")
	return v, dead
}

// The machine is off. Other pods get all that it had, and the owner gets its own.
func (a *api) nodeOff(t *testing.T, users map[string]user) {
	v, dead := a.tainted(t, users, 53, func(v *vlan, dead []*vlanPod) {
		v.off(v.nodes[2])
		v.refused(v.nodes[1], "web-0", keeps, "node node3 has "+dead[0].addresses[0].String()+" of the pool lan, and has not handed it over")
	})
	owner := v.must(v.nodes[1], "web-0", keeps)
	if !slices.Equal(owner.addresses, dead[0].addresses) {
		t.Errorf("%s has %v, want its own: %v", owner.name, owner.addresses, dead[0].addresses)
	}
	all := append(v.fill(5), owner)
	for _, p := range dead {
		if !slices.ContainsFunc(all, func(now *vlanPod) bool { return slices.Contains(now.addresses, p.addresses[0]) }) {
			t.Errorf("nobody has %v of %s", p.addresses, p.name)
		}
	}
	v.hears(all...)
	v.unconfused()
}

// Somebody has declared the node dead, and its pods still answer. Nobody else gets their addresses before they are gone.
func (a *api) nodeNotOff(t *testing.T, users map[string]user) {
	v, dead := a.tainted(t, users, 54, func(*vlan, []*vlanPod) {})
	v.refused(v.nodes[1], "web-0", keeps, "is in use on the network by "+dead[0].mac)
	all := v.fill(3)
	for _, p := range all {
		for _, other := range dead {
			if slices.ContainsFunc(p.addresses, func(a netip.Addr) bool { return slices.Contains(other.addresses, a) }) {
				t.Errorf("%s has %v, and %s still answers for one of them", p.name, p.addresses, other.name)
			}
		}
	}
	await(t, time.Minute, "each address of the dead node to be tried", func() bool { // An ADD tries as many as its time allows.
		v.refused(v.nodes[0], "one more", forgets, "is free, and no other node has given one in time")
		return v.areInUse(dead[1:])
	})
	v.hears(all...)
	v.off(v.nodes[2])
	owner := v.must(v.nodes[0], "web-0", keeps)
	if !slices.Equal(owner.addresses, dead[0].addresses) {
		t.Errorf("%s has %v, want its own: %v", owner.name, owner.addresses, dead[0].addresses)
	}
	v.hears(owner)
	v.unconfused()
}

// areInUse says whether node1 and node2 have tried the addresses of these pods of one family, and have found them in use. When a family
// has no address left, those of the other one are not tried any more.
func (v *vlan) areInUse(dead []*vlanPod) bool {
	v.Helper()
	found := map[netip.Addr]string{}
	for _, n := range v.nodes[:2] {
		leases, err := n.store.List(v.Context())
		if err != nil {
			v.Fatal(err)
		}
		for _, l := range leases {
			if l.State == lease.Quarantined && l.Conflict {
				found[l.Address] = l.Reason
			}
		}
	}
	free := map[int]bool{}
	for _, p := range dead {
		for family, address := range p.addresses {
			free[family] = free[family] || found[address] != "in use by "+p.mac
		}
	}
	return len(free) == 2 && (!free[0] || !free[1])
}

// fill starts so many pods on node1 and node2.
func (v *vlan) fill(n int) (all []*vlanPod) {
	v.Helper()
	all = make([]*vlanPod, n)
	inparallel.Do(n, n, func(i int) { all[i] = v.must(v.nodes[i%2], fmt.Sprintf("new-%d", i), forgets) })
	return all
}

// The test finds it if two pods have one address.
func (a *api) byHand(t *testing.T, users map[string]user) {
	v := a.vlan(t, users, 55, 8)
	p := v.must(v.nodes[0], "web-0", keeps)
	v.hears(p)
	second := v.pod(v.nodes[1], "by-hand")
	second.addresses = p.addresses
	fresh.Run(t, second.on.ns, fmt.Sprintf("ip link add link vlan0 name hand0 address %s type macvlan mode bridge", second.mac))
	fresh.Run(t, second.on.ns, "exec 9<"+second.ns+"; ip link set hand0 netns /proc/self/fd/9 name eth0")
	fresh.Run(t, second.ns, fmt.Sprintf("ip link set eth0 up; ip address add %s/24 dev eth0; ip address add %s/64 dev eth0 nodad", p.addresses[0], p.addresses[1]))
	v.hears(second)
	time.Sleep(2 * askEvery)
	wrong := v.confusions()
	for _, address := range p.addresses {
		if !slices.ContainsFunc(wrong, func(w string) bool {
			return strings.HasPrefix(w, address.String()+":") && strings.Contains(w, p.mac) && strings.HasSuffix(w, "answer the same question")
		}) {
			t.Errorf("two pods answer for %s, and the test finds only\n%s", address, strings.Join(wrong, "\n"))
		}
	}
}
