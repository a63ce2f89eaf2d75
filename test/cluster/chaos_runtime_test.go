package cluster

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// criOf is a container runtime that tells of the sandboxes in the truth. At times it does not answer.
type criOf struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	*truth
	// fails is what it does at present.
	fails atomic.Int32
}

// The values of criOf.fails.
const (
	answers = iota
	refuses
	hangs
	// halves: it lists the sandboxes and then cannot tell more of them.
	halves
	waysToFail
)

// serveCRI serves the runtime at a socket until the end of the test.
func serveCRI(t *testing.T, w *truth, socket string) *criOf {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	c := &criOf{truth: w}
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

func (c *criOf) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "test", RuntimeVersion: "1", RuntimeApiVersion: "v1"}, nil
}

func (c *criOf) fail(ctx context.Context, halfWay bool) error {
	switch how := c.fails.Load(); {
	case how == refuses, how == halves && halfWay:
		return grpcstatus.Error(codes.Unknown, "the runtime of the test fails")
	case how == hangs:
		for c.fails.Load() == hangs && ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
		}
		return ctx.Err()
	}
	return nil
}

func (c *criOf) ListPodSandbox(ctx context.Context, _ *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	if err := c.fail(ctx, false); err != nil {
		return nil, err
	}
	answer := &runtimeapi.ListPodSandboxResponse{}
	for _, b := range c.known() {
		answer.Items = append(answer.Items, &runtimeapi.PodSandbox{Id: b.id, Metadata: metadataOf(b), State: stateOf(b), CreatedAt: 1})
	}
	return answer, nil
}

func (c *criOf) PodSandboxStatus(ctx context.Context, q *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	if err := c.fail(ctx, true); err != nil {
		return nil, err
	}
	for _, b := range c.known() {
		if b.id == q.PodSandboxId {
			return &runtimeapi.PodSandboxStatusResponse{
				Status: &runtimeapi.PodSandboxStatus{Id: b.id, Metadata: metadataOf(b), State: stateOf(b), CreatedAt: 1},
				Info:   map[string]string{"info": fmt.Sprintf(`{"runtimeSpec":{"linux":{"namespaces":[{"type":"network","path":%q}]}}}`, b.netns)},
			}, nil
		}
	}
	return nil, grpcstatus.Error(codes.NotFound, "not found")
}

func metadataOf(b cell) *runtimeapi.PodSandboxMetadata {
	return &runtimeapi.PodSandboxMetadata{Namespace: b.pod.Namespace, Name: b.pod.Name, Uid: b.pod.UID}
}

func stateOf(b cell) runtimeapi.PodSandboxState {
	if b.runtime == "ready" {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}
