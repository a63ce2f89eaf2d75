package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// simulation is nodes that share a pool, and do what the test draws, one step at a time.
type simulation struct {
	t     *testing.T
	api   *api
	users map[string]user
	nodes []*member
	keep  keeper
	r     *rand.Rand
	pods  []running
	// ended are pods that have ended. Their DELs can come again.
	ended []running
	steps []string
}

// running is a pod on a node. owner is empty if the pod keeps no address.
type running struct {
	on    *member
	pod   given
	owner string
}

// newSimulation makes the pool, and nodes whose agents do only what the test asks for.
func (a *api) newSimulation(t *testing.T, users map[string]user, subnet string, seed uint64) *simulation {
	t.Helper()
	w := &simulation{t: t, api: a, users: users, r: rand.New(rand.NewPCG(seed, 0))}
	a.newPool(t, users, subnet)
	for _, name := range []string{"node1", "node2", "node3"} {
		m := a.quiet(t, users, name)
		m.surplus = time.Nanosecond // What is left over goes back with the next look.
		m.start(t, nil)
		m.end()
		w.nodes = append(w.nodes, m)
	}
	w.keep = a.controller(t, users)
	return w
}

// note notes a step, for people who look for the reason of a failure.
func (w *simulation) note(format string, args ...any) {
	w.steps = append(w.steps, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

func (w *simulation) fatalf(format string, args ...any) {
	w.t.Helper()
	logs := ""
	for _, m := range w.nodes {
		logs += m.name + ":\n" + m.log.String()
	}
	w.t.Fatalf("%s\nafter:\n%s\n%s", fmt.Sprintf(format, args...), strings.Join(w.steps, "\n"), logs)
}

// owners keep their addresses. One pod of each runs at a time.
var owners = []string{"web-0", "web-1"}

// step draws a step and does it.
func (w *simulation) step() {
	w.t.Helper()
	m := w.nodes[w.r.IntN(len(w.nodes))]
	switch n := w.r.IntN(20); {
	case n < 5:
		w.start(m)
	case n < 8:
		w.startOwned(m, owners[w.r.IntN(len(owners))])
	case n < 12:
		w.end()
	case n < 13:
		w.endAgain()
	case n < 14:
		w.controllerLooks()
	default:
		w.look(m)
	}
	w.noDouble()
}

// patienceOfStep is how long an ADD waits. Nobody answers meanwhile: one step is done at a time.
const patienceOfStep = 250 * time.Millisecond

func (w *simulation) start(m *member) bool {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patienceOfStep)
	defer cancel()
	p, err := m.add(ctx, m.request(lease.Policy{}, ""))
	if err != nil {
		w.note("%s: a pod does not start: %v", m.name, firstLine(err))
		return false
	}
	w.note("%s: %s starts with %s", m.name, p.key.ContainerID, p.address)
	w.pods = append(w.pods, running{m, p, ""})
	return true
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// startOwned starts the owner's pod. Kubernetes does not while the pod before runs.
func (w *simulation) startOwned(m *member, owner string) bool {
	w.t.Helper()
	if slices.ContainsFunc(w.pods, func(p running) bool { return p.owner == owner }) {
		return false
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), patienceOfStep)
	defer cancel()
	p, err := m.startOwned(ctx, w.t, owner)
	if err != nil {
		w.note("%s: the pod of %s does not start: %v", m.name, owner, firstLine(err))
		return false
	}
	w.note("%s: %s of %s starts with %s", m.name, p.key.ContainerID, owner, p.address)
	w.pods = append(w.pods, running{m, p, owner})
	return true
}

func (w *simulation) end() {
	w.t.Helper()
	if len(w.pods) == 0 {
		return
	}
	i := w.r.IntN(len(w.pods))
	p := w.pods[i]
	w.pods = slices.Delete(w.pods, i, i+1)
	w.ended = append(w.ended, p)
	w.del(p)
}

// del is the DEL of a pod.
func (w *simulation) del(p running) {
	w.t.Helper()
	w.note("%s: DEL of %s, which has had %s", p.on.name, p.pod.key.ContainerID, p.pod.address)
	if err := p.on.store.Release(w.t.Context(), p.pod.key, lease.Policy{}); err != nil {
		w.fatalf("DEL: %v", err)
	}
}

// endAgain repeats the DEL of a pod that has ended.
func (w *simulation) endAgain() {
	w.t.Helper()
	if len(w.ended) > 0 {
		w.del(w.ended[w.r.IntN(len(w.ended))])
	}
}

func (w *simulation) look(m *member) {
	w.t.Helper()
	m.Reconcile(w.t.Context())
	w.note("%s: the agent looks", m.name)
}

func (w *simulation) controllerLooks() {
	w.t.Helper()
	err := w.keep.Reconcile(w.t.Context())
	w.note("the controller looks: %v", err)
}

// noDouble fails if two pods have one address, or if the pods' addresses are not those that the stores say.
func (w *simulation) noDouble() {
	w.t.Helper()
	by := map[netip.Addr]string{}
	for _, m := range w.nodes {
		for a, l := range m.leased(w.t) {
			if l.State != lease.Held {
				continue
			}
			if by[a] != "" {
				w.fatalf("%s is held on %s and on %s", a, by[a], m.name)
			}
			by[a] = m.name
		}
	}
	for _, p := range w.pods {
		if by[p.pod.address] != p.on.name {
			w.fatalf("%s has a pod with %s, and that is held on %q", p.on.name, p.pod.address, by[p.pod.address])
		}
	}
}

// leased are the leases of the node's store at addresses of the pool.
func (m *member) leased(t *testing.T) map[netip.Addr]lease.Lease {
	t.Helper()
	has, err := m.store.Granted(t.Context())
	if err != nil {
		return nil // No pod has started there so far.
	}
	all := map[netip.Addr]lease.Lease{}
	for _, p := range has.Pools {
		for a, l := range p.Leased {
			all[a] = l
		}
	}
	return all
}

// settled fails if a node may give what the API does not say that it has, or if a pod has an address that is not its node's.
func (w *simulation) settled(when string) {
	w.t.Helper()
	now := w.api.blocksNow(w.t, w.users)
	for _, m := range w.nodes {
		w.api.within(w.t, w.users, m, when)
	}
	for _, p := range w.pods {
		whose := ""
		for _, b := range now {
			if i := b.Offset(p.pod.address); i >= 0 {
				h, _ := b.HolderOf(i)
				whose = h.Node
			}
		}
		if whose != p.on.name {
			w.fatalf("%s: a pod on %s has %s, which the API has as of %q", when, p.on.name, p.pod.address, whose)
		}
	}
}

// beginRecovery is what a person does after a restore of etcd, as docs/pool-runbooks.md says.
func (a *api) beginRecovery(t *testing.T, users map[string]user) {
	t.Helper()
	admin := users["admin"]
	a.pause(t, users, true)
	admin.must(t, http.MethodPatch, pools+"/lan/status", m{"status": m{"recovery": m{"message": "etcd was restored", "nodes": nil, "asserted": nil}}}, nil)
}

// recovered says whether the recovery of the pool is over.
func (a *api) recovered(t *testing.T, users map[string]user) bool {
	t.Helper()
	var p pool.Pool
	users["admin"].must(t, http.MethodGet, pools+"/lan", nil, &p)
	return p.Status.Recovery == nil
}

// recovery returns the pool's recovery, the zero one if there is none.
func (a *api) recovery(t *testing.T, users map[string]user) pool.Recovery {
	t.Helper()
	var p pool.Pool
	users["admin"].must(t, http.MethodGet, pools+"/lan", nil, &p)
	if r := p.Status.Recovery; r != nil {
		return *r
	}
	return pool.Recovery{}
}
