package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/kernel/identity"
	"github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/test/fresh"
	"github.com/relink-cni/relink/test/node"
)

// rig is a node of a cluster: an API server behind a proxy, a container runtime, and the agent with the rights of deploy/.
type rig struct {
	*api
	// whole is the test of all rows.
	whole   *testing.T
	host    *host
	proxy   *proxy
	runtime *containerRuntime
	socket  string
	// rows and launchers count.
	rows, launchers int
	// daemon is the sandbox of a pod that runs all the time, and that relink has attached to nothing: the agent's own.
	daemon *box
}

func (a *api) rig(t *testing.T) *rig {
	t.Helper()
	r := &rig{api: a, whole: t, host: &host{Node: node.New(t)}, socket: filepath.Join(t.TempDir(), "agent.sock")}
	r.proxy, r.runtime = newProxy(t, r.api), startRuntime(t)
	r.daemon = &box{id: "daemon", netns: fresh.Sandbox(t), pod: r.podOn(t, "relink-system", "relink-agent-x"), created: time.Now()}
	r.runtime.knows(r.daemon, true)
	r.startAgent(r.config(t, r.proxy.URL, "agent.conf", "{token: "+r.token(t)+"}"), nil)
	return r
}

// startAgent starts the agent until the end of the whole test. If audits is not nil, it audits the leases of the row.
func (r *rig) startAgent(kubeconfig string, audits *rowState) {
	r.whole.Helper()
	env := []string{control.SocketEnv + "=" + r.socket, "NODE_NAME=node1"}
	args := []string{"--kubeconfig", kubeconfig, "--runtime-endpoint", "unix://" + r.runtime.socket}
	if audits != nil {
		env, args = append(env, lease.DirEnv+"="+audits.leaseDir), append(args, "--audit-every=10s")
	}
	r.host.start(r.whole, env, args...)
}

// agent is a client of the agent.
func (r *rig) agent() control.Client { return control.Client{Path: r.socket} }

// rowState is the pods of one row. Their checkpoints, leases and networks are apart from those of other rows.
type rowState struct {
	*rig
	number int
	store  *checkpoint.Store
	// leaseDir and caches are directories.
	leaseDir, caches string
	networks         []string
	// keys are what a network has beside the rest: more keys in "ipam". plain networks have no relink-ipam: their value is
	// all of "ipam".
	keys, plain map[string]string
}

func (r *rig) rowState(t *testing.T) *rowState {
	t.Helper()
	r.rows++
	dir := t.TempDir()
	return &rowState{
		rig: r, number: r.rows, store: checkpoint.OpenStore(filepath.Join(dir, "checkpoints")), leaseDir: filepath.Join(dir, "leases"), caches: t.TempDir(),
		keys: map[string]string{}, plain: map[string]string{},
	}
}

// subnet is the network's own: sandboxes of two rows never have one address.
func (s *rowState) subnet(network string) string {
	if !slices.Contains(s.networks, network) {
		s.networks = append(s.networks, network)
	}
	return fmt.Sprintf("10.%d.%d", s.number, slices.Index(s.networks, network))
}

// at is an address of the network.
func (s *rowState) at(network string, last int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("%s.%d", s.subnet(network), last))
}

// config is the configuration of a network, with more keys beside "type".
func (s *rowState) config(network string, more m) []byte {
	ipam := s.plain[network]
	if ipam == "" {
		ipam = fmt.Sprintf(`{"type": "relink-ipam", "dataDir": %q, "sticky": "owner", "quarantine": "0s", "subnet": "%s.0/24"%s}`, s.leaseDir, s.subnet(network), s.keys[network])
	}
	c := m{
		"cniVersion": "1.1.0", "name": network, "type": "relink-macvlan", "master": "lan0", "checkpointDir": s.store.Dir(), "allowPersistentIPs": true,
		"ipam": json.RawMessage(ipam),
	}
	b, err := json.Marshal(with(c, more))
	if err != nil {
		panic(err) // The test's own mistake.
	}
	return b
}

// box is a sandbox of a pod.
type box struct {
	id, netns string
	pod       made
	created   time.Time
}

// box makes a sandbox. The runtime does not tell of it before it is attached, as containerd does not.
func (s *rowState) box(t *testing.T, id string, pod made) *box {
	t.Helper()
	b := &box{id: id, netns: fresh.Sandbox(t), pod: pod, created: time.Now()}
	t.Cleanup(func() { s.runtime.forgets(b) })
	return b
}

// plugin prepares a call of the plugin for an attachment: NETWORK for eth0, else NETWORK@IFNAME.
func (s *rowState) plugin(command string, b *box, on string, more m) *exec.Cmd {
	network, ifName, named := strings.Cut(on, "@")
	if !named {
		ifName = "eth0"
	}
	cmd := exec.Command(filepath.Join(node.Bin, "relink-macvlan"))
	cmd.Env = []string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + b.id, "CNI_NETNS=" + b.netns, "CNI_IFNAME=" + ifName, "CNI_PATH=" + node.Bin, "PATH=" + node.Bin,
		control.SocketEnv + "=" + s.socket,
		fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_INFRA_CONTAINER_ID=%s;K8S_POD_UID=%s", b.pod.namespace, b.pod.name, b.id, b.pod.uid),
	}
	cmd.Stdin = strings.NewReader(string(s.config(network, more)))
	return cmd
}

// tryAdd returns the address, or the error that the plugin has told the runtime.
func (s *rowState) tryAdd(t *testing.T, b *box, on string, more m) (netip.Addr, *types.Error) {
	t.Helper()
	out, err := s.plugin("ADD", b, on, more).Output()
	if err != nil {
		var told types.Error
		if json.Unmarshal(out, &told) != nil {
			t.Fatalf("ADD of %s on %s: %v\n%s", b.id, on, err, out)
		}
		return netip.Addr{}, &told
	}
	var result current.Result
	if err := json.Unmarshal(out, &result); err != nil || len(result.IPs) != 1 {
		t.Fatalf("ADD of %s on %s: %v\n%s", b.id, on, err, out)
	}
	a, _ := netip.AddrFromSlice(result.IPs[0].Address.IP)
	return a.Unmap(), nil
}

// add attaches the sandbox, which is expected to get the last part of the address. Then the runtime has it.
func (s *rowState) add(t *testing.T, b *box, on string, last int) {
	t.Helper()
	network, _, _ := strings.Cut(on, "@")
	a, refused := s.tryAdd(t, b, on, nil)
	if refused != nil {
		t.Fatalf("ADD of %s on %s: %s", b.id, on, refused)
	}
	if want := s.at(network, last); a != want {
		t.Errorf("ADD of %s on %s gave %s, want %s", b.id, on, a, want)
	}
	s.runtime.knows(b, true)
}

// refused attaches the sandbox in vain.
func (s *rowState) refused(t *testing.T, b *box, on string, code uint, says string) {
	t.Helper()
	a, refused := s.tryAdd(t, b, on, nil)
	if refused == nil || refused.Code != code || !strings.Contains(refused.Error(), says) {
		t.Errorf("ADD of %s on %s gave %s and says %v, want code %d: %s", b.id, on, a, refused, code, says)
	}
}

// del is the runtime's DEL.
func (s *rowState) del(t *testing.T, b *box, on string) {
	t.Helper()
	if out, err := s.plugin("DEL", b, on, nil).CombinedOutput(); err != nil {
		t.Fatalf("DEL of %s on %s: %v\n%s", b.id, on, err, out)
	}
}

// gc is the runtime's GC of the network, with the sandboxes that it calls valid.
func (s *rowState) gc(t *testing.T, network string, valid ...*box) {
	t.Helper()
	list := []types.GCAttachment{}
	for _, b := range valid {
		for _, ifName := range []string{"eth0", "net1", "net2"} {
			list = append(list, types.GCAttachment{ContainerID: b.id, IfName: ifName})
		}
	}
	cmd := s.plugin("GC", &box{}, network, m{"cni.dev/valid-attachments": list})
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("GC of %s: %v\n%s", network, err, out)
	}
}

// ends is the whole end of a sandbox: DEL of each interface, its namespace, and what the runtime knows of it.
func (s *rowState) ends(t *testing.T, b *box, on ...string) {
	t.Helper()
	for _, one := range on {
		s.del(t, b, one)
	}
	fresh.Remove(t, b.netns)
	s.runtime.forgets(b)
}

// dies is the end of namespaces. Nobody calls DEL. The agent may be in one of them for a moment, to look into it: dies waits
// for the end of that.
func (s *rowState) dies(t *testing.T, all ...*box) {
	t.Helper()
	var were []attachment.Namespace
	for _, b := range all {
		id, err := identity.Read(b.netns)
		if err != nil {
			t.Fatal(err)
		}
		were = append(were, id)
		fresh.Remove(t, b.netns)
	}
	await(t, 10*time.Second, "the end of the namespaces", func() bool {
		return len(sandbox.ProvenGone(t.Context(), sandbox.SeesAllProcesses(), were...)) == len(were)
	})
}

// vanishes is the end of sandboxes without a DEL: of a runtime that was reset, or whose DEL has failed.
func (s *rowState) vanishes(t *testing.T, all ...*box) {
	t.Helper()
	s.dies(t, all...)
	for _, b := range all {
		s.runtime.forgets(b)
	}
}

// anew deletes a pod and makes it again, as a controller does: with another UID.
func (r *rig) anew(t *testing.T, pod made, parts ...m) made {
	t.Helper()
	r.delete(t, pod)
	return r.podOn(t, pod.namespace, pod.name, parts...)
}

// scale gives a StatefulSet another spec.
func (r *rig) scale(t *testing.T, set made, spec m) {
	t.Helper()
	r.merge(t, set.path(), m{"spec": spec})
}

func (s *rowState) open(t *testing.T, network string) *lease.Store {
	t.Helper()
	store, err := lease.Open(s.leaseDir, network)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// is expects the lease of an address: "free", "reserved for OWNER" or "held by ID and ID for OWNER".
func (s *rowState) is(t *testing.T, network string, last int, want string) {
	t.Helper()
	a := s.at(network, last)
	l, err := s.open(t, network).Get(context.Background(), a)
	got := "free"
	switch {
	case err == nil && l.State == lease.Held:
		var ids []string
		for _, h := range l.Holders {
			ids = append(ids, h.ContainerID)
		}
		got = fmt.Sprintf("held by %s for %s", strings.Join(ids, " and "), l.Owner)
	case err == nil:
		got = fmt.Sprintf("%s for %s", l.State, l.Owner)
	case !errors.Is(err, lease.ErrNotLeased):
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("%s of %s is %s, want %s", a, network, got, want)
	}
}

// has expects an interface of the sandbox with the address, as its pod sees it.
func (s *rowState) has(t *testing.T, b *box, on string, last int) {
	t.Helper()
	network, ifName, named := strings.Cut(on, "@")
	if !named {
		ifName = "eth0"
	}
	if text := fresh.IP(t, b.netns, "-4 -o address show dev "+ifName); !strings.Contains(text, " "+s.at(network, last).String()+"/") {
		t.Errorf("%s of %s has not %s: %s", ifName, b.id, s.at(network, last), text)
	}
}

// deleteSlowly deletes a pod with a grace period, in seconds: a pod on a node stays until its kubelet says that it has ended.
func (r *rig) deleteSlowly(t *testing.T, o made, grace int) {
	t.Helper()
	r.ask(t, http.MethodDelete, fmt.Sprintf("%s?gracePeriodSeconds=%d", o.path(), grace), "", nil)
}
