package sandbox

import (
	"context"
	"errors"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// ErrNoRuntime says that this node has no socket of a container runtime, and that nothing names one.
var ErrNoRuntime = errors.New("no container runtime found")

// Runtime is a container runtime. Package cri has the one of this node.
type Runtime interface {
	// Sandboxes returns the runtime's sandboxes. With an error there can be some, but not all. errors.Is tells
	// ErrNoRuntime.
	Sandboxes(ctx context.Context) ([]RuntimeSandbox, error)
}

// RuntimeSandbox is a sandbox as the container runtime has it.
type RuntimeSandbox struct {
	ContainerID string         `json:"containerID"`
	Pod         attachment.Pod `json:"pod,omitzero"`
	// Ready says that the runtime keeps the sandbox running.
	Ready bool `json:"ready"`
	// HostNetwork says that the pod uses the host's network.
	HostNetwork bool `json:"hostNetwork,omitempty"`
	// Netns is the path of the network namespace, empty with HostNetwork. If the sandbox is not ready, Netns can be empty, or
	// can lead to nothing or to another namespace.
	Netns string `json:"netns,omitempty"`
	// Created is when the runtime made the sandbox.
	Created time.Time `json:"created,omitzero"`
}
