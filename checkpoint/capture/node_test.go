package capture_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

func TestMain(m *testing.M) { testnode.Main(m) }

// node is a host with caches of its own.
type node struct {
	*testnode.Node
	cache string
	conf  string
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{Node: testnode.New(t)}
	dir := n.Dir
	n.cache, n.conf = filepath.Join(dir, "cache"), filepath.Join(dir, "net.d")
	for _, d := range []string{n.cache, n.conf} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// This is where libcni keeps the cache of cnitool.
	if err := os.MkdirAll("/var/lib/cni", 0o700); err != nil {
		t.Fatal(err)
	}
	fresh.Run(t, "", "mount --bind "+n.cache+" /var/lib/cni")
	t.Cleanup(func() { fresh.Run(t, "", "umount /var/lib/cni") })
	const conf = `{"cniVersion": "1.1.0", "name": %[1]q, "plugins": [{"type": "macvlan", "master": "lan0", "ipam":
		{"type": "host-local", "subnet": "10.9.0.0/16", "dataDir": %[2]q, "routes": [{"dst": "0.0.0.0/0"}]}}%[3]s]}`
	for name, more := range map[string]string{"stock": "", "chained": fmt.Sprintf(`, {"type": "relink-checkpoint", "checkpointDir": %q}`, n.Store.Dir())} {
		if err := os.WriteFile(filepath.Join(n.conf, name+".conflist"), fmt.Appendf(nil, conf, name, filepath.Join(dir, "ipam"), more), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// cnitool attaches or detaches the pod of that name.
func (n *node) cnitool(t *testing.T, verb, network, pod, netns string) {
	t.Helper()
	if out, err := n.tryCnitool(verb, network, pod, netns); err != nil {
		t.Fatalf("cnitool %s: %v\n%s", verb, err, out)
	}
}

func (n *node) tryCnitool(verb, network, pod, netns string) (string, error) {
	cmd := exec.Command(filepath.Join(testnode.Bin, "cnitool"), verb, network, netns)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "CNI_PATH=" + testnode.Bin, "NETCONFPATH=" + n.conf, "CNI_IFNAME=eth0",
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + pod,
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func state(t *testing.T, netns string) string {
	t.Helper()
	// ip asks for the names of all namespaces, and complains of those that others are making or deleting at the moment.
	return fresh.Run(t, netns, "ip -o link show eth0 2>/dev/null | sed 's/@if[0-9]*//; s/ link-netnsid .*//'; ip -o addr show eth0 scope global 2>/dev/null; ip route")
}

func TestCaptureOfStockPodsIsRestored(t *testing.T) {
	n, web, db := newNode(t), fresh.Sandbox(t), fresh.Sandbox(t)
	n.cnitool(t, "add", "stock", "web", web)
	n.cnitool(t, "add", "stock", "db", db)
	n.Says(t, 1, "check", "default/web "+web+" eth0: it has no checkpoint", "default/db "+db+" eth0", "\n0 attachments as recorded, 0 not, 2 other problems")
	n.Says(t, 0, "capture --dry-run", "default/web", "to capture", "2 to capture\n")
	if left := n.Records(t); len(left) > 0 {
		t.Errorf("a dry run wrote %v", left)
	}
	n.Says(t, 0, "capture default/web", "stock", "lan0", "10.9.0.2/16", "1 captured\n")
	n.Says(t, 0, "capture", "1 captured, 1 kept\n")
	for _, r := range n.Records(t) {
		if !strings.HasPrefix(r.Attachment.ContainerID, "cnitool-") || r.Attachment.Network != "stock" || r.Writer != "relink capture" || len(r.CNI.Result) == 0 {
			t.Errorf("%+v", r)
		}
	}
	n.Says(t, 0, "check", "2 attachments as recorded, 0 not\n")
	before := state(t, web)
	n.LoseParent(t)
	n.Says(t, 1, "capture --refresh", "eth0 is gone from the sandbox: relink restore brings it back", "2 refused\n")
	n.Says(t, 0, "restore", "2 restored")
	if after := state(t, web); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	n.Says(t, 0, "capture --refresh", "as it was recorded", "2 refreshed\n")

	// The DEL of a stock plugin forgets nothing, and no capture does.
	n.cnitool(t, "del", "stock", "web", web)
	fresh.Remove(t, web)
	n.Says(t, 0, "capture", "1 kept\n")
	if left := n.Records(t); len(left) != 2 {
		t.Errorf("left: %+v", left)
	}
}

func TestRefreshRefusesWhatIsWorse(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	n.cnitool(t, "add", "chained", "web", netns)
	good := n.Records(t)[0].Interface
	for change, back := range map[string]string{
		"ip link set eth0 down": "ip link set eth0 up; ip route add default via 10.9.0.1",
		"ip route del default":  "ip route add default via 10.9.0.1",
	} {
		fresh.Run(t, netns, change)
		n.Says(t, 1, "capture --refresh", "relink restore repairs it", "1 refused\n")
		fresh.Run(t, netns, back)
	}
	fresh.IP(t, "", "link set lan0 down")
	n.Says(t, 1, "capture --refresh", "its parent lan0 is down", "1 refused\n")
	fresh.IP(t, "", "link set lan0 up")
	if now := n.Records(t)[0]; now.Writer != "relink-checkpoint" || len(now.Interface.Routes) != len(good.Routes) {
		t.Errorf("the good record is lost: %+v", now)
	}
	fresh.IP(t, netns, "link set eth0 mtu 1400")
	n.Says(t, 0, "capture --refresh", "MTU is 1400, not 1500", "1 refreshed\n")
	if now := n.Records(t)[0]; now.Interface.Link.MTU != 1400 || now.Pod.Name != "web" {
		t.Errorf("%+v", now)
	}
	n.cnitool(t, "del", "chained", "web", netns)
	if left := n.Records(t); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
}

// An interface on the host's device that no cache knows is remembered under a name made from its namespace. An
// interface that a process has made for itself inside is not.
func TestCaptureWithoutNames(t *testing.T) {
	n, netns, nested := newNode(t), fresh.Sandbox(t), fresh.Sandbox(t)
	fresh.IP(t, "", "link add link lan0 name tmp0 netns "+netns+" type macvlan mode bridge")
	fresh.Run(t, netns, "ip link set tmp0 name eth0; ip link set eth0 up; ip addr add 10.9.0.7/16 dev eth0")
	fresh.Run(t, netns, "ip link add own0 type veth peer name own1; ip link add link own0 name own0.3 type vlan id 3 || true")
	fresh.Run(t, nested, "ip link add own0 type veth peer name own1; ip link add link own0 name eth0 type macvlan")
	// This one is a stranger to the host: its parent is in another sandbox.
	deeper := fresh.Sandbox(t)
	fresh.Run(t, nested, "ip link add link own1 name tmp1 netns "+deeper+" type macvlan")
	n.Says(t, 1, "check", "- "+netns+" eth0: it has no checkpoint", "0 attachments as recorded, 0 not, 1 other problem")
	n.Says(t, 0, "capture", netns, "unknown", "no CNI cache knows the sandbox", "1 captured\n")
	r := n.Records(t)[0]
	if r.Attachment.ContainerID != checkpoint.UnnamedID(r.Namespace) || r.Attachment.Network != "unknown" || r.Pod.Name != "" || r.Namespace.Path != netns {
		t.Errorf("%+v", r)
	}
	n.Says(t, 0, "check", "1 attachment as recorded, 0 not\n")
	before := state(t, netns)
	n.LoseParent(t)
	n.Says(t, 0, "restore", "1 restored")
	if after := state(t, netns); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	n.Says(t, 0, "capture --refresh "+r.Attachment.ContainerID, "1 refreshed\n")
}

// A pod can stack a macvlan on its own one, as keepalived does for a virtual router. The kernel reports the host's
// device as its parent. It is no attachment, whoever attached the pod, and no restore brings it back.
func TestAMacvlanOfThePodsOwn(t *testing.T) {
	for _, network := range []string{"stock", "chained"} {
		t.Run(network, func(t *testing.T) {
			n, netns := newNode(t), fresh.Sandbox(t)
			n.cnitool(t, "add", network, "web", netns)
			n.Says(t, 0, "capture")
			const vmac = "ip link add vrrp.51 link eth0 address 00:00:5e:00:01:33 type macvlan mode private; ip link set vrrp.51 up; ip addr add 10.9.1.1/32 dev vrrp.51"
			fresh.Run(t, netns, vmac)
			n.Says(t, 0, "check", "1 attachment as recorded, 0 not\n")
			n.Says(t, 0, "capture", "left alone", "it is on the parent of eth0, lan0: it is taken to be the pod's own", "1 kept, 1 left alone\n")
			n.Says(t, 0, "capture --refresh", "1 refreshed, 1 left alone\n")
			if r := n.Records(t); len(r) != 1 || r[0].Attachment.IfName != "eth0" {
				t.Errorf("remembered: %+v", r)
			}
			// It is no attachment either if the interface below it is gone, but remembered.
			fresh.IP(t, netns, "link del eth0")
			n.Says(t, 1, "check", "0 attachments as recorded, 1 not\n")
			n.Says(t, 0, "restore", "1 restored")
			n.LoseParent(t)
			n.Says(t, 0, "restore", "1 restored")
			if out := fresh.IP(t, netns, "-o link"); strings.Contains(out, "vrrp.51") {
				t.Errorf("brought back:\n%s", out)
			}
		})
	}
}

// If no cache knows, nobody can tell which of two interfaces was attached. The operator has to say.
func TestTheOperatorNamesTheAttachment(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	fresh.IP(t, "", "link add link lan0 name tmp0 netns "+netns+" type macvlan mode bridge")
	fresh.Run(t, netns, "ip link set tmp0 name eth0; ip link set eth0 up; ip addr add 10.9.0.7/16 dev eth0; ip link add vrrp.51 link eth0 type macvlan; ip link set vrrp.51 up")
	n.Says(t, 1, "check", netns+" eth0: it has no checkpoint: no CNI cache has it, and it is on one parent, lan0, with vrrp.51", netns+" vrrp.51: it has no checkpoint", "2 other problems")
	n.Says(t, 1, "capture", "Name the one that was attached: relink capture --attached eth0", "2 refused\n")
	if r := n.Records(t); len(r) > 0 {
		t.Errorf("remembered: %+v", r)
	}
	n.Says(t, 0, "capture --attached eth0 --dry-run", "1 to capture, 1 left alone\n")
	n.Says(t, 0, "capture --attached eth0", "1 captured, 1 left alone\n")
	n.Says(t, 0, "check", "1 attachment as recorded, 0 not\n")
	n.Says(t, 0, "capture", "1 kept, 1 left alone\n")
	// The operator's word counts more than what the interface looks like.
	n.Says(t, 0, "capture --attached vrrp.51", "1 captured, 1 kept\n")
}

// No name that a pod gives itself or its devices moves the cursor or looks like a line of relink's own.
func TestWhatAPodChoosesIsPrintedAsItIs(t *testing.T) {
	n, netns, other := newNode(t), fresh.Sandbox(t), fresh.Sandbox(t)
	clean := func(out string) {
		t.Helper()
		if strings.ContainsAny(out, "\x1b\a\u009b") || strings.Contains(out, "\nshop/") {
			t.Errorf("it says %q", out)
		}
	}
	n.cnitool(t, "add", "stock", "web\x1b[2J\nshop/db-0 c1 eth0: fine", netns)
	clean(n.Says(t, 1, "check", `default/web\u001b[2J\nshop/db-0 c1 eth0: fine`))
	clean(n.Says(t, 0, "capture", "1 captured\n"))
	clean(n.Says(t, 0, "list", `default/web\u001b[2J\nshop/db-0`))
	clean(n.Says(t, 0, "show "+n.Records(t)[0].Attachment.ContainerID, `default/web\u001b[2J\nshop/db-0`))
	fresh.Run(t, netns, "ip link set eth0 alias uplink")
	clean(n.Says(t, 0, "capture --refresh"))
	fresh.Run(t, netns, `ip link set eth0 alias "$(printf 'a\033]0;b\a\302\2332J\nshop/db-0 c1 eth0: fine')"`)
	clean(n.Says(t, 1, "check", `alias is a\u001b]0;b\u0007\u009b2J`))
	clean(n.Says(t, 0, "restore", `alias is a\u001b]0;b\u0007\u009b2J`, "1 repaired"))
	fresh.Run(t, netns, `ip link set eth0 down name "$(printf 'e\033[2Jth')"; ip link set "$(printf 'e\033[2Jth')" up`)
	for _, verb := range []string{"check", "restore", "capture", "capture --refresh"} {
		out, _ := n.Relink(strings.Fields(verb)...)
		clean(out)
		if verb != "capture" && !strings.Contains(out, `e\u001b[2Jth`) {
			t.Errorf("%s: %s", verb, out)
		}
	}
	// This name cannot be remembered at all.
	fresh.IP(t, "", "link add link lan0 name tmp0 netns "+other+" type macvlan mode bridge")
	fresh.Run(t, other, `ip link set tmp0 name "$(printf 'n\033[2J')"; ip link set "$(printf 'n\033[2J')" up`)
	clean(n.Says(t, 1, "capture", other+`: n\u001b[2J can't be remembered`))
	out, _ := n.Relink("check", "-o", "json")
	clean(out)
}

// A recorded interface stays in the report if its state cannot be remembered any more, and the report says why.
func TestARecordedInterfaceThatCannotBeRememberedAnyMore(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	n.cnitool(t, "add", "chained", "web", netns)
	fresh.Run(t, netns, `ip link set eth0 down name "$(printf 'e\033[2Jth')"; ip link set "$(printf 'e\033[2Jth')" up`)
	const why = `e\u001b[2Jth can't be remembered: link "e\x1b[2Jth": contains`
	for _, line := range []string{"capture", "capture --dry-run", "capture --refresh"} {
		n.Says(t, 1, line, "default/web", why, "\n1 failed\n")
	}
	if r := n.Records(t); len(r) != 1 || r[0].Writer != "relink-checkpoint" {
		t.Errorf("%+v", r)
	}
}

func TestCaptureUsage(t *testing.T) {
	n := newNode(t)
	n.Says(t, 2, "capture nobody", "nobody")
	n.Says(t, 2, "capture --cni-cache /missing", "invalid --cni-cache")
	n.Says(t, 2, "capture --checkpoint-dir /missing", "checkpoint directory")
	n.Says(t, 0, "capture", "no interfaces to remember\n")
	if out := n.Says(t, 0, "capture -o json"); !strings.Contains(out, `"outcomes": []`) {
		t.Error(out)
	}
	if err := os.Mkdir(filepath.Join(n.cache, "results"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.cache, "results/torn"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.Says(t, 0, "capture", "results/torn", "no interfaces to remember\n")
}

// Captures run one after the other. Meanwhile pods come and go, some through a list with relink-checkpoint, others
// through relink-macvlan without any cache. No checkpoint outlives its DEL, and no restore brings one back.
func TestCaptureBesideAddAndDel(t *testing.T) {
	n := newNode(t)
	stop := make(chan struct{})
	var captures sync.WaitGroup
	for _, args := range []string{"capture", "capture --refresh", "restore --wait 0s"} {
		captures.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = n.Relink(strings.Fields(args)...)
				}
			}
		})
	}
	const rounds = 8
	var pods sync.WaitGroup
	for i := range 2 {
		netns := fresh.Sandbox(t)
		pods.Go(func() {
			for range rounds {
				for _, verb := range []string{"add", "del"} {
					if out, err := n.tryCnitool(verb, "chained", fmt.Sprintf("chained%d", i), netns); err != nil {
						t.Errorf("%s: %v\n%s", verb, err, out)
					}
				}
			}
		})
	}
	for i := range 2 {
		netns := fresh.Sandbox(t)
		pods.Go(func() {
			for range rounds {
				for _, command := range []string{"ADD", "DEL"} {
					if out, err := n.runPlugin(command, fmt.Sprintf("hand%d", i), netns); err != nil {
						t.Errorf("%s: %v\n%s", command, err, out)
					}
				}
				if out := fresh.IP(t, netns, "-o link"); strings.Contains(out, "eth0") {
					t.Errorf("brought back: %s", out)
				}
			}
		})
	}
	pods.Wait()
	close(stop)
	captures.Wait()
	for _, r := range n.Records(t) {
		t.Errorf("left: %s of %s", r.Attachment, r.Writer)
	}
}

// runPlugin runs relink-macvlan without a runtime.
func (n *node) runPlugin(command, id, netns string) (string, error) {
	cmd := exec.Command(filepath.Join(testnode.Bin, "relink-macvlan"))
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "CNI_PATH=" + testnode.Bin, "CNI_COMMAND=" + command, "CNI_CONTAINERID=" + id, "CNI_NETNS=" + netns, "CNI_IFNAME=eth0",
	}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "own", "type": "relink-macvlan", "master": "lan0", "checkpointDir": %q}`, n.Store.Dir()))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// A pod that makes very many devices of its own does not delay the work for the other pods.
func TestVeryManyMacvlansOfThePodsOwn(t *testing.T) {
	n, netns := newNode(t), fresh.Sandbox(t)
	n.cnitool(t, "add", "stock", "web", netns)
	n.Says(t, 0, "capture", "1 captured")
	const count = 1000
	fresh.Run(t, netns, fmt.Sprintf(`for i in $(seq %d); do echo "link add link eth0 name own$i type macvlan mode bridge"; done | ip -batch -`, count))
	// This would take half a minute if each were compared with each.
	n.Says(t, 0, "capture", fmt.Sprintf("1 kept, %d left alone\n", count))
}
