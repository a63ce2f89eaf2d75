package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// judgeOwners asks whether the owners of reservations are still there. Others are not asked for: what is held stays held
// whatever its owner is.
func (w *Snapshot) judgeOwners(ctx context.Context, sources Sources) {
	if sources.Judge == nil {
		return
	}
	w.Owners.Judged = JudgeOwners(ctx, sources.Judge, w.ownersToAsk(sources.FirstOwners, MaxOwners))
	if len(w.Owners.Judged) == 0 {
		return
	}
	pods := sync.OnceValues(func() ([]sandbox.RuntimeSandbox, []owner.Judgement) { return w.judgePods(ctx, sources.Judge) })
	w.checkClusters(ctx, sources, pods)
	w.checkEmptiedAPI(ctx, sources, pods)
}

// JudgeOwners asks about the owners. What is not an answer to the question says nothing.
func JudgeOwners(ctx context.Context, api owner.Judge, asked []attachment.Owner) map[attachment.Owner]owner.Judgement {
	judged := map[attachment.Owner]owner.Judgement{}
	if len(asked) == 0 {
		return judged
	}
	for i, j := range api.Judge(ctx, asked) {
		if i < len(asked) && j.Owner == asked[i] {
			judged[j.Owner] = j
		}
	}
	return judged
}

// checkClusters makes the owners unknown that another cluster's API has judged: the kubeconfig may be wrong. A store says which
// cluster is right. For one that knows none yet, it is that of an API which knows an owner of the store, or a pod that runs here.
func (w *Snapshot) checkClusters(ctx context.Context, sources Sources, pods func() ([]sandbox.RuntimeSandbox, []owner.Judgement)) {
	w.checkNamelessClusters()
	w.Owners.NewClusters = map[string]string{}
	runs := func(uid string) bool {
		_, answers := pods()
		return slices.ContainsFunc(answers, func(j owner.Judgement) bool { return j.Standing == owner.Exists && j.Cluster == uid })
	}
	for _, s := range sources.Leases {
		clusters := map[string]bool{} // The clusters whose APIs have judged owners of the store: do they know one?
		judged := w.judgedIn(s)
		for _, j := range judged {
			clusters[j.Cluster] = clusters[j.Cluster] || j.Standing == owner.Exists
		}
		for uid, knows := range clusters {
			err := s.CheckCluster(ctx, uid)
			if errors.Is(err, lease.ErrNoCluster) && (knows || runs(uid)) {
				w.Owners.NewClusters[s.Path()], err = uid, nil
			}
			if err != nil {
				w.reportUnknown(err.Error(), slices.DeleteFunc(slices.Clone(judged), func(j owner.Judgement) bool { return j.Cluster != uid }))
			}
		}
	}
}

// checkNamelessClusters makes the owners unknown that an API has judged which does not tell its cluster.
func (w *Snapshot) checkNamelessClusters() {
	nameless := w.judgedAs(func(j owner.Judgement) bool { return j.Standing != owner.Unknown && j.Cluster == "" })
	if len(nameless) > 0 {
		w.reportUnknown("the Kubernetes API does not tell which cluster it is, so nobody counts as gone: the namespace kube-system cannot be read: "+nameless[0].NoCluster, nameless)
	}
}

// judgedIn returns what is known of the owners for whom addresses of the store wait.
func (w *Snapshot) judgedIn(s *lease.Store) (judged []owner.Judgement) {
	for n, l := range w.leases() {
		j := w.Owners.Judged[l.Owner]
		if lease.PathIn(n.Dir, n.Name) == s.Path() && l.State == lease.Reserved && j.Standing != "" && j.Standing != owner.Unknown {
			judged = append(judged, j)
		}
	}
	return judged
}

// judgedAs returns what is known of some owners.
func (w *Snapshot) judgedAs(match func(owner.Judgement) bool) (judged []owner.Judgement) {
	for _, j := range w.Owners.Judged {
		if match(j) {
			judged = append(judged, j)
		}
	}
	return judged
}

// checkEmptiedAPI makes the owners unknown that are gone by an API that does not know a pod which runs here: it may have been emptied, or
// be another cluster's. Without the runtime nobody knows which pods run here.
func (w *Snapshot) checkEmptiedAPI(ctx context.Context, sources Sources, pods func() ([]sandbox.RuntimeSandbox, []owner.Judgement)) {
	judged := w.judgedAs(func(j owner.Judgement) bool { return j.Standing == owner.Gone })
	if len(judged) == 0 || sources.Asker == nil {
		return
	}
	if w.Sandboxes.NotAsked != "" { // It is in Problems or Notes already.
		w.markUnknown("nobody knows whether the Kubernetes API knows all pods that run here, because the container runtime did not tell of them: "+w.Sandboxes.NotAsked, judged)
		return
	}
	runs, _ := pods()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	errs := make([]error, len(runs))
	inparallel.Do(maxParallel, len(runs), func(i int) { _, errs[i] = sources.Asker.Ask(ctx, owner.Question{Pod: runs[i].Pod}) })
	if i := slices.IndexFunc(errs, func(err error) bool { return errors.Is(err, owner.ErrUnavailable) }); i >= 0 {
		w.reportUnknown(fmt.Sprintf("the pod of sandbox %s runs here, and the Kubernetes API does not tell of it: %v. So nobody counts as gone: is it this node's API? "+
			"If the pod was deleted by force, remove its sandbox: crictl rmp -f %[1]s", runs[i].ContainerID, errs[i]), judged)
	}
}

// judgePods asks the API for the pods of the ready sandboxes, and returns its answers. runs are the sandboxes whose pods it does not know.
// Whether their owners can be read does not count: whoever makes a pod can name one that the agent may not read. Static pods have no UID in
// the API.
func (w *Snapshot) judgePods(ctx context.Context, api owner.Judge) (runs []sandbox.RuntimeSandbox, judged []owner.Judgement) {
	var pods []attachment.Owner
	for _, id := range slices.Sorted(maps.Keys(w.Sandboxes.Runtime)) { // The same words each time: the log has them once.
		if entry := w.Sandboxes.Runtime[id]; entry.Ready && entry.Pod.UID != "" {
			runs, pods = append(runs, entry), append(pods, podOwner(entry.Pod))
		}
	}
	judged = api.Judge(ctx, pods)
	lives := map[attachment.Owner]bool{}
	for _, j := range judged {
		lives[j.Owner] = j.Standing == owner.Exists
	}
	return slices.DeleteFunc(runs, func(entry sandbox.RuntimeSandbox) bool { return lives[podOwner(entry.Pod)] }), judged
}

// podOwner is the pod as an owner.
func podOwner(pod attachment.Pod) attachment.Owner {
	o := pod.Owner()
	o.UID = pod.UID
	return o
}

// reportUnknown makes the owners unknown. That is a problem.
func (w *Snapshot) reportUnknown(reason string, judged []owner.Judgement) {
	w.Problems = append(w.Problems, reason)
	w.markUnknown(reason, judged)
}

// markUnknown makes the owners unknown.
func (w *Snapshot) markUnknown(reason string, judged []owner.Judgement) {
	for _, j := range judged {
		w.Owners.Judged[j.Owner] = owner.Judgement{Owner: j.Owner, Standing: owner.Unknown, Reason: reason}
	}
}

// ownersToAsk returns the owners of reservations, each once: those in first, and most of the others. If there are more,
// it takes any of them, so that each has its turn.
func (w *Snapshot) ownersToAsk(first []attachment.Owner, limit int) (asked []attachment.Owner) {
	waiting := map[attachment.Owner]bool{}
	for n, l := range w.leases() {
		if l.State == lease.Reserved && l.Owner != (attachment.Owner{}) && !l.ReservedByHandAt(n.StoreTime) {
			waiting[l.Owner] = true
		}
	}
	for _, o := range first {
		if waiting[o] {
			asked = append(asked, o)
			delete(waiting, o)
		}
	}
	rest := slices.Collect(maps.Keys(waiting))
	rand.Shuffle(len(rest), func(i, k int) { rest[i], rest[k] = rest[k], rest[i] })
	limit = min(limit, len(rest))
	w.Owners.Unasked = len(rest) - limit
	return append(asked, rest[:limit]...)
}

// askTimeout bounds the questions about pods that run here, maxParallel is how many of them are asked at the same time.
const (
	askTimeout  = 10 * time.Second
	maxParallel = 8
)

// findUnattached asks whose the pods are that the runtime keeps running and that relink has attached to nothing. It asks
// only if there are reservations of living owners for which that can count. If it is not known whose one pod is, the others
// of its namespace prove nothing, either.
func (w *Snapshot) findUnattached(ctx context.Context, sources Sources) {
	w.Owners.Unattached = map[attachment.Owner][]sandbox.RuntimeSandbox{}
	waiting, namespaces := map[attachment.Owner]bool{}, map[string]bool{}
	for o, j := range w.Owners.Judged {
		if j.Standing == owner.Exists && onePodAtATime(o) {
			waiting[o], namespaces[o.Namespace] = true, true
		}
	}
	if sources.Asker == nil || w.Sandboxes.NotAsked != "" || len(waiting) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	attached, unknown := w.attachedContainers(), map[string]bool{}
	for id, entry := range w.Sandboxes.Runtime {
		namespace := entry.Pod.Namespace
		if !entry.Ready || attached[id] || unknown[namespace] || !namespaces[namespace] {
			continue
		}
		a, err := sources.Asker.Ask(ctx, owner.Question{Pod: entry.Pod})
		if err != nil || entry.Pod.UID == "" {
			unknown[namespace] = true
		} else if waiting[a.Owner] {
			w.Owners.Unattached[a.Owner] = append(w.Owners.Unattached[a.Owner], entry)
		}
	}
	maps.DeleteFunc(w.Owners.Unattached, func(o attachment.Owner, _ []sandbox.RuntimeSandbox) bool { return unknown[o.Namespace] })
}

// attachedContainers are the sandboxes that have a checkpoint or a lease.
func (w *Snapshot) attachedContainers() map[string]bool {
	attached := map[string]bool{}
	for _, a := range w.Attached {
		attached[a.Record.Attachment.ContainerID] = true
	}
	for _, u := range w.Unreadable {
		attached[u.ContainerID] = true
	}
	for _, l := range w.leases() {
		for _, h := range l.Holders {
			attached[h.ContainerID] = true
		}
	}
	return attached
}
