package attach_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint/hostends"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

// accessNode is a node with an address of each family on nic0. Its pods are on lan0.
type accessNode struct{ *node }

func newAccessNode(t *testing.T) *accessNode {
	t.Helper()
	n := &accessNode{newNode(t)}
	testnode.Addressed(t)
	return n
}

// accessPod is a sandbox of both families. The keys are those of its network.
type accessPod struct {
	*accessNode
	id, netns, keys, result string
}

// bothFamilies is the IPAM section. Its routes lead everywhere over the pod's own network.
const bothFamilies = `, "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.9.0.0/16"}], [{"subnet": "fd00:9::/64"}]],
	"routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}`

// plainAccess is host access as it is by default.
const plainAccess = `, "hostAccess": true`

// newPod is a pod that is not attached yet. Without duplicate address detection, an ADD takes a second less.
func (n *accessNode) newPod(t *testing.T, id, keys string) *accessPod {
	t.Helper()
	p := &accessPod{n, id, fresh.Sandbox(t), fmt.Sprintf(bothFamilies, filepath.Join(n.Dir, "ipam")) + keys, ""}
	fresh.Run(t, p.netns, "echo 0 | tee /proc/sys/net/ipv6/conf/*/accept_dad; ip link set lo up")
	return p
}

// added is a pod that is attached.
func (n *accessNode) added(t *testing.T, id, keys string) *accessPod {
	t.Helper()
	p := n.newPod(t, id, keys)
	p.add(t)
	return p
}

func (p *accessPod) add(t *testing.T) {
	t.Helper()
	out, err := p.plugin("ADD", p.id, p.netns, p.keys).Output()
	if err != nil {
		t.Fatalf("ADD: %v\n%s", err, out)
	}
	p.result = string(out)
}

// expectError calls the plugin with more keys, and expects that code and that message.
func (p *accessPod) expectError(t *testing.T, what, command, more string, wantCode int, want string) {
	t.Helper()
	code, msg, _ := p.code(t, command, p.id, p.netns, p.keys+more)
	expectCode(t, what, code, msg, wantCode, want)
}

func (p *accessPod) check(t *testing.T, what string, wantCode int, want string) {
	t.Helper()
	p.expectError(t, what, "CHECK", `, "prevResult": `+p.result, wantCode, want)
}

// expectReachable expects that the address answers there. An empty path is the node's.
func expectReachable(t *testing.T, what, netns string, addresses ...string) {
	t.Helper()
	for _, a := range addresses {
		if !testnode.Reaches(netns, a) {
			t.Errorf("%s: %s does not answer", what, a)
		}
	}
}

// expectConnected expects that node and pod reach each other by both families. The pod is the first on its network.
func (p *accessPod) expectConnected(t *testing.T, what string) {
	t.Helper()
	expectReachable(t, what+", from the node", "", "10.9.0.2", "fd00:9::2")
	expectReachable(t, what+", from the pod", p.netns, "192.0.2.1", "fd00:77::1")
}

// end detaches the pod and expects that nothing is left.
func (p *accessPod) end(t *testing.T) {
	t.Helper()
	p.expectError(t, "DEL", "DEL", "", 0, "")
	p.expectClean(t, "after DEL", p.netns)
}

// expectClean expects that no attachment has left anything, neither in the host nor in the sandbox.
func (n *accessNode) expectClean(t *testing.T, when, netns string) {
	t.Helper()
	if found := testnode.AccessLeftByDEL(t); len(found) > 0 {
		t.Errorf("%s, the host still has %v", when, found)
	}
	if _, err := hostends.Sweep(t.Context(), n.Store, false); err != nil {
		t.Errorf("%s, sweep: %v", when, err)
	}
	if found := testnode.AccessLeft(t); len(found) > 0 {
		t.Errorf("%s and a sweep, the host still has %v", when, found)
	}
	n.expectNothing(t, netns)
}

// A node can filter by the way back, and can refuse to answer ARP for an address of another device. The path needs neither ARP nor
// the main table.
func TestNodeAndPodTalkByHostAccess(t *testing.T) {
	for name, sysctl := range map[string]string{
		"plain": "", "rp_filter is 1": "rp_filter=1", "rp_filter is 2": "rp_filter=2", "arp_ignore is 1": "arp_ignore=1",
	} {
		t.Run(name, func(t *testing.T) {
			setSysctl(t, sysctl)
			n := newAccessNode(t)
			p := n.newPod(t, "c1", plainAccess)
			if testnode.Answers("", "10.9.0.2") {
				t.Fatal("the node reaches the address already")
			}
			sysctls := nodesSysctls(t)
			p.add(t)
			if diff := cmp.Diff(sysctls, nodesSysctls(t)); diff != "" {
				t.Errorf("sysctls of the node were changed:\n%s", diff)
			}
			p.expectConnected(t, "after ADD")
			n.LoseParent(t)
			if out := fresh.IP(t, p.netns, "-o link"); strings.Contains(out, "eth0") {
				t.Fatalf("the macvlan is still there: %s", out)
			}
			p.expectConnected(t, "without the macvlan")
			p.end(t)
		})
	}
}

// nodesSysctls are all sysctls of the network but those of relink's own devices, and some that change by themselves.
func nodesSysctls(t *testing.T) []string {
	t.Helper()
	return strings.Split(fresh.Run(t, "", `grep -rs . /proc/sys/net | grep -v -e '/rlm\?[0-9a-f]*/' -e nf_conntrack_count -e /random/ -e sunrpc | sort`), "\n")
}

// setSysctl sets key=value for all devices of IPv4, and for new ones.
func setSysctl(t *testing.T, setting string) {
	t.Helper()
	key, value, ok := strings.Cut(setting, "=")
	if !ok {
		return
	}
	files := fmt.Sprintf("/proc/sys/net/ipv4/conf/all/%[1]s /proc/sys/net/ipv4/conf/default/%[1]s", key)
	fresh.Run(t, "", fmt.Sprintf("echo %s | tee %s", value, files))
	t.Cleanup(func() { fresh.Run(t, "", "echo 0 | tee "+files) })
}

// "services" and "extra" lead through the node. Its default policy is to forward nothing, so the node itself has the address.
func TestPodReachesServicesThroughTheNode(t *testing.T) {
	n := newAccessNode(t)
	p := n.newPod(t, "c1", `, "hostAccess": {"ifName": "node0", "services": ["10.96.0.0/12", "fd00:96::/112"], "extra": ["169.254.20.10"], "preserveSource": true}`)
	p.add(t)
	fresh.Run(t, "", "ip address add 10.96.0.1/32 dev lo; ip address add fd00:96::1/128 dev lo nodad; ip address add 169.254.20.10/32 dev lo")
	// The kernel makes the local route of an IPv6 address a moment after the address, in a work queue.
	fresh.Run(t, "", "for try in $(seq 100); do ip -6 route show table local | grep -q ^local.fd00:96::1 && break; sleep 0.1; done")
	t.Cleanup(func() {
		fresh.Run(t, "", "ip address del 10.96.0.1/32 dev lo; ip address del fd00:96::1/128 dev lo; ip address del 169.254.20.10/32 dev lo")
	})
	expectReachable(t, "services", p.netns, "10.96.0.1", "fd00:96::1", "169.254.20.10")
	// The source is in no network that the pod has a route to through the node: without preserveSource the answer would go to the LAN.
	fresh.Run(t, "", "ip address add 198.51.100.1/32 dev lo")
	t.Cleanup(func() { fresh.IP(t, "", "address del 198.51.100.1/32 dev lo") })
	if out := fresh.IP(t, p.netns, "route get 198.51.100.1"); !strings.Contains(out, "dev eth0") {
		t.Fatalf("the pod has another route already: %s", out)
	}
	fresh.Run(t, "", "ping -c 1 -w 10 -I 198.51.100.1 10.9.0.2")
	p.end(t)
}

// What the node speaks from is its address now. A restore makes that right, for where no agent runs.
func TestRestoreFollowsTheNodesAddresses(t *testing.T) {
	n := newAccessNode(t)
	p := n.added(t, "c1", plainAccess)
	for _, s := range []struct {
		name, change, source4, source6 string
		reached                        []string
		lost                           string
	}{
		{"an address comes", "ip address add 192.0.2.9/32 dev nic0", "192.0.2.1", "fd00:77::1", []string{"192.0.2.1", "192.0.2.9"}, ""},
		{
			"the address moves", "ip address del 192.0.2.1/24 dev nic0; ip address add 192.0.2.7/24 dev nic0; ip address del 192.0.2.9/32 dev nic0",
			"192.0.2.7", "fd00:77::1", []string{"192.0.2.7", "fd00:77::1"}, "192.0.2.9",
		},
		{
			"all addresses go", "ip address flush dev nic0", "169.254.114.1", "fd72:656c:696e:6b::1",
			[]string{"169.254.114.1", "fd72:656c:696e:6b::1"}, "192.0.2.7",
		},
		{
			"addresses come back", "ip address add 192.0.2.1/24 dev nic0; ip address add fd00:77::1/64 dev nic0 nodad", "192.0.2.1", "fd00:77::1",
			[]string{"192.0.2.1", "fd00:77::1"}, "192.0.2.7",
		},
		{"the rules are flushed", "ip rule del priority 1140; ip -6 rule del priority 1140", "192.0.2.1", "fd00:77::1", []string{"192.0.2.1"}, "192.0.2.7"},
		{
			"the routes are flushed", "ip route flush table 1140; ip -6 route flush table 1140", "192.0.2.1", "fd00:77::1",
			[]string{"192.0.2.1"}, "192.0.2.7",
		},
	} {
		t.Run(s.name, func(t *testing.T) {
			fresh.Run(t, "", s.change)
			if out, err := n.restore(); err != nil {
				t.Fatalf("restore: %v\n%s", err, out)
			}
			p.check(t, "CHECK", 0, "")
			expectSource(t, "10.9.0.2", s.source4)
			expectSource(t, "fd00:9::2", s.source6)
			expectReachable(t, "from the node", "", "10.9.0.2", "fd00:9::2")
			expectReachable(t, "from the pod", p.netns, s.reached...)
			if out := fresh.IP(t, p.netns, "route show dev host0"); s.lost != "" && strings.Contains(out, s.lost) {
				t.Errorf("the pod still has a route to %s:\n%s", s.lost, out)
			}
			stands := strings.HasPrefix(s.source4, "169.254.")
			if there := testnode.AccessLeft(t)["stand-ins"]; stands != (there == 2) || !stands && there > 0 {
				t.Errorf("the node has %d stand-ins", there)
			}
		})
	}
	p.end(t)
}

// expectSource expects that the node sends from that address to the pod's.
func expectSource(t *testing.T, to, want string) {
	t.Helper()
	if out := fresh.IP(t, "", "route get "+to); !strings.Contains(out, " dev rl") || !strings.Contains(out, " src "+want+" ") {
		t.Errorf("the node sends to %s not from %s: %s", to, want, out)
	}
}

// Nobody looks at the other pod: no agent runs. What is done for one pod keeps no other pod from what it has.
func TestAddOfAPodLeavesTheOthersTheirHostAccess(t *testing.T) {
	n := newAccessNode(t)
	fresh.IP(t, "", "address flush dev nic0")
	first := n.added(t, "c1", plainAccess)
	expectReachable(t, "before", "", "10.9.0.2", "fd00:9::2")
	fresh.Run(t, "", "ip address add 192.0.2.1/24 dev nic0; ip address add fd00:77::1/64 dev nic0 nodad")
	expectReachable(t, "once the node has an address", "", "10.9.0.2", "fd00:9::2")
	second := n.added(t, "c2", plainAccess)
	expectReachable(t, "the second pod", "", "10.9.0.3", "fd00:9::3")
	expectReachable(t, "the first pod, after the second one's ADD", "", "10.9.0.2", "fd00:9::2")
	second.expectError(t, "DEL", "DEL", "", 0, "")
	first.check(t, "CHECK", 0, "")
	if out, err := n.restore(); err != nil {
		t.Fatalf("restore: %v\n%s", err, out)
	}
	first.expectConnected(t, "after the other's DEL")
	first.end(t)
}

// allOfIt has all that relink check can miss.
const allOfIt = `, "hostAccess": {"preserveSource": true, "masquerade": true, "services": ["10.96.0.0/12"], "extra": ["fd00:20::10"]}`

// CHECK names what cuts the path, and changes nothing. What somebody has changed otherwise is drift: CHECK passes it, so that no runtime
// rebuilds the pod. relink check names all, and a restore makes it right. The rules of iptables in the host are not the pod's.
func TestCheckNamesWhatIsWrongWithHostAccess(t *testing.T) {
	n := newAccessNode(t)
	p := n.added(t, "c1", allOfIt)
	host := hostaccess.HostName(attachment.Key{Network: "lan", ContainerID: "c1", IfName: "eth0"}, true)
	for _, s := range []struct {
		name, netns, change, want string
		cuts                      bool
	}{
		{"MTU in the pod", p.netns, "ip link set host0 mtu 1400", "host0: MTU is 1400, not 1500", false},
		{"MTU in the host", "", "ip link set " + host + " mtu 1400", host + " in the host: MTU is 1400, not 1500", false},
		{"IPv4 address", p.netns, "ip address del 10.9.0.2/32 dev host0", "host0: address 10.9.0.2/32 is missing", true},
		{"IPv6 address", p.netns, "ip address del fd00:9::2/128 dev host0", "host0: address fd00:9::2/128 is missing", true},
		{"end in the pod down", p.netns, "ip link set host0 down", "host0: ", true},
		{"end in the host down", "", "ip link set " + host + " down", host + " in the host: ", true},
		{"MAC", p.netns, "ip link set host0 address 02:00:00:00:00:01", "host0: MAC is 02:00:00:00:00:01, not ", false},
		{"alias", "", "ip link set " + host + " alias other", host + " in the host: alias is other, not ", false},
		{"pair", "", "ip link del " + host, "host0 is gone from the sandbox", true},
		{"route to services", p.netns, "ip route del 10.96.0.0/12", "host0: route 10.96.0.0/12 scope 253 is missing", true},
		{"route to extra", p.netns, "ip route del fd00:20::10", "host0: route fd00:20::10/128 metric 512 is missing", true},
		{"rule in the pod", p.netns, "ip rule del priority 1140", "host0: rule ", true},
		{"table in the pod", p.netns, "ip route flush table 1140", "host0: route 0.0.0.0/0", true},
		{
			"rule of iptables in the pod", p.netns, "iptables -t mangle -D RELINK-HOST-OUT 1",
			"rules of iptables for IPv4 in the sandbox: the rules of RELINK-HOST-OUT are not as they should be", false,
		},
		{
			"jump in the pod", p.netns, "ip6tables -t mangle -F PREROUTING",
			"rules of iptables for IPv6 in the sandbox: jump from PREROUTING to RELINK-HOST-IN is missing", false,
		},
	} {
		t.Run(s.name, func(t *testing.T) {
			fresh.Run(t, s.netns, s.change)
			code, want := 0, ""
			if s.cuts {
				code, want = 100, s.want
			}
			p.check(t, "changed", code, want)
			p.check(t, "still changed", code, want)
			n.Says(t, 1, "check", s.want)
			if out, err := n.restore(); err != nil {
				t.Fatalf("restore: %v\n%s", err, out)
			}
			p.check(t, "restored", 0, "")
		})
	}
	for _, s := range []struct{ change, want string }{
		{"iptables -t nat -F RELINK-MASQUERADE", "rules of iptables for IPv4 in the host: the rules of RELINK-MASQUERADE are not as they should be"},
		{"nft flush ruleset", "IPv4 in the host: chain RELINK-MASQUERADE is missing"},
		{"ip6tables -t nat -F; ip6tables -t nat -X", "IPv6 in the host: chain RELINK-MASQUERADE is missing"},
	} {
		fresh.Run(t, "", s.change)
		n.Says(t, 1, "check", s.want)
		p.check(t, s.change, 0, "")
		if out, err := n.restore(); err != nil {
			t.Fatalf("restore: %v\n%s", err, out)
		}
		n.Says(t, 0, "check", "as recorded")
	}
	p.expectConnected(t, "after all restores")
	p.end(t)
}

func TestFailedAddWithHostAccessLeavesNothing(t *testing.T) {
	name := hostaccess.HostName(attachment.Key{Network: "lan", ContainerID: "c1", IfName: "eth0"}, true)
	for what, s := range map[string]struct {
		// before is done in the sandbox, inHost in the host, and then undone.
		before, inHost, undo, keys string
		code                       int
		msg                        string
	}{
		"the name is taken in the pod": {
			before: "ip link add host0 type bridge", keys: allOfIt, code: 7, msg: `invalid "hostAccess.ifName": "host0": the sandbox has a device of that name already`,
		},
		"the name is that of the pod's interface": {
			keys: `, "hostAccess": {"ifName": "eth0"}`, code: 7, msg: `invalid "hostAccess.ifName": "eth0"`,
		},
		"the default route goes over another network": {
			before: "ip link add eth9 up type bridge; ip address add 10.1.0.2/24 dev eth9; ip route add default via 10.1.0.1",
			keys:   `, "ipam": {"type": "static", "addresses": [{"address": "10.9.0.2/16"}]}` + allOfIt, code: 7, msg: `: the node reaches the pod another way: its default route goes over eth9`,
		},
		"the IPv6 default route goes over another network": {
			before: "ip link add eth9 up type bridge; ip address add fd00:1::2/64 dev eth9 nodad; ip route add default via fd00:1::1 metric 1",
			keys:   plainAccess, code: 7, msg: `: the node reaches the pod another way: its default route goes over eth9`,
		},
		"no address is left": {
			keys: `, "ipam": {"type": "host-local", "dataDir": "/nonexistent/../proc/relink", "ranges": [[{"subnet": "10.9.0.0/16"}]]}` + allOfIt, code: 999, msg: "host-local",
		},
		"no IPAM plugin": {keys: `, "ipam": {}` + plainAccess, code: 7, msg: `invalid "hostAccess": "true": needs the pod's addresses`},
		"the name is taken in the host": {
			inHost: "ip link add " + name + " type bridge", undo: `test -z "$(ip link show ` + name + ` | grep alias || true)"; ip link del ` + name, keys: allOfIt, code: 999, msg: "host access: ",
		},
		"the name of the network is too long for an alias": {
			keys: `, "name": "` + strings.Repeat("n", 230) + `"` + allOfIt, code: 7, msg: `invalid "name": `,
		},
	} {
		t.Run(what, func(t *testing.T) {
			n := newAccessNode(t)
			p := n.newPod(t, "c1", s.keys)
			if s.before != "" {
				fresh.Run(t, p.netns, s.before)
			}
			fresh.Run(t, "", s.inHost+"\ntrue")
			before := fresh.IP(t, p.netns, "-br link")
			p.expectError(t, "ADD", "ADD", "", s.code, s.msg)
			fresh.Run(t, "", s.undo+"\ntrue")
			n.expectClean(t, "after the ADD", p.netns)
			if diff := cmp.Diff(before, fresh.IP(t, p.netns, "-br link")); diff != "" {
				t.Errorf("the sandbox was changed:\n%s", diff)
			}
			if out := fresh.IP(t, p.netns, "rule") + fresh.Run(t, p.netns, "iptables-save; ip6tables-save"); strings.Contains(out, "1140") || strings.Contains(out, "RELINK") {
				t.Errorf("the sandbox still has:\n%s", out)
			}
		})
	}
}

// iptables fails in the host, after everything else is made. All of it goes again, and the error names the key.
func TestAddLeavesNothingIfIptablesFails(t *testing.T) {
	n := newAccessNode(t)
	p := n.newPod(t, "c1", allOfIt)
	path, err := exec.LookPath("ip6tables-nft")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\nin=$(cat)\ncase \"$in\" in *nat*) echo no luck >&2; exit 1;; esac\necho \"$in\" | " + path + "-restore \"$@\"\n"
	if err := errors.Join(os.Symlink(path, filepath.Join(dir, "ip6tables-nft")), os.WriteFile(filepath.Join(dir, "ip6tables-nft-restore"), []byte(script), 0o700)); err != nil {
		t.Fatal(err)
	}
	cmd := p.plugin("ADD", p.id, p.netns, p.keys)
	cmd.Env = append(cmd.Env, "PATH="+dir+":"+os.Getenv("PATH"))
	code, msg, _ := coded(t, cmd)
	expectCode(t, "ADD", code, msg, 999, `host access: "masquerade": `)
	expectCode(t, "ADD", code, msg, 999, "no luck")
	n.expectClean(t, "after the ADD", p.netns)
	if out := fresh.IP(t, p.netns, "rule") + fresh.Run(t, p.netns, "iptables-save; ip6tables-save"); strings.Contains(out, "1140") || strings.Contains(out, "RELINK") {
		t.Errorf("the sandbox still has:\n%s", out)
	}
	p.add(t)
	p.check(t, "CHECK of the next ADD", 0, "")
	p.end(t)
}

// The range has one address, which the first pod has.
func TestAddWithoutAnAddressLeavesTheOtherPodItsHostAccess(t *testing.T) {
	n := newAccessNode(t)
	small := fmt.Sprintf(`, "ipam": {"type": "relink-ipam", "dataDir": %q, "ranges": [[{"subnet": "10.9.0.0/30"}]]}`, filepath.Join(n.Dir, "leases"))
	first := n.added(t, "c1", small+allOfIt)
	before := testnode.AccessLeft(t)
	second := n.newPod(t, "c2", small+allOfIt)
	second.expectError(t, "ADD", "ADD", "", 11, "no address is free")
	if diff := cmp.Diff(before, testnode.AccessLeft(t)); diff != "" {
		t.Errorf("the host was changed (-want +got):\n%s", diff)
	}
	expectReachable(t, "the first pod", "", "10.9.0.2")
	first.check(t, "CHECK", 0, "")
	first.end(t)
}

func TestAddTwiceWithHostAccess(t *testing.T) {
	n := newAccessNode(t)
	p := n.added(t, "c1", allOfIt)
	p.expectError(t, "the second ADD", "ADD", "", 4, "CNI_IFNAME")
	p.expectConnected(t, "after the refused ADD")
	p.check(t, "CHECK", 0, "")
	// The runtime tries again after the loss of the parent. host-local would give no second address.
	p.keys = strings.Replace(p.keys, `"host-local"`, `"relink-ipam"`, 1)
	n.LoseParent(t)
	fresh.IP(t, "", "link set lan0 up")
	again := &accessPod{n, p.id, p.netns, p.keys, ""}
	again.add(t)
	again.check(t, "CHECK of the second ADD", 0, "")
	if pairs := testnode.AccessLeft(t)["pairs"]; pairs != 1 {
		t.Errorf("the host has %d pairs", pairs)
	}
	again.expectError(t, "DEL", "DEL", "", 0, "")
	p.keys = strings.Replace(p.keys, `"relink-ipam"`, `"host-local"`, 1)
	p.end(t)
}

// The pod has one path to its node. The second network does not get another one, and its end does not touch the first one's.
func TestTwoAttachmentsOfASandboxWithHostAccess(t *testing.T) {
	n := newAccessNode(t)
	p := n.added(t, "c1", allOfIt)
	onNet1 := func(command, keys string) *exec.Cmd {
		// Without a default route of its own.
		cmd := n.plugin(command, p.id, p.netns, fmt.Sprintf(`, "ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.9.0.0/16"}`, filepath.Join(n.Dir, "ipam"))+keys)
		cmd.Env = append(cmd.Env, "CNI_IFNAME=net1")
		return cmd
	}
	code, msg, _ := coded(t, onNet1("ADD", `, "hostAccess": {"ifName": "host1"}`))
	expectCode(t, "ADD of the second", code, msg, 7, `: the node reaches the pod another way: `)
	p.expectConnected(t, "after the refused ADD")
	for _, command := range []string{"ADD", "DEL"} {
		code, msg, _ = coded(t, onNet1(command, ""))
		expectCode(t, command+" of the second without host access", code, msg, 0, "")
		p.check(t, "CHECK", 0, "")
		p.expectConnected(t, "after "+command+" of the second")
	}
	p.end(t)
}

// Neither network has a default route: only the checkpoint of the first one speaks against the second one.
func TestSecondHostAccessOfASandboxIsRefused(t *testing.T) {
	n := newAccessNode(t)
	without := fmt.Sprintf(`, "ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.9.0.0/16"}`, filepath.Join(n.Dir, "ipam"))
	p := n.added(t, "c1", without+plainAccess)
	before := testnode.AccessLeft(t)
	cmd := n.plugin("ADD", p.id, p.netns, without+`, "hostAccess": {"ifName": "host1"}`)
	cmd.Env = append(cmd.Env, "CNI_IFNAME=net1")
	code, msg, _ := coded(t, cmd)
	expectCode(t, "ADD", code, msg, 7, `: the node reaches the pod another way: it has host access by its interface eth0`)
	if diff := cmp.Diff(before, testnode.AccessLeft(t)); diff != "" {
		t.Errorf("the host was changed (-want +got):\n%s", diff)
	}
	expectReachable(t, "the node", "", "10.9.0.2")
	p.end(t)
}

// A packet of the whole MTU comes through, and is not cut on its way.
func TestHostAccessHasTheMTUOfThePod(t *testing.T) {
	for _, mtu := range []int{9000, 1400} {
		t.Run(strconv.Itoa(mtu), func(t *testing.T) {
			n := newAccessNode(t)
			fresh.Run(t, "", "ip link set lan0 mtu 9000; ip link set lan1 mtu 9000")
			p := n.added(t, "c1", fmt.Sprintf(`, "mtu": %d`, mtu)+plainAccess)
			const icmp4, icmp6 = 20 + 8, 40 + 8
			fresh.Run(t, "", fmt.Sprintf("ping -M do -c 1 -w 10 -s %d 10.9.0.2; ping -M do -c 1 -w 10 -s %d fd00:9::2", mtu-icmp4, mtu-icmp6))
			if out := fresh.IP(t, p.netns, "link show host0"); !strings.Contains(out, fmt.Sprintf("mtu %d ", mtu)) {
				t.Errorf("host0 has another MTU: %s", out)
			}
			p.check(t, "CHECK", 0, "")
			p.end(t)
		})
	}
}

// The host's end is in the result, without a sandbox. The addresses belong to the pod's interface.
func TestResultOfAddHasTheHostsEnd(t *testing.T) {
	n := newAccessNode(t)
	p := n.added(t, "c1", plainAccess)
	var result current.Result
	if err := json.Unmarshal([]byte(p.result), &result); err != nil {
		t.Fatal(err)
	}
	name := hostaccess.HostName(attachment.Key{Network: "lan", ContainerID: "c1", IfName: "eth0"}, false)
	want := []*current.Interface{
		{Name: "eth0", Mac: macOf(t, p.netns, "eth0"), Mtu: 1500, Sandbox: p.netns},
		{Name: name, Mac: macOf(t, "", name), Mtu: 1500},
	}
	if diff := cmp.Diff(want, result.Interfaces); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
	for _, ip := range result.IPs {
		if ip.Interface == nil || *ip.Interface != 0 {
			t.Errorf("%s is not the first interface's", ip.Address.String())
		}
	}
	if len(result.IPs) != 2 {
		t.Errorf("addresses: %v", result.IPs)
	}
	p.end(t)
}

func macOf(t *testing.T, netns, name string) string {
	t.Helper()
	return fresh.Run(t, netns, "ip -br link show "+name+" | tr -s ' ' | cut -d ' ' -f 3")
}

// Somebody took the key out of the configuration, or the runtime does not know the one of the ADD.
func TestDelOfAnOldConfigurationTakesHostAccess(t *testing.T) {
	for name, s := range map[string]struct {
		keys string
		lose func(n *accessNode) error
	}{
		"with its checkpoint":    {allOfIt, func(*accessNode) error { return nil }},
		"without its checkpoint": {allOfIt, func(n *accessNode) error { return n.Store.Forget("c1", "eth0") }},
		"without the store":      {plainAccess, func(n *accessNode) error { return os.RemoveAll(n.Store.Dir()) }},
	} {
		t.Run(name, func(t *testing.T) {
			n := newAccessNode(t)
			p := n.added(t, "c1", s.keys)
			if err := s.lose(n); err != nil {
				t.Fatal(err)
			}
			code, msg, _ := n.code(t, "DEL", "c1", p.netns, "")
			expectCode(t, "DEL", code, msg, 0, "")
			n.expectClean(t, "after DEL", p.netns)
		})
	}
}

// The sandbox, and with it the pair, is gone before the DEL. The host's part goes all the same, also by a second DEL.
func TestDelAfterTheSandboxTakesTheHostsPart(t *testing.T) {
	for name, keys := range map[string]string{"plain": plainAccess, "all of it": allOfIt} {
		t.Run(name, func(t *testing.T) {
			n := newAccessNode(t)
			fresh.IP(t, "", "address flush dev nic0") // The stand-ins are there.
			p := n.added(t, "c1", keys)
			fresh.Remove(t, p.netns)
			fresh.At(t, p.netns)
			p.end(t)
			p.end(t)
		})
	}
}

// chainedAccess is a list of the reference macvlan plugin and relink's chained plugins.
type chainedAccess struct {
	*stock
	list []string
}

func (c chainedAccess) keys(name, prev string) string {
	switch name {
	case "macvlan":
		return fmt.Sprintf(`, "master": "lan0"`+bothFamilies, filepath.Join(c.Dir, "ipam")) + prev
	case "relink-host-access":
		return fmt.Sprintf(`, "checkpointDir": %q, "preserveSource": true, "masquerade": true, "services": ["10.96.0.0/12"]`, c.Store.Dir()) + prev
	}
	return fmt.Sprintf(`, "checkpointDir": %q`, c.Store.Dir()) + prev
}

// callAll calls the plugins in the order of the command, as libcni does.
func (c chainedAccess) callAll(t *testing.T, command, netns, result string) string {
	t.Helper()
	list := c.list
	if command == "DEL" {
		list = nil
		for _, name := range c.list {
			list = append([]string{name}, list...)
		}
	}
	for _, name := range list {
		prev := ""
		if result != "" {
			prev = `, "prevResult": ` + result
		}
		out, stderr, err := c.run(name, command, "c1", netns, c.keys(name, prev))
		if err != nil || stderr != "" {
			t.Errorf("%s %s: %v\n%s%s", name, command, err, out, stderr)
		}
		if command == "ADD" {
			want := result
			if name == "relink-host-access" {
				// The host's end comes last, as with relink-macvlan.
				host := hostaccess.HostName(attachment.Key{Network: "lan", ContainerID: "c1", IfName: "eth0"}, true)
				// An older ip says on stderr that it cannot name the sandbox of the other end.
				mac := strings.TrimSpace(fresh.Run(t, "", "ip -o link show "+host+" 2>/dev/null | sed 's/.*link.ether \\([^ ]*\\).*/\\1/'"))
				var all map[string]any
				if err := json.Unmarshal([]byte(result), &all); err != nil {
					t.Fatal(err)
				}
				interfaces, _ := all["interfaces"].([]any)
				all["interfaces"] = append(interfaces, map[string]any{"name": host, "mac": mac, "mtu": 1500})
				b, _ := json.Marshal(all)
				want = string(b)
			}
			if result != "" && !sameJSON(t, want, out) {
				t.Errorf("%s does not pass on the result with its host end: %s\nwant %s", name, out, want)
			}
			result = out
		}
	}
	return result
}

func TestChainedHostAccess(t *testing.T) {
	for _, list := range [][]string{
		{"macvlan", "relink-host-access"},
		{"macvlan", "relink-checkpoint", "relink-host-access"},
		{"macvlan", "relink-host-access", "relink-checkpoint"},
	} {
		t.Run(strings.Join(list, ","), func(t *testing.T) {
			n := newAccessNode(t)
			c := chainedAccess{&stock{node: n.node, version: "1.1.0"}, list}
			p := n.newPod(t, "c1", "")
			result := c.callAll(t, "ADD", p.netns, "")
			p.expectConnected(t, "after ADD")
			c.callAll(t, "CHECK", p.netns, result)
			fresh.IP(t, p.netns, "link set host0 mtu 1400")
			c.callAll(t, "CHECK", p.netns, result) // That is drift.
			fresh.IP(t, p.netns, "link set host0 down")
			out, _, err := c.run("relink-host-access", "CHECK", "c1", p.netns, c.keys("relink-host-access", `, "prevResult": `+result))
			if err == nil {
				t.Fatalf("CHECK of an end that is down is content: %s", out)
			}
			code, msg := parseError(t, []byte(out))
			expectCode(t, "CHECK of an end that is down", code, msg, 100, "host0: state is down, not up")
			if out, err := n.restore(); err != nil {
				t.Errorf("restore: %v\n%s", err, out)
			}
			n.LoseParent(t)
			p.expectConnected(t, "without the macvlan")
			if out, err := n.restore(); err != nil {
				t.Errorf("restore: %v\n%s", err, out)
			}
			p.expectConnected(t, "after the restore")
			c.callAll(t, "CHECK", p.netns, result)
			c.callAll(t, "DEL", p.netns, "")
			n.expectClean(t, "after DEL", p.netns)
		})
	}
}

// A failed plugin leaves the interface to the plugin before: the runtime calls DEL for it.
func TestChainedHostAccessThatFailsLeavesNothing(t *testing.T) {
	n := newAccessNode(t)
	c := chainedAccess{&stock{node: n.node, version: "1.1.0"}, []string{"macvlan"}}
	p := n.newPod(t, "c1", "")
	result := c.callAll(t, "ADD", p.netns, "")
	fresh.IP(t, p.netns, "link add host0 type bridge")
	out, stderr, err := c.run("relink-host-access", "ADD", "c1", p.netns, c.keys("relink-host-access", `, "prevResult": `+result))
	if err == nil || out == "" {
		t.Fatalf("no error in JSON: %v, %s", err, stderr)
	}
	code, msg := parseError(t, []byte(out))
	expectCode(t, "ADD", code, msg, 7, `invalid "ifName": "host0": the sandbox has a device of that name already`)
	if found := testnode.AccessLeft(t); len(found) > 0 {
		t.Errorf("the host has %v", found)
	}
	if ids := n.recorded(t); len(ids) > 0 {
		t.Errorf("checkpoints are left of %v", ids)
	}
	c.callAll(t, "DEL", p.netns, "")
	n.expectClean(t, "after DEL", p.netns)
}
