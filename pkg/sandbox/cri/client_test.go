package cri

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/sandbox"
)

var (
	ready = sandbox.RuntimeSandbox{
		ContainerID: readyID, Ready: true, Netns: "/var/run/netns/cni-5345bd7c-6cd2-1ade-57ac-1325b532b78f", Created: time.Unix(0, 1795370276389404591),
		Pod: attachment.Pod{Namespace: "default", Name: "web-1-node", UID: "2583e6858567641101ba9a7f4e5bc0b2"},
	}
	stopped = sandbox.RuntimeSandbox{
		ContainerID: stoppedID, Netns: "/var/run/netns/cni-6c266095-ae6b-422c-d029-1ed1a9355adb", Created: time.Unix(0, 1795370276397730200),
		Pod: attachment.Pod{Namespace: "default", Name: "web-0-node", UID: "8a58655710f10c3e85a832e1524cc905"},
	}
)

// without returns the sandbox without its network namespace.
func without(s sandbox.RuntimeSandbox) sandbox.RuntimeSandbox { s.Netns = ""; return s }

func TestSandboxes(t *testing.T) {
	for name, test := range map[string]struct {
		status func(*runtimeapi.PodSandboxStatusResponse) error // of the sandbox that is ready
		want   []sandbox.RuntimeSandbox
		err    string
	}{
		"as recorded": {nil, []sandbox.RuntimeSandbox{ready, stopped}, ""},
		"gone meanwhile": {
			func(*runtimeapi.PodSandboxStatusResponse) error { return status.Error(codes.NotFound, "not found") },
			[]sandbox.RuntimeSandbox{stopped}, "",
		},
		"no status": {
			func(*runtimeapi.PodSandboxStatusResponse) error {
				return status.Error(codes.Unknown, "the shim is away")
			},
			[]sandbox.RuntimeSandbox{without(ready), stopped}, "container runtime at unix://SOCKET: sandbox " + readyID + " of default/web-1-node: the shim is away",
		},
		"the host's network": {
			func(s *runtimeapi.PodSandboxStatusResponse) error {
				s.Status.Linux.Namespaces.Options.Network = runtimeapi.NamespaceMode_NODE
				s.Info = nil
				return nil
			},
			[]sandbox.RuntimeSandbox{func(s sandbox.RuntimeSandbox) sandbox.RuntimeSandbox { s.HostNetwork = true; return s }(without(ready)), stopped}, "",
		},
		"a runtime that tells nothing": {
			func(s *runtimeapi.PodSandboxStatusResponse) error { s.Info = nil; return nil },
			[]sandbox.RuntimeSandbox{without(ready), stopped},
			"container runtime at unix://SOCKET: sandbox " + readyID + ` of default/web-1-node: its verbose status has no part "info", so its network namespace is not known`,
		},
		"the status of another sandbox": {
			func(s *runtimeapi.PodSandboxStatusResponse) error { s.Status.Id = stoppedID; return nil },
			[]sandbox.RuntimeSandbox{without(ready), stopped},
			"container runtime at unix://SOCKET: sandbox " + readyID + ` of default/web-1-node: the status is that of "` + stoppedID + `"`,
		},
		"an empty status": {
			func(s *runtimeapi.PodSandboxStatusResponse) error { s.Reset(); return nil },
			[]sandbox.RuntimeSandbox{without(ready), stopped},
			"container runtime at unix://SOCKET: sandbox " + readyID + ` of default/web-1-node: the status is that of ""`,
		},
		"a stopped sandbox needs no namespace": {
			func(s *runtimeapi.PodSandboxStatusResponse) error {
				s.Info, s.Status.State = nil, runtimeapi.PodSandboxState_SANDBOX_NOTREADY
				return nil
			},
			[]sandbox.RuntimeSandbox{func(s sandbox.RuntimeSandbox) sandbox.RuntimeSandbox { s.Ready = false; return s }(without(ready)), stopped}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			socket := socketIn(t)
			serve(t, socket, &runtime{statuses: map[string]func(*runtimeapi.PodSandboxStatusResponse) error{readyID: test.status}})
			got, err := client(t, socket, listLimit).Sandboxes(t.Context())
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if want := strings.ReplaceAll(test.err, "SOCKET", socket); message(err) != want {
				t.Errorf("error %q, want %q", message(err), want)
			}
		})
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Each way in which a runtime does not answer has an error of its own, which names the endpoint.
func TestARuntimeThatDoesNotAnswer(t *testing.T) {
	const short = 200 * time.Millisecond // Only where the time has to end: on a busy machine, an answer can take longer.
	for name, test := range map[string]struct {
		start func(t *testing.T, socket string)
		limit time.Duration
		is    error
		want  string
	}{
		"there is none": {func(*testing.T, string) {}, listLimit, nil, "it cannot be reached, is it running?"},
		"it refuses": {func(t *testing.T, socket string) {
			l := listen(t, socket)
			l.SetUnlinkOnClose(false)
			_ = l.Close()
		}, listLimit, nil, "connection refused"},
		"it takes the connection and is silent": {func(t *testing.T, socket string) { listen(t, socket) }, short, context.DeadlineExceeded, "no answer within 200ms"},
		"it lists for ever": {func(t *testing.T, socket string) {
			serve(t, socket, &runtime{delay: time.Hour})
		}, short, context.DeadlineExceeded, "no answer within 200ms"},
		"it serves no CRI v1": {func(t *testing.T, socket string) { serve(t, socket, nil) }, listLimit, errOldAPI, "unknown service runtime.v1.RuntimeService"},
	} {
		t.Run(name, func(t *testing.T) {
			socket := socketIn(t)
			test.start(t, socket)
			start := time.Now()
			got, err := client(t, socket, test.limit).Sandboxes(t.Context())
			if err == nil || got != nil || test.is != nil && !errors.Is(err, test.is) {
				t.Fatalf("%v, error %v, want %v", got, err, test.is)
			}
			for _, want := range []string{"container runtime at unix://" + socket + ": ", test.want} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func listen(t *testing.T, socket string) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// A client outlives its runtime.
func TestARuntimeThatRestarts(t *testing.T) {
	socket := socketIn(t)
	stop := serve(t, socket, &runtime{})
	c := client(t, socket, listLimit)
	ask := func() (int, error) { s, err := c.Sandboxes(t.Context()); return len(s), err }
	if n, err := ask(); n != 2 || err != nil {
		t.Fatalf("%d sandboxes, %v", n, err)
	}
	stop()
	if n, err := ask(); n != 0 || err == nil {
		t.Errorf("%d sandboxes of a runtime that is away, %v", n, err)
	}
	serve(t, socket, &runtime{})
	if n, err := ask(); n != 2 || err != nil {
		t.Errorf("%d sandboxes of the new runtime, %v", n, err)
	}
}

// A socket without a runtime does not hide the runtime that runs. If two runtimes run, the client chooses neither.
func TestSeveralDefaultSockets(t *testing.T) {
	f := finder{getenv: func(string) string { return "" }, root: t.TempDir()}
	c := &Client{find: f.find, limit: listLimit}
	serve(t, f.root+"/run/containerd/containerd.sock", nil) // Docker's containerd, whose CRI is off.
	stop := serve(t, f.root+"/run/crio/crio.sock", &runtime{})
	if sandboxes, err := c.Sandboxes(t.Context()); err != nil || len(sandboxes) != 2 {
		t.Errorf("%v, %v", sandboxes, err)
	}
	serve(t, f.root+"/run/k3s/containerd/containerd.sock", &runtime{})
	_, err := c.Sandboxes(t.Context())
	for _, want := range []string{"several container runtimes answer", "containerd 1.6.20~ds1 at unix://" + f.root + "/run/crio/crio.sock", "k3s", "/etc/crictl.yaml"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	stop()
	if sandboxes, err := c.Sandboxes(t.Context()); err != nil || len(sandboxes) != 2 {
		t.Errorf("%v, %v", sandboxes, err)
	}
}

// namespaces in the forms of the runtimes: recorded, or by their source.
func TestNetnsIn(t *testing.T) {
	const spec = `"runtimeSpec":{"ociVersion":"1.1.0","linux":{"namespaces":[{"type":"pid"},{"type":"network","path":"/run/netns/a"}]}}`
	for name, test := range map[string]struct{ info, path, err string }{
		"containerd 1":                       {`{"pid":7,` + spec + `}`, "/run/netns/a", ""},
		"containerd 2":                       {`{"pid":7,` + spec + `,"sandboxMetadata":{"Version":"v1","Metadata":{"ID":"x","NetNSPath":"/run/netns/a"}}}`, "/run/netns/a", ""},
		"containerd 2, the task has gone":    {`{"pid":0,"runtimeSpec":null,"sandboxMetadata":{"Version":"v1","Metadata":{"NetNSPath":"/run/netns/b"}}}`, "/run/netns/b", ""},
		"CRI-O":                              {`{"image":"pause","pid":7,` + spec + `}`, "/run/netns/a", ""},
		"CRI-O without an infra container":   {`{` + spec + `}`, "/run/netns/a", ""},
		"a namespace that a process made":    {`{"runtimeSpec":{"linux":{"namespaces":[{"type":"network"}]}}}`, "", "its verbose status does not tell its network namespace"},
		"no JSON":                            {`{"pid":`, "", "its verbose status cannot be read: unexpected end of JSON input"},
		"another runtime, which tells other": {`{"sandboxId":"x"}`, "", "its verbose status does not tell its network namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := netnsIn(map[string]string{"info": test.info})
			if path != test.path || message(err) != test.err {
				t.Errorf("%q, %q; want %q, %q", path, message(err), test.path, test.err)
			}
		})
	}
}

// A Client does not ask again for the namespace of a sandbox that is in the same state.
func TestTheNamespaceOfASandboxStays(t *testing.T) {
	var mu sync.Mutex // the client asks for several sandboxes at once
	asked := map[string]int{}
	ask := func(s *runtimeapi.PodSandboxStatusResponse) error {
		mu.Lock()
		defer mu.Unlock()
		asked[s.Status.Id]++
		return nil
	}
	r := &runtime{listsStopped: true, statuses: map[string]func(*runtimeapi.PodSandboxStatusResponse) error{readyID: ask, stoppedID: ask}}
	socket := filepath.Join(t.TempDir(), "cri.sock")
	defer serve(t, socket, r)()
	c, err := New(socket)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		got, err := c.Sandboxes(t.Context())
		if diff := cmp.Diff([]sandbox.RuntimeSandbox{ready, stopped}, got); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
	}
	if diff := cmp.Diff(map[string]int{readyID: 1, stoppedID: 1}, asked); diff != "" {
		t.Errorf("asked:\n%s", diff)
	}
}
