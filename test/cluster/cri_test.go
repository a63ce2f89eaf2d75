package cluster

import (
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// containerRuntime serves CRI, and has exactly the sandboxes that the test says.
type containerRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	socket string

	mu sync.Mutex
	// has are the sandboxes by their IDs.
	has map[string]runtimeSandbox
	// down says that it answers no question.
	down bool
}

type runtimeSandbox struct {
	pod     made
	netns   string
	ready   bool
	created time.Time
}

// startRuntime serves a runtime without sandboxes. The end of the test ends it.
func startRuntime(t *testing.T) *containerRuntime {
	t.Helper()
	c := &containerRuntime{socket: filepath.Join(t.TempDir(), "cri.sock"), has: map[string]runtimeSandbox{}}
	listener, err := net.Listen("unix", c.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, c)
	ended := make(chan error)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return c
}

// knows makes the runtime have the sandbox. One that is not ready is stopped.
func (c *containerRuntime) knows(b *box, ready bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.has[b.id] = runtimeSandbox{b.pod, b.netns, ready, b.created}
}

func (c *containerRuntime) forgets(b *box) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.has, b.id)
}

func (c *containerRuntime) setDown(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
}

var errDown = grpcstatus.Error(codes.Unavailable, "the shim is away")

func (c *containerRuntime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "containerd", RuntimeVersion: "2.1.0", RuntimeApiVersion: "v1"}, nil
}

func (c *containerRuntime) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return nil, errDown
	}
	list := &runtimeapi.ListPodSandboxResponse{}
	for id, s := range c.has {
		list.Items = append(list.Items, &runtimeapi.PodSandbox{Id: id, Metadata: s.metadata(), State: s.state(), CreatedAt: s.created.UnixNano()})
	}
	return list, nil
}

func (c *containerRuntime) PodSandboxStatus(_ context.Context, q *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, is := c.has[q.PodSandboxId]
	switch {
	case c.down:
		return nil, errDown
	case !is:
		return nil, grpcstatus.Error(codes.NotFound, "no such sandbox")
	}
	info, err := json.Marshal(m{"runtimeSpec": m{"linux": m{"namespaces": []m{{"type": "network", "path": s.netns}}}}})
	return &runtimeapi.PodSandboxStatusResponse{
		Status: &runtimeapi.PodSandboxStatus{Id: q.PodSandboxId, Metadata: s.metadata(), State: s.state()}, Info: map[string]string{"info": string(info)},
	}, err
}

func (s runtimeSandbox) metadata() *runtimeapi.PodSandboxMetadata {
	return &runtimeapi.PodSandboxMetadata{Name: s.pod.name, Namespace: s.pod.namespace, Uid: string(s.pod.uid)}
}

func (s runtimeSandbox) state() runtimeapi.PodSandboxState {
	if s.ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}
