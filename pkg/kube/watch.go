package kube

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/relink-cni/relink/pkg/attachment"
)

// podWatch keeps what counts of the pods of a node.
type podWatch struct{ cache.SharedIndexInformer }

// gate says whether a pod has the readiness gate NetworkReady. condition is nil if the pod does not have that condition.
type gate struct {
	gated     bool
	condition *condition
}

// watchedPod is what counts of a pod.
type watchedPod = cached[gate]

// identityOf says which pod it is.
func identityOf(pod *metav1.ObjectMeta) attachment.Pod {
	return attachment.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}
}

func newPodWatch(client *Client, node string, log *slog.Logger) *podWatch {
	o := &outage{
		log: log, lostMessage: "the Kubernetes API does not show the pods of this node: new pods are asked for one by one", backMessage: "the Kubernetes API shows the pods of this node again",
	}
	// The selector is the one that a kubelet's credentials allow.
	selector := fields.OneTermEqualSelector("spec.nodeName", node).String()
	ask := func(options metav1.ListOptions) *rest.Request {
		return client.podWatcher.Get().Resource(pods.Resource).VersionedParams(&options, runtime.NewParameterCodec(client.scheme)).UseProtobufAsDefault()
	}
	list := func(ctx context.Context, options metav1.ListOptions) (*corev1.PodList, error) {
		found := &corev1.PodList{}
		return found, ask(options).Do(ctx).Into(found)
	}
	begin := func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		options.Watch = true
		return ask(options).Watch(ctx)
	}
	source := o.listWatch(listing(list), begin, func(o *metav1.ListOptions) { o.FieldSelector = selector })
	return &podWatch{o.start(cache.NewSharedIndexInformer(source, &corev1.Pod{}, 0, cache.Indexers{}), trimPod)}
}

// pod returns what was last seen of a pod, nil for nothing. It belongs to the watch, and is not to be changed.
func (w *podWatch) pod(namespace, name string) *watchedPod {
	o, exists, err := w.GetStore().GetByKey(cache.NewObjectName(namespace, name).String())
	if err != nil || !exists {
		return nil
	}
	return o.(*watchedPod)
}

// trimPod leaves only what counts of a pod. The rest can be 256 KB of annotations.
func trimPod(o any) (any, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil // cache.DeletedFinalStateUnknown
	}
	kept := metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion}
	if r := metav1.GetControllerOf(pod); r != nil {
		kept.OwnerReferences = []metav1.OwnerReference{*r}
	}
	if index, found := pod.Labels[appsv1.PodIndexLabel]; found {
		kept.Labels = map[string]string{appsv1.PodIndexLabel: index}
	}
	for key, value := range pod.Annotations {
		if !keepsAnnotation(key) {
			continue
		}
		if kept.Annotations == nil {
			kept.Annotations = map[string]string{}
		}
		if limit := limitOf(key); len(value) > limit {
			value = strings.Clone(value[:limit+1]) // It is still too long, and says so.
		}
		kept.Annotations[key] = value
	}
	gated := slices.Contains(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: NetworkReady})
	w := &watchedPod{ObjectMeta: kept, value: gate{gated: gated}}
	for _, c := range pod.Status.Conditions {
		if c.Type == NetworkReady {
			w.value.condition = &condition{string(c.Type), c.Status, c.Reason, c.Message, c.LastTransitionTime}
		}
	}
	return w, nil
}

// keepsAnnotation says that an annotation of a pod is looked at.
func keepsAnnotation(key string) bool {
	switch key {
	case corev1.MirrorPodAnnotationKey, networksKey, defaultNetworkKey, networkStatusKey:
		return true
	}
	return strings.HasPrefix(key, annotations)
}
