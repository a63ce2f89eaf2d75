package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/relink-cni/relink/pkg/sandbox"
)

const (
	// answerLimit is how long a runtime may take to say that it is there.
	answerLimit = 2 * time.Second
	// listLimit is how long a runtime may take to tell of all its sandboxes.
	listLimit = 10 * time.Second
	// maxBytes is the greatest answer that is accepted; the kubelet has the same limit (maxMsgSize in cri-client).
	maxBytes = 16 << 20
)

// errOldAPI says that the runtime does not serve CRI v1.
var errOldAPI = errors.New("it does not serve the API CRI v1: its version is older than Kubernetes 1.26 asks for," +
	" or its CRI plugin is off (disabled_plugins in containerd's config.toml)")

// Client asks a container runtime. It connects for each question, so it can be made before the runtime runs, and outlives it. It is safe
// for use by several goroutines.
type Client struct {
	find  func() ([]string, error)
	limit time.Duration

	mu sync.Mutex
	// reported are the sandboxes of the last answer, by ID: a sandbox keeps its network namespace as long as it keeps its state.
	reported map[string]sandbox.RuntimeSandbox
}

// connection is a runtime that has answered.
type connection struct {
	endpoint string
	runtime  string // name and version
	wire     *grpc.ClientConn
	api      runtimeapi.RuntimeServiceClient
}

func (c *connection) close() { _ = c.wire.Close() } // Nothing was written that could be lost.

// New returns a client of the runtime at the endpoint, as unix:///run/x.sock or as a path. An empty endpoint stands for the
// runtime that crictl would find: CONTAINER_RUNTIME_ENDPOINT, then runtime-endpoint in /etc/crictl.yaml, then the default sockets
// that exist.
func New(named string) (*Client, error) {
	f := finder{getenv: os.Getenv, root: "/"}
	if named == "" {
		return &Client{find: f.find, limit: listLimit}, nil
	}
	e, err := parseEndpoint(named, "the runtime's endpoint")
	if err != nil {
		return nil, err
	}
	return &Client{find: func() ([]string, error) { return []string{e}, nil }, limit: listLimit}, nil
}

// connect returns a connection to the only runtime that answers. It is an error if several answer: a runtime without
// pods would show all sandboxes of the node as gone.
func (c *Client) connect(ctx context.Context) (*connection, error) {
	candidates, err := c.find()
	if err != nil {
		return nil, err
	}
	var answer []*connection
	var failures []error
	for _, candidate := range candidates {
		conn, err := dial(ctx, candidate, min(answerLimit, c.limit))
		if err != nil {
			failures = append(failures, err)
			continue
		}
		answer = append(answer, conn)
	}
	switch len(answer) {
	case 0:
		return nil, errors.Join(failures...)
	case 1:
		return answer[0], nil
	}
	var names []string
	for _, conn := range answer {
		names = append(names, fmt.Sprintf("%s at %s", conn.runtime, conn.endpoint))
		conn.close()
	}
	return nil, fmt.Errorf("several container runtimes answer (%s): name the kubelet's as runtime-endpoint in %s, or in %s",
		strings.Join(names, ", "), configFile, endpointEnv)
}

// dial connects to the endpoint and waits for its answer.
func dial(ctx context.Context, endpoint string, limit time.Duration) (*connection, error) {
	wire, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxBytes)))
	if err != nil {
		return nil, fmt.Errorf("container runtime at %s: %w", endpoint, err)
	}
	api := runtimeapi.NewRuntimeServiceClient(wire)
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	version, err := api.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		_ = wire.Close()
		return nil, fmt.Errorf("container runtime at %s: %w", endpoint, explain(limit, err))
	}
	return &connection{endpoint: endpoint, runtime: version.RuntimeName + " " + version.RuntimeVersion, wire: wire, api: api}, nil
}

// explain says what the answer of a runtime means.
func explain(limit time.Duration, err error) error {
	st := status.Convert(err)
	switch st.Code() {
	case codes.DeadlineExceeded:
		return fmt.Errorf("no answer within %v: %w", limit, context.DeadlineExceeded)
	case codes.Unimplemented:
		return fmt.Errorf("%w (%s)", errOldAPI, st.Message())
	case codes.Unavailable:
		return fmt.Errorf("it cannot be reached, is it running? (%s)", st.Message())
	case codes.Canceled:
		return context.Canceled
	}
	return errors.New(st.Message())
}
