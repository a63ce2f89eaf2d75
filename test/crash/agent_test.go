package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

// agentNode is a node with a relink-agent that is killed and started again.
type agentNode struct {
	*node
	log  testnode.Log
	cmd  *exec.Cmd
	pods []*agentPod
	// made counts the pods.
	made int
}

// agentPod is a pod, and the state that it must have.
type agentPod struct {
	*pod
	state string
	// before are the states before each change since the last reload.
	before []string
	// away says that somebody has deleted the interface.
	away bool
}

func (n *agentNode) socket() string { return filepath.Join(n.dir, "agent.sock") }

func (n *agentNode) client() control.Client { return control.Client{Path: n.socket()} }

func (n *agentNode) start(t *testing.T) {
	t.Helper()
	n.cmd = exec.Command(filepath.Join(released, "relink-agent"), "--checkpoint-dir", n.store.Dir(), "--host-grace", "100ms", "--log-level", "debug")
	n.cmd.Env = append(os.Environ(), control.SocketEnv+"="+n.socket())
	n.cmd.Stderr = &n.log
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// kill kills the agent without a warning and starts it again after a while.
func (n *agentNode) kill(t *testing.T) {
	t.Helper()
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
	total.anywhere.Add(1)
	time.Sleep(rand.N(200 * time.Millisecond))
	n.start(t)
}

// eventually waits until f returns "". Otherwise it fails with what f has returned.
func (n *agentNode) eventually(t *testing.T, f func() string) {
	t.Helper()
	said := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if said = f(); said == "" {
			return
		}
	}
	log := n.log.String()
	t.Fatalf("%s\nThe end of the agent's log:\n%s", said, log[max(0, len(log)-8<<10):])
}

func (p *agentPod) now(t *testing.T) string {
	t.Helper()
	return fresh.Run(t, p.netns, "ip -o link show dev eth0 2>/dev/null | grep -o 'link/ether [0-9a-f:]*' || true; ip -o -4 addr show dev eth0 2>/dev/null || true; ip -4 route show dev eth0 2>/dev/null | sed 's/ linkdown//' || true")
}

func (n *agentNode) addPod(t *testing.T) {
	t.Helper()
	n.made++
	p := &agentPod{pod: n.newPod(t, fmt.Sprintf("pod%d", n.made), false)}
	if err := p.add(); err != nil {
		t.Fatal(err)
	}
	p.state = p.now(t)
	n.pods = append(n.pods, p)
}

// takePod removes a pod from the list.
func (n *agentNode) takePod() *agentPod {
	if len(n.pods) < 3 {
		return nil
	}
	i := rand.IntN(len(n.pods))
	p := n.pods[i]
	n.pods = append(n.pods[:i], n.pods[i+1:]...)
	return p
}

// knows says whether the agent's status has what f looks for.
func (n *agentNode) knows(t *testing.T, what string, f func(control.Status) bool) {
	t.Helper()
	n.eventually(t, func() string {
		s, err := n.client().Status(t.Context())
		if err != nil {
			return err.Error()
		}
		if !f(s) {
			return fmt.Sprintf("%s: %+v", what, s)
		}
		return ""
	})
}

// listens waits until the agent hears of each change, and has read all pods once that are on the wire: from then on it knows what somebody removes.
func (n *agentNode) listens(t *testing.T) {
	t.Helper()
	wired := 0
	for _, p := range n.pods {
		if !p.away {
			wired++
		}
	}
	n.eventually(t, func() string {
		out, err := exec.Command("curl", "-sf", "--unix-socket", n.socket(), "http://agent/readyz", "http://agent/metrics").CombinedOutput()
		if err != nil {
			return "the agent does not listen: " + string(out)
		}
		_, readings, _ := strings.Cut(string(out), `relink_checkpoint_readings_total{result="complete"} `)
		if value, _, _ := strings.Cut(readings, "\n"); value == "" || len(value) < 2 && int(value[0]-'0') < wired {
			return "the agent has read " + value + " pods"
		}
		return ""
	})
}

// change does something that happens to pods between two reloads.
func (n *agentNode) change(t *testing.T) {
	t.Helper()
	switch rand.IntN(6) {
	case 0:
		n.addPod(t)
	case 1: // The pod ends in order.
		if p := n.takePod(); p != nil {
			if err := p.del(); err != nil {
				t.Fatal(err)
			}
			fresh.Remove(t, p.netns)
		}
	case 2: // The pod ends without a DEL.
		if p := n.takePod(); p != nil {
			fresh.Remove(t, p.netns)
		}
	case 3: // Somebody adds a route, right before the loss.
		if p := n.pods[rand.IntN(len(n.pods))]; !p.away {
			n.listens(t)
			fresh.Run(t, p.netns, fmt.Sprintf("ip route replace 10.%d.0.0/16 dev eth0", 100+rand.IntN(100)))
			p.before, p.state = append(p.before, p.state), p.now(t)
		}
	case 4: // Somebody removes a route. The agent hears of that, if it lives.
		if p := n.pods[rand.IntN(len(n.pods))]; !p.away {
			n.listens(t)
			for _, step := range []string{
				"ip route replace 10.99.0.0/16 dev eth0", // What goes before the pod is read after a restore counts as lost.
				"ip route del 10.99.0.0/16 dev eth0; ip route show dev eth0 | grep '^10.1' | head -1 | while read to rest; do ip route del $to dev eth0; done || true",
			} {
				fresh.Run(t, p.netns, step)
				p.state = p.now(t)
				n.eventually(t, func() string {
					r, err := n.store.Load(p.id, "eth0")
					if err != nil {
						return err.Error()
					}
					if !shows(p.state, r.Interface.Routes) {
						return fmt.Sprintf("%s has routes\n%s\nand its checkpoint %v", p.id, p.state, r.Interface.Routes)
					}
					return ""
				})
			}
			p.before = nil
		}
	case 5: // Somebody takes a pod off the wire.
		if p := n.pods[rand.IntN(len(n.pods))]; !p.away && len(n.pods) > 3 {
			fresh.Run(t, p.netns, "ip link del eth0")
			p.away, p.state, p.before = true, "", nil
			n.eventually(t, func() string {
				b, _ := os.ReadFile(filepath.Join(n.store.Dir(), ".agent", "drift.json"))
				if !strings.Contains(string(b), `"`+p.id+`"`) {
					return p.id + " is off the wire, and the agent has not noted it"
				}
				return ""
			})
		}
	}
}

// forgotten returns the state that the pod had before changes of which a killed agent has written nothing. Its checkpoint tells.
func (n *agentNode) forgotten(p *agentPod) string {
	r, err := n.store.Load(p.id, "eth0")
	for _, state := range p.before {
		if err == nil && shows(state, r.Interface.Routes) {
			return state
		}
	}
	return p.state
}

// shows says whether a state has these routes, the kernel's own one, and no others.
func shows(state string, routes []netstate.Route) bool {
	for _, r := range routes {
		if !strings.Contains(state, "\n"+r.Destination.String()+" ") {
			return false
		}
	}
	return strings.Count(state, "\n10.") == len(routes)+1
}

// flat returns the agent's open descriptors and its own memory in KiB.
func (n *agentNode) flat(t *testing.T) (descriptors, memory int) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", n.cmd.Process.Pid)
	fds, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			memory, _ = strconv.Atoi(strings.Fields(value)[0])
		}
	}
	return len(fds), memory
}

// checks waits until relink check says that everything is as recorded and announced.
func (n *agentNode) checks(t *testing.T) {
	t.Helper()
	n.eventually(t, func() string {
		if out, err := output(n.command("check")); err != nil {
			return fmt.Sprintf("relink check: %v\n%s", err, out)
		}
		return ""
	})
}

// A kill of relink restore, or a full disk during the agent's restore, leaves open what was announced. A moment later,
// the agent has announced it, and relink check agrees.
func TestAgentAnnouncesWhatARestoreLeft(t *testing.T) {
	d := newDisk(t)
	n := &agentNode{node: d.node}
	n.addPod(t)
	n.addPod(t)
	n.start(t)
	t.Cleanup(func() { _ = n.cmd.Process.Kill(); _ = n.cmd.Wait() })
	n.listens(t)
	_ = n.cmd.Process.Signal(syscall.SIGSTOP) // A paused agent would still announce.
	fresh.IP(t, "", "link del lan0")
	makeParent(t)
	cmd := n.command("restore")
	cmd.Env = append(cmd.Environ(), killEnv+"=before saving#1") // An interface is built, and no record says so.
	if out, err := output(cmd); err == nil {
		t.Fatalf("not killed:\n%s", out)
	}
	if out, err := output(n.command("check")); err == nil || !strings.Contains(err.Error(), "announced yet") {
		t.Errorf("relink check does not say what a restore that was killed has left: %v\n%s", err, out)
	}
	_ = n.cmd.Process.Signal(syscall.SIGCONT)
	n.checks(t)
	fresh.IP(t, "", "link del lan0")
	n.knows(t, "it is lost", func(s control.Status) bool { return len(s.Chains) > 0 && s.Chains[0].Lost == 2 })
	d.fill(t)
	makeParent(t)
	n.eventually(t, func() string {
		if !strings.Contains(n.log.String(), "a restore failed") {
			return "the agent has not tried to restore on the full disk"
		}
		return ""
	})
	d.empty(t)
	n.checks(t)
	n.knows(t, "nothing is owed", func(s control.Status) bool { return s.Unannounced == 0 && s.Chains[0].Lost == 0 })
}

// The parent goes and comes back many times, with random pauses. During that time pods come and go, somebody changes
// their interfaces, and the agent is killed. Each time, every living pod is whole, no dead pod comes back, and the
// agent undoes no change.
func TestAgentThroughReloads(t *testing.T) {
	n := &agentNode{node: newNode(t)}
	for range 5 {
		n.addPod(t)
	}
	n.start(t)
	t.Cleanup(func() { _ = n.cmd.Process.Kill(); _ = n.cmd.Wait() })
	reloads := times(4)
	var descriptors, memory int
	for i := range reloads {
		for range rand.IntN(3) {
			n.change(t)
		}
		time.Sleep(rand.N(100 * time.Millisecond))
		fresh.IP(t, "", "link del lan0")
		killed := rand.IntN(4) == 0
		if killed {
			n.kill(t)
		}
		time.Sleep(rand.N(300 * time.Millisecond))
		makeParent(t)
		if rand.IntN(4) == 0 {
			time.Sleep(rand.N(50 * time.Millisecond))
			n.kill(t)
			killed = true
		}
		for _, p := range n.pods {
			n.eventually(t, func() string {
				if killed { // It needs some milliseconds to write what changed right before the loss.
					p.state = n.forgotten(p)
				}
				if now := p.now(t); now != p.state {
					return fmt.Sprintf("reload %d: %s is\n%s\nand was\n%s", i+1, p.id, now, p.state)
				}
				return ""
			})
			p.before = nil
		}
		n.knows(t, "nothing is lost", func(s control.Status) bool { return len(s.Chains) > 0 && s.Chains[0].Lost == 0 })
	}
	for i := range 20 {
		if i == 10 {
			descriptors, memory = n.flat(t)
		}
		fresh.IP(t, "", "link del lan0")
		makeParent(t)
		n.knows(t, "nothing is lost", func(s control.Status) bool { return len(s.Chains) > 0 && s.Chains[0].Lost == 0 })
	}
	// An announcement that goes on has descriptors of its own. What leaked stays.
	n.eventually(t, func() string {
		if d, m := n.flat(t); d > descriptors+2 || m > memory+4<<10 {
			return fmt.Sprintf("after 10 more reloads: %d descriptors, before %d; %d KiB of memory, before %d KiB", d, descriptors, m, memory)
		}
		return ""
	})
}
