package cri

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const recorded = "testdata/containerd-1.6.20"

// The sandboxes in the recorded answers.
const (
	readyID   = "3865d16802fa70e672862dfc5290388e35c033a7fc46a19c9ce8615617f42df3"
	stoppedID = "90163dfa40446240bb6bc917e28f8b1d567610e4ca7f00ae9743d0f77397d129"
)

// runtime is a CRI server that gives the recorded answers. Tests change some of them.
type runtime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	// delay is how long ListPodSandbox takes.
	delay time.Duration
	// listsStopped has the list say what the status says of the sandbox that has stopped: the list was recorded before that.
	listsStopped bool
	// statuses are what is answered in place of the recorded status, by the sandbox's ID.
	statuses map[string]func(*runtimeapi.PodSandboxStatusResponse) error
}

func (r *runtime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	answer := &runtimeapi.VersionResponse{}
	return answer, read("Version", answer)
}

func (r *runtime) ListPodSandbox(ctx context.Context, _ *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(r.delay):
	}
	answer := &runtimeapi.ListPodSandboxResponse{}
	err := read("ListPodSandbox", answer)
	for _, item := range answer.Items {
		if r.listsStopped && item.Id == stoppedID {
			item.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		}
	}
	return answer, err
}

func (r *runtime) PodSandboxStatus(_ context.Context, q *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	answer := &runtimeapi.PodSandboxStatusResponse{}
	if err := read("PodSandboxStatus."+q.PodSandboxId[:8], answer); err != nil {
		return nil, err
	}
	if !q.Verbose {
		answer.Info = nil
	}
	if change := r.statuses[q.PodSandboxId]; change != nil {
		if err := change(answer); err != nil {
			return nil, err
		}
	}
	return answer, nil
}

func read(name string, to proto.Message) error {
	b, err := os.ReadFile(filepath.Join(recorded, name+".json"))
	if err != nil {
		return err
	}
	return protojson.Unmarshal(b, to)
}

// serve serves the runtime at a socket until stop is called or the test ends. With nil, the server knows no CRI.
func serve(t *testing.T, socket string, r *runtime) (stop func()) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	if r != nil {
		runtimeapi.RegisterRuntimeServiceServer(server, r)
	}
	ended := make(chan error)
	go func() { ended <- server.Serve(listener) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			server.Stop()
			// On a busy machine, it can be stopped before it has begun.
			if err := <-ended; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return stop
}

// client returns a client of a runtime at the socket, which waits for at most the limit.
func client(t *testing.T, socket string, limit time.Duration) *Client {
	t.Helper()
	c, err := New("unix://" + socket)
	if err != nil {
		t.Fatal(err)
	}
	c.limit = limit
	return c
}

func socketIn(t *testing.T) string { t.Helper(); return filepath.Join(t.TempDir(), "cri.sock") }
