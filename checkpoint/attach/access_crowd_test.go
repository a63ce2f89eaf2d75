package attach_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

// others gives the node the pairs and the routes of so many pods with host access.
func (n *accessNode) others(t *testing.T, pods int) {
	t.Helper()
	const sandbox = "/run/netns/others" // ip knows a namespace by a name.
	fresh.At(t, sandbox)
	var links, names, ipv4, ipv6 strings.Builder
	for i := range pods {
		key := attachment.Key{Network: "lan", ContainerID: fmt.Sprintf("other%d", i), IfName: "eth0"}
		a, err := hostaccess.NewAccess(key, attachment.Pod{Namespace: "default", Name: key.ContainerID}, hostaccess.Options{}, 1500, nil)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&links, "link add %s type veth peer name h%d netns %s\nlink set %[1]s addrgenmode none up alias %[4]s\n", a.HostName, i, filepath.Base(sandbox), a.Alias)
		fmt.Fprintf(&ipv4, "route add 10.200.%d.%d/32 dev %s table 1140 proto kernel src 192.0.2.1\n", i/250, i%250, a.HostName)
		fmt.Fprintf(&ipv6, "route add fd00:200::%x/128 dev %s table 1140 proto kernel metric 512\n", i, a.HostName)
		fmt.Fprintf(&names, "link set h%d addrgenmode none up\n", i)
	}
	batch := func(family, netns, lines string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "batch")
		if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
		fresh.IP(t, netns, family+" -batch "+file)
	}
	batch("-4", "", links.String())
	batch("-4", sandbox, names.String())
	batch("-4", "", ipv4.String())
	batch("-6", "", ipv6.String())
}

// crowd calls the command for all pods at once, and returns the failures.
func crowd(t *testing.T, command string, pods []*accessPod) (failures []string) {
	t.Helper()
	var mu sync.Mutex
	var calls sync.WaitGroup
	for _, p := range pods {
		calls.Go(func() {
			out, err := p.plugin(command, p.id, p.netns, p.keys).CombinedOutput()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failures = append(failures, p.id+": "+string(out))
			}
		})
	}
	calls.Wait()
	return failures
}

// cost is what a call reads of the kernel and does: bytes of netlink in all, while it holds the lock that all pods share, and the programs
// that it starts.
type cost struct{ read, locked, programs int }

// traced calls the command under strace.
func (p *accessPod) traced(t *testing.T, command string) (c cost) {
	t.Helper()
	plugin, file := p.plugin(command, p.id, p.netns, p.keys), filepath.Join(t.TempDir(), "trace")
	cmd := exec.Command("strace", "-f", "-y", "-qq", "-e", "signal=none", "-e", "trace=recvmsg,flock,close,execve", "-s", "0", "-o", file, plugin.Path)
	cmd.Env, cmd.Stdin = plugin.Env, plugin.Stdin
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	trace, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	received := regexp.MustCompile(`recvmsg.* = (\d+)$`)
	locked := false
	for line := range strings.Lines(string(trace)) {
		line = strings.TrimSpace(line)
		switch held := strings.Contains(line, "/.hostaccess.lock>"); {
		case held && strings.Contains(line, "flock(") && strings.HasSuffix(line, "= 0"):
			locked = true
		case held && strings.Contains(line, "close("):
			locked = false
		case strings.Contains(line, "execve("):
			c.programs++
		}
		if m := received.FindStringSubmatch(line); m != nil {
			size, _ := strconv.Atoi(m[1])
			if c.read += size; locked {
				c.locked += size
			}
		}
	}
	return c
}

// Many pods come and go at once, beside many others. None fails. What a pod reads does not grow with the others, and under the lock that all
// share it reads acknowledgements alone. Only the first pod starts iptables.
func TestManyPodsWithHostAccessAtOnce(t *testing.T) {
	const others, atOnce = 500, 300
	n := newAccessNode(t)
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		t.Fatal(err)
	}
	keys := fmt.Sprintf(`, "ipam": {"type": "relink-ipam", "dataDir": %q, "ranges": [[{"subnet": "10.9.0.0/16"}], [{"subnet": "fd00:9::/64"}]], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]},
		"hostAccess": {"masquerade": true}`, filepath.Join(n.Dir, "leases"))
	newPod := func(id string) *accessPod {
		p := &accessPod{n, id, fresh.Sandbox(t), keys, ""}
		if err := fresh.In(p.netns, func() {
			_ = os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0)
			_ = os.WriteFile("/proc/sys/net/ipv6/conf/all/accept_dad", []byte("0"), 0)
		}); err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := newPod("first")
	first.traced(t, "ADD") // It makes the rules of iptables.
	probe := newPod("probe")
	alone := map[string]cost{"ADD": probe.traced(t, "ADD"), "DEL": probe.traced(t, "DEL")}
	n.others(t, others)
	for _, command := range []string{"ADD", "DEL"} {
		c := probe.traced(t, command)
		t.Logf("%s: %+v alone, %+v beside %d pods", command, alone[command], c, others)
		const firstAnswers = 16 << 10 // The kernel fills an answer with routes.
		if c.read > alone[command].read+firstAnswers || c.locked > 4<<10 || c.programs > 1 {
			t.Errorf("%s costs %+v beside %d pods, and %+v beside none", command, c, others, alone[command])
		}
	}
	var pods []*accessPod
	for i := range atOnce {
		pods = append(pods, newPod(fmt.Sprintf("c%d", i)))
	}
	for _, command := range []string{"ADD", "DEL"} {
		if failures := crowd(t, command, pods); len(failures) > 0 {
			t.Errorf("%d of %d fail at once: %s", len(failures), atOnce, failures[0])
		}
		found := testnode.AccessLeft(t)
		if want := others + 1 + map[string]int{"ADD": atOnce}[command]; found["pairs"] != want || found["IPv4-routes"] != want || found["IPv6-routes"] != want {
			t.Errorf("after %s there are %v, want %d", command, found, want)
		}
	}
	fresh.Remove(t, "/run/netns/others")
	for deadline := time.Now().Add(30 * time.Second); testnode.AccessLeft(t)["pairs"] > 1 && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond) // The kernel takes its time.
	}
	first.traced(t, "DEL")
	n.expectClean(t, "after all", first.netns)
}
