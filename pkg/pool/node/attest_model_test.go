package node

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/pool/controller"
)

// tick is how often something happens while time passes: the kubelet renews the Lease, and the controller looks.
const tick = 30 * time.Second

// leaseModel is a node, its agent, and a controller, with a pool whose silent nodes are fenced. Each of them can be away.
type leaseModel struct {
	*agentFixture
	*rapid.T
	controller *controller.Controller
	// kubelet, agent and leader say that they run. cut says that the agent does not reach the API.
	kubelet, agent, leader, cut bool
	// hold says that what the controller asks for is held, and comes late.
	hold bool
	held []pool.Block
	// now is the controller's clock, due is when the agent reads the Lease again.
	now time.Time
	due time.Time
	// seen counts what has happened in all walks.
	seen map[string]int
}

// controllerAPI is the API as the controller has it.
type controllerAPI struct{ *leaseModel }

func (l controllerAPI) Nodes(context.Context) ([]pool.Node, error) { return nil, nil }

// NodeLeases has two further nodes, which live.
func (l controllerAPI) NodeLeases(context.Context) ([]pool.NodeLease, error) {
	all := []pool.NodeLease{{Node: "node2", UID: "2", Version: l.nextVersion()}, {Node: "node3", UID: "3", Version: l.nextVersion()}}
	if l.lease.UID != "" {
		all = append(all, l.lease)
	}
	return all, nil
}

func (l controllerAPI) UpdateBlock(ctx context.Context, b pool.Block) (pool.Block, error) {
	if l.hold {
		l.held = append(l.held, b)
		return b, errAway
	}
	made, err := l.agentFixture.UpdateBlock(ctx, b)
	if err == nil {
		l.seen["fenced"]++
	}
	return made, err
}

func (m *leaseModel) startController() {
	m.controller = controller.New(controllerAPI{m}, slog.New(slog.DiscardHandler))
	m.controller.SetClock(func() time.Time { return m.now })
}

// runAgent does what the agent does. Only it can be cut off.
func (m *leaseModel) runAgent(do func()) {
	if !m.agent {
		return
	}
	m.away = m.cut
	do()
	m.away, m.lost = false, false
}

func (m *leaseModel) attest() {
	m.runAgent(func() { m.due = m.now.Add(m.nodeController.Attest(m.Context())) })
}

func (m *leaseModel) reconcile() { m.runAgent(func() { m.nodeController.Reconcile(m.Context()) }) }

func (m *leaseModel) pass(*rapid.T) {
	m.ticks(rapid.SampledFrom([]int{1, 9, 11, 22}).Draw(m.T, "ticks"))
}

// silent is a node that is silent for longer than the pool's shortest time, and then heard of again. The controller is there.
func (m *leaseModel) silent(*rapid.T) {
	m.kubelet, m.agent, m.leader = false, true, true
	m.cut, m.hold = rapid.Bool().Draw(m.T, "cut"), rapid.Bool().Draw(m.T, "hold")
	m.ticks(23)
	m.kubelet, m.cut = true, false
	if rapid.Bool().Draw(m.T, "others take") {
		m.reassignFenced(nil)
	}
	m.ticks(rapid.IntRange(0, 2).Draw(m.T, "ticks"))
}

// ticks lets time pass.
func (m *leaseModel) ticks(n int) {
	for range n {
		m.now, m.uptime = m.now.Add(tick), m.uptime+tick
		if m.kubelet {
			m.renew()
		}
		if m.due.Before(m.now) {
			m.attest()
		}
		if m.leader {
			_ = m.controller.Reconcile(m.Context()) // It is told of what is held.
		}
	}
	m.reconcile()
}

func (m *leaseModel) toggle(*rapid.T) {
	what := rapid.SampledFrom([]*bool{&m.kubelet, &m.kubelet, &m.agent, &m.leader, &m.cut, &m.cut, &m.hold}).Draw(m.T, "what")
	*what = !*what
}

func (m *leaseModel) deliver(*rapid.T) {
	for _, b := range m.held {
		if _, err := m.UpdateBlock(m.Context(), b); err == nil {
			m.seen["fenced late"]++
		} else {
			m.seen["fenced too late"]++
		}
	}
	m.held = nil
}

func (m *leaseModel) spec(*rapid.T) {
	m.fenceAfter(rapid.SampledFrom([]string{"", "10m", "10m", "10m", "20m"}).Draw(m.T, "fence after"))
	m.reconcile()
}

func (m *leaseModel) startAnew(*rapid.T) {
	if rapid.Bool().Draw(m.T, "the node") {
		m.boot, m.uptime = m.boot+"'", time.Minute
	}
	m.restart()
}

func (m *leaseModel) loseLease(*rapid.T) {
	if m.deleteLease(); rapid.Bool().Draw(m.T, "made anew") {
		m.renew()
	}
}

// loseAnswer is an agent that gets no answer of a change.
func (m *leaseModel) loseAnswer(*rapid.T) {
	m.runAgent(func() { m.lost = true; m.nodeController.Attest(m.Context()) })
}

// reassignFenced take what the node has lost.
func (m *leaseModel) reassignFenced(*rapid.T) {
	for _, b := range m.blocks(m.T) {
		if next, n := b.Take(pool.Party{Node: "node2", Network: "pods", Store: "other"}, b.FencedOffsets()); n > 0 {
			m.EditBlock(b.Metadata.Name, func(b *pool.Block) { *b = next })
			m.seen["taken"]++
		}
	}
}

// check fails the test if the node gives an address that it does not have, or that the controller is about to fence.
func (m *leaseModel) check(t *rapid.T) {
	given, key, err := m.add(t)
	if err != nil {
		m.seen["refused"]++
		return
	}
	m.seen["given"]++
	must(t, m.store(t).Release(t.Context(), key, given.Holders[0].Policy))
	_, me := m.granted(t)
	for _, b := range m.blocks(t) {
		if i := b.Offset(given.Address); i >= 0 && b.HeldBy(me, i) {
			return
		}
	}
	t.Fatalf("the node gives %s, which it does not have:\n%+v\n%s", given.Address, m.blocks(t), m.log.String())
}

// Whoever is away for how long, and whatever comes late: a node gives only what it has.
func TestSilentNodesGiveOnlyWhatTheyHave(t *testing.T) {
	seen := map[string]int{}
	checkUntil(t, func(rt *rapid.T) {
		m := &leaseModel{agentFixture: newAgentFixture(t), T: rt, kubelet: true, agent: true, leader: true, now: time.Unix(1e9, 0), seen: seen}
		m.fenceAfter("10m")
		m.startController()
		m.reconcile()
		m.attest()
		rt.Repeat(map[string]func(*rapid.T){
			"pass": m.pass, "silent": m.silent, "silent again": m.silent, "flip": m.toggle, "flip back": m.toggle, "deliver": m.deliver, "spec": m.spec, "start anew": m.startAnew,
			"lose the Lease": m.loseLease, "lose an answer": m.loseAnswer, "others": m.reassignFenced, "": m.check,
		})
	}, seen, "fenced", "fenced too late", "refused", "given")
	t.Log(fmt.Sprint(seen))
}
