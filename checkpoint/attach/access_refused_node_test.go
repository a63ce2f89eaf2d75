package attach_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

// A node can have IPv6 switched off for new devices. That is no word about the pair, which is relink's own.
func TestHostAccessWhereNewDevicesHaveNoIPv6(t *testing.T) {
	n := newAccessNode(t)
	off := "/proc/sys/net/ipv6/conf/default/disable_ipv6"
	fresh.Run(t, "", "echo 1 >"+off)
	t.Cleanup(func() { fresh.Run(t, "", "echo 0 >"+off) })
	p := n.added(t, "c1", plainAccess)
	p.expectConnected(t, "after ADD")
	host := hostaccess.HostName(attachment.Key{Network: "lan", ContainerID: "c1", IfName: "eth0"}, false)
	fresh.Run(t, "", "echo 1 >/proc/sys/net/ipv6/conf/"+host+"/disable_ipv6")
	if testnode.Answers("", "fd00:9::2") {
		t.Fatal("the node reaches the pod by IPv6 although the device has none")
	}
	if out, err := n.restore(); err != nil {
		t.Errorf("restore: %v\n%s", err, out)
	}
	p.expectConnected(t, "after the restore")
	p.end(t)
}

// IPv6 is switched off on the whole node. The pod has the path by IPv4, and nothing is to be repaired.
func TestHostAccessOfANodeWithoutIPv6(t *testing.T) {
	n := newAccessNode(t)
	off := "/proc/sys/net/ipv6/conf/all/disable_ipv6"
	fresh.Run(t, "", "echo 1 >"+off)
	t.Cleanup(func() { fresh.Run(t, "", "echo 0 >"+off) })
	p := n.added(t, "c1", plainAccess)
	expectReachable(t, "from the node", "", "10.9.0.2")
	expectReachable(t, "from the pod", p.netns, "192.0.2.1")
	p.check(t, "CHECK", 0, "")
	if out, err := n.restore(); err != nil {
		t.Errorf("restore: %v\n%s", err, out)
	}
	out, err := n.Command("host-access", "show").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "the node has no IPv6: the pods have host access by IPv4 alone") {
		t.Errorf("show: %v\n%s", err, out)
	}
	p.end(t)
}

// A pod that has IPv6 alone has no path on such a node. It is refused, and told what to do.
func TestHostAccessOfAPodThatANodeWithoutIPv6CannotReach(t *testing.T) {
	n := newAccessNode(t)
	off := "/proc/sys/net/ipv6/conf/all/disable_ipv6"
	fresh.Run(t, "", "echo 1 >"+off)
	t.Cleanup(func() { fresh.Run(t, "", "echo 0 >"+off) })
	p := n.newPod(t, "c1", `, "ipam": {"type": "static", "addresses": [{"address": "fd00:9::2/64"}]}`+plainAccess)
	p.expectError(t, "ADD", "ADD", "", 4, "the pod has addresses of IPv6 alone, and IPv6 is switched off on this node: set the sysctl net.ipv6.conf.lo.disable_ipv6 to 0")
	n.expectClean(t, "after the ADD", p.netns)
}

// A process in the pod can send to anybody through the node, if it names the device. The node's address is for Services and for "extra":
// what is behind another interface of the node is no more open to the pod than by the VLAN.
func TestWhatGetsTheNodesAddress(t *testing.T) {
	n := newAccessNode(t)
	beyond := fresh.Sandbox(t)
	fresh.Run(t, "", "ip link add far0 type veth peer name far1; ip link set far0 up; ip address add 10.50.0.1/24 dev far0; echo 1 >/proc/sys/net/ipv4/ip_forward")
	t.Cleanup(func() {
		fresh.Run(t, "", "{ ip link del far0; echo 0 >/proc/sys/net/ipv4/ip_forward; } 2>/dev/null || true")
	})
	fresh.Run(t, "", "ip link set far1 netns "+beyond)
	fresh.Run(t, beyond, "ip link set far1 up; ip link set lo up; ip address add 10.50.0.5/24 dev far1; ip route add 192.0.2.0/24 via 10.50.0.1")
	by := func(p *accessPod, to string) bool { return testnode.Answers(p.netns, to, "-I", "host0") } // By IPv4 nothing comes late.
	p := n.added(t, "c1", `, "hostAccess": {"masquerade": true, "services": ["10.96.0.0/12"]}`)
	if by(p, "10.50.0.5") {
		t.Error("what is no Service gets the node's address")
	}
	fresh.Run(t, "", "iptables -t nat -A PREROUTING -d 10.96.0.1 -j DNAT --to-destination 10.50.0.5")
	t.Cleanup(func() { fresh.Run(t, "", "iptables -t nat -F PREROUTING") })
	if !by(p, "10.96.0.1") {
		t.Error("a Service does not answer")
	}
	p.expectError(t, "DEL", "DEL", "", 0, "")
	extra := n.added(t, "c2", `, "hostAccess": {"masquerade": true, "extra": ["10.50.0.0/24"]}`)
	if !by(extra, "10.50.0.5") {
		t.Error("a network of extra does not answer")
	}
	// The rules of docs/host-access.md for VLANs that must be apart.
	fresh.Run(t, beyond, "ip route add 10.9.0.0/16 via 10.50.0.1")
	if !testnode.Reaches(beyond, "10.9.0.2") && !testnode.Reaches(beyond, "10.9.0.3") {
		t.Fatal("nobody reaches the pod through the node: the rules would show nothing")
	}
	for _, way := range []string{"-i", "-o"} {
		fresh.Run(t, "", "iptables -I FORWARD "+way+" rl+ -m conntrack --ctdir ORIGINAL ! --ctstate DNAT -j DROP")
	}
	t.Cleanup(func() { fresh.Run(t, "", "iptables -F FORWARD") })
	if by(extra, "10.50.0.5") || testnode.Answers(beyond, "10.9.0.2") || testnode.Answers(beyond, "10.9.0.3") || !by(extra, "10.96.0.1") {
		t.Error("with the rules, something else passes than Services")
	}
	fresh.Run(t, "", "iptables -t nat -F PREROUTING")
	extra.end(t)
}

// iptablesSay returns a PATH in which each program of iptables prints a message and ends with the status.
func iptablesSay(t *testing.T, message string, status int) string {
	t.Helper()
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\necho '%s' >&2\nexit %d\n", message, status)
	for _, name := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-nft", "-legacy", "-restore", "-nft-restore", "-legacy-restore"} {
			if err := os.WriteFile(filepath.Join(dir, name+suffix), []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	return "PATH=" + dir + ":" + os.Getenv("PATH")
}

const (
	isLocked = "Another app is currently holding the xtables lock"
	busy     = 4
)

// Somebody has the tables of iptables. A pod whose rules are there comes and goes all the same, as does one without rules.
func TestAPodThatChangesNoRuleNeedsNoIPTables(t *testing.T) {
	const masquerade = `, "hostAccess": {"masquerade": true, "extra": ["fd00:20::10"]}`
	n := newAccessNode(t)
	first := n.added(t, "c1", masquerade)
	for name, keys := range map[string]string{"no host access": "", "host access": plainAccess, "the same rules": masquerade, "fewer rules": `, "hostAccess": {"masquerade": true}`} {
		p := n.newPod(t, "c2", keys)
		for _, command := range []string{"ADD", "DEL"} {
			cmd := p.plugin(command, p.id, p.netns, p.keys)
			cmd.Env = append(cmd.Env, iptablesSay(t, isLocked, busy))
			code, msg, _ := coded(t, cmd)
			expectCode(t, name+", "+command, code, msg, 0, "")
		}
	}
	other := n.newPod(t, "c2", `, "hostAccess": {"masquerade": true, "extra": ["10.50.0.0/16"]}`)
	cmd := other.plugin("ADD", other.id, other.netns, other.keys)
	cmd.Env = append(cmd.Env, iptablesSay(t, isLocked, busy))
	code, msg, _ := coded(t, cmd)
	expectCode(t, "other rules", code, msg, 11, `host access: "masquerade": `)
	other.add(t)
	if out := fresh.Run(t, "", "iptables -t nat -S RELINK-MASQUERADE"); !strings.Contains(out, "--ctorigdst 10.50.0.0/16 -j SNAT --to-source 192.0.2.1") {
		t.Errorf("the rules are\n%s", out)
	}
	other.expectError(t, "DEL", "DEL", "", 0, "")
	first.end(t)
}

// Somebody has put a rule into the table nat that iptables cannot read, so that it lists nothing. A DEL gives up the address all the
// same, and the rules go with the next sweep that can read them.
func TestDelDoesNotWaitForATableThatIPTablesCannotRead(t *testing.T) {
	n := newAccessNode(t)
	p := n.added(t, "c1", allOfIt)
	fresh.Run(t, "", "nft add rule ip nat POSTROUTING fib saddr type local accept")
	if out, err := exec.Command("iptables", "-t", "nat", "-S").CombinedOutput(); err == nil {
		t.Fatalf("iptables reads the table:\n%s", out)
	}
	for range 2 { // A runtime may call a DEL twice.
		p.expectError(t, "DEL", "DEL", "", 0, "")
	}
	n.expectNothing(t, p.netns)
	if code, msg, _ := p.code(t, "GC", p.id, p.netns, p.keys+`, "cni.dev/valid-attachments": []`); code == 0 {
		t.Errorf("GC is content: %s", msg)
	}
	fresh.Run(t, "", "nft flush chain ip nat POSTROUTING")
	p.expectError(t, "GC", "GC", `, "cni.dev/valid-attachments": []`, 0, "")
	for _, program := range []string{"iptables", "ip6tables"} {
		if out := fresh.Run(t, "", program+"-save"); strings.Contains(out, "RELINK") {
			t.Errorf("after the GC: %s", out)
		}
	}
}

// Somebody has the tables of iptables. What needs none of them is made right all the same. CHECK and DEL need none.
func TestRoutesDoNotWaitForIPTables(t *testing.T) {
	n := newAccessNode(t)
	p := n.added(t, "c1", allOfIt)
	fresh.Run(t, "", "ip rule del priority 1140; ip -6 rule del priority 1140; ip route flush table 1140; ip -6 route flush table 1140")
	locked := iptablesSay(t, isLocked, busy)
	cmd := n.restoreCommand()
	cmd.Env = append(os.Environ(), locked)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "xtables lock") {
		t.Errorf("restore: %v\n%s", err, out)
	}
	p.expectConnected(t, "after the restore")
	check := p.plugin("CHECK", p.id, p.netns, p.keys+`, "prevResult": `+p.result)
	check.Env = append(check.Env, locked)
	code, msg, _ := coded(t, check)
	expectCode(t, "CHECK", code, msg, 0, "") // A runtime may rebuild a pod whose CHECK fails.
	del := p.plugin("DEL", p.id, p.netns, p.keys)
	del.Env = append(del.Env, locked)
	code, msg, _ = coded(t, del)
	expectCode(t, "DEL", code, msg, 0, "")
	p.expectClean(t, "after DEL", p.netns)
}

// Somebody has the tables of iptables, and the pod has rules of its own there. What needs no iptables is mended all the same.
func TestThePodsPartDoesNotWaitForIPTables(t *testing.T) {
	n := newAccessNode(t)
	p := n.added(t, "c1", `, "hostAccess": {"preserveSource": true}`)
	locked := iptablesSay(t, isLocked, busy)
	fresh.IP(t, p.netns, "link set host0 down")
	cmd := n.restoreCommand()
	cmd.Env = append(os.Environ(), locked)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "xtables lock") {
		t.Errorf("restore: %v\n%s", err, out)
	}
	p.expectConnected(t, "after the restore")
	fresh.Run(t, "", "ip address flush dev nic0; ip address add 192.0.2.7/24 dev nic0; ip address add fd00:77::7/64 dev nic0 nodad")
	cmd = n.restoreCommand()
	cmd.Env = append(os.Environ(), locked)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "xtables lock") {
		t.Errorf("restore: %v\n%s", err, out)
	}
	expectSource(t, "10.9.0.2", "192.0.2.7")
	expectReachable(t, "the node", p.netns, "192.0.2.7", "fd00:77::7")
	p.end(t)
}

// The node's ip6tables does not work, and no pod needs it.
func TestAPodOfOneFamilyNeedsOneIPTables(t *testing.T) {
	n := newAccessNode(t)
	broken := t.TempDir()
	for _, name := range []string{"ip6tables-nft", "ip6tables-legacy", "ip6tables", "ip6tables-nft-save", "ip6tables-legacy-save"} {
		if err := os.WriteFile(filepath.Join(broken, name), []byte("#!/bin/sh\necho broken >&2\nexit 3\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	path := "PATH=" + broken + ":" + os.Getenv("PATH")
	p := n.newPod(t, "c1", fmt.Sprintf(`, "ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.9.0.0/16", "routes": [{"dst": "0.0.0.0/0"}]}`, filepath.Join(n.Dir, "ipam"))+allOfIt)
	for _, command := range []string{"ADD", "DEL"} {
		cmd := p.plugin(command, p.id, p.netns, p.keys)
		cmd.Env = append(cmd.Env, path)
		code, msg, _ := coded(t, cmd)
		expectCode(t, command, code, msg, 0, "")
	}
	p.expectClean(t, "after DEL", p.netns)
}

// A pod has host access by one interface. To take it from another one, which has none, takes nothing.
func TestRemoveOfAnotherInterfaceTakesNothing(t *testing.T) {
	n := newAccessNode(t)
	p := n.added(t, "c1", allOfIt)
	other := func(command string) {
		t.Helper()
		cmd := n.plugin(command, p.id, p.netns, fmt.Sprintf(`, "name": "other", "ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.10.0.0/16"}`, filepath.Join(n.Dir, "ipam")))
		cmd.Env = append(cmd.Env, "CNI_IFNAME=net1")
		code, msg, _ := coded(t, cmd)
		expectCode(t, command, code, msg, 0, "")
	}
	other("ADD")
	if out, err := n.Command("host-access", "remove", "--network", "other").CombinedOutput(); err != nil || !strings.Contains(string(out), "not there") {
		t.Errorf("remove: %v\n%s", err, out)
	}
	p.check(t, "CHECK", 0, "")
	other("DEL")
	p.end(t)
}

// Somebody has changed the alias. The pair is relink's all the same.
func TestAPairWithAnotherAliasIsTakenAway(t *testing.T) {
	n := newAccessNode(t)
	p := n.added(t, "c1", plainAccess)
	fresh.Run(t, "", "ip link set "+hostaccess.HostName(attachment.Key{Network: "lan", ContainerID: "c1", IfName: "eth0"}, false)+" alias other")
	if out, err := n.Command("host-access", "remove", "default/c1").CombinedOutput(); err != nil {
		t.Errorf("remove: %v\n%s", err, out)
	}
	if pairs := testnode.AccessLeft(t)["pairs"]; pairs > 0 {
		t.Error("the pair is there")
	}
	p.expectError(t, "DEL", "DEL", "", 0, "")
}

// A pod can fill its tables. What relink needs of it is found all the same.
func TestAPodWithVeryManyRoutes(t *testing.T) {
	n := newAccessNode(t)
	p := n.added(t, "c1", plainAccess)
	fresh.Run(t, p.netns, `for a in $(seq 0 39); do for b in $(seq 0 249); do echo "route add 100.$a.$b.0/24 dev host0"; done; done | ip -batch -
		ip route del 192.0.2.1; ip -6 route del fd00:77::1 dev host0`)
	if out, err := n.restore(); err != nil {
		t.Errorf("restore: %v\n%s", err, out)
	}
	p.expectConnected(t, "after the restore")
	p.check(t, "CHECK", 0, "")
	p.end(t)
}

// The interface of another plugin cannot have host access. The pod must not start without it.
func TestChainedHostAccessOfAnotherKind(t *testing.T) {
	n := newAccessNode(t)
	c := chainedAccess{&stock{node: n.node, version: "1.1.0"}, nil}
	netns := fresh.Sandbox(t)
	fresh.Run(t, netns, "ip link add eth0 type veth peer name other; ip link set eth0 up; ip address add 10.9.0.2/16 dev eth0")
	const result = `{"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": "/x"}], "ips": [{"address": "10.9.0.2/16", "interface": 0}]}`
	out, _, err := c.run("relink-host-access", "ADD", "c1", netns, c.keys("relink-host-access", `, "prevResult": `+result))
	if err == nil {
		t.Fatalf("ADD is content: %s", out)
	}
	code, msg := parseError(t, []byte(out))
	expectCode(t, "ADD", code, msg, 7, `invalid "type": "relink-host-access": eth0 cannot have host access, which is for macvlan and ipvlan`)
	if found := testnode.AccessLeft(t); len(found) > 0 {
		t.Errorf("the host has %v", found)
	}
}

// A node without iptables refuses each such ADD, so STATUS says so before.
func TestStatusWithoutIPTables(t *testing.T) {
	n := newAccessNode(t)
	p := n.newPod(t, "c1", "")
	status := func(keys string, wantCode int, want string) {
		t.Helper()
		code, msg, _ := n.code(t, "STATUS", "", "", p.keys+keys)
		expectCode(t, "STATUS", code, msg, wantCode, want)
	}
	status(allOfIt, 0, "")
	hidden := t.TempDir()
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() {
			fresh.Run(t, "", "mount --bind "+hidden+" "+dir)
			t.Cleanup(func() { fresh.Run(t, "", "/bin/umount "+dir) })
		}
	}
	status(allOfIt, 50, "iptables is not installed")
	status(plainAccess, 0, "")
}
