package node

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

const half = 15 * time.Minute

// event is what happens to the node, its agent, the pool and the API.
type event func(*testing.T, *agentFixture)

func passes(d time.Duration) event { return func(_ *testing.T, w *agentFixture) { w.uptime += d } }

func renewed(_ *testing.T, w *agentFixture) { w.renew() }

func attests(t *testing.T, w *agentFixture) { w.nodeController.Attest(t.Context()) }

// lives is a renewal that the agent reads. It has read the Lease before.
func lives(t *testing.T, w *agentFixture) {
	w.renew()
	w.nodeController.Attest(t.Context())
}

func reconciles(t *testing.T, w *agentFixture) { w.nodeController.Reconcile(t.Context()) }

func wants(fenceAfter string) event {
	return func(t *testing.T, w *agentFixture) {
		w.fenceAfter(fenceAfter)
		w.nodeController.Reconcile(t.Context())
	}
}

func away(is bool) event { return func(_ *testing.T, w *agentFixture) { w.away = is } }

func restarted(_ *testing.T, w *agentFixture) { w.restart() }

// rebooted is a boot, and the agent starts anew.
func rebooted(_ *testing.T, w *agentFixture) {
	w.boot, w.uptime = w.boot+"'", time.Minute
	w.restart()
}

func fenced(t *testing.T, w *agentFixture) {
	_, me := w.granted(t)
	for _, b := range w.blocks(t) {
		w.EditBlock(b.Metadata.Name, func(b *pool.Block) { *b, _ = b.Fence(me.SameParty, "silent") })
	}
}

// withTerm is a node that has addresses of a pool with a term.
func withTerm(more ...event) []event {
	return append([]event{reconciles, wants("30m"), attests, lives}, more...)
}

// The store obeys spec.fenceAfter before a block says so, and the blocks say it before the store obeys a longer one. After a silence, the
// agent writes each block anew before the store gives anything.
func TestTerms(t *testing.T) {
	const silent, unwritten = "no sign of life of this node for too long", "has to write its blocks anew"
	for name, test := range map[string]struct {
		events []event
		// refused is why an ADD gets nothing, empty if it gets an address. boot and says are what the block says.
		refused, boot, says string
		// log is a part of the log.
		log string
	}{
		"a pool without the key":              {[]event{reconciles, attests, lives, passes(24 * time.Hour)}, "", "boot-1", "", ""},
		"the first read":                      {[]event{reconciles, wants("30m"), attests, passes(24 * time.Hour)}, "", "boot-1", "", ""},
		"no renewal since the first read":     {[]event{reconciles, wants("30m"), attests, attests, passes(24 * time.Hour)}, "", "boot-1", "", ""},
		"the second value":                    {withTerm(), "", "boot-1", "30m0s", ""},
		"a block that comes later":            {[]event{wants(""), wants("30m"), attests, lives, reconciles}, "", "boot-1", "30m0s", ""},
		"before half of the time":             {withTerm(passes(half - time.Millisecond)), "", "boot-1", "30m0s", ""},
		"after half of the time":              {withTerm(passes(half)), silent, "boot-1", "30m0s", ""},
		"the time begins at the read before":  {withTerm(passes(5*time.Minute), attests, passes(5*time.Minute), lives, passes(10*time.Minute)), silent, "boot-1", "30m0s", ""},
		"it goes on with each renewal":        {withTerm(passes(10*time.Minute), attests, lives, passes(10*time.Minute)), "", "boot-1", "30m0s", ""},
		"a value that has not changed":        {withTerm(passes(10*time.Minute), attests, passes(5*time.Minute)), silent, "boot-1", "30m0s", ""},
		"the agent starts anew":               {withTerm(restarted, passes(10*time.Minute), attests, passes(5*time.Minute)), silent, "boot-1", "30m0s", ""},
		"the agent starts anew in time":       {withTerm(restarted, passes(10*time.Minute), attests, lives, passes(5*time.Minute)), "", "boot-1", "30m0s", ""},
		"the API is away":                     {withTerm(away(true), passes(10*time.Minute), lives, passes(5*time.Minute)), silent, "boot-1", "30m0s", "the API does not answer"},
		"a value that came while it was away": {withTerm(away(true), passes(10*time.Minute), lives, away(false), attests, passes(5*time.Minute)), silent, "boot-1", "30m0s", ""},
		"back after a silence":                {withTerm(passes(half), attests, lives), "", "boot-1.1", "30m0s", ""},
		"back, and the blocks cannot be written": {withTerm(passes(half), attests, renewed, func(t *testing.T, w *agentFixture) {
			w.lost = true // The Lease is read, and the answer about the block is lost.
			attests(t, w)
		}), unwritten, "boot-1.1", "30m0s", "the API does not answer"},
		"back, and written at the next look": {withTerm(passes(half), attests, renewed, func(t *testing.T, w *agentFixture) {
			w.lost = true
			attests(t, w)
		}, away(false), reconciles), "", "boot-1.1", "30m0s", ""},
		"back, and declared dead": {withTerm(passes(half), attests, func(_ *testing.T, w *agentFixture) { w.taint(true) }, lives), unwritten, "boot-1", "30m0s",
			"node node1 has the taint node.kubernetes.io/out-of-service, which declares it dead: remove the taint"},
		"back, and fenced":                 {withTerm(passes(half), fenced, attests, lives, reconciles), "", "boot-1.1", "30m0s", ""},
		"fenced while it is silent":        {withTerm(passes(half), fenced, reconciles), silent, "", "", ""},
		"the Lease is gone":                {withTerm(func(_ *testing.T, w *agentFixture) { w.deleteLease() }, attests, passes(half)), silent, "boot-1", "30m0s", "the kubelet has no Lease kube-node-lease/node1"},
		"the Lease is made anew, one read": {withTerm(func(_ *testing.T, w *agentFixture) { w.deleteLease() }, renewed, attests, passes(half)), silent, "boot-1", "30m0s", ""},
		"the Lease is made anew":           {withTerm(func(_ *testing.T, w *agentFixture) { w.deleteLease() }, renewed, attests, lives), "", "boot-1.1", "30m0s", ""},
		"after a reboot":                   {withTerm(rebooted, reconciles), silent, "boot-1", "30m0s", ""},
		"after a reboot, the first read":   {withTerm(rebooted, attests), silent, "boot-1", "30m0s", ""},
		"after a reboot, the second value": {withTerm(rebooted, reconciles, attests, lives), "", "boot-1'.1", "30m0s", ""},
		"shorter":                          {withTerm(wants("10m"), lives, passes(5*time.Minute)), silent, "boot-1", "10m0s", ""},
		"shorter, and no renewal":          {withTerm(wants("10m"), attests, passes(10*time.Minute)), "", "boot-1", "30m0s", ""},
		"longer":                           {withTerm(wants("2h"), attests, passes(59*time.Minute)), "", "boot-1.1", "2h0m0s", ""},
		"longer, and the API is away": {withTerm(wants("2h"), func(t *testing.T, w *agentFixture) {
			w.lost = true
			attests(t, w)
		}), unwritten, "boot-1.1", "2h0m0s", ""},
		"never":                           {withTerm(wants(""), attests, passes(24*time.Hour)), "", "boot-1.1", "", ""},
		"never, in a silence":             {withTerm(passes(half), wants(""), attests, passes(24*time.Hour)), "", "boot-1.1", "", ""},
		"a wrong spec changes nothing":    {withTerm(wants("1m"), attests, passes(half)), silent, "boot-1", "30m0s", ""},
		"a block of an older request":     {withTerm(wants(""), attests, createStaleBlock, reconciles), "", "boot-1.1", "", ""},
		"one of an older request, silent": {withTerm(passes(half), attests, lives, createStaleBlock, reconciles), "", "boot-1.1", "30m0s", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newAgentFixture(t)
			for _, happens := range test.events {
				happens(t, w)
				w.checkHolderState(t)
			}
			_, _, err := w.add(t)
			if (err == nil) != (test.refused == "") || err != nil && (!errors.Is(err, lease.ErrUnconfirmed) || !strings.Contains(err.Error(), test.refused)) {
				t.Errorf("an ADD: %v, want %q", err, test.refused)
			}
			_, me := w.granted(t)
			for _, b := range w.blocks(t) {
				if h, is := b.Holder(me); is && (h.Boot != test.boot || h.FenceAfter != test.says) {
					t.Errorf("%s says boot %s, fenceAfter %q, want %s, %q", b.Metadata.Name, h.Boot, h.FenceAfter, test.boot, test.says)
				}
			}
			if !strings.Contains(w.log.String(), test.log) {
				t.Errorf("want %q in the log:\n%s", test.log, w.log.String())
			}
		})
	}
}

// createStaleBlock is a block that an agent has asked for in the first session, and that the API makes only now.
func createStaleBlock(t *testing.T, w *agentFixture) {
	_, me := w.granted(t)
	p, err := w.Pool(t.Context(), "lan")
	must(t, err)
	l, err := p.Layout()
	must(t, err)
	for i := range l.Blocks() {
		b, _ := pool.NewBlock(l, i, me, "boot-1")
		b, _ = b.WithFenceAfter(me, half*2)
		if _, err := w.CreateBlock(t.Context(), b); err == nil {
			return
		}
	}
}

// checkHolderState fails the test if the store gives longer than a block says of it: the controller would fence it too early.
func (w *agentFixture) checkHolderState(t *testing.T) {
	t.Helper()
	p, me := w.granted(t)
	if !p.Written {
		return
	}
	blocks := w.blocks(t)
	for _, g := range p.Grants {
		i := slices.IndexFunc(blocks, func(b pool.Block) bool { return b.Metadata.Name == g.Name() })
		if i < 0 {
			continue
		}
		h, _ := blocks[i].Holder(me)
		if said := h.FenceTimeout(); said > 0 && g.Granted() > 0 && (p.FenceAfter == 0 || p.FenceAfter > said) {
			t.Errorf("%s says that the node obeys %s, and the store obeys %s", g.Name(), said, p.FenceAfter)
		}
	}
}

// A node that was fenced leaves the block when the last pod there has ended, although nobody has changed the block since.
func TestAFencedNodeLeavesWhenItsPodsHaveEnded(t *testing.T) {
	w := newAgentFixture(t)
	reconciles(t, w)
	given, key, err := w.add(t)
	must(t, err)
	fenced(t, w)
	reconciles(t, w)
	_, me := w.granted(t)
	holds := func() (fenced int) {
		for _, b := range w.blocks(t) {
			if h, is := b.Holder(me); is && h.Fenced != "" {
				fenced++
			}
		}
		return fenced
	}
	if want := "this node was declared dead, and pods still have addresses that others may have by now"; holds() != 1 || !strings.Contains(w.log.String(), want) {
		t.Errorf("with a pod, it is in %d blocks; want %q in the log:\n%s", holds(), want, w.log.String())
	}
	must(t, w.store(t).Release(t.Context(), key, given.Holders[0].Policy))
	if reconciles(t, w); holds() != 0 {
		t.Error("after its end, it has not left the block")
	}
}
