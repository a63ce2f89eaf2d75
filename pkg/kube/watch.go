package kube

import (
	"log/slog"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

// podWatch keeps what counts of the pods of a node.
type podWatch struct{ cache.SharedIndexInformer }

func newPodWatch(client metadata.Interface, node string, log *slog.Logger) *podWatch {
	o := &outage{
		log: log, lostMessage: "the Kubernetes API does not show the pods of this node: new pods are asked for one by one", backMessage: "the Kubernetes API shows the pods of this node again",
	}
	// The selector is the one that a kubelet's credentials allow.
	selector := fields.OneTermEqualSelector("spec.nodeName", node).String()
	api := client.Resource(corev1.SchemeGroupVersion.WithResource(pods.Resource))
	source := o.listWatch(listing(api.List), api.Watch, func(o *metav1.ListOptions) { o.FieldSelector = selector })
	trim := func(o any) (any, error) { return trimPodMetadata(o), nil }
	return &podWatch{o.start(cache.NewSharedIndexInformer(source, &metav1.PartialObjectMetadata{}, 0, cache.Indexers{}), trim)}
}

// pod returns what was last seen of a pod, nil for nothing. It belongs to the watch, and is not to be changed.
func (w *podWatch) pod(namespace, name string) *metav1.ObjectMeta {
	o, exists, err := w.GetStore().GetByKey(cache.NewObjectName(namespace, name).String())
	if err != nil || !exists {
		return nil
	}
	return &o.(*metav1.PartialObjectMetadata).ObjectMeta
}

// trimPodMetadata leaves only what counts of a pod. The rest can be 256 KB of annotations.
func trimPodMetadata(o any) any {
	pod, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return o // cache.DeletedFinalStateUnknown
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
	return &metav1.PartialObjectMetadata{TypeMeta: pod.TypeMeta, ObjectMeta: kept}
}

// keepsAnnotation says that an annotation of a pod is looked at.
func keepsAnnotation(key string) bool {
	switch key {
	case corev1.MirrorPodAnnotationKey, networksKey, defaultNetworkKey:
		return true
	}
	return strings.HasPrefix(key, annotations)
}
