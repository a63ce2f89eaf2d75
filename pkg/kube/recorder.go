package kube

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kube/objects"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/wait"
)

// What became of events. Counts has each of them.
const (
	// sent: it is in the API.
	sent = "sent"
	// podGone: no pod lives under the UID.
	podGone = "pod_gone"
	// noUID: it is not known which pod it is.
	noUID = "no_uid"
	// rateLimited: there were too many events on this pod.
	rateLimited = "rate_limited"
	// queueFull: newer events took the event's place while the API did not answer.
	queueFull = "queue_full"
	// expired: the API did not answer for maxAge.
	expired = "expired"
	// refused: the API does not allow the event, or rejects it as invalid.
	refused = "refused"
)

const (
	// requestsPerSecond and burst bound the requests of a node: each event takes two of them. The events of 250 pods are
	// written in 23 s.
	requestsPerSecond, burst = 20, 40
	// maxQueued is the number of events that wait while the API does not answer: the loss and the return of 500 pods.
	maxQueued = 1000
	// maxAge is how long an event waits. By default the API forgets an event after an hour.
	maxAge = time.Hour
	// firstWait and lastWait bound the time between two tries. It doubles each time.
	firstWait, lastWait = time.Second, 5 * time.Second
	// notReady is how long the API may refuse everything after it was away: it answers before it knows the roles.
	notReady = 30 * time.Second
	// maxCorrelated is the number of events and of pods that are kept to count what comes again.
	maxCorrelated = 1024
	// maxMessage is the greatest length of a message in bytes, as in events.k8s.io.
	maxMessage = 1024
)

// Recorder writes events on pods and AddressPools. Record may be called at any time, from several goroutines. Run writes them.
//
// client-go's own recorders (tools/record, tools/events) drop events without a way to count them, and tools/events
// makes a goroutine for each waiting event. So the Recorder has its own queue. As in the kubelet, client-go's
// EventCorrelator finds repeated events.
type Recorder struct {
	client  *Client
	source  corev1.EventSource
	log     *slog.Logger
	queue   chan *queued
	limiter flowcontrol.RateLimiter
	// Only Run uses correlator.
	correlator *record.EventCorrelator
	outage     *outage
	// refusing says that the last request was refused. Only Run uses it.
	refusing bool
	// awayAt is when the API last did not answer. Only Run uses it.
	awayAt time.Time
	// Tests change clock and firstWait.
	clock     func() time.Time
	firstWait time.Duration

	mu     sync.Mutex
	counts map[string]uint64
}

// queued is an event that is to be written.
type queued struct {
	pod       attachment.Pod
	timestamp time.Time
	event     *corev1.Event
	// correlated is what to write: the event, or a change of an earlier one. It is nil before the pod was found alive.
	correlated *record.EventCorrelateResult
}

// NewRecorder returns a Recorder of events that component on node reports.
func NewRecorder(client *Client, component, node string, log *slog.Logger) *Recorder {
	r := &Recorder{
		client: client, source: corev1.EventSource{Component: component, Host: node}, log: log,
		queue: make(chan *queued, maxQueued), limiter: flowcontrol.NewTokenBucketRateLimiter(requestsPerSecond, burst),
		correlator: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{LRUCacheSize: maxCorrelated}),
		clock:      time.Now, firstWait: firstWait, counts: map[string]uint64{},
		outage: &outage{log: log, lostMessage: "the Kubernetes API does not answer: events wait", backMessage: "the Kubernetes API answers again: events are written"},
	}
	for _, result := range []string{sent, podGone, noUID, rateLimited, queueFull, expired, refused} {
		r.counts[result] = 0
	}
	return r
}

// Counts returns how many events there were so far, by what became of them. Those that wait are not in it.
func (r *Recorder) Counts() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts)
}

func (r *Recorder) count(result string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[result]++
}

// Record takes an event on the pod, and waits for nothing. If too many events wait, the oldest of them is dropped. warning
// is its type: Warning or Normal.
func (r *Recorder) Record(pod attachment.Pod, warning bool, reason, message string) {
	if pod.UID == "" || pod.Validate() != nil {
		r.count(noUID)
		return
	}
	r.record(corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID)}, pod, warning, reason, message)
}

// RecordPool is Record for an AddressPool.
func (r *Recorder) RecordPool(p pool.Pool, warning bool, reason, message string) {
	k := objects.AddressPools
	r.record(corev1.ObjectReference{APIVersion: k.Group + "/" + k.Versions[0], Kind: k.Name, Name: p.Metadata.Name, UID: types.UID(p.Metadata.UID)}, attachment.Pod{}, warning, reason, message)
}

// record takes an event on the object. The pod is nobody if the object is none.
func (r *Recorder) record(object corev1.ObjectReference, pod attachment.Pod, warning bool, reason, message string) {
	kind := corev1.EventTypeNormal
	if warning {
		kind = corev1.EventTypeWarning
	}
	timestamp := r.clock()
	// Two events on an object can have one time.
	name := util.GenerateEventName(object.Name, rand.Int64())
	q := &queued{pod: pod, timestamp: timestamp, event: &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: cmp.Or(object.Namespace, metav1.NamespaceDefault), Name: name},
		InvolvedObject: object, Type: kind, Reason: reason, Message: printable.Shorten(message, maxMessage),
		FirstTimestamp: metav1.NewTime(timestamp), LastTimestamp: metav1.NewTime(timestamp), Count: 1,
		Source: r.source, ReportingController: r.source.Component, ReportingInstance: r.source.Host,
	}}
	for {
		select {
		case r.queue <- q:
			return
		default:
		}
		select {
		case <-r.queue:
			r.count(queueFull)
		default:
		}
	}
}

// Run writes events until ctx ends. Events that wait then are lost: nobody waits for the API at the end.
func (r *Recorder) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-r.queue:
			r.deliver(ctx, q)
		}
	}
}

// deliver writes an event, and tries again as long as the API does not answer.
func (r *Recorder) deliver(ctx context.Context, q *queued) {
	for pause := r.firstWait; ; pause = min(2*pause, lastWait) {
		if r.clock().Sub(q.timestamp) > maxAge {
			r.count(expired)
			return
		}
		result, err := r.write(ctx, q)
		if ctx.Err() != nil {
			return
		}
		if err == nil || !r.isTemporary(err) {
			r.answered(result, err)
			return
		}
		r.outage.answered(err)
		if !wait.Sleep(ctx, pause) {
			return
		}
	}
}

// write asks for the pod, and writes the event if the pod lives. The result counts if there is no error.
func (r *Recorder) write(ctx context.Context, q *queued) (result string, err error) {
	if q.correlated == nil {
		switch lives, err := r.podLives(ctx, q.pod); {
		case err != nil:
			return "", err
		case !lives:
			return podGone, nil
		}
		// Only now: an event that is not written is not to be counted with those that come again.
		if q.correlated, err = r.correlator.EventCorrelate(q.event); err != nil {
			return "", apierrors.NewBadRequest(err.Error())
		}
	}
	if q.correlated.Skip {
		return rateLimited, nil
	}
	if err := r.limiter.Wait(ctx); err != nil {
		return "", err
	}
	return r.writeCorrelated(ctx, q.correlated)
}

// podLives asks for the pod. An event on another object is written whatever became of the object.
func (r *Recorder) podLives(ctx context.Context, pod attachment.Pod) (bool, error) {
	if pod == (attachment.Pod{}) {
		return true, nil
	}
	if err := r.limiter.Wait(ctx); err != nil {
		return false, err
	}
	lives, err := r.client.podExists(ctx, pod)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return lives, err
}

// writeCorrelated writes what the correlator made of an event.
func (r *Recorder) writeCorrelated(ctx context.Context, c *record.EventCorrelateResult) (result string, err error) {
	events, stored := r.client.events, &corev1.Event{}
	repeated := c.Event.Count > 1
	if repeated {
		err = events.Patch(types.StrategicMergePatchType).Namespace(c.Event.Namespace).Resource("events").Name(c.Event.Name).Body(c.Patch).Do(ctx).Into(stored)
	}
	if !repeated || apierrors.IsNotFound(err) { // The API forgets events.
		c.Event.ResourceVersion = ""
		err = events.Post().Namespace(c.Event.Namespace).Resource("events").Body(c.Event).Do(ctx).Into(stored)
	}
	switch {
	case apierrors.IsAlreadyExists(err): // An earlier try wrote it, and its answer was lost.
		return sent, nil
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return podGone, nil // The namespace went meanwhile.
	case err != nil:
		return "", err
	}
	r.correlator.UpdateState(stored)
	return sent, nil
}

// isTemporary says that the same request can work later. An API that does not answer may answer later. The kubelet
// replaces a certificate or a token that has expired.
func (r *Recorder) isTemporary(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		r.awayAt = r.clock()
		return true
	}
	switch code := status.Status().Code; code {
	case http.StatusForbidden:
		return r.clock().Sub(r.awayAt) < notReady
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	default:
		return code >= http.StatusInternalServerError
	}
}

// answered counts the event, and logs that the API refuses for the first time.
func (r *Recorder) answered(result string, err error) {
	r.outage.answered(nil)
	if err != nil {
		if result = refused; !r.refusing {
			r.log.Warn("the Kubernetes API refuses an event", "error", printable.Joined(err))
		}
	}
	r.refusing = err != nil
	r.count(result)
}
