package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"github.com/relink-cni/relink/pkg/kube"
)

// nodeEnv has the node's name in Kubernetes. The DaemonSet sets it.
const nodeEnv = "NODE_NAME"

// errNoKubeconfig means that the file of --kubeconfig is not there, but a later start may find it. A node gets the file when
// it joins its cluster.
var errNoKubeconfig = errors.New("the agent needs it at its start: wait until the node has joined its cluster, or leave the flag out")

// connect returns a client of the API. The flag --kubeconfig or the agent's own pod names the API. connect returns nil
// if neither does.
func connect(kubeconfig string, log *slog.Logger) (*kube.Client, error) {
	api, err := kube.Connect(kubeconfig, log)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("invalid --kubeconfig %s: %w; %w", kubeconfig, err, errNoKubeconfig)
	case err != nil && kubeconfig != "":
		return nil, fmt.Errorf("invalid --kubeconfig %s: %w; name a file that kubectl takes, such as /etc/kubernetes/kubelet.conf", kubeconfig, err)
	case err != nil:
		return nil, fmt.Errorf("the service account of the agent's pod: %w; repair it, or set automountServiceAccountToken: false", err)
	case api == nil:
		log.Debug("no Kubernetes API is configured: no events and conditions are written")
	}
	return api, nil
}

// nodeName returns the name of this node in Kubernetes. Without nodeEnv, it is the kubelet's default.
func nodeName() string {
	if name := os.Getenv(nodeEnv); name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return strings.ToLower(name)
}
