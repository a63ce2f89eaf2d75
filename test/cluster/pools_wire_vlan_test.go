package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/test/fresh"
	"github.com/relink-cni/relink/test/node"
)

// vlan is a switch, and nodes at it that share the pools lan and lan6. Each node is a network namespace.
type vlan struct {
	*testing.T
	api   *api
	users map[string]user
	dir   string
	// wire is the namespace of the switch. Its ports have the names of the nodes.
	wire  string
	nodes []*vlanNode
	// shared are the addresses of both pools, IPv4 first.
	shared []netip.Addr
	ears   *listener

	mu   sync.Mutex
	pods []*vlanPod
}

// vlanNode is a node. vlan0 is its device at the switch.
type vlanNode struct {
	*member
	ns, socket, checkpoints string
}

// vlanPod is a sandbox of a pod.
type vlanPod struct {
	speaker
	on     *vlanNode
	id, ns string
}

// The keys of "ipam" for a pod that keeps its address, and for one that does not.
const (
	keeps   = `"sticky": "pod"`
	forgets = `"quarantine": "0s"`
)

// vlan makes a VLAN of three nodes. The pools are of the networks 10.NUMBER.0.0/24 and fd00:NUMBER::/64, with so many addresses.
func (a *api) vlan(t *testing.T, users map[string]user, number, size int) *vlan {
	t.Helper()
	v := &vlan{T: t, api: a, users: users, dir: t.TempDir()}
	askers := v.pools(number, size)
	v.wire = v.namespace("wire")
	fresh.Run(t, v.wire, "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1; ip link add vlan up type bridge mcast_snooping 0")
	var ports []string
	for _, name := range []string{"node1", "node2", "node3"} {
		n := &vlanNode{member: a.member(t, name, users[name]), ns: v.namespace(name), checkpoints: filepath.Join(v.dir, name+"-checkpoints")}
		n.socket = n.serve(t)
		fresh.Run(t, v.wire, fmt.Sprintf("ip link add %[1]s up master vlan type veth peer name vlan0 netns %[2]s", name, n.ns))
		fresh.IP(t, n.ns, "link set vlan0 up")
		v.nodes, ports = append(v.nodes, n), append(ports, name)
	}
	v.ears = listen(t, v.wire, "vlan", ports, askers, v.shared)
	t.Cleanup(func() { // A test that fails leaves some.
		for _, p := range v.pods {
			fresh.Remove(t, p.ns)
		}
	})
	return v
}

// pools makes the pools lan and lan6 anew. It returns their gateways.
func (v *vlan) pools(number, size int) (gateways []netip.Addr) {
	v.Helper()
	admin := v.users["admin"]
	for name, subnet := range map[string]netip.Prefix{
		"lan": netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/24", number)), "lan6": netip.MustParsePrefix(fmt.Sprintf("fd00:%d::/64", number)),
	} {
		gateway := subnet.Addr().Next()
		gateways = append(gateways, gateway)
		var all []netip.Addr
		for last := gateway; len(all) < size; {
			last = last.Next()
			all = append(all, last)
		}
		v.shared = append(v.shared, all...)
		noPool(v.T, admin, name)
		v.Cleanup(func() { noPool(v.T, admin, name) })
		admin.must(v.T, http.MethodPost, pools, poolObject(pool.Pool{Metadata: pool.Meta{Name: name}, Spec: pool.Spec{
			Subnet: subnet.String(), Gateway: gateway.String(), Ranges: []string{all[0].String() + "-" + all[size-1].String()}, BlockSize: 4,
		}}), nil)
	}
	slices.SortFunc(gateways, netip.Addr.Compare)
	slices.SortFunc(v.shared, netip.Addr.Compare)
	return gateways
}

func (v *vlan) namespace(name string) (path string) {
	v.Helper()
	path = filepath.Join(v.dir, name)
	fresh.At(v.T, path)
	return path
}

// pod makes a sandbox on the node for the pod with that name. The kernel there does not look for duplicates: only relink sees to it that
// there are none.
func (v *vlan) pod(n *vlanNode, name string) *vlanPod {
	v.Helper()
	v.mu.Lock()
	number := len(v.pods)
	p := &vlanPod{on: n, id: fmt.Sprintf("c%d", number), ns: filepath.Join(v.dir, fmt.Sprintf("pod%d", number))}
	p.speaker = speaker{name: fmt.Sprintf("%s (%s on %s)", name, p.id, n.name), began: time.Now()}
	p.voice = voice{n.name, fmt.Sprintf("02:0a:00:00:%02x:%02x", number>>8, number&0xff)}
	v.pods = append(v.pods, p)
	v.mu.Unlock()
	if err := fresh.Make(p.ns); err != nil {
		v.Error(err)
		return p
	}
	var err error
	in := fresh.In(p.ns, func() { err = os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0) })
	if in != nil || err != nil {
		v.Error(in, err)
	}
	return p
}

// plugin runs relink-macvlan on the node, as a runtime does.
func (v *vlan) plugin(command string, p *vlanPod, name, keys string) (out []byte, err error) {
	cmd := exec.Command(filepath.Join(node.Bin, "relink-macvlan"))
	cmd.Env = []string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + p.id, "CNI_NETNS=" + p.ns, "CNI_IFNAME=eth0", "CNI_PATH=" + node.Bin, "PATH=" + node.Bin,
		control.SocketEnv + "=" + p.on.socket, lease.DirEnv + "=" + p.on.dir, checkpoint.DirEnv + "=" + p.on.checkpoints, "CNI_ARGS=" + argsOf(p, name),
	}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{
		"cniVersion": "1.1.0", "name": "lan", "type": "relink-macvlan", "master": "vlan0", "capabilities": {"mac": true}, "runtimeConfig": {"mac": %q},
		"ipam": {"type": "relink-ipam", "pool": ["lan", "lan6"], %s}}`, p.mac, keys))
	in := fresh.In(p.on.ns, func() { out, err = cmd.Output() })
	if in != nil {
		return nil, in
	}
	return out, err
}

func argsOf(p *vlanPod, name string) string {
	return "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + name + ";K8S_POD_UID=uid-" + p.id
}

// start starts the pod with that name on the node. It returns the error that the plugin tells the runtime.
func (v *vlan) start(n *vlanNode, name, keys string) (*vlanPod, *types.Error) {
	v.Helper()
	p := v.pod(n, name)
	out, err := v.plugin("ADD", p, name, keys)
	if err != nil {
		told := &types.Error{}
		if json.Unmarshal(out, told) != nil {
			v.Errorf("ADD of %s: %v\n%s", p.name, err, out)
		}
		v.end(p)
		return p, told
	}
	var result current.Result
	if err := json.Unmarshal(out, &result); err != nil {
		v.Errorf("ADD of %s: %v\n%s", p.name, err, out)
	}
	v.told(p, &result)
	return p, nil
}

// told notes the addresses that an ADD has returned.
func (v *vlan) told(p *vlanPod, result *current.Result) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, ip := range result.IPs {
		a, _ := netip.AddrFromSlice(ip.Address.IP)
		p.addresses = append(p.addresses, a.Unmap())
	}
}

// must is start that succeeds within some tries, as a runtime makes them.
func (v *vlan) must(n *vlanNode, name, keys string) *vlanPod {
	v.Helper()
	var refused *types.Error
	for range 10 {
		var p *vlanPod
		if p, refused = v.start(n, name, keys); refused == nil {
			return p
		}
	}
	v.Errorf("%s does not start on %s: %s\n%s", name, n.name, refused, n.log.String())
	return v.pod(n, name) // Another goroutine than the test's cannot end it.
}

// refused starts a pod, which fails with code 11, until the refusal says that. On a busy machine, the first ones only say that the time
// was not enough.
func (v *vlan) refused(n *vlanNode, name, keys, says string) {
	v.Helper()
	var told *types.Error
	defer func() {
		if v.Failed() {
			v.Logf("the last refusal: %v", told)
		}
	}()
	await(v.T, time.Minute, "the refusal that says "+says, func() bool {
		var p *vlanPod
		p, told = v.start(n, name, keys)
		if told == nil || told.Code != types.ErrTryAgainLater {
			v.Fatalf("%s has %v, and the ADD says %v, want code 11: %s", p.name, p.addresses, told, says)
		}
		return strings.Contains(told.Error(), says)
	})
}

// ends notes that the end of the pod begins, if it has not begun before: another one may have its addresses from now on.
func (v *vlan) ends(p *vlanPod) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if p.ended.IsZero() {
		p.ended = time.Now()
	}
}

// end ends the pod as a runtime does.
func (v *vlan) end(p *vlanPod) {
	v.Helper()
	v.ends(p)
	v.del(p)
	fresh.Remove(v.T, p.ns)
}

func (v *vlan) del(p *vlanPod) {
	v.Helper()
	if out, err := v.plugin("DEL", p, "", forgets); err != nil {
		v.Errorf("DEL of %s: %v\n%s", p.name, err, out)
	}
}

// off takes the power from the machine. Nobody calls DEL.
func (v *vlan) off(n *vlanNode) {
	v.Helper()
	for _, p := range v.pods {
		if p.on == n && p.ended.IsZero() {
			v.ends(p)
			defer fresh.Remove(v.T, p.ns)
		}
	}
	fresh.IP(v.T, v.wire, "link set "+n.name+" down")
}

// hears waits until each of these pods was heard with all its addresses.
func (v *vlan) hears(all ...*vlanPod) {
	v.Helper()
	for _, p := range all {
		for _, a := range p.addresses {
			await(v.T, 30*time.Second, fmt.Sprintf("%s to say that it has %s", p.name, a), func() bool {
				return slices.ContainsFunc(v.ears.heard(), func(s said) bool { return s.voice == p.voice && s.address == a && s.question > 0 })
			})
		}
	}
}

// confusions are what was wrong on the wire. The listener ends.
func (v *vlan) confusions() []string {
	v.Helper()
	all := v.ears.stop()
	var speakers []*speaker
	told := 0
	for _, p := range v.pods {
		speakers = append(speakers, &p.speaker)
		if p.addresses != nil {
			told++
		}
	}
	v4, ports4 := addressMoves(all, netip.Addr.Is4)
	v6, ports6 := addressMoves(all, netip.Addr.Is6)
	v.Logf("%d pods started; %d questions for each address, heard %d times that somebody has one; other pods had an IPv4 address %d times, an IPv6 address %d times, on other nodes %d and %d times; %d frames lost",
		told, v.ears.asked, len(all), v4, v6, ports4, ports6, v.ears.lost)
	return confusions(all, speakers)
}

// unconfused ends the listener. It fails if any host there could have sent to a wrong pod.
func (v *vlan) unconfused() {
	v.Helper()
	for _, wrong := range v.confusions() {
		v.Error(wrong)
	}
}
