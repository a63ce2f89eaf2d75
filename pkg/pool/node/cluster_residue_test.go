package node

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/pool"
)

// Judge implements owner.Judge: all owners are gone at the end.
func (w *clusterModel) Judge(_ context.Context, owners []attachment.Owner) []owner.Judgement {
	judgements := make([]owner.Judgement, len(owners))
	for i := range owners {
		if judgements[i].Standing = owner.Unknown; w.ended {
			judgements[i].Standing = owner.Gone
		}
	}
	return judgements
}

// leavesNothing ends all pods and owners, and one node for ever. Then nothing is left of what has happened, and another node can give each address
// of the pool once.
func (w *clusterModel) leavesNothing(*rapid.T) {
	w.recover(nil)
	w.repair(nil)
	w.EditPool("lan", func(p *pool.Pool) { p.Spec.Exclude = nil })
	w.excluded = netip.Addr{}
	dead, live := w.nodes[2], w.nodes[:2]
	dead.powerOff()
	w.taint(dead, true)
	w.reconcileController(nil)
	w.RemoveNode(dead.name)
	w.ended = true
	clear(w.lastAddress)
	for _, h := range live {
		for key := range h.pods {
			w.del(h, key)
		}
	}
	var left string
	for range 8 {
		for _, h := range live {
			h.endReservations()
			h.reconcile()
		}
		w.reconcileController(nil)
		w.pass(4 * time.Minute)
		if left = w.left(); left == "" {
			break
		}
	}
	if left != "" {
		w.fail("this is left:\n%s", left)
	}
	w.givesAll(live[0])
}

// endReservations ends what waits for owners that are gone, as relink gc does.
func (h *modelNode) endReservations() {
	s, err := h.state(context.Background())
	must(h.cluster.T, err)
	for _, l := range s.poolState("lan").Leased {
		if l.State == lease.Reserved {
			must(h.cluster.T, h.store.End(context.Background(), l, "the owner is gone"))
		}
	}
}

// left says what is left, by the API and by the stores.
func (w *clusterModel) left() string {
	var all []string
	found := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	blocks, err := w.Blocks(context.Background(), "lan")
	must(w.T, err)
	for _, b := range blocks {
		gone := func(h pool.Holder) bool { return h.Fenced != "" || h.Node == w.nodes[2].name }
		if slices.ContainsFunc(b.Status.Holders, gone) || len(b.Status.Want) > 0 || strings.ContainsAny(b.Status.Addresses, string([]rune{pool.Claimed, pool.Excluded})) {
			found("%s", textOf(b))
		}
	}
	claims, err := w.Claims(context.Background(), "lan")
	must(w.T, err)
	for _, c := range claims {
		found("the claim of %s: %+v", c.Spec.Owner, c.Status)
	}
	if p, err := w.Pool(context.Background(), "lan"); err != nil || p.Status.Recovery != nil {
		found("a recovery, %v", err)
	}
	for _, h := range w.nodes[:2] {
		s, err := h.state(context.Background())
		must(w.T, err)
		for a, l := range s.poolState("lan").Leased {
			found("%s has %s: %s", h.name, a, l.Describe())
		}
	}
	return strings.Join(all, "\n")
}

// givesAll has one node give all addresses. The other one hands over. Each was proven then by a pod that has it.
func (w *clusterModel) givesAll(h *modelNode) {
	p, err := w.Pool(context.Background(), "lan")
	must(w.T, err)
	l, err := p.Layout()
	must(w.T, err)
	want := int(l.Addresses().Int64())
	for range 4 * want {
		if w.startOn(h, ""); len(h.pods) == want {
			break
		}
		w.reconcileAll()
		w.pass(10 * time.Second)
	}
	if len(h.pods) != want {
		w.fail("%s gives %d of %d addresses", h.name, len(h.pods), want)
	}
	w.pass(10 * time.Minute)
	h.reconcile()
	blocks, err := w.Blocks(context.Background(), "lan")
	must(w.T, err)
	for _, b := range blocks {
		if len(b.Status.Unproven) > 0 {
			w.fail("%s stays unproven", textOf(b))
		}
	}
}
