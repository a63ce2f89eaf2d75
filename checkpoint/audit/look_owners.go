package audit

import (
	"cmp"
	"context"
	"math/rand/v2"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
)

// askForOwners asks whether the owners of reservations are still there. Others are not asked for: what is held stays held
// whatever its owner is.
func (w *World) askForOwners(ctx context.Context, from Sources) {
	w.Owners.Judged = map[attachment.Owner]owner.Judgement{}
	if from.Judge == nil {
		w.Owners.NotAsked = from.Nobody
		return
	}
	asked := w.ownersToAsk(from.First, cmp.Or(from.MostOwners, DefaultMostOwners))
	if len(asked) == 0 {
		return
	}
	for i, j := range from.Judge.Judge(ctx, asked) {
		if i < len(asked) && j.Owner == asked[i] { // What is not an answer to the question says nothing.
			w.Owners.Judged[asked[i]] = j
		}
	}
}

// ownersToAsk returns the owners of reservations, each once: those in first, and most of the others. If there are more,
// it begins with any of them, so that each has its turn.
func (w *World) ownersToAsk(first []attachment.Owner, most int) (asked []attachment.Owner) {
	waiting := map[attachment.Owner]bool{}
	var rest []attachment.Owner
	for _, n := range w.Networks {
		for _, l := range n.Leases {
			if l.State != lease.Reserved || l.Owner == (attachment.Owner{}) || l.KeptByHand(n.Now) || waiting[l.Owner] {
				continue
			}
			waiting[l.Owner] = true
			rest = append(rest, l.Owner)
		}
	}
	for _, o := range first {
		if waiting[o] {
			asked = append(asked, o)
			delete(waiting, o)
		}
	}
	start := 0
	if len(rest) > most {
		start = rand.IntN(len(rest))
	}
	for i := range rest {
		o := rest[(start+i)%len(rest)]
		if !waiting[o] {
			continue
		}
		if most == 0 {
			w.Owners.Left++
			continue
		}
		most--
		asked = append(asked, o)
	}
	return asked
}
