package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/pkg/kube/objects"
	"github.com/relink-cni/relink/pkg/owner"
)

const (
	// judgeLimit bounds the time of Judge, and readLimit that of each object: one that hangs does not take the time of
	// the rest.
	judgeLimit, readLimit = 30 * time.Second, 5 * time.Second
	// atOnce is the number of requests of Judge at the same time.
	atOnce = 8
)

// place is where an owner's object is. The pods of a StatefulSet have one.
type place struct{ group, kind, namespace, name string }

// reading is what the API says about a place.
type reading struct {
	object objects.Object
	err    error
}

// Judge implements owner.Judge. It takes at most judgeLimit, and reads each object once. Then it reads the pod of each ordinal whose
// owner lives.
func (o *Owners) Judge(ctx context.Context, owners []attachment.Owner) []owner.Judgement {
	ctx, cancel := context.WithTimeout(ctx, judgeLimit)
	defer cancel()
	readings, places := map[place]*reading{}, []place{}
	for _, of := range owners {
		at := placeOf(of)
		if readings[at] == nil && of.UID != "" && of.Namespace != "" {
			readings[at] = &reading{}
			places = append(places, at)
		}
	}
	kinds := o.client.kinds(ctx)
	inparallel.Do(atOnce, len(places), func(i int) {
		at := places[i]
		r := readings[at]
		k, err := kinds(at.group, at.kind)
		if err != nil {
			r.err = err
			return
		}
		ctx, cancel := context.WithTimeout(ctx, readLimit)
		defer cancel()
		r.object, r.err = o.client.Read(ctx, k, at.namespace, at.name)
	})
	cluster, noCluster := o.cluster(ctx)
	all := make([]owner.Judgement, len(owners))
	for i, of := range owners {
		standing, why := judge(of, readings[placeOf(of)])
		all[i] = owner.Judgement{Owner: of, Standing: standing, Why: why, Cluster: cluster, NoCluster: noCluster}
	}
	inparallel.Do(atOnce, len(all), func(i int) {
		if j := &all[i]; j.Standing == owner.Lives && j.Owner.Ordinal != 0 {
			j.Elsewhere, j.Where = o.elsewhere(ctx, j.Owner)
		}
	})
	return all
}

// elsewhere reads the pod of an ordinal. It returns the UID of one that is on another node.
func (o *Owners) elsewhere(ctx context.Context, of attachment.Owner) (uid, where string) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	number, _ := of.Ordinal.Number()
	var r reading
	r.object, r.err = o.client.Read(ctx, pods, of.Namespace, fmt.Sprintf("%s-%d", of.Name, number))
	uid, where = elsewhere(of, r, o.node)
	if uid != "" && !o.proven.Load() {
		return "", fmt.Sprintf("%s, and nothing proves that this node is %q: no pod that was asked for here is there by the API", where, o.node)
	}
	return uid, where
}

// elsewhere says whether the pod of an ordinal is on another node, by what the API says about the pod. One that is about to end there
// does not count: the next one can come here. The controller gives a pod the name SET-ORDINAL, and looks for it by that name.
func elsewhere(of attachment.Owner, r reading, node string) (uid, where string) {
	number, _ := of.Ordinal.Number()
	name, pod := fmt.Sprintf("its pod %s/%s-%d", of.Namespace, of.Name, number), r.object
	var spec struct {
		NodeName string `json:"nodeName"`
	}
	switch controller := metav1.GetControllerOfNoCopy(&pod.Metadata); {
	case errors.Is(r.err, objects.ErrNotThere):
		return "", name + " does not exist"
	case r.err != nil:
		return "", fmt.Sprintf("where %s is, is not known: %v", name, r.err)
	case controller == nil || string(controller.UID) != of.UID:
		return "", fmt.Sprintf("%s is not one that the %s with the UID %s controls", name, of.Kind, of.UID)
	case pod.Metadata.DeletionTimestamp != nil:
		return "", name + " is being deleted"
	}
	if err := json.Unmarshal(pod.Spec, &spec); err != nil {
		return "", fmt.Sprintf("the spec of %s cannot be read: %v", name, err)
	}
	standing, why := judgePod(pod)
	switch {
	case standing != owner.Lives:
		return "", fmt.Sprintf("%s: %s", name, why)
	case spec.NodeName == "":
		return "", name + " has no node yet"
	case node == "":
		return "", fmt.Sprintf("%s is on node %s, and the name of this node is not known", name, spec.NodeName)
	case spec.NodeName == node:
		return "", name + " is on this node"
	}
	return string(pod.Metadata.UID), fmt.Sprintf("%s is on node %s", name, spec.NodeName)
}

// cluster returns the UID of the namespace kube-system: it lives as long as the cluster. It is empty if the API does not tell it for
// the reason why.
func (o *Owners) cluster(ctx context.Context) (uid, why string) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	made, err := o.client.Read(ctx, metadataOf(namespaces), "", metav1.NamespaceSystem)
	if err != nil {
		return "", err.Error()
	}
	return string(made.Metadata.UID), ""
}

func placeOf(of attachment.Owner) place { return place{of.Group, of.Kind, of.Namespace, of.Name} }

// kinds returns a function that finds a kind. It asks the API once about each kind that an annotation has named.
func (c *Client) kinds(ctx context.Context) func(group, name string) (objects.Kind, error) {
	var mu sync.Mutex
	found := map[[2]string]func() (objects.Kind, error){}
	return func(group, name string) (objects.Kind, error) {
		for _, k := range knownKinds {
			if k.Group == group && k.Name == name {
				return k, nil
			}
		}
		mu.Lock()
		find := found[[2]string{group, name}]
		if find == nil {
			find = sync.OnceValues(func() (objects.Kind, error) {
				ctx, cancel := context.WithTimeout(ctx, readLimit)
				defer cancel()
				k, err := c.discover(ctx, group, name)
				if err == nil && k.Name != name {
					err = fmt.Errorf("%w: %s of the group %q", errNoKind, name, group)
				}
				return k, err
			})
			found[[2]string{group, name}] = find
		}
		mu.Unlock()
		return find()
	}
}

// judge says whether an owner is still there, by what the API says about its object. r is nil if nobody was asked.
func judge(of attachment.Owner, r *reading) (owner.Standing, string) {
	switch {
	case of.UID == "":
		return owner.Unknown, "it is known by its name only: nobody can prove that it does not come back"
	case r == nil:
		return owner.Unknown, "its namespace is not known"
	case errors.Is(r.err, objects.ErrNotThere):
		return owner.Gone, r.err.Error()
	case r.err != nil:
		return owner.Unknown, r.err.Error()
	case string(r.object.Metadata.UID) != of.UID:
		return owner.Gone, fmt.Sprintf("the %s %s/%s was made anew: its UID is %s, and was %s", of.Kind, of.Namespace, of.Name, r.object.Metadata.UID, of.UID)
	}
	number, ordinal := of.Ordinal.Number()
	switch {
	case of.Kind == pods.Name && of.Group == pods.Group:
		return judgePod(r.object)
	case ordinal:
		return judgeOrdinal(of, number, r.object)
	}
	return owner.Lives, fmt.Sprintf("the %s %s/%s exists with this UID", of.Kind, of.Namespace, of.Name)
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
	return owner.Lives, "the pod exists with this UID"
}

// judgeOrdinal says whether a StatefulSet that is in the API has a pod with the ordinal. One that is about to be deleted
// still has all of them.
func judgeOrdinal(of attachment.Owner, number int, set objects.Object) (owner.Standing, string) {
	if of.Kind != sets.Name || of.Group != sets.Group && of.Group != kruises.Group {
		return owner.Unknown, fmt.Sprintf("nobody knows what the ordinals of a %s are", of.Kind)
	}
	name := fmt.Sprintf("the StatefulSet %s/%s", of.Namespace, of.Name)
	s, err := scaleOf(set.Spec)
	if err != nil {
		return owner.Unknown, fmt.Sprintf("%s does not tell which ordinals it uses: %v", name, err)
	}
	if set.Metadata.DeletionTimestamp != nil {
		return owner.Lives, name + " is being deleted, and is still there"
	}
	if why := s.unused(number); why != "" {
		return owner.Gone, fmt.Sprintf("%s has no pod with the ordinal %d: %s", name, number, why)
	}
	return owner.Lives, fmt.Sprintf("%s uses the ordinal %d", name, number)
}
