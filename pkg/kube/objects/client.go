package objects

import (
	"cmp"
	"errors"
	"io/fs"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// Limit bounds a request.
const Limit = 10 * time.Second

// Client asks a Kubernetes API, one request at a time. It knows no type of an object: the generated clients link every kind of
// Kubernetes, and take megabytes of memory.
type Client struct {
	api    rest.Interface
	config *rest.Config
}

// Connect returns a client of the API that the kubeconfig file names. Without a file, it is the API of the cluster if
// this process is a container with a service account. Otherwise Connect returns nil. It makes no request. The error
// matches fs.ErrNotExist if the file is missing. Messages of client-go go to the log.
func Connect(kubeconfig string, log *slog.Logger) (*Client, error) {
	load := rest.InClusterConfig
	if kubeconfig != "" {
		load = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", kubeconfig) }
	}
	config, err := load()
	switch {
	case kubeconfig == "" && (errors.Is(err, rest.ErrNotInCluster) || errors.Is(err, fs.ErrNotExist)):
		return nil, nil // A pod may be without the files of its service account.
	case err != nil:
		return nil, err
	}
	klog.SetSlogLogger(log)
	return New(config)
}

// New returns a client of the API that the configuration names. A program that has no name there is relink-agent.
func New(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = cmp.Or(config.UserAgent, "relink-agent")
	config.QPS = -1 // Who asks keeps the rate. client-go would log each wait.
	config.WarningHandler = rest.NoWarnings{}
	c := &Client{config: config}
	api, err := c.Core(runtime.NewScheme(), Limit)
	if err != nil {
		return nil, err
	}
	c.api = api
	return c, nil
}

// Core returns a client for the core group's objects of the types that the scheme knows. limit bounds a request, 0 for no limit.
func (c *Client) Core(scheme *runtime.Scheme, limit time.Duration) (rest.Interface, error) {
	config, version := c.Config(), schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, version)
	config.APIPath = "/api"
	config.GroupVersion = &version
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.Timeout = cmp.Or(config.Timeout, limit)
	return rest.RESTClientFor(config)
}

// Config returns how the client reaches the API, for a client of client-go.
func (c *Client) Config() *rest.Config { return rest.CopyConfig(c.config) }
