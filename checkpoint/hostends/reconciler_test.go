package hostends_test

import (
	"bufio"
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

	"github.com/relink-cni/relink/checkpoint/hostends"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

// The kubelet's probes come from the node's new address at once. A busy machine can be late now and then, but not each time.
func TestTheNodesAddressMoves(t *testing.T) {
	n := newNode(t)
	pods := []*pod{n.attached(t, 2, plainAccess), n.attached(t, 3, plainAccess), n.attached(t, 4, plainAccess)}
	n.runReconciler(t)
	fastest := soon
	for _, last := range []string{"7", "8", "9"} {
		ipv4, ipv6 := "192.0.2."+last, "fd00:77::"+last
		fresh.Run(t, "", "ip address flush dev nic0; ip address add "+ipv4+"/24 dev nic0; ip address add "+ipv6+"/64 dev nic0 nodad")
		took := await(t, "everything follows "+ipv4, func() bool {
			for _, p := range pods {
				if !p.sentFrom(t, ipv4, ipv6) || !p.sendsTo(t, ipv4, ipv6) {
					return false
				}
			}
			return true
		})
		fastest = min(fastest, took)
		for _, p := range pods {
			for _, to := range []string{p.ipv4, p.ipv6} {
				if !testnode.Reaches("", to) {
					t.Errorf("the node does not reach %s from %s", to, ipv4)
				}
			}
			for _, to := range []string{ipv4, ipv6} {
				if !testnode.Reaches(p.netns, to) {
					t.Errorf("%s does not reach the node at %s", p.id, to)
				}
			}
		}
	}
	if fastest > time.Second {
		t.Errorf("the fastest took %s", fastest)
	}
}

// The node gets another source, and the earlier one stays. A pod has a route to the new one before the node uses it: its answers never
// go elsewhere.
func TestPodsComeFirstWhileTheEarlierSourceIsThere(t *testing.T) {
	n := newNode(t)
	p := n.attached(t, 2, plainAccess)
	fresh.Run(t, "", "ip route add default via 192.0.2.254 dev nic0 src 192.0.2.1")
	k := n.runReconciler(t)
	await(t, "the first look", func() bool { return p.sentFrom(t, "192.0.2.1", "fd00:77::1") })
	fresh.Run(t, "", "ip -batch - <<end\naddress add 192.0.2.7/32 dev nic0\nroute replace default via 192.0.2.254 dev nic0 src 192.0.2.7\nend")
	await(t, "the host follows", func() bool { return p.sentFrom(t, "192.0.2.7", "fd00:77::1") })
	k.stop()
	pod := slices.Index(k.done, "default/c2: host0: route 192.0.2.7/32 scope 253 is missing")
	host := slices.Index(k.done, "route to 10.9.0.2 through "+p.host+" in the host: its source is 192.0.2.1, not 192.0.2.7")
	if pod < 0 || host < pod {
		t.Errorf("the pod at %d, the host at %d: %q", pod, host, k.done)
	}
}

// Somebody switches IPv6 off on the host's end. The kernel drops the route, and takes no other one before IPv6 is on again.
func TestTheHostsEndHasIPv6Again(t *testing.T) {
	n := newNode(t)
	p := n.attached(t, 2, plainAccess)
	n.runReconciler(t)
	await(t, "the first look", func() bool { return p.sentFrom(t, "192.0.2.1", "fd00:77::1") })
	fresh.Run(t, "", "echo 1 >/proc/sys/net/ipv6/conf/"+p.host+"/disable_ipv6")
	await(t, "the route is back", func() bool { return p.sentFrom(t, "192.0.2.1", "fd00:77::1") })
	if !testnode.Reaches("", p.ipv6) {
		t.Error("the node does not reach the pod by IPv6")
	}
}

// A pod is gone with its checkpoint, and its DEL was killed. No pod has host access: what all pods share goes.
func TestWhatTheLastPodLeftGoes(t *testing.T) {
	n := newNode(t)
	fresh.IP(t, "", "address flush dev nic0")
	p := n.attached(t, 2, `, "hostAccess": {"masquerade": true}`)
	fresh.IP(t, "", "link del "+p.host)
	if err := n.Store.Forget(p.id, "eth0"); err != nil {
		t.Fatal(err)
	}
	if left := testnode.AccessLeft(t); left["stand-ins"] != 2 || left["IPv4-rules"] != 1 || left["IPv6-chains-and-jumps"] == 0 {
		t.Fatalf("nothing is left already: %v", left)
	}
	n.runReconciler(t)
	await(t, "all of it goes", func() bool { return len(testnode.AccessLeft(t)) == 0 })
}

// A network manager deletes what it does not know.
func TestWhatIsFlushedInTheHostComesBack(t *testing.T) {
	n := newNode(t)
	p := n.attached(t, 2, plainAccess)
	k := n.runReconciler(t)
	for name, s := range map[string]struct{ flush, done string }{
		"IPv4 rule":   {"ip rule del priority 1140", "IPv4 rule to table 1140 in the host: it is missing"},
		"IPv6 rule":   {"ip -6 rule del priority 1140", "IPv6 rule to table 1140 in the host: it is missing"},
		"IPv4 routes": {"ip route flush table 1140", "route to 10.9.0.2 through " + p.host + " in the host: it is missing"},
		"IPv6 routes": {"ip -6 route flush table 1140", "route to fd00:9::2 through " + p.host + " in the host: it is missing"},
		"a source":    {"ip route replace 10.9.0.2 dev " + p.host + " table 1140 proto kernel scope link", "it has no source, not 192.0.2.1"},
	} {
		t.Run(name, func(t *testing.T) {
			fresh.Run(t, "", s.flush)
			await(t, "it is back", func() bool {
				rules := fresh.Run(t, "", "ip rule; ip -6 rule")
				return p.sentFrom(t, "192.0.2.1", "fd00:77::1") && strings.Count(rules, "1140:") == 2
			})
			if !testnode.Reaches("", p.ipv4) || !testnode.Reaches("", p.ipv6) {
				t.Error("the node does not reach the pod")
			}
			await(t, "the reason is told", func() bool {
				k.mu.Lock()
				defer k.mu.Unlock()
				return strings.Contains(strings.Join(k.done, "\n"), s.done)
			})
		})
	}
}

// The agent hears of the change in the pod, and tells the Reconciler. A later change of the node does not undo it either.
func TestWhatIsChangedInAPodIsReportedAndLeftAlone(t *testing.T) {
	n := newNode(t)
	p, other := n.attached(t, 2, plainAccess), n.attached(t, 3, plainAccess)
	k := n.runReconciler(t)
	for _, s := range []struct{ name, change, undo, want string }{
		{"an address", "ip address del 10.9.0.2/32 dev host0", "ip address add 10.9.0.2/32 dev host0", "host access: host0: address 10.9.0.2/32 is missing"},
		{"the MTU", "ip link set host0 mtu 1400", "ip link set host0 mtu 1500", "host access: host0: MTU is 1400, not 1500"},
	} {
		t.Run(s.name, func(t *testing.T) {
			fresh.Run(t, p.netns, s.change)
			before := fresh.IP(t, p.netns, "address show dev host0")
			k.MarkSandboxes(p.id)
			await(t, "a finding", func() bool { found := k.driftReasons(p); return len(found) == 1 && strings.HasPrefix(found[0], s.want) })
			fresh.IP(t, "", "address add 192.0.2.5/32 dev nic0")
			await(t, "the other pod follows", func() bool { return other.sendsTo(t, "192.0.2.1", "192.0.2.5", "fd00:77::1") })
			fresh.IP(t, "", "address del 192.0.2.5/32 dev nic0")
			await(t, "the other pod follows again", func() bool { return other.sendsTo(t, "192.0.2.1", "fd00:77::1") })
			if now := fresh.IP(t, p.netns, "address show dev host0"); now != before {
				t.Errorf("it was changed:\n%s\nbefore:\n%s", now, before)
			}
			if found := k.driftReasons(other); len(found) > 0 {
				t.Errorf("the other pod: %q", found)
			}
			fresh.Run(t, p.netns, s.undo)
			k.MarkSandboxes(p.id)
			await(t, "no finding", func() bool { return len(k.driftReasons(p)) == 0 })
		})
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.findings < 4 {
		t.Errorf("OnFindings was called %d times", k.findings)
	}
}

// Somebody has changed the MTU, and with that nothing of the routes. The probes come from the node's new address.
func TestAChangedPodFollowsTheNodeAllTheSame(t *testing.T) {
	n := newNode(t)
	p := n.attached(t, 2, plainAccess)
	k := n.runReconciler(t)
	fresh.IP(t, p.netns, "link set host0 mtu 1400")
	k.MarkSandboxes(p.id)
	await(t, "a finding", func() bool { return len(k.driftReasons(p)) == 1 })
	fresh.Run(t, "", "ip address flush dev nic0; ip address add 192.0.2.7/24 dev nic0; ip address add fd00:77::7/64 dev nic0 nodad")
	await(t, "the host follows", func() bool { return p.sentFrom(t, "192.0.2.7", "fd00:77::7") })
	await(t, "the pod has routes to the node's addresses", func() bool { return p.sendsTo(t, "192.0.2.7", "fd00:77::7") })
	if out := fresh.IP(t, p.netns, "link show host0"); !strings.Contains(out, "mtu 1400 ") {
		t.Errorf("the MTU was changed: %s", out)
	}
}

// Nobody tells the Reconciler: the end is in the host.
func TestAnEndThatIsDownIsReported(t *testing.T) {
	n := newNode(t)
	p := n.attached(t, 2, plainAccess)
	k := n.runReconciler(t)
	await(t, "the first look", func() bool { return p.sentFrom(t, "192.0.2.1", "fd00:77::1") })
	fresh.IP(t, "", "link set "+p.host+" down")
	await(t, "a finding", func() bool {
		found := k.driftReasons(p)
		return len(found) == 1 && strings.HasPrefix(found[0], "host access: "+p.host+" in the host: ")
	})
	if out := fresh.IP(t, "", "link show "+p.host); strings.Contains(out, "UP") {
		t.Errorf("it was set up: %s", out)
	}
	accepts := "/proc/sys/net/ipv6/conf/" + p.host + "/accept_redirects"
	fresh.Run(t, "", "echo 1 >"+accepts)
	k.MarkSandboxes(p.id)
	await(t, "the sysctl is right again", func() bool { return strings.TrimSpace(fresh.Run(t, "", "cat "+accepts)) == "0" })
	if out := fresh.IP(t, "", "link show "+p.host); strings.Contains(out, "UP") {
		t.Errorf("it was set up with its sysctl: %s", out)
	}
	fresh.IP(t, "", "link set "+p.host+" up")
	await(t, "the path is whole again", func() bool { return p.sentFrom(t, "192.0.2.1", "fd00:77::1") && len(k.driftReasons(p)) == 0 })
	if !testnode.Reaches("", p.ipv4) || !testnode.Reaches("", p.ipv6) {
		t.Error("the node does not reach the pod")
	}
	fresh.IP(t, "", "link del "+p.host)
	await(t, "a finding of the deleted pair", func() bool {
		found := k.driftReasons(p)
		return len(found) == 1 && found[0] == "host access: host0 is gone from the sandbox"
	})
}

// The NIC with the node's only address is reloaded.
func TestTheStandInComesAndGoes(t *testing.T) {
	n := newNode(t)
	p := n.attached(t, 2, plainAccess)
	k := n.runReconciler(t)
	standIns := func() int {
		out := fresh.IP(t, "", "-o address show dev lo")
		return strings.Count(out, " 169.254.114.1/32 ") + strings.Count(out, " fd72:656c:696e:6b::1/128 ")
	}
	fresh.IP(t, "", "address flush dev nic0")
	await(t, "the stand-ins come", func() bool {
		return standIns() == 2 && p.sentFrom(t, "169.254.114.1", "fd72:656c:696e:6b::1") && p.sendsTo(t)
	})
	for netns, to := range map[string][]string{"": {p.ipv4, p.ipv6}, p.netns: {"169.254.114.1", "fd72:656c:696e:6b::1"}} {
		for _, address := range to {
			if !testnode.Reaches(netns, address) {
				t.Errorf("%s does not answer", address)
			}
		}
	}
	fresh.Run(t, "", "ip address add 192.0.2.1/24 dev nic0; ip address add fd00:77::1/64 dev nic0 nodad")
	await(t, "the stand-ins go", func() bool { return standIns() == 0 && p.sentFrom(t, "192.0.2.1", "fd00:77::1") })
	fresh.IP(t, "", "address flush dev nic0")
	await(t, "the stand-ins come again", func() bool { return standIns() == 2 })
	// The last pod goes. Nobody has a pair any more.
	fresh.IP(t, "", "link del "+p.host)
	k.SetRecords(n.recordsWithout(t, p), true)
	await(t, "everything goes with the last pod", func() bool {
		return standIns() == 0 && !strings.Contains(fresh.Run(t, "", "ip rule; ip -6 rule"), "1140:")
	})
	if found := k.driftReasons(p); len(found) > 0 {
		t.Errorf("a finding of the pod that is gone: %q", found)
	}
}

// The Reconciler does not know of all pods: a checkpoint cannot be read. What another pod may need stays.
func TestAReconcilerThatDoesNotKnowAllPodsTakesNothingAway(t *testing.T) {
	n := newNode(t)
	fresh.IP(t, "", "address flush dev nic0")
	known, unknown := n.attached(t, 2, plainAccess), n.attached(t, 3, plainAccess)
	k := n.runReconciler(t)
	k.SetRecords(n.recordsWithout(t, unknown), false)
	await(t, "a look", func() bool { return known.sentFrom(t, "169.254.114.1", "fd72:656c:696e:6b::1") })
	fresh.IP(t, "", "rule del priority 1140")
	await(t, "the rule is back", func() bool { return strings.Contains(fresh.IP(t, "", "rule"), "1140:") })
	if !unknown.sentFrom(t, "169.254.114.1", "fd72:656c:696e:6b::1") || !testnode.Reaches("", unknown.ipv4) || !testnode.Reaches("", unknown.ipv6) {
		t.Error("the node does not reach the other pod")
	}
}

// Another pod that is reached by the address keeps it, with all that the host has for pods. Of an earlier sandbox of the same pod it is taken over,
// and what a flush has taken of the host's part is there again.
func TestAnAddressIsTakenOnlyFromTheSamePod(t *testing.T) {
	n := newNode(t)
	first, next := n.attached(t, 2, plainAccess), n.attached(t, 3, plainAccess)
	host, err := kernel.OpenHost()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	node, err := hostaccess.ReadNode(host)
	if err != nil {
		t.Fatal(err)
	}
	accessOf := func(p *pod) hostaccess.Access {
		r, err := n.Store.Load(p.id, "eth0")
		if err != nil {
			t.Fatal(err)
		}
		return *r.HostAccess
	}
	access := accessOf(next)
	access.Addresses = accessOf(first).Addresses
	index, err := host.Index(access.HostName)
	if err != nil {
		t.Fatal(err)
	}
	fresh.IP(t, "", "rule del priority 1140")
	for _, step := range []struct {
		alias string
		taken error
		host  string
	}{{access.Alias, hostaccess.ErrAddressTaken, first.host}, {accessOf(first).Alias, nil, next.host}} {
		access.Alias = step.alias
		if err := hostaccess.Claim(host, access, index, node); !errors.Is(err, step.taken) {
			t.Errorf("Claim: %v, want %v", err, step.taken)
		}
		for _, family := range []string{"-4", "-6"} {
			to := map[string]string{"-4": first.ipv4, "-6": first.ipv6}[family]
			if out := fresh.IP(t, "", family+" route show table 1140 "+to); !strings.Contains(out, " dev "+step.host+" ") {
				t.Errorf("the route is %q, want one through %s", out, step.host)
			}
			if out := fresh.IP(t, "", family+" rule"); !strings.Contains(out, "1140:") {
				t.Errorf("the rules are\n%s", out)
			}
		}
	}
}

// listeners counts the netlink sockets in this namespace that hear of changes.
func listeners(t *testing.T) (count int) {
	t.Helper()
	f, err := os.Open("/proc/thread-self/net/netlink")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// sk Eth Pid Groups ... (net/netlink/af_netlink.c)
		if fields := strings.Fields(lines.Text()); len(fields) > 3 && fields[3] != "Groups" && fields[3] != "00000000" {
			count++
		}
	}
	return count
}

func TestPodsWithoutHostAccessCostNothing(t *testing.T) {
	n := newNode(t)
	n.attached(t, 2, "")
	before := listeners(t)
	k := n.runReconciler(t)
	fresh.Run(t, "", "ip address add 192.0.2.5/32 dev nic0; ip address del 192.0.2.5/32 dev nic0")
	k.MarkSandboxes("c2")
	time.Sleep(300 * time.Millisecond) // A watch would be there by now.
	if now := listeners(t); now != before {
		t.Errorf("%d sockets listen, before there were %d", now, before)
	}
	if out := fresh.Run(t, "", "ip rule; ip -6 rule; ip address show dev lo"); strings.Contains(out, "1140") || strings.Contains(out, "169.254.") {
		t.Errorf("the host has %s", out)
	}
	p := n.attached(t, 3, plainAccess)
	k.SetRecords(n.Records(t), true)
	await(t, "a watch for the first pod with host access", func() bool { return listeners(t) == before+1 })
	fresh.IP(t, "", "address add 192.0.2.5/32 dev nic0")
	await(t, "it follows", func() bool { return p.sendsTo(t, "192.0.2.1", "192.0.2.5", "fd00:77::1") })
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.errs) > 0 {
		t.Errorf("errors: %q", k.errs)
	}
}

// A pod that has nothing wrong is not worked on: somebody else may hold its lock.
func TestAReconcilerWaitsForNobody(t *testing.T) {
	n := newNode(t)
	held, free := n.attached(t, 2, plainAccess), n.attached(t, 3, plainAccess)
	unlock, err := n.Store.TryLock(held.id)
	if err != nil {
		t.Fatal(err)
	}
	n.runReconciler(t)
	fresh.IP(t, "", "address add 192.0.2.5/32 dev nic0")
	await(t, "the free pod follows", func() bool { return free.sendsTo(t, "192.0.2.1", "192.0.2.5", "fd00:77::1") })
	if held.sendsTo(t, "192.0.2.1", "192.0.2.5", "fd00:77::1") {
		t.Error("the pod was changed although somebody works on it")
	}
	unlock()
	await(t, "the other pod follows, too", func() bool { return held.sendsTo(t, "192.0.2.1", "192.0.2.5", "fd00:77::1") })
}

// Somebody gave the pod other settings, and the Reconciler was not told yet. It goes by the checkpoint as it is now.
func TestTheReconcilerGoesByTheNewestCheckpoint(t *testing.T) {
	n := newNode(t)
	p := n.attached(t, 2, plainAccess)
	k := n.runReconciler(t)
	await(t, "the first look", func() bool { return p.sentFrom(t, "192.0.2.1", "fd00:77::1") })
	n.Says(t, 0, "host-access remove default/c2", "")
	n.Says(t, 0, "host-access add default/c2 --services 10.96.0.0/12", "")
	fresh.IP(t, "", "address add 192.0.2.5/32 dev nic0")
	want := []string{"192.0.2.1", "192.0.2.5", "fd00:77::1", "10.96.0.0/12"}
	await(t, "it follows the node", func() bool { return p.sendsTo(t, want...) })
	k.MarkSandboxes(p.id)
	fresh.IP(t, "", "address add 192.0.2.6/32 dev nic0")
	await(t, "it follows the node again", func() bool { return p.sendsTo(t, append(want, "192.0.2.6")...) })
	k.SetRecords(n.Records(t), true)
	fresh.IP(t, "", "address del 192.0.2.6/32 dev nic0")
	await(t, "it follows the node once more", func() bool { return p.sendsTo(t, want...) })
	if found := k.driftReasons(p); len(found) > 0 {
		t.Errorf("findings %q", found)
	}
}

// The attachment was detached, and attached again in another namespace, after the record was listed.
func TestFollowNodeChangesNothingInAnotherNamespace(t *testing.T) {
	n := newNode(t)
	n.attached(t, 2, plainAccess)
	listed := n.Records(t)[0]
	attached := listed
	attached.Namespace.Cookie++
	if err := n.Store.Save(attached); err != nil {
		t.Fatal(err)
	}
	host, err := kernel.OpenHost()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	if _, _, err := hostends.FollowNode(n.Store, host, listed, hostaccess.Node{}); !kernel.IsMissing(err) {
		t.Error(err)
	}
}

// Another program has the tables of iptables while the node's address changes. The routes do not wait for that, and the rules follow
// soon after.
func TestRulesOfIPTablesAreTriedAgain(t *testing.T) {
	n := newNode(t)
	dir, locked := t.TempDir(), filepath.Join(t.TempDir(), "locked")
	for _, name := range []string{"iptables-nft", "ip6tables-nft", "iptables-nft-restore", "ip6tables-nft-restore"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		script := "#!/bin/sh\n[ -e " + locked + " ] && echo 'Another app is currently holding the xtables lock' >&2 && exit 4\nexec " + path + " \"$@\"\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p := n.attached(t, 2, `, "hostAccess": {"masquerade": true}`)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	k := n.runReconciler(t)
	if err := os.WriteFile(locked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fresh.Run(t, "", "ip address flush dev nic0; ip address add 192.0.2.7/24 dev nic0; ip address add fd00:77::7/64 dev nic0 nodad")
	await(t, "the routes follow", func() bool { return p.sentFrom(t, "192.0.2.7", "fd00:77::7") })
	await(t, "the failure is told", func() bool { k.mu.Lock(); defer k.mu.Unlock(); return len(k.errs) > 0 })
	if err := os.Remove(locked); err != nil {
		t.Fatal(err)
	}
	await(t, "the rules follow", func() bool {
		rules := fresh.Run(t, "", "iptables-save -t nat; ip6tables-save -t nat")
		return strings.Count(rules, "--to-source 192.0.2.7\n") == 1 && strings.Count(rules, "--to-source fd00:77::7\n") == 1 && strings.Count(rules, "SNAT") == 2
	})
}

func TestRunEndsBeforeTheFirstPod(t *testing.T) {
	host, err := kernel.OpenHost()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := hostends.NewReconciler(hostends.ReconcilerOptions{Host: host}).Run(ctx); err != nil {
		t.Error(err)
	}
}

// Pods come at once while a GC sweeps again and again. Each needs a rule that no other one needs, and no rule gets lost.
func TestNoRuleOfPodsThatComeAtOnceGetsLost(t *testing.T) {
	n := newNode(t)
	const pods = 6
	var adds sync.WaitGroup
	for i := range pods {
		adds.Go(func() {
			n.attached(t, i+2, fmt.Sprintf(`, "hostAccess": {"masquerade": true, "extra": ["10.%[1]d.0.0/16", "fd00:%[1]d::/64"]}`, 50+i))
		})
	}
	done := make(chan struct{})
	go func() { adds.Wait(); close(done) }()
	for ended := false; !ended; {
		if _, err := hostends.Sweep(t.Context(), n.Store, false); err != nil {
			t.Error(err)
		}
		select {
		case <-done:
			ended = true
		default:
		}
	}
	for _, program := range []string{"iptables", "ip6tables"} {
		if got := strings.Count(fresh.Run(t, "", program+" -t nat -S RELINK-MASQUERADE"), "--ctorigdst"); got != pods {
			t.Errorf("%s has %d rules, want %d", program, got, pods)
		}
	}
}
