package attach_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

// podInterface is one interface of the sandbox: its name, its parent, and what the IPAM plugin gives it.
type podInterface struct {
	name, parent, addresses, routes string
}

// first and second are the two interfaces of a pod. Each has a default route of either family.
var (
	first = podInterface{"eth0", "lan0", `{"address": "10.1.0.2/24", "gateway": "10.1.0.1"}, {"address": "fd00:1::2/64", "gateway": "fd00:1::1"}`,
		`{"dst": "0.0.0.0/0"}, {"dst": "::/0"}`}
	second = podInterface{"net1", "wan0", `{"address": "10.2.0.2/24", "gateway": "10.2.0.1"}, {"address": "fd00:2::2/64", "gateway": "fd00:2::1"}`,
		`{"dst": "0.0.0.0/0"}, {"dst": "::/0"}`}
)

// pod is a sandbox on a node with two parents.
type pod struct {
	*node
	path string
}

func newPod(t *testing.T, attachments ...podInterface) *pod {
	t.Helper()
	p := &pod{newNode(t), fresh.Sandbox(t)}
	fresh.Run(t, p.path, "for of in all default; do echo 0 > /proc/sys/net/ipv6/conf/$of/accept_dad; done; ip link set lo up")
	p.makeParent(t, "wan0")
	t.Cleanup(func() { fresh.IP(t, "", "link del wan0") })
	for _, a := range attachments {
		p.call(t, "ADD", a)
	}
	return p
}

// makeParent makes a parent.
func (p *pod) makeParent(t *testing.T, parent string) {
	t.Helper()
	fresh.IP(t, "", "link add "+parent+" type veth peer name "+strings.Replace(parent, "0", "1", 1))
	fresh.IP(t, "", "link set "+parent+" up")
	fresh.IP(t, "", "link set "+strings.Replace(parent, "0", "1", 1)+" up")
}

// recreateParents deletes parents and makes them again.
func (p *pod) recreateParents(t *testing.T, parents ...string) {
	t.Helper()
	for _, parent := range parents {
		fresh.IP(t, "", "link del "+parent)
	}
	for _, parent := range parents {
		p.makeParent(t, parent)
	}
}

// call runs the plugin and returns its output.
func (p *pod) call(t *testing.T, command string, a podInterface) string {
	t.Helper()
	out, err := p.callPlugin(command, a, "")
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", command, a.name, err, out)
	}
	return out
}

func (p *pod) callPlugin(command string, a podInterface, result string) (string, error) {
	cmd := exec.Command(filepath.Join(testnode.Bin, "relink-macvlan"))
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "CNI_PATH=" + testnode.Bin, "CNI_COMMAND=" + command, "CNI_CONTAINERID=c1", "CNI_NETNS=" + p.path,
		"CNI_IFNAME=" + a.name, "CNI_ARGS=",
	}
	if result != "" {
		result = `, "prevResult": ` + result
	}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion": "1.1.0", "name": %q, "type": "relink-macvlan", "master": %q, "checkpointDir": %q,
		"ipam": {"type": "static", "addresses": [%s], "routes": [%s]}%s}`, a.parent, a.parent, p.Store.Dir(), a.addresses, a.routes, result))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (p *pod) relink(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(filepath.Join(testnode.Bin, "relink"), append([]string{"--checkpoint-dir", p.Store.Dir()}, args...)...).CombinedOutput()
	if err != nil {
		t.Errorf("relink %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// routes returns all routes that somebody made. The IPv4 routes are in the kernel's order. The IPv6 routes and their next hops
// are sorted: the kernel makes one route of those with a gateway, and puts each of the others behind its equals.
func (p *pod) routes(t *testing.T) string {
	t.Helper()
	v6 := strings.Split(fresh.IP(t, p.path, "-6 route show table all"), "\n")
	v6 = slices.DeleteFunc(v6, func(line string) bool {
		return strings.Contains(line, "table local") || strings.HasPrefix(line, "fe80::/64") || strings.Contains(line, " multicast ") || strings.HasPrefix(line, "multicast ")
	})
	for i := range v6 {
		v6[i] = strings.Join(strings.Fields(strings.NewReplacer("weight 1", "", "pref medium", "").Replace(v6[i])), " ")
	}
	var blocks []string // A route with its next hops.
	for start := 0; start < len(v6); {
		end := start + 1
		for end < len(v6) && strings.HasPrefix(v6[end], "nexthop") {
			end++
		}
		slices.Sort(v6[start+1 : end])
		blocks, start = append(blocks, strings.Join(v6[start:end], "\n")), end
	}
	slices.Sort(blocks)
	v4 := fresh.IP(t, p.path, "-4 route show")
	return v4 + "\n" + strings.Join(blocks, "\n")
}

// expectRestored loses the parents in every way. It expects all routes as they were, and no difference.
func (p *pod) expectRestored(t *testing.T, attachments ...podInterface) {
	t.Helper()
	before := p.routes(t)
	for _, lost := range [][]string{{"lan0"}, {"wan0"}, {"wan0", "lan0"}} {
		p.recreateParents(t, lost...)
		out := p.relink(t, "restore", "--wait", "5s")
		if after := p.routes(t); after != before {
			t.Errorf("after the loss of %v:\n%s\nbefore:\n%s\n%s", lost, after, before, out)
		}
		p.relink(t, "check")
		for _, a := range attachments {
			p.check(t, a)
		}
	}
}

// check runs CHECK with the recorded result.
func (p *pod) check(t *testing.T, a podInterface) {
	t.Helper()
	r, err := p.Store.Load("c1", a.name)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := p.callPlugin("CHECK", a, string(r.CNI.Result)); err != nil {
		t.Errorf("CHECK %s: %v\n%s", a.name, err, out)
	}
}

// The kernel joins both IPv6 default routes into one multipath route. Of the IPv4 default routes it uses the first one.
func TestTheDefaultRoutesOfTwoInterfacesComeBackInTheirOrder(t *testing.T) {
	for name, interfaces := range map[string][]podInterface{"ADD one after the other": {first, second}, "the other way round": {second, first}} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, interfaces...)
			p.expectRestored(t, interfaces...)
			p.relink(t, "capture", "--refresh")
			p.expectRestored(t, interfaces...)
		})
	}
}

// Every use that a pod makes of slots and next hops comes back.
func TestRoutesThatBelongTogetherComeBack(t *testing.T) {
	for name, lines := range map[string]string{
		"several defaults of one interface": `ip route append default via 10.1.0.7 dev eth0
			ip route append default via 10.1.0.8 dev eth0
			ip route append default via 10.1.0.9 dev eth0 src 10.1.0.2`,
		"one route, two interfaces": `ip route add 10.20.0.0/16 nexthop via 10.1.0.7 dev eth0 weight 3 nexthop via 10.2.0.8 dev net1
			ip route append 10.20.0.0/16 via 10.1.0.1
			ip -6 route add fd00:20::/64 nexthop via fd00:1::7 dev eth0 weight 2 nexthop via fd00:2::8 dev net1 weight 5 nexthop via fd00:2::9 dev net1`,
		"one route, two next hops of one interface": `ip route add 10.20.0.0/16 nexthop via 10.1.0.7 dev eth0 weight 3 nexthop via 10.1.0.8 dev eth0
			ip -6 route add fd00:20::/64 mtu 1400 nexthop via fd00:1::7 dev eth0 weight 2 nexthop via fd00:1::8 dev eth0 onlink`,
		"without gateway": `ip route add 10.30.0.0/16 dev net1
			ip route append 10.30.0.0/16 dev eth0
			ip -6 route add fd00:30::/64 dev net1
			ip -6 route append fd00:30::/64 dev eth0
			ip -6 route add fd00:31::/64 dev eth0
			ip -6 route append fd00:31::/64 via fd00:2::9
			ip -6 route add fd00:32::/64 via fd00:1::9
			ip -6 route append fd00:32::/64 dev net1`,
		"a source of the other interface": `ip route add 192.0.2.0/24 dev net1 src 10.1.0.2
			ip route add 192.0.3.0/24 via 10.2.0.9 src 10.1.0.2
			ip route add 192.0.4.0/24 dev eth0 src 10.2.0.2
			ip -6 route add fd00:40::/64 dev net1 src fd00:1::2
			ip -6 route add fd00:41::/64 dev eth0 src fd00:2::2`,
		"a device without checkpoint": `ip link add other0 type veth peer other1; ip link set other0 up; ip link set other1 up
			ip route add 192.0.2.0/24 dev other0 src 10.1.0.2
			ip route append 192.0.2.0/24 dev eth0
			ip route add 192.0.3.0/24 nexthop via 10.1.0.7 dev eth0 nexthop dev other0
			ip route add 192.0.5.0/24 dev eth0
			ip route append 192.0.5.0/24 dev other0
			ip -6 route add fd00:40::/64 dev other0 src fd00:1::2`,
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, first, second)
			fresh.Run(t, p.path, "set -e\n"+lines)
			p.relink(t, "capture", "--refresh")
			p.expectRestored(t, first, second)
		})
	}
}

// A route through two interfaces goes when one of them is detached. Nobody misses it.
func TestARouteThroughADetachedInterfaceIsNotMissed(t *testing.T) {
	p := newPod(t, first, second)
	fresh.IP(t, p.path, "route add 10.20.0.0/16 nexthop via 10.1.0.7 dev eth0 nexthop via 10.2.0.8 dev net1")
	p.relink(t, "capture", "--refresh")
	p.call(t, "DEL", second)
	p.check(t, first)
	p.relink(t, "check")
	p.recreateParents(t, "lan0")
	p.relink(t, "restore")
	p.check(t, first)
	if out := p.relink(t, "capture", "--refresh"); !strings.Contains(out, "1 refreshed") {
		t.Errorf("capture: %s", out)
	}
}

// A route of another interface in the same slot does not count as a wrong route of this interface.
func TestARepairLeavesTheRoutesOfOthers(t *testing.T) {
	p := newPod(t, first, second)
	before := p.routes(t)
	fresh.Run(t, p.path, `set -e
		ip route del default via 10.1.0.1; ip route append default via 10.1.0.77
		ip -6 route del default via fd00:1::1; ip -6 route append default via fd00:1::77`)
	p.relink(t, "restore")
	if after := p.routes(t); after != before {
		t.Errorf("after:\n%s\nbefore:\n%s", after, before)
	}
}

// Pods with very many routes, addresses, neighbours and rules are checked and restored like any other. relink compares
// them in one go: comparing each with each would take minutes with the numbers of make test-long. Of each, 4096 are kept: pkg/kernel
// has the test of each kind.
func TestAPodWithVeryManyOfEverything(t *testing.T) {
	// The kernel takes 1 ms to add the 5,000th IPv6 address.
	routes, others, ipv6 := 4_500, 1_000, 300
	if os.Getenv("RELINK_LONG") != "" {
		routes, others, ipv6 = 100_000, 10_000, 5_000
	}
	p := newPod(t, first, second)
	fresh.Run(t, p.path, fmt.Sprintf("routes=%d others=%d ipv6=%d", routes, others, ipv6)+`
		many() { for i in $(seq 0 $(($1 - 1))); do echo "$2 10.$((i / 62500 + 100)).$((i / 250 % 250)).$((i % 250 + 1))$3"; done; }
		many $routes "route add" "/32 via 10.1.0.1 dev eth0" | ip -batch -
		many $routes "route add" "/32 via 10.1.0.1 dev eth0 metric 7 proto bird" | ip -batch -
		for i in $(seq 1 $ipv6); do printf 'addr add fd00:2::1:%x/128 dev net1 nodad\n' $i; done | ip -batch -
		many $others "addr add" "/32 dev net1" | ip -batch -
		many $others "neigh add" " lladdr 02:00:00:00:00:77 nud permanent dev net1" | ip -batch -
		many $others "rule add iif net1 lookup 7 from" "" | ip -batch -`)
	p.relink(t, "capture", "--refresh")
	out := p.relink(t, "check")
	for note, count := range map[string]int{
		fmt.Sprintf("eth0: not captured, would not be restored: routes of bird, which makes them itself: %d", routes): routes,
		"eth0: not captured, would not be restored: IPv4 routes beyond the 4096 that are kept of an interface: ":      routes,
		"net1: not captured, would not be restored: IPv4 addresses beyond the 4096 that are kept of an interface: ":   others,
		"net1: not captured, would not be restored: IPv6 addresses beyond the 4096 that are kept of an interface: ":   ipv6,
		"net1: not captured, would not be restored: neighbours beyond the 4096 that are kept of an interface: ":       others,
		"net1: not captured, would not be restored: rules beyond the 4096 that are kept of an interface: ":            others,
	} {
		if strings.Contains(out, note) != (count > 4096) {
			t.Errorf("%d of a kind: does check say %q?\n%s", count, note, out)
		}
	}
	p.check(t, first)
	p.check(t, second)
	p.recreateParents(t, "wan0", "lan0")
	p.relink(t, "restore", "--wait", "5s")
	p.relink(t, "check")
	if is := fresh.IP(t, p.path, "route show default"); !strings.HasPrefix(is, "default via 10.2.0.1 dev net1") || !strings.Contains(is, "dev eth0") {
		t.Errorf("default routes: %s", is)
	}
	if count := strings.Count(fresh.IP(t, p.path, "route show dev eth0"), "\n"); count < 4000 {
		t.Errorf("%d routes came back", count)
	}
}

// The default route of the interface that is left does not lose its place in the checkpoint while its rival is away.
func TestAWinnerStaysTheWinnerWhileItsRivalIsAway(t *testing.T) {
	p := newPod(t, second, first) // What comes last stands first.
	p.relink(t, "capture", "--refresh")
	before := p.routes(t)
	fresh.IP(t, "", "link del wan0")
	p.relink(t, "capture", "--refresh", "c1", "--network", first.parent)
	fresh.IP(t, "", "link del lan0")
	p.makeParent(t, "wan0")
	p.relink(t, "restore", "--network", second.parent)
	p.makeParent(t, "lan0")
	p.relink(t, "restore", "--wait", "5s")
	if after := p.routes(t); after != before {
		t.Errorf("after:\n%s\nbefore:\n%s", after, before)
	}
}
