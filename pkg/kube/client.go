package kube

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kube/objects"
)

// Client asks a Kubernetes API. The only types of objects that it knows are events and pods.
type Client struct {
	*objects.Client
	// events is no generated client: that is 1.5 MB.
	events rest.Interface
	// metadata asks for nothing but metadata.
	metadata metadata.Interface
	// watcher and podWatcher have no limit for a request: a watch is one long answer. watcher would take 26 MB more for 250 pods.
	watcher    dynamic.Interface
	podWatcher rest.Interface
	scheme     *runtime.Scheme
}

// Connect returns a client as objects.Connect does.
func Connect(kubeconfig string, log *slog.Logger) (*Client, error) {
	client, err := objects.Connect(kubeconfig, log)
	if client == nil {
		return nil, err
	}
	return NewClient(client)
}

// NewClient returns a client of the same API.
func NewClient(client *objects.Client) (*Client, error) {
	names, err := metadata.NewForConfig(client.Config())
	if err != nil {
		return nil, err
	}
	watcher, err := dynamic.NewForConfig(client.Config())
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Event{}, &corev1.Pod{}, &corev1.PodList{})
	events, err := client.Core(scheme, objects.Limit)
	if err != nil {
		return nil, err
	}
	podWatcher, err := client.Core(scheme, 0)
	if err != nil {
		return nil, err
	}
	return &Client{client, events, names, watcher, podWatcher, scheme}, nil
}

// podExists says that the pod is in the API under its UID. It asks only for the metadata.
//
// The UID of a static pod is the hash of its manifest. In the API there is a mirror of the pod, with a UID of its own and with
// the hash in an annotation. The kubelet writes its events under the hash, and "kubectl describe pod" looks for
// them there (k8s.io/kubectl, pkg/describe). So an event never needs another UID than the one that the plugin was given.
func (c *Client) podExists(ctx context.Context, pod attachment.Pod) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, objects.Limit)
	defer cancel()
	object, err := c.metadata.Resource(corev1.SchemeGroupVersion.WithResource(pods.Resource)).Namespace(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	return object.UID == types.UID(pod.UID) || object.Annotations[corev1.MirrorPodAnnotationKey] == pod.UID, nil
}
