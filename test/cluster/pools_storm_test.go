package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/kube"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/pool/controller"
)

// storm is a cluster to which everything happens at once.
type storm struct {
	t     *testing.T
	api   *api
	users map[string]user
	course
	h     *history
	nodes []*busy
	// set is the owner of the sticky addresses, each of one of its pods.
	set   made
	keep  keeper
	moved atomic.Int64
	// begun is when the nodes have begun, backups are what the API had since then, and boots is how many boots there were.
	begun   time.Time
	backups []map[string][]byte
	boots   int
	// lostStores are the stores of machines that never come back.
	lostStores map[string]bool

	mu     sync.Mutex
	events map[string]int
}

// note counts what has happened.
func (w *storm) note(event string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events[event]++
}

// told says what has happened.
func (w *storm) told() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, event := range slices.Sorted(maps.Keys(w.events)) {
		all = append(all, fmt.Sprintf("%s: %d", event, w.events[event]))
	}
	return strings.Join(all, ", ")
}

// newStorm makes the pool of 29 addresses, its controller, the owners, and the nodes.
func (a *api) newStorm(t *testing.T, users map[string]user, c course) *storm {
	t.Helper()
	w := &storm{t: t, api: a, users: users, course: c, h: &history{began: time.Now()}, events: map[string]int{}, lostStores: map[string]bool{}}
	a.newPool(t, users, "10.46.0.0/27")
	w.set = a.setOf(t, "StatefulSet.apps", "default", "storm", m{"replicas": len(owners)})
	pools, log := a.poolsOf(t, "controller", users["controller"]), slog.New(slog.DiscardHandler)
	w.keep = keeper{controller.New(controller.Config{API: pools, Log: log, Owners: kube.NewOwners(a.client(t, "controller", users["controller"]), "", log)}), pools}
	w.keep.SetClock(fastClock())
	for i, name := range []string{"node1", "node2", "node3"} {
		m := a.quiet(t, users, name)
		m.settling = c.settling
		w.nodes = append(w.nodes, &busy{member: m, number: i, storm: w})
	}
	return w
}

// acquisition is what the ADD of a pod of the set asks the agent for.
func (w *storm) acquisition(ordinal int) pool.Acquisition {
	a := acquisition("")
	a.Owner = attachment.Owner{Group: "apps", Kind: "StatefulSet", Namespace: "default", Name: w.set.name, UID: string(w.set.uid), Ordinal: attachment.OrdinalOf(ordinal)}
	return a
}

// run runs the history.
func (w *storm) run() {
	w.t.Helper()
	for _, b := range w.nodes {
		b.api.set(w.lost, false)
		b.start(w.t, b.watch)
	}
	w.begun = time.Now()
	var working sync.WaitGroup
	ctx, cancel := context.WithCancel(w.t.Context())
	defer working.Wait()
	defer cancel()
	ended := make(chan struct{})
	over := func() bool {
		select {
		case <-ended:
			return true
		default:
			return w.t.Failed()
		}
	}
	for _, b := range w.nodes {
		working.Go(func() { b.work(over) })
	}
	for i := range owners {
		working.Go(func() { w.moves(i, over) })
	}
	working.Go(func() {
		for ctx.Err() == nil {
			_ = w.keep.Reconcile(ctx) // The API can be away.
			time.Sleep(200 * time.Millisecond)
		}
	})
	defer close(ended)
	for !w.enough() {
		w.event()
	}
}

// enough says whether the history is long enough. On a busy machine, and with faults that come at a bad time, owners move seldom.
func (w *storm) enough() bool {
	lasts := time.Since(w.begun)
	return w.t.Failed() || lasts > w.length+30*time.Second || lasts > w.length && w.moved.Load() >= fewestMoves && w.h.gets() >= fewestGets
}

// event draws what happens to the cluster.
func (w *storm) event() {
	w.t.Helper()
	time.Sleep(w.interval/2 + rand.N(w.interval))
	if w.restores {
		w.backups = append(w.backups, w.api.values(w.t))
	}
	b := w.nodes[rand.IntN(len(w.nodes))]
	switch n := rand.IntN(4); {
	case n == 0 && w.restores:
		w.restore()
	case n < 2:
		w.dies(b)
		w.comesBack(b)
	case n < 3:
		w.dies(b)
		w.replaced(b)
	}
}

// dies switches the node off, and a person declares it dead. Sometimes the API forgets it.
func (w *storm) dies(b *busy) {
	w.t.Helper()
	b.powerOff()
	time.Sleep(rand.N(w.interval))
	w.api.taint(w.t, w.users, b.name, true)
	w.awaitFence(b)
	w.note("a node is declared dead")
	if w.restores && rand.IntN(3) == 0 {
		w.restore()
	}
	time.Sleep(rand.N(w.interval))
}

// awaitFence waits until the node has nothing any more.
func (w *storm) awaitFence(b *busy) {
	w.t.Helper()
	await(w.t, 30*time.Second, b.name+" to be fenced", func() bool {
		return !slices.ContainsFunc(w.api.blocksNow(w.t, w.users), func(o pool.Block) bool {
			return slices.ContainsFunc(o.Status.Holders, func(h pool.Holder) bool { return h.Node == b.name && h.Fenced == "" })
		})
	})
}

// comesBack boots a node that was declared dead. The taint goes a while later.
func (w *storm) comesBack(b *busy) {
	w.t.Helper()
	w.boots++
	b.boot(fmt.Sprint("boot-", w.boots))
	time.Sleep(rand.N(w.interval))
	w.api.taint(w.t, w.users, b.name, false)
	w.note("a dead node comes back")
}

// replaced deletes the object of a dead node. Another machine comes under its name, with an empty disk.
func (w *storm) replaced(b *busy) {
	w.t.Helper()
	w.deleteNode(b)
	if g, err := b.store.Granted(w.t.Context()); err == nil { // It has had a pod.
		w.lostStores[g.ID] = true
	}
	w.users["admin"].must(w.t, http.MethodPost, "/api/v1/nodes", m{"metadata": m{"name": b.name}}, nil)
	b.dir = w.t.TempDir()
	w.boots++
	b.boot(fmt.Sprint("boot-", w.boots))
	w.note("a dead node is replaced")
}

// deleteNode deletes the object of a dead node, and waits until no block has it.
func (w *storm) deleteNode(b *busy) {
	w.t.Helper()
	w.users["admin"].must(w.t, http.MethodDelete, "/api/v1/nodes/"+b.name, m{}, nil)
	await(w.t, 30*time.Second, b.name+" to leave all blocks", func() bool {
		return !slices.ContainsFunc(w.api.blocksNow(w.t, w.users), func(o pool.Block) bool {
			return slices.ContainsFunc(o.Status.Holders, func(h pool.Holder) bool { return h.Node == b.name })
		})
	})
}

// restore restores the pools from one of the last backups, by docs/pool-runbooks.md.
func (w *storm) restore() {
	w.t.Helper()
	w.api.stop()
	before := w.backups[max(0, len(w.backups)-1-rand.IntN(4))]
	w.api.rollBack(w.t, before)
	w.api.start(w.t)
	w.api.beginRecovery(w.t, w.users)
	w.fenceLost()
	w.backups = nil // No backup is older than one that was restored.
	since := time.Now()
	await(w.t, 2*time.Minute, "the recovery to be over", func() bool {
		r := w.api.recovery(w.t, w.users)
		for _, b := range w.nodes {
			// The log names the pods that have to be deleted. A person can also delete more.
			if late := time.Since(since) > 15*time.Second; late && r.Message != "" && !slices.Contains(r.Asserted, b.name) && b.endAll() {
				w.note("pods are deleted by the runbook")
			}
		}
		return w.api.recovered(w.t, w.users)
	})
	w.users["admin"].must(w.t, http.MethodPatch, "/apis/"+pool.Group+"/"+pool.Version+"/addresspools/lan", m{"spec": m{"paused": false}}, nil)
	w.backups = append(w.backups, w.api.values(w.t))
	w.note("a backup is restored")
}

// fenceLost fences the stores of replaced machines that the backup has, as a person does for a node with a new disk.
func (w *storm) fenceLost() {
	w.t.Helper()
	env := "KUBECONFIG=" + w.api.operatorConfig(w.t)
	fenced := map[string]bool{}
	for _, b := range w.api.blocksNow(w.t, w.users) {
		for _, h := range b.Status.Holders {
			if !w.lostStores[h.Store] || h.Fenced != "" || fenced[h.Store] {
				continue
			}
			fenced[h.Store] = true
			w.note("the store of a replaced node is fenced by hand")
			if said, code := fenceBy(w.t, env, h.Node, "--yes", "--store", h.Store); code != 0 {
				w.t.Errorf("fence %s: status %d\n%s", h.Store, code, said)
			}
		}
	}
}

// moves starts the owner's pod on one node after the other until it is over, and counts how often it has moved.
func (w *storm) moves(ordinal int, over func() bool) {
	a, last := w.acquisition(ordinal), ""
	for !over() {
		b := w.nodes[rand.IntN(len(w.nodes))]
		p, err := b.starts(func(ctx context.Context) (given, error) {
			return b.tryAcquired(ctx, a, lease.Policy{Sticky: true, ByOwner: true})
		})
		if p.address.IsValid() { // Also if the claim has failed.
			time.Sleep(rand.N(w.stay))
			b.ends(p)
		}
		if err == nil && b.name != last {
			if last != "" {
				w.moved.Add(1)
			}
			last = b.name
		}
	}
}

// busy is a node of the history. restarts excludes a restart of the agent, and of the node, while an ADD asks it.
type busy struct {
	*member
	storm    *storm
	number   int
	restarts sync.RWMutex
	off      bool
	// podsMu guards pods, which are those that run.
	podsMu sync.Mutex
	pods   []given
}

// starts starts a pod, unless the node is off. The pod can have an address although its ADD has failed.
func (b *busy) starts(add func(context.Context) (given, error)) (p given, err error) {
	b.restarts.RLock()
	defer b.restarts.RUnlock()
	if b.off {
		time.Sleep(time.Millisecond)
		return p, errLost
	}
	ctx, cancel := context.WithTimeout(b.storm.t.Context(), time.Second)
	defer cancel()
	called := time.Now()
	if p, err = add(ctx); p.address.IsValid() {
		b.podsMu.Lock()
		defer b.podsMu.Unlock()
		b.storm.h.record(b.number, handover{p.address, p.key.ContainerID, true}, called)
		b.pods = append(b.pods, p)
	}
	return p, err
}

// ends ends a pod, unless it has ended with its node.
func (b *busy) ends(p given) {
	b.podsMu.Lock()
	defer b.podsMu.Unlock()
	i := slices.Index(b.pods, p)
	if i < 0 {
		return
	}
	called := time.Now()
	if err := b.store.Release(b.storm.t.Context(), p.key, lease.Policy{}); err != nil {
		b.storm.t.Errorf("%s: DEL: %v", b.name, err)
	}
	b.storm.h.record(b.number, handover{p.address, p.key.ContainerID, false}, called)
	b.pods = slices.Delete(b.pods, i, i+1)
}

// running are the pods that run.
func (b *busy) running() []given {
	b.podsMu.Lock()
	defer b.podsMu.Unlock()
	return slices.Clone(b.pods)
}

// endAll ends all pods, and says whether there was one.
func (b *busy) endAll() bool {
	all := b.running()
	for _, p := range all {
		b.ends(p)
	}
	return len(all) > 0
}

// work starts and ends pods without an owner until it is over. Faults happen to the node meanwhile.
func (b *busy) work(over func() bool) {
	for !over() {
		pods := b.running()
		switch n := rand.IntN(20); {
		case rand.IntN(b.storm.steps) == 0:
			b.fault()
		case n < 9 && len(pods) > 0:
			b.ends(pods[rand.IntN(len(pods))])
		case n < 18 && len(pods) < 12:
			_, _ = b.starts(func(ctx context.Context) (given, error) { return b.add(ctx, b.request(lease.Policy{}, "")) })
		}
		time.Sleep(rand.N(b.storm.pace))
	}
}

// fault draws what happens to the node: its agent is stopped for a while, cut off from the API, or killed and started again.
func (b *busy) fault() {
	switch rand.IntN(3) {
	case 0:
		b.storm.note("an agent is stopped for a while")
		b.api.stopped.Lock()
		time.Sleep(rand.N(b.storm.interval / 2))
		b.api.stopped.Unlock()
	case 1:
		b.storm.note("an agent is cut off")
		b.api.set(b.storm.lost, true)
		time.Sleep(rand.N(b.storm.interval / 5))
		b.api.set(b.storm.lost, false)
	default:
		b.api.dieAfter(rand.IntN(6))
		time.Sleep(rand.N(100 * time.Millisecond))
		b.restarts.Lock()
		defer b.restarts.Unlock()
		if !b.off {
			b.end()
		}
		b.api.live()
		if !b.off {
			b.storm.note("an agent is killed")
			b.start(b.storm.t, b.watch)
		}
	}
}

// live ends dieAfter.
func (f *faulty) live() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dies = false
}

// powerOff switches the node off. Its pods end.
func (b *busy) powerOff() {
	b.restarts.Lock()
	defer b.restarts.Unlock()
	b.off = true
	b.rest()
	b.podsMu.Lock()
	defer b.podsMu.Unlock()
	for _, p := range b.pods {
		b.storm.h.record(b.number, handover{p.address, p.key.ContainerID, false}, time.Now())
	}
	b.pods = nil
}

// boot switches the node on.
func (b *busy) boot(id string) {
	b.restarts.Lock()
	defer b.restarts.Unlock()
	b.clock.set(id, 0, 0)
	b.reopen(b.storm.t)
	b.start(b.storm.t, b.watch)
	b.off = false
}
