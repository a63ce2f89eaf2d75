package kube

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kube/objects"
	"github.com/relink-cni/relink/pkg/printable"
)

// NetworkReady is the type of the condition of pods, and of the readiness gate. PodsCutOff is that of the node's condition.
const (
	NetworkReady = "relink.dev/network-ready"
	PodsCutOff   = "RelinkPodsCutOff"
)

// What became of patches. Counts has each of them. Others are sent and refused.
const (
	// objectGone: the object is gone, or is another one under the same name.
	objectGone = "gone"
	// failed: the API did not answer, or answered with an error. The patch comes again.
	failed = "failed"
)

const (
	// patchesPerSecond and patchBurst bound the patches of a node: those of 250 pods take 3 s.
	patchesPerSecond, patchBurst = 50, 100
	// patchWorkers is the number of patches that wait for a slow API at once.
	patchWorkers = 10
	// debounce is how long a state lasts before it is written, and messageDebounce how long a change within it: a node restores one attachment after
	// the other, and has another number each time.
	debounce, messageDebounce = 100 * time.Millisecond, 2 * time.Second
	// firstHold and lastHold bound the time between the patch that begins a loss and that of its end. It doubles with each loss, and begins anew
	// after a minute without one.
	firstHold, lastHold = 250 * time.Millisecond, 30 * time.Second
	// firstRetry and lastRetry bound the time between two tries while the API does not answer.
	firstRetry, lastRetry = 250 * time.Millisecond, 3 * time.Second
	// firstAppeal and lastAppeal bound the time between two tries while the API refuses all.
	firstAppeal, lastAppeal = time.Second, 5 * time.Minute
)

// Conditions writes conditions of pods that have the readiness gate NetworkReady, and the condition PodsCutOff of their node. SetPod,
// ForgetPod and SetNode may be called at any time, and wait for nothing. Run writes what was set last, and only what the API does not
// have. So an API that was away gets one patch for each object whose condition differs.
type Conditions struct {
	client *Client
	// node is empty if the node has no name. watch is nil then.
	node  string
	watch *podWatch
	// queue has the objects to look at. No pod stands for the node.
	queue   workqueue.TypedDelayingInterface[attachment.Pod]
	limiter flowcontrol.RateLimiter
	// holds has the objects that were lost a moment ago, retries whether the API is away, and appeals the namespaces whose pods the API refuses. No
	// namespace stands for the node.
	holds, retries, appeals *flowcontrol.Backoff
	outage                  *outage
	log                     *slog.Logger

	mu sync.Mutex
	// refusals are those of appeals.
	refusals map[string]*outage
	wanted   map[attachment.Pod]condition
	// written are the pods whose conditions the watch may not show yet.
	written map[attachment.Pod]writtenCondition
	counts  map[string]uint64
}

// writtenCondition is a condition that the API has since a version of the pod.
type writtenCondition struct {
	condition
	version string
}

// condition is a condition of a pod or of a node in the API.
type condition struct {
	Type               string                 `json:"type"`
	Status             corev1.ConditionStatus `json:"status"`
	Reason             string                 `json:"reason"`
	Message            string                 `json:"message"`
	LastTransitionTime metav1.Time            `json:"lastTransitionTime"`
}

// isLoss says that the condition tells of a loss.
func (c condition) isLoss() bool { return (c.Type == PodsCutOff) == (c.Status == corev1.ConditionTrue) }

// after is a pure function: it says what to write, and whether the API has something else. present is what the API has, nil for nothing.
func (c condition) after(present *condition, instant time.Time) (next condition, differs bool) {
	c.LastTransitionTime = metav1.NewTime(instant)
	if present != nil && present.Status == c.Status {
		c.LastTransitionTime = present.LastTransitionTime
	}
	return c, present == nil || present.Status != c.Status || present.Reason != c.Reason || present.Message != c.Message
}

// NewConditions returns Conditions of the node of the Owners. They share the watch of its pods.
func NewConditions(owners *Owners, log *slog.Logger) *Conditions {
	c := &Conditions{
		client: owners.client, node: owners.node, watch: owners.watch,
		queue:   workqueue.NewTypedDelayingQueue[attachment.Pod](),
		limiter: flowcontrol.NewTokenBucketRateLimiter(patchesPerSecond, patchBurst),
		holds:   flowcontrol.NewBackOff(firstHold, lastHold), retries: flowcontrol.NewBackOff(firstRetry, lastRetry), appeals: flowcontrol.NewBackOff(firstAppeal, lastAppeal),
		outage:   &outage{log: log, lostMessage: "the Kubernetes API does not answer: conditions wait", backMessage: "the Kubernetes API answers again: conditions are written"},
		log:      log,
		refusals: map[string]*outage{},
		wanted:   map[attachment.Pod]condition{}, written: map[attachment.Pod]writtenCondition{}, counts: map[string]uint64{sent: 0, objectGone: 0, refused: 0, failed: 0},
	}
	if c.watch != nil {
		_, _ = c.watch.AddEventHandler(cache.ResourceEventHandlerFuncs{ // It fails only after the informer has stopped.
			AddFunc:    func(o any) { c.queue.Add(identityOf(&o.(*watchedPod).ObjectMeta)) },
			UpdateFunc: func(_, o any) { c.queue.Add(identityOf(&o.(*watchedPod).ObjectMeta)) },
			DeleteFunc: func(o any) {
				if p := cachedOf[gate](o); p != nil {
					c.ForgetPod(identityOf(&p.ObjectMeta))
				}
			},
		})
	}
	return c
}

// Counts returns how many patches there were so far, by what became of them.
func (c *Conditions) Counts() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

// SetPod sets the condition of a pod. It is True if the pod is ready, otherwise False. A pod without a UID has none.
func (c *Conditions) SetPod(pod attachment.Pod, ready bool, reason, message string) {
	if pod.UID != "" && pod.Validate() == nil {
		c.set(pod, NetworkReady, ready, reason, message)
	}
}

// ForgetPod leaves the condition of a pod as it is.
func (c *Conditions) ForgetPod(pod attachment.Pod) {
	if pod.UID == "" { // It has no condition, and its UID is that of the node in holds.
		return
	}
	c.mu.Lock()
	delete(c.wanted, pod)
	delete(c.written, pod)
	c.mu.Unlock()
	c.holds.DeleteEntry(pod.UID)
}

// SetNode sets the condition of the node.
func (c *Conditions) SetNode(cutOff bool, reason, message string) {
	c.set(attachment.Pod{}, PodsCutOff, cutOff, reason, message)
}

func (c *Conditions) set(pod attachment.Pod, kind string, holds bool, reason, message string) {
	wanted := condition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: printable.Shorten(message, maxMessage)}
	if holds {
		wanted.Status = corev1.ConditionTrue
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch before := c.wanted[pod]; {
	case before == wanted:
		return
	case before.Status == wanted.Status:
		c.queue.AddAfter(pod, messageDebounce)
	default:
		c.queue.AddAfter(pod, debounce)
	}
	c.wanted[pod] = wanted
}

// Run writes conditions until ctx ends. Nobody waits for the API at the end: the next agent finds out again what to write.
func (c *Conditions) Run(ctx context.Context) {
	var workers sync.WaitGroup
	for range patchWorkers {
		workers.Go(func() {
			for {
				pod, ended := c.queue.Get()
				if ended {
					return
				}
				if c.node != "" && ctx.Err() == nil {
					c.update(ctx, pod)
				}
				c.queue.Done(pod)
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	workers.Wait()
}

// update writes the condition of a pod, or of the node, if the API has another one.
func (c *Conditions) update(ctx context.Context, pod attachment.Pod) {
	c.mu.Lock()
	wanted, due := c.wanted[pod]
	c.mu.Unlock()
	kind, name, uid, present := objects.Nodes, c.node, types.UID(""), (*condition)(nil)
	if pod != (attachment.Pod{}) {
		kind, name, uid = pods, pod.Name, types.UID(pod.UID)
		var gated bool
		present, gated = c.present(pod)
		due = due && gated
	}
	next, differs := wanted.after(present, time.Now())
	if !due || !differs {
		return
	}
	if hold := c.hold(pod, wanted); hold > 0 {
		c.queue.AddAfter(pod, hold)
		return
	}
	if c.limiter.Wait(ctx) != nil {
		return
	}
	var changed objects.Object
	var err error
	if kind.Resource == objects.Nodes.Resource {
		uid, present, err = c.readNode(ctx)
		next, differs = wanted.after(present, time.Now())
	}
	if err == nil && differs {
		changed, err = c.client.PatchCondition(ctx, kind, pod.Namespace, name, uid, next)
	}
	if ctx.Err() == nil && (err != nil || differs) {
		c.answered(pod, present, writtenCondition{next, changed.Metadata.ResourceVersion}, err)
	}
}

// present returns what the API has of the pod's condition, nil for nothing. gated says that the pod exists and has the readiness gate.
func (c *Conditions) present(pod attachment.Pod) (present *condition, gated bool) {
	watched := c.watch.pod(pod.Namespace, pod.Name)
	if watched == nil || !watched.value.gated || identityOf(&watched.ObjectMeta) != pod {
		return nil, false
	}
	c.mu.Lock()
	written := c.written[pod]
	c.mu.Unlock()
	if order, err := resourceversion.CompareResourceVersion(watched.ResourceVersion, written.version); err == nil && order < 0 {
		return &written.condition, true
	}
	return watched.value.condition, true
}

// readNode returns what the API has of the node.
func (c *Conditions) readNode(ctx context.Context) (types.UID, *condition, error) {
	object, err := c.client.Read(ctx, objects.Nodes, "", c.node)
	if err != nil {
		return "", nil, err
	}
	var status struct {
		Conditions []condition `json:"conditions"`
	}
	err = json.Unmarshal(object.Status, &status)
	for _, present := range status.Conditions {
		if present.Type == PodsCutOff {
			return object.Metadata.UID, &present, err
		}
	}
	return object.Metadata.UID, nil, err
}

// hold is when to look at the object again. It is 0 if the condition may be written.
func (c *Conditions) hold(pod attachment.Pod, wanted condition) time.Duration {
	const steps = 4 // A Backoff does not tell how much of its time is left.
	instant := time.Now()
	if !wanted.isLoss() && c.holds.IsInBackOffSinceUpdate(pod.UID, instant) {
		return c.holds.Get(pod.UID) / steps
	}
	for _, wait := range []struct {
		*flowcontrol.Backoff
		id string
	}{{c.retries, ""}, {c.appeals, pod.Namespace}} {
		if wait.IsInBackOffSinceUpdate(wait.id, instant) {
			return wait.Get(wait.id) / steps
		}
	}
	return 0
}

// answered notes what became of a patch. What has failed comes again. If a pod is gone or was changed meanwhile, the watch tells. present is what
// the API had before.
func (c *Conditions) answered(pod attachment.Pod, present *condition, written writtenCondition, err error) {
	result, absent := failed, errors.Is(err, objects.ErrNotFound) || errors.Is(err, objects.ErrConflict)
	switch {
	case err == nil:
		result = sent
	case absent && pod != (attachment.Pod{}):
		result = objectGone
	case absent || errors.Is(err, objects.ErrRefused): // A node that the API does not know can come.
		result = refused
	}
	c.mu.Lock()
	_, wanted := c.wanted[pod]
	if c.counts[result]++; result == sent && wanted {
		c.written[pod] = written
	}
	refusal := c.refusals[pod.Namespace]
	if refusal == nil {
		subject := "the node"
		if pod.Namespace != "" {
			subject = "pods in " + pod.Namespace
		}
		refusal = &outage{log: c.log, lostMessage: "the Kubernetes API refuses conditions of " + subject, backMessage: "the Kubernetes API takes conditions of " + subject}
		c.refusals[pod.Namespace] = refusal
	}
	c.mu.Unlock()
	if result == failed {
		c.outage.answered(err)
		lengthen(c.retries, "")
	} else {
		c.outage.answered(nil)
		c.retries.DeleteEntry("")
	}
	switch result {
	case sent:
		refusal.answered(nil)
		c.appeals.DeleteEntry(pod.Namespace)
		if begins := present == nil || present.Status != written.Status; wanted && begins && written.isLoss() {
			c.holds.Next(pod.UID, time.Now())
		}
		return
	case objectGone:
		return
	case refused:
		refusal.answered(err)
		lengthen(c.appeals, pod.Namespace)
	}
	c.queue.AddAfter(pod, c.hold(pod, written.condition))
}

// lengthen begins the next wait, unless one lasts already: many patches fail at once.
func lengthen(b *flowcontrol.Backoff, id string) {
	if instant := time.Now(); !b.IsInBackOffSinceUpdate(id, instant) {
		b.Next(id, instant)
	}
}
