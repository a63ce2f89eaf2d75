package kubenode

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/relink-cni/relink/pkg/sandbox"
)

// podLimit is how long pods may take to run.
const podLimit = 6 * time.Minute

//go:embed pod.yaml
var podManifest string

//go:embed probes.yaml
var probes string

// Pod is a pod that the runtime runs.
type Pod struct {
	// Sandbox is the pod's sandbox, as relink-agent sees it.
	Sandbox sandbox.RuntimeSandbox
	// Containers are those that run, in the order of their IDs.
	Containers []Container
	// Addresses are the pod's, as the runtime tells them.
	Addresses []string
}

// Container is a container of a pod.
type Container struct {
	ID string
	// Restarts is how often the kubelet has made the container anew.
	Restarts uint32
}

// String returns all by which a restart shows, for comparisons.
func (p Pod) String() string {
	return fmt.Sprintf("sandbox %s, containers %v", p.Sandbox.ContainerID, p.Containers)
}

// Run makes static pods, each with an HTTP server that answers GET /name with the pod's name, and waits until they run.
func (n *Node) Run(ctx context.Context, names ...string) error {
	for _, name := range names {
		if err := writeManifest(name, podManifest); err != nil {
			return err
		}
	}
	return n.running(ctx, names...)
}

// RunProbed is Run for one pod that the kubelet probes by HTTP every second: whether it lives, by its IPv4 address, and whether it
// is ready, by this IPv6 address. Its log has a line for each answer.
func (n *Node) RunProbed(ctx context.Context, name, ipv6 string) error {
	text := strings.Replace(podManifest, "exec httpd -f", "exec httpd -v -f", 1) + strings.ReplaceAll(probes, "@IPV6@", ipv6)
	if err := writeManifest(name, text); err != nil {
		return err
	}
	return n.running(ctx, name)
}

func writeManifest(name, text string) error {
	text = strings.NewReplacer("@NAME@", name, "@IMAGE@", imageName).Replace(text)
	return os.WriteFile(manifest(name), []byte(text), 0o600)
}

// running waits until the pods run.
func (n *Node) running(ctx context.Context, names ...string) error {
	return n.eventually(ctx, podLimit, func() error {
		pods, err := n.Pods(ctx)
		if err != nil {
			return err
		}
		for _, name := range names {
			if len(pods[name].Containers) == 0 {
				return fmt.Errorf("pod %s does not run", name)
			}
		}
		return nil
	})
}

// Delete deletes static pods and waits until their sandboxes have stopped.
func (n *Node) Delete(ctx context.Context, names ...string) error {
	for _, name := range names {
		if err := os.Remove(manifest(name)); err != nil {
			return err
		}
	}
	return n.eventually(ctx, podLimit, func() error {
		pods, err := n.Pods(ctx)
		if err != nil {
			return err
		}
		for _, name := range names {
			if _, ok := pods[name]; ok {
				return fmt.Errorf("pod %s has its sandbox still", name)
			}
		}
		return nil
	})
}

func manifest(name string) string { return filepath.Join(manifests, name+".yaml") }

// Pods returns the pods whose sandboxes are ready, by the names of their manifests.
func (n *Node) Pods(ctx context.Context) (map[string]Pod, error) {
	sandboxes, err := n.Runtime.Sandboxes(ctx)
	if err != nil {
		return nil, err
	}
	running := &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}
	containers, err := n.api.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: running})
	if err != nil {
		return nil, err
	}
	pods := map[string]Pod{}
	for _, s := range sandboxes {
		if !s.Ready {
			continue
		}
		p := Pod{Sandbox: s}
		for _, c := range containers.Containers {
			if c.PodSandboxId == s.ContainerID {
				p.Containers = append(p.Containers, Container{ID: c.Id, Restarts: c.GetMetadata().GetAttempt()})
			}
		}
		slices.SortFunc(p.Containers, func(a, b Container) int { return strings.Compare(a.ID, b.ID) })
		if p.Addresses, err = n.addresses(ctx, s.ContainerID); err != nil {
			return nil, err
		}
		pods[strings.TrimSuffix(s.Pod.Name, "-"+Name)] = p
	}
	return pods, nil
}

func (n *Node) addresses(ctx context.Context, id string) ([]string, error) {
	answer, err := n.api.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return nil, err
	}
	network := answer.GetStatus().GetNetwork()
	all := []string{network.GetIp()}
	for _, other := range network.GetAdditionalIps() {
		all = append(all, other.GetIp())
	}
	return all, nil
}
