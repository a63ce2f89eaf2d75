package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"k8s.io/apimachinery/pkg/types"

	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/test/fresh"
	"github.com/relink-cni/relink/test/node"
)

// foreignNode is a node whose pods have interfaces of stock plugins alone: eth0 by bridge, net1 by macvlan on lan0, and net2 by macvlan on flat0. No
// configuration names relink. An agent runs beside the container runtime.
type foreignNode struct {
	*host
	runtime *containerRuntime
	cni     *libcni.CNIConfig
	list    *libcni.NetworkConfigList
	args    []string
}

// foreignPod is a pod of such a node. What it had when it was attached is in want.
type foreignPod struct {
	id, name, netns string
	made            runtimeSandbox
	want            string
}

// newForeignNode returns such a node without pods and without an agent.
func newForeignNode(t *testing.T) *foreignNode {
	t.Helper()
	n := &foreignNode{host: &host{Node: node.New(t)}, runtime: startRuntime(t), cni: libcni.NewCNIConfig([]string{node.Bin}, nil)}
	n.args = []string{"--runtime-endpoint", "unix://" + n.runtime.socket, "--log-level", "debug"}
	for _, dir := range []string{"/run/netns", "/var/lib/cni"} { // Those of the machine are not the node's.
		fresh.Run(t, "", fmt.Sprintf("mkdir -p %[1]s; mount -t tmpfs tmpfs %[1]s", dir))
		t.Cleanup(func() { fresh.Run(t, "", "umount -l "+dir) })
	}
	fresh.IP(t, "", "link set lo up")
	n.makeFlat(t)
	t.Cleanup(func() { fresh.Run(t, "", "ip link del flat0; ip link del cni0 2>/dev/null || true") })
	ipam := func(subnets ...string) string { // The plugins wait two seconds for each IPv6 address.
		ranges := strings.Join(subnets, `"}], [{"subnet": "`)
		return fmt.Sprintf(`{"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "%s"}]]}`, filepath.Join(n.Dir, "ipam"), ranges)
	}
	delegates := fmt.Sprintf(`
		{"cniVersion": "1.0.0", "name": "podnet", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": %s}]},
		{"cniVersion": "1.0.0", "name": "lan", "plugins": [{"type": "macvlan", "master": "lan0", "ipam": %s}]},
		{"cniVersion": "1.0.0", "name": "flat", "plugins": [{"type": "macvlan", "master": "flat0", "ipam": %s}]}`, ipam("10.20.0.0/16"), ipam("10.21.0.0/16", "fd00:21::/64"), ipam("10.22.0.0/16"))
	var err error
	n.list, err = libcni.ConfListFromBytes([]byte(`{"cniVersion": "1.0.0", "name": "multus-cni-network", "plugins": [{"type": "meta", "hold": "` + filepath.Join(n.Dir, "hold") + `", "delegates": [` + delegates + `]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// hold makes an ADD wait after the delegate of the network, until release is called.
func (n *foreignNode) hold(t *testing.T, network string) (release func()) {
	t.Helper()
	file := filepath.Join(n.Dir, "hold-"+network)
	must(t, os.WriteFile(file, nil, 0o600))
	return func() { must(t, os.Remove(file)) }
}

// startAgent runs the agent.
func (n *foreignNode) startAgent(t *testing.T, args ...string) {
	t.Helper()
	n.start(t, nil, append(n.args, args...)...)
}

func (n *foreignNode) makeFlat(t *testing.T) {
	t.Helper()
	fresh.Run(t, "", "ip link add flat0 type veth peer name flat1; ip link set flat0 up; ip link set flat1 up")
}

// reload takes both NICs away for a moment.
func (n *foreignNode) reload(t *testing.T) {
	t.Helper()
	fresh.Run(t, "", "ip link del lan0; ip link del flat0")
	time.Sleep(100 * time.Millisecond)
	n.makeFlat(t)
	fresh.Run(t, "", "ip link add lan0 type veth peer name lan1; ip link set lan0 up; ip link set lan1 up")
}

// add runs a pod as a runtime does: namespace, ADD, and then the sandbox is ready.
func (n *foreignNode) add(t *testing.T, name string) *foreignPod {
	t.Helper()
	p := &foreignPod{id: "c-" + name, name: name, netns: "/run/netns/cni-" + name}
	p.made = runtimeSandbox{pod: made{namespace: "shop", name: name, uid: types.UID("uid-" + name)}, netns: p.netns, created: time.Now()}
	if err := fresh.Make(p.netns); err != nil {
		t.Fatal(err)
	}
	n.keepLoopback(t, p)
	_, err := n.cni.AddNetworkList(t.Context(), n.list, n.call(p))
	if err != nil {
		t.Error(err)
	}
	p.want = p.state(t)
	n.ready(p, true)
	return p
}

// keepLoopback writes the result of the network that containerd attaches beside the pod's, and that is over at once (go-cni, WithLoNetwork).
func (n *foreignNode) keepLoopback(t *testing.T, p *foreignPod) {
	t.Helper()
	b, err := json.Marshal(m{
		"kind": "cniCacheV1", "containerId": p.id, "ifName": "lo", "networkName": "cni-loopback", "netns": p.netns, "config": []byte("{}"), "result": m{"cniVersion": "1.0.0"},
	})
	must(t, err)
	must(t, os.MkdirAll("/var/lib/cni/results", 0o700))
	must(t, os.WriteFile("/var/lib/cni/results/cni-loopback-"+p.id+"-lo", b, 0o600))
}

// ready tells what the runtime says of the pod's sandbox.
func (n *foreignNode) ready(p *foreignPod, ready bool) {
	n.runtime.mu.Lock()
	defer n.runtime.mu.Unlock()
	p.made.ready = ready
	n.runtime.has[p.id] = p.made
}

func (n *foreignNode) call(p *foreignPod) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: p.id, NetNS: p.netns, IfName: "eth0", Args: [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", p.name}, {"K8S_POD_UID", "uid-" + p.name}}}
}

// remove ends a pod as a runtime does.
func (n *foreignNode) remove(t *testing.T, p *foreignPod) {
	t.Helper()
	n.ready(p, false)
	err := n.cni.DelNetworkList(t.Context(), n.list, n.call(p))
	for tries := 0; err != nil && tries < 3; tries++ { // The NIC can go while macvlan deletes what is on it. Runtimes try again.
		time.Sleep(100 * time.Millisecond)
		err = n.cni.DelNetworkList(t.Context(), n.list, n.call(p))
	}
	if err != nil {
		t.Error(err)
	}
	_ = os.Remove("/var/lib/cni/results/cni-loopback-" + p.id + "-lo")
	fresh.Remove(t, p.netns)
	n.runtime.mu.Lock()
	defer n.runtime.mu.Unlock()
	delete(n.runtime.has, p.id)
}

// unplug takes an interface of the pod away, as a controller of hot-plugs does: by Multus and the plugin.
func (n *foreignNode) unplug(t *testing.T, p *foreignPod, network, ifName string) {
	t.Helper()
	multus, list, call := n.multus(t, p, network, "lan0", ifName)
	must(t, multus.DelNetworkList(t.Context(), list, call))
}

// plug gives the pod an interface on the parent in the same way. It always has the same MAC, and each time another address.
func (n *foreignNode) plug(t *testing.T, p *foreignPod, network, parent, ifName string) {
	t.Helper()
	multus, list, call := n.multus(t, p, network, parent, ifName)
	_, err := multus.AddNetworkList(t.Context(), list, call)
	must(t, err)
}

// multus returns what Multus calls for an interface of the pod.
func (n *foreignNode) multus(t *testing.T, p *foreignPod, network, parent, ifName string) (*libcni.CNIConfig, *libcni.NetworkConfigList, *libcni.RuntimeConf) {
	t.Helper()
	list, err := libcni.ConfListFromBytes(fmt.Appendf(nil, `{"cniVersion": "1.0.0", "name": %q, "plugins": [{"type": "macvlan", "master": %q, "mac": "02:00:00:00:99:01",
		"ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.99.0.0/16"}}]}`, network, parent, filepath.Join(n.Dir, "ipam")))
	must(t, err)
	call := n.call(p)
	call.IfName = ifName
	return libcni.NewCNIConfigWithCacheDir([]string{node.Bin}, "/var/lib/cni/multus", nil), list, call
}

// volatile is what a rebuilt interface may have anew.
var volatile = regexp.MustCompile(`^\d+: |@\S+|link-netnsid \d+|valid_lft.*|\b(?:state|mode|linkmode) \S+|group default|qlen \d+|numtxqueues.*`)

// state is all that the pod's interfaces net1 and net2 are.
func (p *foreignPod) state(t testing.TB) string {
	t.Helper()
	text := fresh.Run(t, p.netns, "for i in net1 net2; do { ip -o link show $i && ip -o addr show $i scope global && ip route show dev $i && ip -6 route show dev $i; } 2>/dev/null || true; done")
	var lines []string
	for line := range strings.Lines(text) {
		line = volatile.ReplaceAllString(strings.ReplaceAll(line, " linkdown", ""), "")
		lines = append(lines, strings.Join(strings.Fields(strings.ReplaceAll(line, "LOWERLAYERDOWN", "UP")), " "))
	}
	return strings.Join(lines, "\n")
}

// recorded returns the records by pod and interface, as "pod ifName network".
func (n *foreignNode) recorded(t *testing.T) (all []string) {
	t.Helper()
	records, unreadable, err := n.Store.List()
	if err != nil || len(unreadable) > 0 {
		t.Fatal(err, unreadable)
	}
	for _, r := range records {
		if r.Writer != capture.AgentWriter {
			t.Errorf("%s was written by %q", r.Attachment, r.Writer)
		}
		all = append(all, fmt.Sprintf("%s %s %s", r.Pod.Name, r.Attachment.IfName, r.Attachment.Network))
	}
	return all
}

// awaitRecorded waits until exactly these are recorded.
func (n *foreignNode) awaitRecorded(t *testing.T, limit time.Duration, want ...string) time.Duration {
	t.Helper()
	began, got := time.Now(), []string(nil)
	for strings.Join(got, ", ") != strings.Join(want, ", ") || got == nil && len(want) > 0 {
		if time.Since(began) > limit {
			t.Fatalf("recorded: %q, want %q\n%s", got, want, n.log)
		}
		time.Sleep(10 * time.Millisecond)
		got = n.recorded(t)
	}
	return time.Since(began)
}

// awaitWhole waits until the pods are as they were.
func (n *foreignNode) awaitWhole(t *testing.T, pods ...*foreignPod) {
	t.Helper()
	for _, p := range pods {
		got := ""
		for deadline := time.Now().Add(20 * time.Second); got != p.want; time.Sleep(20 * time.Millisecond) {
			if got = p.state(t); got != p.want && time.Now().After(deadline) {
				t.Fatalf("%s is\n%s\nand not\n%s\n%s", p.name, got, p.want, n.log)
			}
		}
	}
}

// awaitSameRecorded is awaitRecorded in any order.
func (n *foreignNode) awaitSameRecorded(t *testing.T, limit time.Duration, want []string) {
	t.Helper()
	slices.Sort(want)
	got := []string{""}
	for deadline := time.Now().Add(limit); !slices.Equal(got, want); time.Sleep(50 * time.Millisecond) {
		if got = n.recorded(t); time.Now().After(deadline) {
			t.Fatalf("recorded: %q\nwant %q\n%s", got, want, n.log)
		}
		slices.Sort(got)
	}
}

// awaitUnrecorded waits until the agent says for this reason alone that this many interfaces on the node's NICs are not recorded.
func (n *foreignNode) awaitUnrecorded(t *testing.T, obstacle capture.Obstacle, count int) {
	t.Helper()
	await(t, 10*time.Second, fmt.Sprintf("%d interfaces that are not recorded", count), func() bool {
		status, err := (control.Client{}).Status(t.Context())
		must(t, err)
		found := slices.DeleteFunc(status.Unrecorded, func(u control.Unrecorded) bool { return u.Base == "" }) // The machine has NICs, too.
		return len(found) == count && !slices.ContainsFunc(found, func(u control.Unrecorded) bool { return u.Obstacle != string(obstacle) })
	})
}

// userPod runs a pod whose network namespace belongs to a user namespace, with a macvlan that somebody has made without CNI.
func (n *foreignNode) userPod(t *testing.T, name string) *foreignPod {
	t.Helper()
	cmd := exec.Command("unshare", "--user", "--map-root-user", "--net", "sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	p := &foreignPod{id: "c-" + name, name: name, netns: "/run/netns/cni-" + name}
	t.Cleanup(func() {
		fresh.Remove(t, p.netns)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	own, err := os.Readlink("/proc/self/ns/net")
	must(t, err)
	await(t, 10*time.Second, "the namespaces", func() bool {
		other, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid))
		return err == nil && other != own
	})
	time.Sleep(100 * time.Millisecond) // Until it is root in its user namespace.
	fresh.Run(t, "", fmt.Sprintf("touch %[1]s; mount --bind /proc/%[2]d/ns/net %[1]s; ip link add tmp0 link lan0 netns %[1]s type macvlan mode bridge", p.netns, cmd.Process.Pid))
	fresh.Run(t, p.netns, "ip link set tmp0 name net1; ip addr add 10.21.99.9/16 dev net1; ip link set net1 up")
	p.made = runtimeSandbox{pod: made{namespace: "shop", name: name, uid: types.UID("uid-" + name)}, netns: p.netns, created: time.Now()}
	p.want = p.state(t)
	n.ready(p, true)
	return p
}
