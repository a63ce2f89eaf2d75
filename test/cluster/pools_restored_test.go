package cluster

import (
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// seeds returns what random steps begin with: RELINK_SEED alone, or n new ones, and twenty times as many in make test-long.
func seeds(t *testing.T, n int) (all []uint64) {
	t.Helper()
	if s := os.Getenv(seedEnv); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return []uint64{seed}
	}
	if os.Getenv("RELINK_LONG") != "" {
		n *= 20
	}
	for range n {
		all = append(all, rand.Uint64())
	}
	return all
}

// The API forgets what nodes have done since some moment, whatever that was. Whoever reads first what is left, and
// whoever asserts first, no address gets a second pod, and each pod's address is its node's again.
func (a *api) forgetful(t *testing.T, users map[string]user) {
	for i, seed := range seeds(t, 2) {
		byRunbook := i%2 == 0
		t.Logf("%s=%d, by the runbook: %t", seedEnv, seed, byRunbook)
		a.forgets(t, users, seed, byRunbook)
	}
}

func (a *api) forgets(t *testing.T, users map[string]user, seed uint64, byRunbook bool) {
	t.Helper()
	w := a.newSimulation(t, users, "10.41.0.0/27", seed)
	for _, m := range w.nodes {
		m.settling = settling
		m.start(t, nil)
		m.end()
	}
	w.eachSettles()
	for range w.r.IntN(40) {
		w.step()
	}
	before := a.values(t)
	for range 10 + w.r.IntN(40) {
		w.step()
	}
	w.outage(func() { a.rollBack(t, before) })
	w.note("the API has forgotten this since step %d", len(w.steps))
	if byRunbook {
		a.beginRecovery(t, users)
	}
	w.eachSettles() // Nobody takes anything before those who know of a loss can tell it.
	w.recover()
	users["admin"].must(t, http.MethodPatch, pools+"/lan", m{"spec": m{"paused": false}}, nil)
	w.settled("after the recovery")
	for range 20 {
		w.step()
	}
	for _, m := range w.nodes {
		for w.start(m) {
			w.noDouble()
		}
	}
}

// settling is how long agents wait after an outage. The test sets their clocks ahead when all have looked, so none takes anything before.
// It is less than a minute: an agent that has heard nothing for that long takes it for an outage.
const settling = 40 * time.Second

// outage does something while no agent reaches the API.
func (w *simulation) outage(do func()) {
	w.t.Helper()
	for _, m := range w.nodes {
		m.api.set(0, true)
		w.look(m)
	}
	do()
	for _, m := range w.nodes {
		m.api.set(0, false)
	}
}

// eachSettles lets each agent look, in any order. Then the time is over for which agents wait.
func (w *simulation) eachSettles() {
	w.t.Helper()
	for _, i := range w.r.Perm(len(w.nodes)) {
		w.look(w.nodes[i])
		w.noDouble()
	}
	for _, m := range w.nodes {
		m.ahead.Add(int64(settling))
	}
}

// recover does random steps until the recovery is over.
func (w *simulation) recover() {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		for range 5 {
			w.step()
		}
		w.controllerLooks()
		if w.api.recovered(w.t, w.users) {
			return
		}
		if time.Now().After(deadline) {
			w.fatalf("the recovery does not end")
		}
	}
}

// restored restores etcd from a backup, as docs/pool-runbooks.md says it, and also when nobody pauses the pool.
func (a *api) restored(t *testing.T, users map[string]user) {
	t.Run("nobody pauses", func(t *testing.T) { a.fromBackup(t, users, false) })
	if os.Getenv("RELINK_LONG") != "" { // The test "the API forgets" follows the runbook, too.
		t.Run("by the runbook", func(t *testing.T) { a.fromBackup(t, users, true) })
	}
}

// fromBackup lets nodes work, makes a backup, lets them work on, and restores etcd.
func (a *api) fromBackup(t *testing.T, users map[string]user, byRunbook bool) {
	all := a.workers(t, users, "10.44.0.0/27")
	w := &simulation{t: t, api: a, users: users, nodes: all, keep: a.controller(t, users), r: rand.New(rand.NewPCG(1, 2))}
	for _, m := range all[:2] {
		await(t, 40*time.Second, "pods to start", func() bool { w.start(m); return len(m.leased(t)) == 6 })
	}
	w.mustOwn(all[0], "web-0")
	backup := a.backup(t)
	a.afterBackup(t, w)
	a.restore(t, backup)
	if byRunbook {
		a.beginRecovery(t, users)
	}
	a.awaitRecovery(t, w)
	users["admin"].must(t, http.MethodPatch, pools+"/lan", m{"spec": m{"paused": false}}, nil)
	for _, m := range all {
		m.end()
		m.Reconcile(t.Context())
	}
	w.settled("after the recovery")
	for _, m := range all {
		for w.start(m) {
			w.noDouble()
		}
	}
	a.claimsAreRight(t, w)
}

// workers are nodes whose agents run, and wait after an outage as they do in production. On a busy machine an agent reads its blocks later
// than in production, so they wait for longer.
func (a *api) workers(t *testing.T, users map[string]user, subnet string) (all []*member) {
	t.Helper()
	a.newPool(t, users, subnet)
	for _, name := range []string{"node1", "node2", "node3"} {
		m := a.quiet(t, users, name)
		m.settling, m.surplus = 10*time.Second, 200*time.Millisecond
		m.start(t, m.watch)
		all = append(all, m)
	}
	return all
}

// mustOwn starts the owner's pod within some tries.
func (w *simulation) mustOwn(m *member, owner string) running {
	w.t.Helper()
	for deadline := time.Now().Add(40 * time.Second); !w.startOwned(m, owner); {
		if time.Now().After(deadline) {
			w.fatalf("%s: no pod of %s starts", m.name, owner)
		}
	}
	return w.pods[len(w.pods)-1]
}

// afterBackup is the work that the backup does not have: takes, returns, hand-overs, an owner that moves, and a new owner.
func (a *api) afterBackup(t *testing.T, w *simulation) {
	t.Helper()
	one, two, three := w.nodes[0], w.nodes[1], w.nodes[2]
	had := len(one.granted(t))
	w.endWhere(func(p running) bool { return p.owner == "" && p.on == one })
	await(t, 40*time.Second, "the node to give back blocks", func() bool {
		one.Reconcile(t.Context())
		return len(one.granted(t)) < had
	})
	for w.start(three) { // All blocks, and what the other nodes have too much.
		w.noDouble()
	}
	owned := w.endWhere(func(p running) bool { return p.owner == "web-0" })
	if moved := w.mustOwn(two, "web-0"); moved.pod.address != owned.pod.address {
		t.Fatalf("the owner has moved to %s, and had %s", moved.pod.address, owned.pod.address)
	}
	one3 := false // One pod makes room for the owner.
	w.endWhere(func(p running) bool { is := p.on == three && !one3; one3 = one3 || is; return is })
	w.mustOwn(three, "web-1")
	w.noDouble()
}

// endWhere ends pods, and returns the last of them.
func (w *simulation) endWhere(ends func(running) bool) (last running) {
	w.t.Helper()
	w.pods = slices.DeleteFunc(w.pods, func(p running) bool {
		if !ends(p) {
			return false
		}
		w.del(p)
		last = p
		return true
	})
	return last
}

// granted are the addresses that the node may give.
func (m *member) granted(t *testing.T) (all []netip.Addr) {
	t.Helper()
	has, err := m.store.Granted(t.Context())
	if err != nil {
		return nil
	}
	for _, p := range has.Pools {
		for _, g := range p.Grants {
			for _, i := range g.Offsets(pool.GrantedChars) {
				all = append(all, g.Address(i))
			}
		}
	}
	return all
}

// awaitRecovery has the controller look until a recovery has begun and is over. Pods start and end meanwhile.
func (a *api) awaitRecovery(t *testing.T, w *simulation) {
	t.Helper()
	begun := false
	await(t, 60*time.Second, "the recovery to be over", func() bool {
		over := a.recovered(t, w.users)
		begun = begun || !over
		w.noDouble()
		w.start(w.nodes[w.r.IntN(len(w.nodes))])
		w.noDouble()
		w.controllerLooks()
		return begun && over
	})
}

// claimsAreRight fails if an owner's claim does not have the address that its pod has, on its node.
func (a *api) claimsAreRight(t *testing.T, w *simulation) {
	t.Helper()
	for _, p := range w.pods {
		if p.owner == "" {
			continue
		}
		var c pool.Claim
		w.users["admin"].must(t, http.MethodGet, claims+"/"+pool.ClaimName("lan", "eth0", acquisition(p.owner).Owner), nil, &c)
		if c.Status.Address != p.pod.address || c.Status.Active.Node != p.on.name {
			t.Errorf("%s has %s on %s, and by its claim %s on %s", p.owner, p.pod.address, p.on.name, c.Status.Address, c.Status.Active.Node)
		}
	}
}
