package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/test/agentsocket"
	"github.com/relink-cni/relink/test/binaries"
	"github.com/relink-cni/relink/test/fresh"
	"github.com/relink-cni/relink/test/native"
	testnode "github.com/relink-cni/relink/test/node"
)

// bin has programs that can be killed at a step.
var bin string

func TestMain(m *testing.M) {
	dir, err := filepath.Abs("../../bin/test-failpoint")
	bin = dir
	if err == nil && !native.Inside() {
		err = binaries.Build(bin, "failpoint")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// reload is a command that reloads a driver: the NIC goes, and comes back down.
const reload = `ip link del lan0; sleep 0.05; ip link add lan0 type veth peer name lan1; ip link set lan1 master br0 up`

// reloads is a limit within which reload is done. A busy machine takes half a second for it.
const reloads = "2s"

// host is a machine with a real systemd, a NIC, lan0, a gateway behind it, and a pod on it.
type host struct {
	dir, netns, pod string
	env             []string
	agent           *agent
}

// newHost returns a host whose kubelet is in that state: active, inactive, or empty for a machine without one. It returns nil in the
// process that has run the test on such a host.
func newHost(t *testing.T, kubelet string) *host {
	t.Helper()
	if !native.Inside() {
		t.Parallel()
		native.Run(t, bin)
		return nil
	}
	dir := t.TempDir()
	h := &host{dir: dir, netns: "/proc/1/ns/net", pod: filepath.Join(dir, "pod"), agent: &agent{}}
	fresh.At(t, h.pod)
	for _, sub := range []string{"checkpoints", "leases", "units", "path", "cache"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if kubelet != "" {
		h.unit(t, "kubelet.service", kubelet, "")
	}
	h.env = append(os.Environ(), "UNITS="+filepath.Join(dir, "units"),
		"RELINK_CHECKPOINT_DIR="+filepath.Join(dir, "checkpoints"), "RELINK_IPAM_DIR="+filepath.Join(dir, "leases"),
		"RELINK_GUARD_DIR="+filepath.Join(dir, "guard"), "RELINK_AGENT_SOCKET="+filepath.Join(dir, "agent.sock"),
	)
	// With an address of its own, the bridge keeps it: otherwise it takes that of a port, and another one when the port goes.
	fresh.Run(t, h.netns, "ip link add br0 address 02:00:00:00:03:01 type bridge; ip link set br0 up; ip addr add 10.3.0.1/24 dev br0; ip link add lan0 type veth peer name lan1; "+
		"ip link set lan1 master br0 up; ip link set lan0 up")
	h.attach(t)
	t.Cleanup(func() { testnode.Purgeable(t, checkpoint.OpenStore(filepath.Join(dir, "checkpoints"))) })
	return h
}

// unit makes a unit of systemd that is in that state, with one more setting. It notes each start and stop in units/log.
func (h *host) unit(t *testing.T, name, state, setting string) {
	t.Helper()
	log := filepath.Join(h.dir, "units", "log")
	text := fmt.Sprintf("[Unit]\n%s\n[Service]\nExecStartPre=/bin/sh -c 'echo start %s >>%s'\nExecStart=sleep infinity\nExecStopPost=/bin/sh -c 'echo stop %[2]s >>%[3]s'\n", setting, name, log)
	path := "/run/systemd/system/" + name
	_, unknown := os.Stat(path)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if unknown == nil { // systemd finds a new one by itself.
		fresh.Run(t, "", "systemctl daemon-reload")
	}
	if state == "active" {
		fresh.Run(t, "", "systemctl start "+name+"; rm "+log)
	}
}

// state returns the state of a unit.
func state(t *testing.T, unit string) string {
	t.Helper()
	return fresh.Run(t, "", "systemctl is-active "+unit+" || true")
}

// attach attaches the pod as a runtime does.
func (h *host) attach(t *testing.T) {
	t.Helper()
	h.cni(t, "ADD", "c1", h.pod, "web-0")
}

// cni calls relink-macvlan.
func (h *host) cni(t *testing.T, verb, id, netns, pod string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "relink-macvlan"))
	cmd.Env = append(slices.Clone(h.env), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+id, "CNI_IFNAME=eth0", "CNI_NETNS="+netns, "CNI_PATH="+bin,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME="+pod)
	cmd.Stdin = strings.NewReader(`{"cniVersion": "1.1.0", "name": "lan", "type": "relink-macvlan", "master": "lan0",
		"ipam": {"type": "relink-ipam", "ranges": [[{"subnet": "10.3.0.0/24", "rangeStart": "10.3.0.5", "gateway": "10.3.0.1"}]], "routes": [{"dst": "0.0.0.0/0"}]}}`)
	if out, err := h.run(cmd); err != nil {
		t.Fatalf("%s: %v\n%s", verb, err, out)
	}
}

func (h *host) run(cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// relink prepares a run of relink.
func (h *host) relink(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(bin, "relink"), args...)
	cmd.Env = h.env
	return cmd
}

// guard runs relink guard with short limits and a shell command line. It expects that exit status, and returns the
// output.
func (h *host) guard(t *testing.T, want int, line string, flags ...string) string {
	t.Helper()
	out, status := h.status(t, h.relink(h.guardArgs(line, flags...)...))
	if status != want {
		t.Errorf("guard: exit status %d, want %d\n%s", status, want, out)
	}
	return out
}

func (h *host) guardArgs(line string, flags ...string) []string {
	args := append([]string{"guard", "--wait", "2s", "--kill-after", "300ms", "--cni-cache", filepath.Join(h.dir, "cache")}, flags...)
	return append(args, "--", "sh", "-c", line)
}

// status runs the command and returns its output and exit status.
func (h *host) status(t *testing.T, cmd *exec.Cmd) (string, int) {
	t.Helper()
	out, err := h.run(cmd)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return out, cmd.ProcessState.ExitCode()
}

func (h *host) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// read returns a file, empty if it is not there.
func (h *host) read(name string) string {
	b, _ := os.ReadFile(filepath.Join(h.dir, name))
	return string(b)
}

// whole fails the test unless the pod is as before, its gateway answers, the kubelet is in that state, nothing is
// armed, and the agent is not paused.
func (h *host) whole(t *testing.T, kubelet string) {
	t.Helper()
	if out, status := h.status(t, h.relink("check", "--cni-cache", filepath.Join(h.dir, "cache"))); status != 0 {
		t.Errorf("check: %d\n%s", status, out)
	}
	fresh.Run(t, h.pod, "ping -q -c 1 -W 3 10.3.0.1")
	h.atRest(t, kubelet)
}

// atRest fails the test unless the kubelet is in that state, nothing is armed, and the agent is not paused.
func (h *host) atRest(t *testing.T, kubelet string) {
	t.Helper()
	if got := state(t, "kubelet"); got != kubelet {
		t.Errorf("the kubelet is %q, want %q\n%s", got, kubelet, h.read("units/log"))
	}
	if timer := h.timer(t); timer != "" {
		t.Errorf("%s is armed", timer)
	}
	if h.agent.paused() != nil {
		t.Error("the agent is paused")
	}
}

// timer returns the guard's timer without its suffix, empty if none is armed.
func (h *host) timer(t *testing.T) string {
	t.Helper()
	return strings.TrimSuffix(fresh.Run(t, "", "systemctl list-units --plain --no-legend 'relink-guard-*.timer' | cut -d ' ' -f 1"), ".timer")
}

// agent is an agent that keeps its pause.
type agent struct {
	mu     sync.Mutex
	status control.Status
	pauses int
}

func (a *agent) Status() control.Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

func (a *agent) paused() *control.Pause { return a.Status().Paused }

func (a *agent) Pause(_ context.Context, length time.Duration, why string) (control.Pause, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pauses++
	p, err := control.NewPause(length, why)
	a.status.Paused = &p
	return p, err
}

func (a *agent) Resume(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status.Paused = nil
	return nil
}

// runAgent serves the host's agent until the end of the test.
func (h *host) runAgent(t *testing.T) {
	t.Helper()
	agentsocket.ServeAt(t, filepath.Join(h.dir, "agent.sock"), serve.Handler(h.agent, serve.Sources{}, nil))
}

// eventually waits until is returns true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
