package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/pkg/ipam"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/test/agentsocket"
)

// socket serves what the agent of the node does with pools, and makes it this process's agent.
func (m *member) socket(t *testing.T) {
	t.Helper()
	t.Setenv(control.SocketEnv, m.serve(t))
	t.Setenv(lease.DirEnv, m.dir)
}

// serve serves what the agent of the node does with pools, and returns the path of its socket.
func (m *member) serve(t *testing.T) (path string) {
	t.Helper()
	return agentsocket.Serve(t, serve.Handler(nil, serve.Sources{Pools: m}, nil))
}

// call is a call of the plugin for a pod's sandbox. keys are more keys of "ipam".
func call(container, name, keys string) *skel.CmdArgs {
	return &skel.CmdArgs{
		ContainerID: container, IfName: "eth0", Args: "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + name + ";K8S_POD_UID=uid-" + container,
		StdinData: []byte(fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "lan", "type": "relink-ipam", "ipam": {"type": "relink-ipam", %s}}`, keys)),
	}
}

// isTryAgain says whether the error has the code with which a runtime tries again.
func isTryAgain(err error) bool {
	var coded *types.Error
	return errors.As(err, &coded) && coded.Code == types.ErrTryAgainLater
}

// attach is an ADD as a runtime makes it: code 11 is tried again.
func attach(t *testing.T, args *skel.CmdArgs) (string, error) {
	t.Helper()
	for try := 0; ; try++ {
		result, _, err := ipam.Add(t.Context(), args, control.Client{})
		if isTryAgain(err) && try < 10 {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%s via %s", result.IPs[0].Address.String(), result.IPs[0].Gateway), nil
	}
}

// relink-ipam gives addresses of a pool, and brings the address of a pod that keeps its own.
func (a *api) throughThePlugin(t *testing.T, users map[string]user) {
	all := a.members(t, users, "10.10.0.0/26")
	all[0].socket(t)
	first, err := attach(t, call("c1", "web-0", `"pool": "lan", "sticky": "pod"`))
	if err != nil || !strings.HasSuffix(first, "/26 via 10.10.0.1") {
		t.Fatalf("%s, %v", first, err)
	}
	if again, err := attach(t, call("c1", "web-0", `"pool": "lan", "sticky": "pod"`)); err != nil || again != first {
		t.Errorf("again: %s, %v, want %s", again, err, first)
	}
	if other, err := attach(t, call("c2", "job", `"pool": ["lan"]`)); err != nil || other == first {
		t.Errorf("another pod: %s, %v", other, err)
	}
	if err := ipam.Detached(t.Context(), (*ipam.Call).Del, call("c1", "web-0", `"pool": "lan", "sticky": "pod"`)); err != nil {
		t.Fatal(err)
	}
	all[1].socket(t)
	if moved, err := attach(t, call("c3", "web-0", `"pool": "lan", "sticky": "pod"`)); err != nil || moved != first {
		t.Errorf("on another node: %s, %v, want %s", moved, err, first)
	}
	var coded *types.Error
	_, err = attach(t, call("c4", "web-1", `"pool": "wan"`))
	if want := "there is no AddressPool wan: make it, or correct ipam.pool"; !errors.As(err, &coded) || coded.Code != types.ErrInvalidNetworkConfig || !strings.Contains(err.Error(), want) {
		t.Errorf("a pool that does not exist: %v, want %s", err, want)
	}
}
