package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/relink-cni/relink/pkg/sandbox"
)

// The names by which crictl finds its runtime (cmd/crictl/main.go in cri-tools).
const (
	endpointEnv = "CONTAINER_RUNTIME_ENDPOINT"
	configFile  = "/etc/crictl.yaml"
	scheme      = "unix://"
)

// defaultSockets are the sockets that crictl tries, and those of k3s and RKE2. /var/run is a link to /run.
var defaultSockets = []string{
	"/run/k3s/containerd/containerd.sock",
	"/run/containerd/containerd.sock",
	"/run/crio/crio.sock",
	"/run/cri-dockerd.sock",
}

// finder finds the runtime's socket. Tests have an environment and a root directory of their own.
type finder struct {
	getenv func(string) string
	root   string
}

// find returns the endpoint that is named, or those of the default sockets that exist. crictl has the same order: the environment,
// the configuration file, the defaults.
func (f finder) find() ([]string, error) {
	named, source, err := f.named()
	if err != nil {
		return nil, err
	}
	if named != "" {
		e, err := parseEndpoint(named, source)
		return []string{e}, err
	}
	var found []string
	for _, socket := range defaultSockets {
		path := filepath.Join(f.root, socket)
		if info, err := os.Stat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
			found = append(found, scheme+path)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: there is no socket at %s; name the runtime's socket as runtime-endpoint in %s, or in %s; in a pod, mount the directory of the socket, as the example reclaim does",
			sandbox.ErrNoRuntime, strings.Join(defaultSockets, ", "), configFile, endpointEnv)
	}
	return found, nil
}

// named returns the endpoint in the environment or in crictl's configuration file, and who names it. It is empty if nobody does.
func (f finder) named() (named, source string, err error) {
	if named = f.getenv(endpointEnv); named != "" {
		return named, endpointEnv, nil
	}
	path := filepath.Join(f.root, configFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("crictl's configuration: %w", err)
	}
	var config struct {
		RuntimeEndpoint string `yaml:"runtime-endpoint"`
	}
	if err := yaml.Unmarshal(b, &config); err != nil {
		return "", "", fmt.Errorf("crictl's configuration %s: %w", path, err)
	}
	return config.RuntimeEndpoint, path, nil
}

// parseEndpoint accepts unix:///run/x.sock and /run/x.sock, as crictl does on Linux.
func parseEndpoint(named, source string) (string, error) {
	socket := strings.TrimPrefix(named, scheme)
	if !filepath.IsAbs(socket) {
		return "", fmt.Errorf("%s: %q is not the socket of a container runtime: write it as unix:///run/containerd/containerd.sock", source, named)
	}
	return scheme + socket, nil
}
