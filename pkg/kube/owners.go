package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kube/objects"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/wait"
)

const (
	// betweenTries is the time between two questions about a pod that the API refuses.
	betweenTries = 100 * time.Millisecond
	// inquiryLimit bounds the questions to a slow API about one attachment.
	inquiryLimit = 30 * time.Second
	// lateFor is how long an answer that came after its ADD had left is kept for the runtime's next try.
	lateFor = time.Minute
	// maxVerified is the number of pods whose owners are kept. A node has 110 pods by default.
	maxVerified = 1024
)

// Owners answers who owns the addresses of a pod, by the Kubernetes API. It implements owner.Asker and owner.Judge, and its
// methods may be called at any time. It has what it needs to know of the node's pods while Run runs. Before, and without the
// API's watch, it asks for each pod.
type Owners struct {
	client *Client
	log    *slog.Logger
	// node is the name of this node, empty if nobody has told it. It is proven when the watch of its pods has shown a pod that somebody
	// on this node has asked for: a name that is another node's would make the pods of this node look as if they ran elsewhere.
	node   string
	proven atomic.Bool
	// watch is nil if the node has no name: it does not watch the pods of all nodes.
	watch *podWatch
	// verified has the decision by its evidence. An owner does not change while the pod lives, and no UID comes twice.
	verified *lru.Cache
	// inquiries are the questions of ADDs that are being answered.
	inquiries singleflight.Group
	// late has the answers to questions whose askers had left.
	late *cache.LRUExpireCache
}

// evidence is what the owner of a pod is found by.
type evidence struct {
	pod        types.UID
	controller metav1.OwnerReference
	named      string
}

var (
	_ owner.Asker = (*Owners)(nil)
	_ owner.Judge = (*Owners)(nil)
)

// NewOwners returns Owners that know the pods of the node. node is its name in Kubernetes. If it is empty, nothing is watched.
func NewOwners(client *Client, node string, log *slog.Logger) *Owners {
	o := &Owners{client: client, log: log, node: node, verified: lru.New(maxVerified), late: cache.NewLRUExpireCache(maxVerified)}
	if node != "" {
		o.watch = newPodWatch(client, node, log)
	}
	return o
}

// Run watches the node's pods until ctx ends. It is called once. If the API goes away it tries again, and the log says it
// once.
func (o *Owners) Run(ctx context.Context) {
	if o.watch == nil {
		<-ctx.Done()
		return
	}
	// client-go would log each try.
	o.watch.RunWithContext(klog.NewContext(ctx, klog.Logger{}))
}

// invalid is an error that matches owner.ErrInvalid.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", owner.ErrInvalid, fmt.Errorf(format, args...))
}

// unavailable makes an error match owner.ErrUnavailable.
func unavailable(err error) error { return fmt.Errorf("%w: %w", owner.ErrUnavailable, err) }

// Ask implements owner.Asker. It takes at most owner.AskTimeout, and some microseconds if the pod and its owner were seen before. A
// claim, and the replica of a StatefulSet, are asked for each time. A question without a network is not of an ADD: its answer can free
// something, and is never an older one.
func (o *Owners) Ask(ctx context.Context, q owner.Question) (owner.Answer, error) {
	if err := q.Pod.Validate(); err != nil {
		return owner.Answer{}, invalid("%w", err)
	}
	if isStaticPodUID(q.Pod.UID) {
		return staticPodAnswer(q.Pod), nil
	}
	ctx, cancel := context.WithTimeout(ctx, owner.AskTimeout)
	defer cancel()
	if q.Network == "" || q.Pod.UID == "" {
		return o.resolveAnswer(ctx, q)
	}
	return o.inquire(ctx, q)
}

// inquire asks for an ADD. If the API is slow, a pod's questions take longer than an ADD waits. So an inquiry goes on when its asker has
// left, and the next try of the runtime joins it, or finds its answer. Only one try gets that.
func (o *Owners) inquire(ctx context.Context, q owner.Question) (owner.Answer, error) {
	key := fmt.Sprintf("%#v", q)
	if late, ok := o.late.Get(key); ok {
		o.late.Remove(key)
		return late.(owner.Answer), nil
	}
	result := o.inquiries.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), inquiryLimit)
		defer cancel()
		return o.resolveAnswer(ctx, q)
	})
	select {
	case r := <-result:
		return r.Val.(owner.Answer), r.Err
	case <-ctx.Done():
		go func() {
			if r := <-result; r.Err == nil {
				o.late.Add(key, r.Val, lateFor)
			}
		}()
		return owner.Answer{}, unavailable(errors.New("the Kubernetes API is slow: the next try goes on with this one"))
	}
}

// resolveAnswer asks the API all that the answer needs.
func (o *Owners) resolveAnswer(ctx context.Context, q owner.Question) (owner.Answer, error) {
	pod, fromWatch, err := o.pod(ctx, q.Pod, q.Network != "")
	if err != nil {
		return owner.Answer{}, err
	}
	if isMirror(pod, q.Pod.UID) {
		return staticPodAnswer(q.Pod), nil
	}
	static, err := staticOf(pod.Annotations, q.Network, q.IfName)
	if err != nil {
		return owner.Answer{}, err
	}
	d, err := o.cachedOwner(ctx, pod)
	if err != nil {
		return owner.Answer{}, err
	}
	a := d.Answer
	if a.Static = static; static != nil {
		if static.Replica, err = o.client.replica(ctx, d.Owner); err != nil {
			return owner.Answer{}, err
		}
	}
	if q.Claims {
		a.Claim, err = o.claim(ctx, q, pod, fromWatch, d)
	}
	if err != nil {
		return owner.Answer{}, err
	}
	return a, nil
}

// staticPodAnswer is the answer for a static pod: the next pod of its name is the same owner.
func staticPodAnswer(pod attachment.Pod) owner.Answer {
	return owner.Answer{Owner: pod.Owner(), Persistent: true, SinglePod: true}
}

// staticUID is the form of the UID of a static pod.
var staticUID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// isStaticPodUID says that the UID is of a static pod: 32 hexadecimal digits, the kubelet's hash of the manifest and of the
// node's name (applyDefaults in pkg/kubelet/config). The API gives each object a UUID with dashes, and lets nobody choose
// it (FillObjectMetaSystemFields in k8s.io/apiserver). So no pod of the API can be taken for a static one. An owner without
// a UID is never the same as one of the API, which has a UID.
//
// Static pods start before the API, which may need them. So their answer needs no API, and is the same whether the API
// runs or not: their annotations are never read.
func isStaticPodUID(uid string) bool {
	return staticUID.MatchString(uid)
}

// isMirror says that the pod in the API is the mirror of the static pod with the UID. A manifest can have a UID of its own,
// and an old runtime gives none. No kubelet runs a pod with this annotation that is not its own mirror.
func isMirror(pod *metav1.ObjectMeta, uid string) bool {
	mirror, found := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return found && mirror != "" && string(pod.UID) != uid && (uid == "" || uid == mirror)
}

// pod returns the metadata of a pod. fromWatch says that they are from the watch, and can be a moment old, or much older: after a restore of
// etcd from a backup, the watch goes on from a version that the API does not have yet. So the watch counts only if watched allows it.
//
// With the credentials of a kubelet, the API refuses a pod for some milliseconds after it has given it to the node: its
// authorizer has not heard of that yet. So a refusal counts only if it stays.
func (o *Owners) pod(ctx context.Context, asked attachment.Pod, watched bool) (pod *metav1.ObjectMeta, fromWatch bool, err error) {
	for try := 1; ; try++ {
		if o.watch != nil && watched { // No pod in the API is without a UID.
			if pod := o.watch.pod(asked.Namespace, asked.Name); pod != nil && string(pod.UID) == asked.UID {
				o.proven.Store(true)
				return &pod.ObjectMeta, true, nil
			}
		}
		pod, err = o.readPod(ctx, asked)
		if !errors.Is(err, objects.ErrRefused) || try == maxTries {
			return pod, false, err
		}
		if !wait.Sleep(ctx, betweenTries) {
			return nil, false, err
		}
	}
}

// readPod asks the API for a pod.
func (o *Owners) readPod(ctx context.Context, asked attachment.Pod) (*metav1.ObjectMeta, error) {
	object, err := o.client.Read(ctx, metadataOf(pods), asked.Namespace, asked.Name)
	if err != nil {
		return nil, unavailable(fmt.Errorf("the pod %s: %w", asked, err))
	}
	pod := &object.Metadata
	if uid := string(pod.UID); asked.UID != "" && uid != asked.UID && !isMirror(pod, asked.UID) {
		return nil, unavailable(fmt.Errorf("the pod %s with the UID %s is not in the API: the one of that name has the UID %s", asked, asked.UID, uid))
	}
	return pod, nil
}

// cachedOwner finds the owner of the pod, as it was found before if nothing has changed.
func (o *Owners) cachedOwner(ctx context.Context, pod *metav1.ObjectMeta) (decision, error) {
	found := evidence{pod: pod.UID, named: pod.Annotations[ownerKey]}
	if r := metav1.GetControllerOfNoCopy(pod); r != nil {
		found.controller = metav1.OwnerReference{APIVersion: r.APIVersion, Kind: r.Kind, Name: r.Name, UID: r.UID}
	}
	if d, ok := o.verified.Get(found); ok {
		return d.(decision), nil
	}
	d, sure, err := o.resolveOwner(ctx, pod)
	if err != nil {
		return decision{}, err
	}
	if sure {
		o.verified.Add(found, d)
	}
	o.log.Debug("the owner of a pod's addresses", "pod", attachment.Pod{Namespace: pod.Namespace, Name: pod.Name}, "owner", d.Owner, "why", d.reason)
	return d, nil
}

// resolveOwner finds the owner of the pod by the API. sure says that it can be kept: all that the pod refers to was there.
func (o *Owners) resolveOwner(ctx context.Context, pod *metav1.ObjectMeta) (d decision, sure bool, err error) {
	if value, found := pod.Annotations[ownerKey]; found {
		d, err = o.client.annotatedOwner(ctx, pod, value)
		return d, true, err
	}
	sure = true
	d, err = decide(pod, func(r *metav1.OwnerReference) (referent, error) {
		found, err := o.client.readReferent(ctx, pod.Namespace, r)
		if err != nil {
			return referent{}, fmt.Errorf("the %s %s, which controls the pod %s/%s: %w", r.Kind, r.Name, pod.Namespace, pod.Name, err)
		}
		sure = sure && found.exists
		return found, nil
	})
	if err != nil {
		return decision{}, false, unavailable(err)
	}
	return d, sure, nil
}

// readReferent looks for the object that a reference names. An object refers to others of its own namespace only. The API allows any
// name in a reference, of any length.
func (c *Client) readReferent(ctx context.Context, namespace string, r *metav1.OwnerReference) (referent, error) {
	k := kindOf(r) // decide asks for no others.
	if len(validation.IsDNS1123Subdomain(r.Name)) > 0 {
		return referent{}, nil // No object of these kinds can have the name.
	}
	if k.Resource != instances.Resource {
		k = metadataOf(k)
	}
	object, err := c.Read(ctx, k, namespace, r.Name)
	switch {
	case errors.Is(err, objects.ErrNotFound):
		return referent{}, nil
	case err != nil:
		return referent{}, err
	}
	s := referent{exists: object.Metadata.UID == r.UID, controller: metav1.GetControllerOf(&object.Metadata)}
	if k.Resource == instances.Resource {
		s.active, err = activePods(object)
	}
	return s, err
}

// activePods are the pods in the status of a VirtualMachineInstance: the names of their nodes by their UIDs.
func activePods(run objects.Object) (map[types.UID]string, error) {
	var status struct {
		ActivePods map[types.UID]string `json:"activePods"`
	}
	if len(run.Status) > 0 {
		if err := json.Unmarshal(run.Status, &status); err != nil {
			return nil, fmt.Errorf("its status cannot be read: %s", quoteShort(err.Error()))
		}
	}
	return status.ActivePods, nil
}

// claim returns the IPAMClaim of the interface, nil for none. d says who the pod runs for. An interface can be added to a running pod: then the watch may
// not have the annotation yet that the runtime has seen. The first interface was there from the beginning.
func (o *Owners) claim(ctx context.Context, q owner.Question, pod *metav1.ObjectMeta, fromWatch bool, d decision) (*owner.Claim, error) {
	name, listed, err := claimOf(pod, q.IfName)
	if err == nil && !listed && fromWatch && q.IfName != firstIfName {
		if pod, err = o.readPod(ctx, q.Pod); err != nil {
			return nil, err
		}
		name, _, err = claimOf(pod, q.IfName)
	}
	if err != nil || name == "" {
		return nil, err
	}
	return o.client.claim(ctx, d, name, q.Network)
}
