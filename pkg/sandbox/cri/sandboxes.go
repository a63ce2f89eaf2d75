package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// maxParallel is how many questions a runtime gets at a time.
const maxParallel = 8

// Sandboxes returns the runtime's sandboxes. It takes ten seconds at most. It leaves out a sandbox that goes during the
// call. With an error, it still returns the sandboxes that the runtime reported. The error names the endpoint. Of a sandbox that has
// the state of the last call, it does not ask for the network namespace again.
// errors.Is matches sandbox.ErrNoRuntime and context.DeadlineExceeded.
func (c *Client) Sandboxes(ctx context.Context) ([]sandbox.RuntimeSandbox, error) {
	ctx, stop := context.WithTimeout(ctx, c.limit)
	defer stop()
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.close()
	list, err := conn.api.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("container runtime at %s: %w", conn.endpoint, explain(c.limit, err))
	}
	found := make([]*sandbox.RuntimeSandbox, len(list.Items))
	failures := make([]error, len(list.Items))
	earlier := c.earlier()
	inparallel.Do(maxParallel, len(list.Items), func(i int) {
		listed := listedSandbox(list.Items[i])
		if s, ok := earlier[listed.ContainerID]; ok && s.Ready == listed.Ready && s.Pod == listed.Pod && s.Created.Equal(listed.Created) {
			found[i] = &s
		} else {
			found[i], failures[i] = conn.sandboxStatus(ctx, c.limit, listed)
		}
	})
	var sandboxes []sandbox.RuntimeSandbox
	reported := map[string]sandbox.RuntimeSandbox{}
	for i, s := range found {
		if s == nil {
			continue
		}
		sandboxes = append(sandboxes, *s)
		if failures[i] == nil {
			reported[s.ContainerID] = *s
		}
	}
	c.mu.Lock()
	c.reported = reported
	c.mu.Unlock()
	return sandboxes, errors.Join(failures...)
}

// earlier returns the sandboxes of the last call.
func (c *Client) earlier() map[string]sandbox.RuntimeSandbox {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reported
}

// listedSandbox is a sandbox as it stands in the list.
func listedSandbox(item *runtimeapi.PodSandbox) *sandbox.RuntimeSandbox {
	return &sandbox.RuntimeSandbox{
		ContainerID: item.Id,
		Pod: attachment.Pod{
			Namespace: item.GetMetadata().GetNamespace(), Name: item.GetMetadata().GetName(), UID: item.GetMetadata().GetUid(),
		},
		Ready:   item.State == runtimeapi.PodSandboxState_SANDBOX_READY,
		Created: time.Unix(0, item.CreatedAt),
	}
}

// sandboxStatus returns the sandbox with its network namespace. It returns nil for a sandbox that has gone. If the status lacks the
// namespace, it returns the sandbox and an error.
func (conn *connection) sandboxStatus(ctx context.Context, limit time.Duration, s *sandbox.RuntimeSandbox) (*sandbox.RuntimeSandbox, error) {
	// Only the verbose status has the namespace.
	answer, err := conn.api.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.ContainerID, Verbose: true})
	if status.Code(err) == codes.NotFound {
		return nil, nil
	}
	if err == nil {
		err = readStatus(s, answer)
	} else {
		err = explain(limit, err)
	}
	if err != nil {
		err = fmt.Errorf("container runtime at %s: sandbox %s of %s: %w", conn.endpoint, s.ContainerID, s.Pod, err)
	}
	return s, err
}

// readStatus adds to the sandbox what the verbose status tells.
func readStatus(s *sandbox.RuntimeSandbox, answer *runtimeapi.PodSandboxStatusResponse) (err error) {
	if id := answer.GetStatus().GetId(); id != s.ContainerID {
		return fmt.Errorf("the status is that of %q", id)
	}
	s.Ready = answer.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	s.HostNetwork = answer.GetStatus().GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
	if s.HostNetwork {
		return nil
	}
	if s.Netns, err = netnsIn(answer.Info); s.Ready {
		return err
	}
	return nil
}

// info is the part of the verbose status that relink reads. containerd (SandboxInfo in pkg/cri/server/sandbox_status.go,
// since 2.0 in internal/cri/server/podsandbox) and CRI-O (createSandboxInfo in server/sandbox_status.go) write it as JSON
// under the key "info".
type info struct {
	RuntimeSpec struct {
		Linux struct {
			Namespaces []struct{ Type, Path string }
		}
	}
	// SandboxMetadata is containerd's, since 2.0. There the specification can be missing from a sandbox whose task has gone.
	SandboxMetadata struct {
		Metadata struct{ NetNSPath string }
	}
}

// netnsIn returns the path of the network namespace in the verbose status.
func netnsIn(verbose map[string]string) (string, error) {
	text, ok := verbose["info"]
	if !ok {
		return "", errors.New("its verbose status has no part \"info\", so its network namespace is not known")
	}
	var i info
	if err := json.Unmarshal([]byte(text), &i); err != nil {
		return "", fmt.Errorf("its verbose status cannot be read: %w", err)
	}
	for _, ns := range i.RuntimeSpec.Linux.Namespaces {
		if ns.Type == "network" && ns.Path != "" {
			return ns.Path, nil
		}
	}
	if path := i.SandboxMetadata.Metadata.NetNSPath; path != "" {
		return path, nil
	}
	return "", errors.New("its verbose status does not tell its network namespace")
}
