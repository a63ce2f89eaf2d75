package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// askForOwners asks whether the owners of reservations are still there. Others are not asked for: what is held stays held
// whatever its owner is.
func (w *World) askForOwners(ctx context.Context, from Sources) {
	w.Owners.Judged = map[attachment.Owner]owner.Judgement{}
	if from.Judge == nil {
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
	w.distrustCluster(ctx, from)
	w.distrustEmptied(ctx, from)
}

// distrustCluster makes the owners of a network unknown that another cluster's API has judged: the kubeconfig may be wrong. A cluster
// is a network's if its API knows one of the owners.
func (w *World) distrustCluster(ctx context.Context, from Sources) {
	for _, s := range from.Leases {
		at := slices.IndexFunc(w.Networks, func(n Network) bool { return n.Name == s.Network() })
		if at < 0 {
			continue
		}
		var judged []owner.Judgement
		for _, l := range w.Networks[at].Leases {
			if j, is := w.Owners.Judged[l.Owner]; is && l.State == lease.Reserved && j.Standing != owner.Unknown {
				judged = append(judged, j)
			}
		}
		if len(judged) == 0 {
			continue
		}
		lives := slices.ContainsFunc(judged, func(j owner.Judgement) bool { return j.Standing == owner.Lives })
		if err := s.OfCluster(ctx, judged[0].Cluster, lives); err != nil {
			w.Problems = append(w.Problems, err.Error())
			for _, j := range judged {
				w.doubt(j.Owner, err.Error())
			}
		}
	}
}

// distrustEmptied makes the owners unknown that are gone by an API that does not know a pod which runs here: it may have been emptied, or
// be another cluster's.
func (w *World) distrustEmptied(ctx context.Context, from Sources) {
	var gone []attachment.Owner
	for o, j := range w.Owners.Judged {
		if j.Standing == owner.Gone {
			gone = append(gone, o)
		}
	}
	if len(gone) == 0 || from.Asker == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, whoseWait)
	defer cancel()
	for id, told := range w.Sandboxes.Runtime {
		if !told.Ready || told.Pod.UID == "" {
			continue
		}
		if _, err := from.Asker.Ask(ctx, owner.Question{Pod: told.Pod}); errors.Is(err, owner.ErrUnavailable) {
			why := fmt.Sprintf("the pod of sandbox %s runs here, and the Kubernetes API does not tell of it: %v. So nobody counts as gone: is it this node's API?", id, err)
			w.Problems = append(w.Problems, why)
			for _, o := range gone {
				w.doubt(o, why)
			}
			return
		}
	}
}

// doubt makes the owner unknown.
func (w *World) doubt(o attachment.Owner, why string) {
	w.Owners.Judged[o] = owner.Judgement{Owner: o, Standing: owner.Unknown, Why: why}
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

// whoseWait bounds the questions about pods that relink has attached to nothing.
const whoseWait = 10 * time.Second

// askForUnattached asks whose the pods are that the runtime keeps running and that relink has attached to nothing. It asks
// only if there are reservations of living owners for which that can count. If it is not known whose one pod is, the others
// of its namespace prove nothing, either.
func (w *World) askForUnattached(ctx context.Context, from Sources) {
	w.Owners.Unattached = map[attachment.Owner][]sandbox.OfRuntime{}
	waiting := w.livingOwners()
	if from.Asker == nil || w.Sandboxes.NotAsked != "" || len(waiting) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, whoseWait)
	defer cancel()
	attached, unknown := w.attachedContainers(), map[string]bool{}
	for id, told := range w.Sandboxes.Runtime {
		in := told.Pod.Namespace
		if !told.Ready || attached[id] || unknown[in] || !waiting.inNamespace(in) {
			continue
		}
		a, err := from.Asker.Ask(ctx, owner.Question{Pod: told.Pod})
		if err != nil || told.Pod.UID == "" {
			unknown[in] = true
		} else if waiting[a.Owner] {
			w.Owners.Unattached[a.Owner] = append(w.Owners.Unattached[a.Owner], told)
		}
	}
	maps.DeleteFunc(w.Owners.Unattached, func(o attachment.Owner, _ []sandbox.OfRuntime) bool { return unknown[o.Namespace] })
}

// owners is a set of owners.
type owners map[attachment.Owner]bool

func (all owners) inNamespace(namespace string) bool {
	for o := range all {
		if o.Namespace == namespace {
			return true
		}
	}
	return false
}

// livingOwners are those of reservations that live, and have one pod at a time.
func (w *World) livingOwners() owners {
	all := owners{}
	for o, j := range w.Owners.Judged {
		if j.Standing == owner.Lives && onePodAtATime(o) {
			all[o] = true
		}
	}
	return all
}

// attachedContainers are the sandboxes that have a checkpoint or a lease.
func (w *World) attachedContainers() map[string]bool {
	all := map[string]bool{}
	for _, a := range w.Attached {
		all[a.Record.Attachment.ContainerID] = true
	}
	for _, u := range w.Unreadable {
		all[u.ContainerID] = true
	}
	for _, n := range w.Networks {
		for _, l := range n.Leases {
			for _, h := range l.Holders {
				all[h.ContainerID] = true
			}
		}
	}
	return all
}
