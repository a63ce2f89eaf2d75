package objects

import (
	"fmt"
	"log/slog"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// personLimit bounds a request of a person: the program that gets the credentials can ask for a password.
const personLimit = time.Minute

// ConnectAsPerson returns a client with the credentials that kubectl would use. kubeconfig is the file of kubectl's --kubeconfig; without
// it these are the files of $KUBECONFIG, else ~/.kube/config, else the service account of this container. context is one in these files,
// empty for their current one. agent is what the API notes as the program. It makes no request. Messages of client-go go to the log.
func ConnectAsPerson(kubeconfig, context, agent string, log *slog.Logger) (*Client, error) {
	klog.SetSlogLogger(log)
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	rules.WarnIfAllMissing = false
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("no Kubernetes API is configured: give --kubeconfig FILE, or set $KUBECONFIG")
	case err != nil:
		return nil, err
	}
	config.UserAgent, config.Timeout = agent, personLimit
	return New(config)
}
