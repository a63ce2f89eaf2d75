package audit

import (
	"cmp"
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
	w.Owners.Judged = map[attachment.Owner]owner.Judgement{}
	if sources.Judge == nil {
		return
	}
	asked := w.ownersToAsk(sources.FirstOwners, cmp.Or(sources.MaxOwners, DefaultMaxOwners))
	if len(asked) == 0 {
		return
	}
	for i, j := range sources.Judge.Judge(ctx, asked) {
		if i < len(asked) && j.Owner == asked[i] { // What is not an answer to the question says nothing.
			w.Owners.Judged[asked[i]] = j
		}
	}
	w.checkClusters(ctx, sources)
	w.checkEmptiedAPI(ctx, sources)
}

// checkClusters makes the owners unknown that another cluster's API has judged: the kubeconfig may be wrong. A store says which
// cluster is right. For one that knows none yet, it is that of an API which knows an owner of the store, or a pod that runs here.
func (w *Snapshot) checkClusters(ctx context.Context, sources Sources) {
	w.checkNamelessClusters()
	w.Owners.NewClusters = map[string]string{}
	runs := sync.OnceValue(func() map[string]bool { return w.clustersOfPods(ctx, sources) })
	for _, s := range sources.Leases {
		clusters := map[string]bool{} // The clusters whose APIs have judged owners of the store: do they know one?
		judged := w.judgedIn(s)
		for _, j := range judged {
			clusters[j.Cluster] = clusters[j.Cluster] || j.Standing == owner.Exists
		}
		for uid, knows := range clusters {
			err := s.CheckCluster(ctx, uid)
			if errors.Is(err, lease.ErrNoCluster) && (knows || runs()[uid]) {
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
	var nameless []owner.Judgement
	for _, j := range w.Owners.Judged {
		if j.Standing != owner.Unknown && j.Cluster == "" {
			nameless = append(nameless, j)
		}
	}
	if len(nameless) > 0 {
		w.reportUnknown("the Kubernetes API does not tell which cluster it is, so nobody counts as gone: the namespace kube-system cannot be read: "+nameless[0].NoCluster, nameless)
	}
}

// judgedIn returns what is known of the owners for whom addresses of the store wait.
func (w *Snapshot) judgedIn(s *lease.Store) (judged []owner.Judgement) {
	for _, n := range w.Networks {
		if lease.PathIn(n.Dir, n.Name) != s.Path() {
			continue
		}
		for _, l := range n.Leases {
			if j, ok := w.Owners.Judged[l.Owner]; ok && l.State == lease.Reserved && j.Standing != owner.Unknown {
				judged = append(judged, j)
			}
		}
	}
	return judged
}

// maxPods bounds what it costs to find out that an API knows a pod of this node.
const maxPods = 16

// clustersOfPods returns the clusters whose APIs know pods that run here. It asks the Judge, which also tells the cluster.
func (w *Snapshot) clustersOfPods(ctx context.Context, sources Sources) map[string]bool {
	var pods []attachment.Owner
	for _, entry := range w.Sandboxes.Runtime {
		if entry.Ready && entry.Pod.UID != "" && len(pods) < maxPods {
			pods = append(pods, podOwner(entry.Pod))
		}
	}
	clusters := map[string]bool{}
	for _, j := range sources.Judge.Judge(ctx, pods) {
		if j.Standing == owner.Exists {
			clusters[j.Cluster] = true
		}
	}
	return clusters
}

// checkEmptiedAPI makes the owners unknown that are gone by an API that does not know a pod which runs here: it may have been emptied, or
// be another cluster's. Without the runtime nobody knows which pods run here.
func (w *Snapshot) checkEmptiedAPI(ctx context.Context, sources Sources) {
	var judged []owner.Judgement
	for _, j := range w.Owners.Judged {
		if j.Standing == owner.Gone {
			judged = append(judged, j)
		}
	}
	if len(judged) == 0 || sources.Asker == nil {
		return
	}
	if w.Sandboxes.NotAsked != "" { // It is in Problems or Notes already.
		w.markUnknown("nobody knows whether the Kubernetes API knows all pods that run here, because the container runtime did not tell of them: "+w.Sandboxes.NotAsked, judged)
		return
	}
	runs := w.unjudgedPods(ctx, sources.Judge)
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	errs := make([]error, len(runs))
	inparallel.Do(maxParallel, len(runs), func(i int) { _, errs[i] = sources.Asker.Ask(ctx, owner.Question{Pod: runs[i].Pod}) })
	if i := slices.IndexFunc(errs, func(err error) bool { return errors.Is(err, owner.ErrUnavailable) }); i >= 0 {
		w.reportUnknown(fmt.Sprintf("the pod of sandbox %s runs here, and the Kubernetes API does not tell of it: %v. So nobody counts as gone: is it this node's API? "+
			"If the pod was deleted by force, remove its sandbox: crictl rmp -f %[1]s", runs[i].ContainerID, errs[i]), judged)
	}
}

// unjudgedPods returns the ready sandboxes whose pods do not live by the Judge. The API has all others. Whether their owners can be read
// does not count: whoever makes a pod can name one that the agent may not read. Static pods have no UID in the API.
func (w *Snapshot) unjudgedPods(ctx context.Context, api owner.Judge) (runs []sandbox.RuntimeSandbox) {
	var pods []attachment.Owner
	for _, id := range slices.Sorted(maps.Keys(w.Sandboxes.Runtime)) { // The same words each time: the log has them once.
		if entry := w.Sandboxes.Runtime[id]; entry.Ready && entry.Pod.UID != "" {
			runs, pods = append(runs, entry), append(pods, podOwner(entry.Pod))
		}
	}
	lives := map[attachment.Owner]bool{}
	for _, j := range api.Judge(ctx, pods) {
		lives[j.Owner] = j.Standing == owner.Exists
	}
	return slices.DeleteFunc(runs, func(entry sandbox.RuntimeSandbox) bool { return lives[podOwner(entry.Pod)] })
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
// it begins with any of them, so that each has its turn.
func (w *Snapshot) ownersToAsk(first []attachment.Owner, limit int) (asked []attachment.Owner) {
	waiting := map[attachment.Owner]bool{}
	var rest []attachment.Owner
	for _, n := range w.Networks {
		for _, l := range n.Leases {
			if l.State != lease.Reserved || l.Owner == (attachment.Owner{}) || l.ReservedByHandAt(n.StoreTime) || waiting[l.Owner] {
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
	if len(rest) > limit {
		start = rand.IntN(len(rest))
	}
	for i := range rest {
		o := rest[(start+i)%len(rest)]
		if !waiting[o] {
			continue
		}
		if limit == 0 {
			w.Owners.Unasked++
			continue
		}
		limit--
		asked = append(asked, o)
	}
	return asked
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
	waiting := w.livingOwners()
	if sources.Asker == nil || w.Sandboxes.NotAsked != "" || len(waiting) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	attached, unknown := w.attachedContainers(), map[string]bool{}
	for id, entry := range w.Sandboxes.Runtime {
		namespace := entry.Pod.Namespace
		if !entry.Ready || attached[id] || unknown[namespace] || !waiting.inNamespace(namespace) {
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

// owners is a set of owners.
type owners map[attachment.Owner]bool

func (set owners) inNamespace(namespace string) bool {
	for o := range set {
		if o.Namespace == namespace {
			return true
		}
	}
	return false
}

// livingOwners are those of reservations that live, and have one pod at a time.
func (w *Snapshot) livingOwners() owners {
	set := owners{}
	for o, j := range w.Owners.Judged {
		if j.Standing == owner.Exists && onePodAtATime(o) {
			set[o] = true
		}
	}
	return set
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
	for _, n := range w.Networks {
		for _, l := range n.Leases {
			for _, h := range l.Holders {
				attached[h.ContainerID] = true
			}
		}
	}
	return attached
}
