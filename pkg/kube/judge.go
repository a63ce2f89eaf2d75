package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/pkg/kube/objects"
	"github.com/relink-cni/relink/pkg/owner"
)

const (
	// judgeLimit bounds the time of Judge, and readLimit that of each object: one that hangs does not take the time of
	// the rest.
	judgeLimit, readLimit = 30 * time.Second, 5 * time.Second
	// parallelReads is the number of requests of Judge at the same time.
	parallelReads = 8
)

// readResult is what the API says about a place.
type readResult struct {
	kind   objects.Kind
	object objects.Object
	err    error
}

// Judge implements owner.Judge. It takes at most judgeLimit, and reads each object once. Then it reads the pod of each ordinal whose
// owner lives.
func (o *Owners) Judge(ctx context.Context, owners []attachment.Owner) []owner.Judgement {
	ctx, cancel := context.WithTimeout(ctx, judgeLimit)
	defer cancel()
	readings := map[attachment.Owner]*readResult{}
	kinds := map[schema.GroupKind]readResult{}
	for _, workload := range owners {
		object := objectOf(workload)
		if readings[object] != nil || workload.UID == "" || workload.Namespace == "" {
			continue
		}
		name := schema.GroupKind{Group: object.Group, Kind: object.Kind}
		if _, asked := kinds[name]; !asked {
			kinds[name] = o.client.findKind(ctx, name)
		}
		r := kinds[name]
		readings[object] = &r
	}
	found := slices.Collect(maps.Keys(readings))
	inparallel.Do(parallelReads, len(found), func(i int) {
		r := readings[found[i]]
		if r.err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, readLimit)
		defer cancel()
		r.object, r.err = o.client.Read(ctx, r.kind, found[i].Namespace, found[i].Name)
	})
	cluster, noCluster := o.clusterUID(ctx)
	judgements := make([]owner.Judgement, len(owners))
	for i, workload := range owners {
		standing, reason := judge(workload, readings[objectOf(workload)])
		judgements[i] = owner.Judgement{Owner: workload, Standing: standing, Reason: reason, Cluster: cluster, NoCluster: noCluster}
	}
	inparallel.Do(parallelReads, len(judgements), func(i int) {
		if j := &judgements[i]; j.Standing == owner.Exists && j.Owner.Ordinal != 0 {
			j.RemotePodUID, j.PodLocation = o.readOrdinalPod(ctx, j.Owner)
		}
	})
	return judgements
}

// readOrdinalPod reads the pod of an ordinal. It returns the UID of one that is on another node.
func (o *Owners) readOrdinalPod(ctx context.Context, workload attachment.Owner) (uid, detail string) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	number, _ := workload.Ordinal.Number()
	var r readResult
	r.object, r.err = o.client.Read(ctx, pods, workload.Namespace, fmt.Sprintf("%s-%d", workload.Name, number))
	uid, detail = otherNodePod(workload, r, o.node)
	if uid != "" && !o.proven.Load() {
		return "", fmt.Sprintf("%s, and nothing proves that this node is %q: no pod that was asked for here is there by the API", detail, o.node)
	}
	return uid, detail
}

// otherNodePod says whether the pod of an ordinal is on another node, by what the API says about the pod. One that is about to end there
// does not count: the next one can come here. The controller gives a pod the name SET-ORDINAL, and looks for it by that name.
func otherNodePod(workload attachment.Owner, r readResult, node string) (uid, detail string) {
	number, _ := workload.Ordinal.Number()
	name, pod := fmt.Sprintf("its pod %s/%s-%d", workload.Namespace, workload.Name, number), r.object
	var spec struct {
		NodeName string `json:"nodeName"`
	}
	switch controller := metav1.GetControllerOfNoCopy(&pod.Metadata); {
	case errors.Is(r.err, objects.ErrNotFound):
		return "", name + " does not exist"
	case r.err != nil:
		return "", fmt.Sprintf("where %s is, is not known: %v", name, r.err)
	case controller == nil || string(controller.UID) != workload.UID:
		return "", fmt.Sprintf("%s is not one that the %s with the UID %s controls", name, workload.Kind, workload.UID)
	case pod.Metadata.DeletionTimestamp != nil:
		return "", name + " is being deleted"
	}
	if err := json.Unmarshal(pod.Spec, &spec); err != nil {
		return "", fmt.Sprintf("the spec of %s cannot be read: %v", name, err)
	}
	standing, reason := judgePod(pod)
	switch {
	case standing != owner.Exists:
		return "", fmt.Sprintf("%s: %s", name, reason)
	case spec.NodeName == "":
		return "", name + " has no node yet"
	case node == "":
		return "", fmt.Sprintf("%s is on node %s, and the name of this node is not known", name, spec.NodeName)
	case spec.NodeName == node:
		return "", name + " is on this node"
	}
	return string(pod.Metadata.UID), fmt.Sprintf("%s is on node %s", name, spec.NodeName)
}

// clusterUID returns the UID of the namespace kube-system: it lives as long as the cluster. It is empty if the API does not tell it for
// the reason why.
func (o *Owners) clusterUID(ctx context.Context) (uid, reason string) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	namespace, err := o.client.Read(ctx, metadataOf(namespaces), "", metav1.NamespaceSystem)
	if err != nil {
		return "", err.Error()
	}
	return string(namespace.Metadata.UID), ""
}

// objectOf is where an owner's object is. The pods of a StatefulSet have one.
func objectOf(workload attachment.Owner) attachment.Owner {
	workload.UID, workload.Ordinal = "", 0
	return workload
}

// findKind finds a kind. It asks the API about one that an annotation has named.
func (c *Client) findKind(ctx context.Context, name schema.GroupKind) readResult {
	for _, k := range knownKinds {
		if k.Group == name.Group && k.Name == name.Kind {
			return readResult{kind: k}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	k, err := c.discover(ctx, name.Group, name.Kind)
	if err == nil && k.Name != name.Kind {
		err = fmt.Errorf("%w: %s of the group %q", errNoKind, name.Kind, name.Group)
	}
	return readResult{kind: k, err: err}
}

// judge says whether an owner is still there, by what the API says about its object. r is nil if nobody was asked.
func judge(workload attachment.Owner, r *readResult) (owner.Standing, string) {
	switch {
	case workload.UID == "":
		return owner.Unknown, "it is known by its name only: nobody can prove that it does not come back"
	case r == nil:
		return owner.Unknown, "its namespace is not known"
	case errors.Is(r.err, objects.ErrNotFound):
		return owner.Gone, r.err.Error()
	case r.err != nil:
		return owner.Unknown, r.err.Error()
	case string(r.object.Metadata.UID) != workload.UID:
		return owner.Gone, fmt.Sprintf("the %s %s/%s was made anew: its UID is %s, and was %s", workload.Kind, workload.Namespace, workload.Name, r.object.Metadata.UID, workload.UID)
	}
	number, ordinal := workload.Ordinal.Number()
	switch {
	case workload.Kind == pods.Name && workload.Group == pods.Group:
		return judgePod(r.object)
	case ordinal:
		return judgeOrdinal(workload, number, r.object)
	}
	return owner.Exists, fmt.Sprintf("the %s %s/%s exists with this UID", workload.Kind, workload.Namespace, workload.Name)
}

// judgePod says whether a pod that is in the API lives. A phase that is an end stays (Kubernetes, "Pod Lifecycle").
func judgePod(pod objects.Object) (owner.Standing, string) {
	var status struct {
		Phase corev1.PodPhase `json:"phase"`
	}
	if err := json.Unmarshal(pod.Status, &status); err != nil {
		return owner.Unknown, fmt.Sprintf("the status of the pod cannot be read: %v", err)
	}
	if status.Phase == corev1.PodSucceeded || status.Phase == corev1.PodFailed {
		return owner.Gone, fmt.Sprintf("the pod has ended and does not start again: its phase is %s", status.Phase)
	}
	return owner.Exists, "the pod exists with this UID"
}

// judgeOrdinal says whether a StatefulSet that is in the API has a pod with the ordinal. One that is about to be deleted
// still has all of them.
func judgeOrdinal(workload attachment.Owner, number int, set objects.Object) (owner.Standing, string) {
	if workload.Kind != sets.Name || workload.Group != sets.Group && workload.Group != kruises.Group {
		return owner.Unknown, fmt.Sprintf("nobody knows what the ordinals of a %s are", workload.Kind)
	}
	name := fmt.Sprintf("the StatefulSet %s/%s", workload.Namespace, workload.Name)
	s, err := scaleOf(set.Spec)
	if err != nil {
		return owner.Unknown, fmt.Sprintf("%s does not tell which ordinals it uses: %v", name, err)
	}
	if set.Metadata.DeletionTimestamp != nil {
		return owner.Exists, name + " is being deleted, and is still there"
	}
	if reason := s.unusedReason(number); reason != "" {
		return owner.Gone, fmt.Sprintf("%s has no pod with the ordinal %d: %s", name, number, reason)
	}
	return owner.Exists, fmt.Sprintf("%s uses the ordinal %d", name, number)
}
