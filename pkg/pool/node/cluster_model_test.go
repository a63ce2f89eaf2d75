package node

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/test/pooltest"
)

// owners are those of pods. Pods without a sticky address have none.
var owners = []string{"", "", "web-0", "web-1", "web-2"}

func (w *clusterModel) drawNode(what string) *modelNode {
	return w.nodes[rapid.IntRange(0, len(w.nodes)-1).Draw(w.T, what)]
}

func (w *clusterModel) reconcileOne(*rapid.T) { w.drawNode("who looks").reconcile() }

// watchEvent is a watch that names a block.
func (w *clusterModel) watchEvent(*rapid.T) {
	h, name := w.drawNode("who hears"), pool.BlockName("lan", rapid.Int64Range(0, 3).Draw(w.T, "block"))
	var b pool.Block
	change := func(to pool.Handler) { to.BlockChanged(&b, &b) }
	w.withoutFault(func(ctx context.Context) {
		if b, _ = w.Block(ctx, name); b.Metadata.Name == "" {
			b.Metadata.Name = name
			change = func(to pool.Handler) { to.BlockChanged(&b, nil) }
		}
	})
	h.run(func(ctx context.Context) { h.watches(ctx, change) })
}

func (w *clusterModel) passTime(*rapid.T) {
	for range rapid.SampledFrom([]int{1, 1, 3, 12, 25}).Draw(w.T, "half minutes") {
		w.pass(30 * time.Second)
		w.reconcileController(nil)
	}
}

// reconcileController is a look of the controller.
func (w *clusterModel) reconcileController(*rapid.T) {
	must(w.T, pooltest.Reconcile(context.Background(), w.API, w.controller.Reconcile))
}

func (w *clusterModel) toggle(*rapid.T) {
	h := w.drawNode("who")
	h.cut = !h.cut
}

// step is something that an agent does.
func (w *clusterModel) step(h *modelNode) {
	if rapid.Bool().Draw(w.T, "a pod") {
		w.startOn(h, rapid.SampledFrom(owners).Draw(w.T, "owner"))
		return
	}
	h.run(func(ctx context.Context) { h.Reconcile(ctx) })
}

// crash ends the agent at any of its requests. Then it starts anew.
func (w *clusterModel) crash(*rapid.T) {
	h := w.drawNode("whose agent ends")
	cut := h.cut
	w.withFault(fault{after: rapid.IntRange(1, 12).Draw(w.T, "requests"), kind: rapid.SampledFrom([]string{endsBefore, endsAfter}).Draw(w.T, "kind")}, func() { w.step(h) })
	h.cut = cut
	if h.on {
		w.journalf("the agent of %s starts anew", h.name)
		h.start()
		w.seen["crashed"]++
	}
}

func (w *clusterModel) loseAnswer(*rapid.T) {
	h := w.drawNode("who loses an answer")
	w.withFault(fault{after: rapid.IntRange(1, 12).Draw(w.T, "requests"), kind: losesOne}, func() { w.step(h) })
}

// interleave is two nodes that do something at the same time.
func (w *clusterModel) interleave(*rapid.T) {
	h, o := w.drawNode("who"), w.drawNode("who comes between")
	if h == o {
		return
	}
	meanwhile := func() { w.seen["met"]++; w.step(o) }
	w.withFault(fault{after: rapid.IntRange(1, 12).Draw(w.T, "requests"), kind: between, meanwhile: meanwhile}, func() { w.step(h) })
}

func (w *clusterModel) reboot(*rapid.T) {
	h := w.drawNode("who boots")
	h.powerOff()
	w.taint(h, false)
	h.powerOn()
}

// declareDead is a node that is off, and that a person declares dead.
func (w *clusterModel) declareDead(*rapid.T) {
	h := w.drawNode("who dies")
	if rapid.Bool().Draw(w.T, "it does not") {
		return
	}
	h.powerOff()
	w.taint(h, true)
	w.reconcileController(nil)
	w.backup = nil
	w.seen["declared dead"]++
}

// repair ends all trouble.
func (w *clusterModel) repair(*rapid.T) {
	for _, h := range w.nodes {
		w.taint(h, false)
		h.cut = false
		if !h.on {
			h.powerOn()
		}
	}
	w.EditPool("lan", func(p *pool.Pool) { p.Spec.Paused = false })
	for range 4 {
		w.reconcileAll()
		w.pass(10 * time.Second)
	}
}

func (w *clusterModel) pause(*rapid.T) {
	w.EditPool("lan", func(p *pool.Pool) { p.Spec.Paused = !p.Spec.Paused })
}

// exclude excludes one address. Its owner gets another one.
func (w *clusterModel) exclude(*rapid.T) {
	if rapid.IntRange(0, 3).Draw(w.T, "rarely") > 0 {
		return
	}
	x := netip.AddrFrom4([4]byte{10, 3, 0, rapid.Byte().Draw(w.T, "excluded") % 16})
	w.EditPool("lan", func(p *pool.Pool) { p.Spec.Exclude = []string{x.String()} })
	w.journalf("%s is excluded", x)
	w.excluded, w.reassignable[x] = x, true
}

func (w *clusterModel) start(*rapid.T) {
	w.startOn(w.drawNode("where"), rapid.SampledFrom(owners).Draw(w.T, "owner"))
}

// startOn is an ADD as the plugin does it, with the answers of the other nodes.
func (w *clusterModel) startOn(h *modelNode, owner string) {
	if !h.on || owner != "" && (w.podRuns(owner) || w.starting == owner) {
		return
	}
	was := w.starting
	w.starting = owner
	defer func() { w.starting = was }()
	h.run(func(ctx context.Context) {
		w.pods++
		key := attachment.Key{Network: "pods", ContainerID: fmt.Sprint("c", w.pods), IfName: "eth0"}
		r := lease.Request{Attachment: key, Pools: []string{"lan"}, Probes: true}
		if owner != "" {
			r.Policy, r.Owner = lease.Policy{Sticky: true}, ownerOf(owner)
		}
		x, err := w.add(ctx, h, r)
		if err != nil {
			w.journalf("%s has nothing for %q: %v", h.name, owner, err)
			must(w.T, ignore(h.store.Release(ctx, key, lease.Policy{}), lease.ErrNotLeased))
			return
		}
		if w.answers(x) && h.needsProbe(x) {
			w.journalf("%s finds %s in use", h.name, x)
			_, err := h.store.Conflict(ctx, key, x, "02:00:00:00:00:01")
			must(w.T, errors.Join(ignore(err, lease.ErrInUse), h.store.Release(ctx, key, lease.Policy{})))
			w.seen["in use"]++
			return
		}
		w.recordAdd(h, key, owner, x)
	})
}

// answers says whether a pod has the address.
func (w *clusterModel) answers(x netip.Addr) bool {
	return slices.ContainsFunc(w.nodes, func(h *modelNode) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(h.pods)), func(p podAddress) bool { return p.address == x })
	})
}

// needsProbe says whether the node gives the address only after a probe: a backup can have a node as declared dead that lives.
func (h *modelNode) needsProbe(x netip.Addr) bool {
	s, err := h.state(context.Background())
	must(h.cluster.T, err)
	return slices.ContainsFunc(s.poolState("lan").Grants, func(g pool.Grant) bool {
		i := g.Offset(x)
		return i >= 0 && g.Addresses[i:i+1] == string(pool.GrantedUnproven)
	})
}

func (w *clusterModel) add(ctx context.Context, h *modelNode, r lease.Request) (x netip.Addr, err error) {
	a := pool.Acquisition{Network: "pods", Pool: "lan", IfName: "eth0", Owner: r.Owner}
	given, err := h.store.Allocate(ctx, r)
	var elsewhere *lease.ElsewhereError
	if errors.As(err, &elsewhere) {
		if r.OwnerAddresses, err = w.acquire(ctx, h, a); err != nil {
			return x, err
		}
		r.QueriedPools = r.Pools
		given, err = h.store.Allocate(ctx, r)
	}
	if errors.Is(err, lease.ErrExhausted) || errors.Is(err, lease.ErrUnconfirmed) {
		h.addWaiting("lan", 1)
		for range 2 {
			_, _ = h.trySupply(ctx, "lan", true) // The next Allocate says what is missing.
			w.reconcileOthers(h)
		}
		h.addWaiting("lan", -1)
		given, err = h.store.Allocate(ctx, r)
	}
	if err != nil {
		return x, err
	}
	if l := given[0]; r.Owner != (attachment.Owner{}) && !l.Claimed {
		if err := h.Claim(ctx, pool.ClaimedAddress{Acquisition: a, Address: l.Address}); err != nil {
			return x, err
		}
		must(w.T, h.store.MarkClaimed(ctx, l.Address, a.Owner))
	}
	return given[0].Address, nil
}

// acquire is Acquire without its waits.
func (w *clusterModel) acquire(ctx context.Context, h *modelNode, a pool.Acquisition) ([]netip.Addr, error) {
	l, err := h.readPool(ctx, "lan")
	if err != nil {
		return nil, err
	}
	c, err := h.API.Claim(ctx, pool.ClaimName("lan", "eth0", a.Owner))
	if errors.Is(err, pool.ErrNotFound) || err == nil && !l.Assignable(c.Status.Address) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for range 3 {
		found, _, err := h.tryAcquire(ctx, a, c.Status.Address)
		if err != nil || found.Address.IsValid() {
			return []netip.Addr{found.Address}, err
		}
		w.reconcileOthers(h)
	}
	return nil, errors.New("it has not come")
}

// reconcileOthers is a look of the other nodes. One of them can be in the midst of a step.
func (w *clusterModel) reconcileOthers(but *modelNode) {
	for _, o := range w.nodes {
		if o != but && w.kind == "" {
			o.run(func(ctx context.Context) { o.Reconcile(ctx) })
		}
	}
}

func (w *clusterModel) podRuns(owner string) bool {
	return slices.ContainsFunc(w.nodes, func(h *modelNode) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(h.pods)), func(p podAddress) bool { return p.owner == owner })
	})
}

// stop is a DEL.
func (w *clusterModel) stop(*rapid.T) {
	h := w.drawNode("where")
	keys := slices.SortedFunc(maps.Keys(h.pods), func(a, b attachment.Key) int { return strings.Compare(a.ContainerID, b.ContainerID) })
	if len(keys) == 0 {
		return
	}
	w.del(h, rapid.SampledFrom(keys).Draw(w.T, "pod"))
}

func (w *clusterModel) del(h *modelNode, key attachment.Key) {
	w.journalf("%s: the pod of %q with %s ends", h.name, h.pods[key].owner, h.pods[key].address)
	must(w.T, h.store.Release(context.Background(), key, lease.Policy{}))
	delete(h.pods, key)
}

// recordAdd is a pod that has got an address. It fails the test if another pod has it, or if it is that of another owner.
func (w *clusterModel) recordAdd(h *modelNode, key attachment.Key, owner string, x netip.Addr) {
	w.journalf("%s gives %s to %q", h.name, x, owner)
	w.seen["given"]++
	for _, o := range w.nodes {
		for _, p := range o.pods {
			if p.address == x {
				w.fail("%s gives %s to %q, and a pod of %q on %s has it", h.name, x, owner, p.owner, o.name)
			}
		}
	}
	for o, had := range w.lastAddress {
		if had == x && o != owner {
			if !w.reassignable[x] {
				w.fail("%s gives %s to %q, and it is that of %q", h.name, x, owner, o)
			}
			delete(w.lastAddress, o)
		}
	}
	if owner != "" {
		if had, is := w.lastAddress[owner]; is && had != x && !w.reassignable[had] && had != w.excluded {
			w.fail("%s gives %s to %q, who has had %s", h.name, x, owner, had)
		}
		w.lastAddress[owner] = x
	}
	if x != w.excluded {
		delete(w.reassignable, x)
	}
	h.pods[key] = podAddress{owner, x}
}

// check fails the test if two stores may give an address, or one store may give what the API does not have for it.
func (w *clusterModel) check(*rapid.T) {
	may, ctx := map[netip.Addr]string{}, context.Background()
	for _, h := range w.nodes {
		s, err := h.state(ctx)
		must(w.T, err)
		if !h.on || !s.Confirmed {
			continue
		}
		for _, g := range s.poolState("lan").Grants {
			b, err := w.Block(ctx, g.Name())
			for _, i := range g.Offsets(pool.GrantedChars) {
				x := g.Address(i)
				if o := may[x]; o != "" {
					w.fail("%s may give %s, and %s may, too", h.name, x, o)
				}
				if may[x] = h.name; !w.recovers && (err != nil || !b.HeldBy(s.me, i)) {
					w.fail("%s may give %s, which it does not have: %v", h.name, x, err)
				}
			}
		}
	}
	p, err := w.Pool(ctx, "lan")
	must(w.T, err)
	if r := p.Status.Recovery; r != nil && !w.recovers {
		w.fail("the API has lost nothing, and the pool recovers: %s", r.Message)
	}
}

// Whatever happens to three nodes, no address is given by two of them, no pod gets the address of another one, and owners keep theirs.
func TestClusterModel(t *testing.T) {
	checks := flag.Lookup("rapid.checks").Value
	if all := checks.String(); all == drawn { // A flag on the command line goes first.
		n := "20"
		if os.Getenv("RELINK_LONG") != "" {
			n = "1000"
		}
		must(t, checks.Set(n))
		defer func() { must(t, checks.Set(all)) }()
	}
	seen := map[string]int{}
	checkUntil(t, func(rt *rapid.T) {
		w := newClusterModel(t, rt, seen)
		rt.Repeat(map[string]func(*rapid.T){
			"look": w.reconcileOne, "hear": w.watchEvent, "wait": w.passTime, "control": w.reconcileController, "flip": w.toggle,
			"crash": w.crash, "crash again": w.crash, "lose": w.loseAnswer, "meet": w.interleave, "meet again": w.interleave, "reboot": w.reboot, "die": w.declareDead, "mend": w.repair, "mend again": w.repair,
			"pause": w.pause, "exclude": w.exclude, "save": w.save, "restore": w.restore, "recover": w.recover,
			"start": w.start, "start another": w.start, "and another": w.start, "and one more": w.start, "stop": w.stop, "": w.check,
		})
		w.leavesNothing(rt)
	}, seen, "given", "crashed", "declared dead")
	t.Log(fmt.Sprint(seen))
}
