package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/relink-cni/relink/pkg/attachment"
)

// requestLimit bounds a request.
const requestLimit = 10 * time.Second

// Client asks a Kubernetes API. The only type of an object that it knows is the event. It reads owners and IPAMClaims one by
// one, as JSON, and watches only metadata: the generated clients link every kind of Kubernetes, and take megabytes of memory.
type Client struct {
	api rest.Interface
	// watcher has no limit for a request: a watch is one long answer.
	watcher metadata.Interface
	config  *rest.Config
}

// Connect returns a client of the API that the kubeconfig file names. Without a file, it is the API of the cluster if
// this process is a container with a service account. Otherwise Connect returns nil. It makes no request. The error
// matches fs.ErrNotExist if the file is missing. Messages of client-go go to the log.
func Connect(kubeconfig string, log *slog.Logger) (*Client, error) {
	config, err := configOf(kubeconfig)
	if config == nil {
		return nil, err
	}
	klog.SetSlogLogger(log)
	return newClient(config)
}

// configOf returns nil if nothing names an API.
func configOf(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		// Load makes paths absolute that are relative to the file.
		file, err := (&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}).Load()
		if err != nil {
			return nil, err
		}
		return clientcmd.NewDefaultClientConfig(*file, &clientcmd.ConfigOverrides{}).ClientConfig()
	}
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil // A pod may be without the files of its service account.
	}
	return config, err
}

func newClient(config *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Event{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	config.APIPath = "/api"
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.UserAgent = cmp.Or(config.UserAgent, "relink-agent")
	config.QPS = -1 // The Recorder keeps the rate. client-go would log each wait.
	config.WarningHandler = rest.NoWarnings{}
	plain := rest.CopyConfig(config)
	plain.APIPath, plain.GroupVersion, plain.NegotiatedSerializer = "", nil, nil
	watcher, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	config.Timeout = cmp.Or(config.Timeout, requestLimit)
	api, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return &Client{api, watcher, plain}, nil
}

// Config returns how the client reaches the API, for a client of client-go.
func (c *Client) Config() *rest.Config { return rest.CopyConfig(c.config) }

// identity is what identifies a pod. A request for it asks only for the metadata.
type identity struct {
	Metadata struct {
		UID         types.UID         `json:"uid"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

const metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// lives says that the pod is in the API under its UID.
//
// The UID of a static pod is the hash of its manifest. In the API there is a mirror of the pod, with a UID of its own and with
// the hash in an annotation. The kubelet writes its events under the hash, and "kubectl describe pod" looks for
// them there (k8s.io/kubectl, pkg/describe). So an event never needs another UID than the one that the plugin was given.
func (c *Client) lives(ctx context.Context, pod attachment.Pod) (bool, error) {
	result := c.api.Get().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SetHeader("Accept", metadataOnly).Do(ctx)
	if err := result.Error(); err != nil { // Raw would not have the API's own words.
		return false, err
	}
	text, err := result.Raw()
	if err != nil {
		return false, err
	}
	var is identity
	if err := json.Unmarshal(text, &is); err != nil {
		return false, fmt.Errorf("read the pod %s: %w", pod, err)
	}
	uid := types.UID(pod.UID)
	return is.Metadata.UID == uid || is.Metadata.Annotations[corev1.MirrorPodAnnotationKey] == pod.UID, nil
}

// create writes a new event, and returns it as it is in the API.
func (c *Client) create(ctx context.Context, e *corev1.Event) (*corev1.Event, error) {
	made := &corev1.Event{}
	return made, c.api.Post().Namespace(e.Namespace).Resource("events").Body(e).Do(ctx).Into(made)
}

// patch changes an event, and returns it as it is in the API.
func (c *Client) patch(ctx context.Context, e *corev1.Event, change []byte) (*corev1.Event, error) {
	made := &corev1.Event{}
	return made, c.api.Patch(types.StrategicMergePatchType).Namespace(e.Namespace).Resource("events").Name(e.Name).Body(change).Do(ctx).Into(made)
}
