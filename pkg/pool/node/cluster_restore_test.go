package node

import (
	"context"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/pool"
)

// backup is what etcd had.
type backup struct {
	blocks []pool.Block
	claims []pool.Claim
}

func (w *clusterModel) save(*rapid.T) {
	blocks, err := w.Blocks(context.Background(), "lan")
	must(w.T, err)
	claims, err := w.Claims(context.Background(), "lan")
	must(w.T, err)
	w.backup = &backup{blocks, claims}
}

// restore makes the API what it was. All nodes can be reached, and a person begins the recovery at once, as docs/pool-runbooks.md says. Which
// address an owner had can be lost.
func (w *clusterModel) restore(*rapid.T) {
	if w.backup == nil || slices.ContainsFunc(w.nodes, func(h *modelNode) bool { return !h.on || h.cut || h.fencedUnaware() }) {
		return
	}
	w.journalf("etcd is restored")
	w.rollBack()
	w.EditPool("lan", func(p *pool.Pool) { *p = p.WithRecovery(&pool.Recovery{Message: "etcd was restored"}) })
	w.recovers = true
	for _, x := range w.lastAddress {
		w.reassignable[x] = true
	}
}

// fencedUnaware says whether the node may give something from which it is fenced: it has not looked since.
func (h *modelNode) fencedUnaware() bool {
	s, err := h.state(context.Background())
	must(h.cluster.T, err)
	return slices.ContainsFunc(s.poolState("lan").Grants, func(g pool.Grant) bool {
		b, err := h.cluster.Block(context.Background(), g.Name())
		return err == nil && b.IsFenced(s.me) && !g.Empty()
	})
}

func (w *clusterModel) rollBack() {
	to := *w.backup
	w.save(nil)
	for _, b := range w.backup.blocks {
		w.Forget(b.Metadata.Name)
	}
	for _, c := range w.backup.claims {
		w.Forget(c.Metadata.Name)
	}
	for _, b := range to.blocks {
		w.AddBlock(b)
		w.EditBlock(b.Metadata.Name, func(is *pool.Block) { *is = b }) // It has its UID.
	}
	for _, c := range to.claims {
		w.AddClaim(c)
		w.EditClaim(c.Metadata.Name, func(is *pool.Claim) { *is = c })
	}
	w.backup = &to
}

// recover is the end of a recovery: all nodes are there.
func (w *clusterModel) recover(*rapid.T) {
	if !w.recovers {
		return
	}
	w.repair(nil)
	if w.assert() != nil { // A node waits for pods with addresses that it cannot get back.
		for _, h := range w.nodes {
			for key := range h.pods {
				w.del(h, key)
			}
		}
		if r := w.assert(); r != nil {
			w.fail("the recovery does not end: %+v", r)
		}
	}
	w.recovers = false
	w.seen["recovered"]++
	w.repair(nil)
}

// assert lets all nodes assert what they have. It returns what is left of the recovery.
func (w *clusterModel) assert() *pool.Recovery {
	for range 3 {
		w.reconcileAll()
		w.pass(time.Minute)
		w.reconcileController(nil)
	}
	p, err := w.Pool(context.Background(), "lan")
	must(w.T, err)
	return p.Status.Recovery
}
