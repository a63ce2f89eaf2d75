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

// distrustCluster makes the owners unknown that another cluster's API has judged: the kubeconfig may be wrong. A store says which
// cluster is right. For one that knows none yet, it is that of an API which knows an owner of the store, or a pod that runs here.
func (w *World) distrustCluster(ctx context.Context, from Sources) {
	w.distrustNameless()
	w.Owners.NewClusters = map[string]string{}
	runs := sync.OnceValue(func() map[string]bool { return w.clustersOfPods(ctx, from) })
	for _, s := range from.Leases {
		known := map[string]bool{} // The clusters whose APIs have judged owners of the store: do they know one?
		judged := w.judgedIn(s)
		for _, j := range judged {
			known[j.Cluster] = known[j.Cluster] || j.Standing == owner.Lives
		}
		for uid, knows := range known {
			err := s.OfCluster(ctx, uid)
			if errors.Is(err, lease.ErrNoCluster) && (knows || runs()[uid]) {
				w.Owners.NewClusters[s.Path()], err = uid, nil
			}
			if err != nil {
				w.distrust(err.Error(), slices.DeleteFunc(slices.Clone(judged), func(j owner.Judgement) bool { return j.Cluster != uid }))
			}
		}
	}
}

// distrustNameless makes the owners unknown that an API has judged which does not tell its cluster.
func (w *World) distrustNameless() {
	var nameless []owner.Judgement
	for _, j := range w.Owners.Judged {
		if j.Standing != owner.Unknown && j.Cluster == "" {
			nameless = append(nameless, j)
		}
	}
	if len(nameless) > 0 {
		w.distrust("the Kubernetes API does not tell which cluster it is, so nobody counts as gone: the namespace kube-system cannot be read: "+nameless[0].NoCluster, nameless)
	}
}

// judgedIn returns what is known of the owners for whom addresses of the store wait.
func (w *World) judgedIn(s *lease.Store) (judged []owner.Judgement) {
	for _, n := range w.Networks {
		if lease.PathIn(n.Dir, n.Name) != s.Path() {
			continue
		}
		for _, l := range n.Leases {
			if j, is := w.Owners.Judged[l.Owner]; is && l.State == lease.Reserved && j.Standing != owner.Unknown {
				judged = append(judged, j)
			}
		}
	}
	return judged
}

// mostPods bounds what it costs to find out that an API knows a pod of this node.
const mostPods = 16

// clustersOfPods returns the clusters whose APIs know pods that run here. It asks the Judge, which also tells the cluster.
func (w *World) clustersOfPods(ctx context.Context, from Sources) map[string]bool {
	var pods []attachment.Owner
	for _, told := range w.Sandboxes.Runtime {
		if told.Ready && told.Pod.UID != "" && len(pods) < mostPods {
			pods = append(pods, itself(told.Pod))
		}
	}
	all := map[string]bool{}
	for _, j := range from.Judge.Judge(ctx, pods) {
		if j.Standing == owner.Lives {
			all[j.Cluster] = true
		}
	}
	return all
}

// distrustEmptied makes the owners unknown that are gone by an API that does not know a pod which runs here: it may have been emptied, or
// be another cluster's. Without the runtime nobody knows which pods run here.
func (w *World) distrustEmptied(ctx context.Context, from Sources) {
	var gone []owner.Judgement
	for _, j := range w.Owners.Judged {
		if j.Standing == owner.Gone {
			gone = append(gone, j)
		}
	}
	if len(gone) == 0 || from.Asker == nil {
		return
	}
	if w.Sandboxes.NotAsked != "" { // It is in Problems or Notes already.
		w.doubt("nobody knows whether the Kubernetes API knows all pods that run here, because the container runtime did not tell of them: "+w.Sandboxes.NotAsked, gone)
		return
	}
	runs := w.unjudgedPods(ctx, from.Judge)
	ctx, cancel := context.WithTimeout(ctx, whoseWait)
	defer cancel()
	errs := make([]error, len(runs))
	inparallel.Do(atOnce, len(runs), func(i int) { _, errs[i] = from.Asker.Ask(ctx, owner.Question{Pod: runs[i].Pod}) })
	if i := slices.IndexFunc(errs, func(err error) bool { return errors.Is(err, owner.ErrUnavailable) }); i >= 0 {
		w.distrust(fmt.Sprintf("the pod of sandbox %s runs here, and the Kubernetes API does not tell of it: %v. So nobody counts as gone: is it this node's API? "+
			"If the pod was deleted by force, remove its sandbox: crictl rmp -f %[1]s", runs[i].ContainerID, errs[i]), gone)
	}
}

// unjudgedPods returns the ready sandboxes whose pods do not live by the Judge. The API has all others. Whether their owners can be read
// does not count: whoever makes a pod can name one that the agent may not read. Static pods have no UID in the API.
func (w *World) unjudgedPods(ctx context.Context, by owner.Judge) (runs []sandbox.OfRuntime) {
	var pods []attachment.Owner
	for _, id := range slices.Sorted(maps.Keys(w.Sandboxes.Runtime)) { // The same words each time: the log has them once.
		if told := w.Sandboxes.Runtime[id]; told.Ready && told.Pod.UID != "" {
			runs, pods = append(runs, told), append(pods, itself(told.Pod))
		}
	}
	lives := map[attachment.Owner]bool{}
	for _, j := range by.Judge(ctx, pods) {
		lives[j.Owner] = j.Standing == owner.Lives
	}
	return slices.DeleteFunc(runs, func(told sandbox.OfRuntime) bool { return lives[itself(told.Pod)] })
}

// itself is the pod as an owner.
func itself(pod attachment.Pod) attachment.Owner {
	o := pod.Owner()
	o.UID = pod.UID
	return o
}

// distrust makes the owners unknown. That is a problem.
func (w *World) distrust(why string, judged []owner.Judgement) {
	w.Problems = append(w.Problems, why)
	w.doubt(why, judged)
}

// doubt makes the owners unknown.
func (w *World) doubt(why string, judged []owner.Judgement) {
	for _, j := range judged {
		w.Owners.Judged[j.Owner] = owner.Judgement{Owner: j.Owner, Standing: owner.Unknown, Why: why}
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

// whoseWait bounds the questions about pods that run here, atOnce is how many of them are asked at the same time.
const (
	whoseWait = 10 * time.Second
	atOnce    = 8
)

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
