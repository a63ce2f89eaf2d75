package hostends_test

import (
	"context"
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
	"github.com/relink-cni/relink/checkpoint/hostends"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

func TestMain(m *testing.M) { testnode.Main(m) }

// node is a host with an address of each family on nic0. Its pods are on lan0.
type node struct{ *testnode.Node }

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{testnode.New(t)}
	testnode.Addressed(t)
	return n
}

// pod is a sandbox. Its addresses are those of its number.
type pod struct {
	*node
	id, netns, host string
	ipv4, ipv6      string
}

// attached attaches a pod of that number, with these keys.
func (n *node) attached(t *testing.T, number int, keys string) *pod {
	t.Helper()
	return n.attachedBy(t, number, fmt.Sprintf(`{"address": "10.9.0.%d/16"}, {"address": "fd00:9::%[1]d/64"}`, number), keys)
}

// attachedBy attaches a pod with these addresses, in the words of the plugin static.
func (n *node) attachedBy(t *testing.T, number int, addresses, keys string) *pod {
	t.Helper()
	id := fmt.Sprintf("c%d", number)
	p := &pod{
		node: n, id: id, netns: fresh.Sandbox(t), host: hostaccess.HostName(attachment.Key{Network: "lan", ContainerID: id, IfName: "eth0"}, strings.Contains(keys, `"masquerade": true`)),
		ipv4: fmt.Sprintf("10.9.0.%d", number), ipv6: fmt.Sprintf("fd00:9::%d", number),
	}
	// Without duplicate address detection, an ADD takes a second less.
	fresh.Run(t, p.netns, "echo 0 | tee /proc/sys/net/ipv6/conf/*/accept_dad")
	cmd := exec.Command(filepath.Join(testnode.Bin, "relink-macvlan"))
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "CNI_PATH=" + testnode.Bin, "CNI_COMMAND=ADD", "CNI_CONTAINERID=" + id, "CNI_NETNS=" + p.netns, "CNI_IFNAME=eth0",
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + id,
	}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "lan", "type": "relink-macvlan", "master": "lan0", "checkpointDir": %q,
		"ipam": {"type": "static", "addresses": [%s]}%s}`, n.Store.Dir(), addresses, keys))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ADD: %v\n%s", err, out)
	}
	return p
}

const plainAccess = `, "hostAccess": true`

// sentFrom says whether the node sends to the pod from these addresses.
func (p *pod) sentFrom(t *testing.T, source4, source6 string) bool {
	t.Helper()
	routes := fresh.Run(t, "", "ip route show table 1140 2>&1 || true; ip -6 route show table 1140 2>&1 || true")
	return strings.Contains(routes, p.ipv4+" dev "+p.host+" proto kernel scope link src "+source4) &&
		strings.Contains(routes, p.ipv6+" dev "+p.host+" proto kernel src "+source6)
}

// sendsTo says whether the pod has a route through the pair to each of these addresses, and to none of the others of the node.
func (p *pod) sendsTo(t *testing.T, addresses ...string) bool {
	t.Helper()
	var to []string
	for line := range strings.Lines(fresh.Run(t, p.netns, "ip route show dev host0; ip -6 route show dev host0 proto 115")) {
		to = append(to, strings.Fields(line)[0])
	}
	want := append([]string{"169.254.114.1", "fd72:656c:696e:6b::1"}, addresses...)
	slices.Sort(to)
	slices.Sort(want)
	return slices.Equal(to, want)
}

// reconciler is a Reconciler that runs.
type reconciler struct {
	*hostends.Reconciler
	node *node

	mu         sync.Mutex
	done, errs []string
	findings   int
	// stop ends Run, and waits for that.
	stop func()
}

// runReconciler starts a Reconciler that knows the node's pods. The end of the test stops it.
func (n *node) runReconciler(t *testing.T) *reconciler {
	t.Helper()
	host, err := kernel.OpenHost()
	if err != nil {
		t.Fatal(err)
	}
	k := &reconciler{node: n}
	k.Reconciler = hostends.NewReconciler(hostends.ReconcilerOptions{
		Store: n.Store, Host: host,
		OnDone:   func(steps []string) { k.appendLines(&k.done, steps...) },
		OnError:  func(err error) { k.appendLines(&k.errs, err.Error()) },
		OnDrifts: func() { k.mu.Lock(); defer k.mu.Unlock(); k.findings++ },
	})
	k.SetRecords(n.Records(t), true)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	k.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() {
		k.stop()
		host.Close()
		if t.Failed() {
			t.Logf("done: %q\nerrors: %q\nfindings: %v", k.done, k.errs, k.Drifts())
		}
	})
	return k
}

func (k *reconciler) appendLines(to *[]string, lines ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	*to = append(*to, lines...)
}

// soon is how long a busy machine may take for what comes at once.
const soon = 30 * time.Second

// await waits until it holds, and returns how long that took.
func await(t *testing.T, condition string, holds func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !holds() {
		if time.Since(began) > soon {
			t.Fatalf("%s: not within %s", condition, soon)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(began)
}

// driftReasons returns the reasons of the findings of the pod.
func (k *reconciler) driftReasons(p *pod) (reasons []string) {
	for _, f := range k.Drifts() {
		if f.Attachment.ContainerID == p.id {
			reasons = append(reasons, f.Reason)
		}
	}
	return reasons
}

// records returns the checkpoints without those of the pod.
func (n *node) recordsWithout(t *testing.T, p *pod) []checkpoint.Record {
	t.Helper()
	return slices.DeleteFunc(n.Records(t), func(r checkpoint.Record) bool { return r.Attachment.ContainerID == p.id })
}
