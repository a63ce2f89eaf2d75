package guard

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/test/fresh"
	"github.com/relink-cni/relink/test/traffic"
)

// newHostWithSpare returns a host with a second uplink, lan2, beside lan0.
func newHostWithSpare(t *testing.T) *host {
	t.Helper()
	h := newHost(t, "active")
	if h == nil {
		return nil
	}
	fresh.Run(t, h.netns, "ip link add lan2 type veth peer name lan3; ip link set lan3 master br0 up; ip link set lan2 up")
	h.runAgent(t)
	return h
}

// isOn fails the test unless the pod's interface is on the device and works, with nothing left beside it.
func (h *host) isOn(t *testing.T, device string) {
	t.Helper()
	if out, _ := h.status(t, h.relink("list")); !strings.Contains(out, " "+device+" ") || !strings.Contains(out, "as recorded") {
		t.Errorf("it is not on %s as recorded:\n%s", device, out)
	}
	if left := fresh.Run(t, h.pod, "ip -o link show | grep -v -e ' lo:' -e ' eth0@' || true"); left != "" {
		t.Errorf("left over: %s", left)
	}
	h.whole(t, "active")
}

// goHome moves the pod back by hand.
func (h *host) goHome(t *testing.T) {
	t.Helper()
	if out, status := h.status(t, h.relink("move", "lan2=lan0")); status != 0 {
		t.Errorf("move: %d\n%s", status, out)
	}
	h.isOn(t, "lan0")
}

// A pod that is pinged every 5 ms, and has a TCP stream open, does not notice the upgrade, although the NIC has no carrier at first. The
// kubelet goes on.
func TestViaNobodyNotices(t *testing.T) {
	h := newHostWithSpare(t)
	if h == nil {
		return
	}
	const interval = 5 * time.Millisecond
	pings, err := traffic.StartPings(h.netns, []netip.Addr{netip.MustParseAddr("10.3.0.5")}, interval)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pings.Stop)
	streams, err := traffic.StartStreams(h.netns, netip.MustParseAddr("10.3.0.1"), []string{h.pod}, 4*interval)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(streams.Stop)
	start := time.Now()
	const carrier = `ip link set lan1 down; systemd-run --on-active=500ms --timer-property=AccuracySec=1ms ip link set lan1 up`
	out := h.guard(t, 0, bin+`/relink list >"$UNITS/seen"; `+reload+"; "+carrier, "--via", "lan2", "--wait", "20s") // A timer can be late.
	contains(t, out, "pods of lan0: meanwhile on lan2\n",
		"the kubelet goes on: no pod is cut off", "moved 1 attachment from lan0 to lan2 in ",
		"restored or repaired 0 attachments", "moved 1 attachment from lan2 to lan0 in ", "gateways that answer: 1 of 1", "relink-agent goes on", "everything is back")
	contains(t, h.read("units/seen"), " lan2 ")
	h.isOn(t, "lan0")
	time.Sleep(200 * time.Millisecond) // The newest answers are still on their way.
	gaps, err := pings.Since(start)
	if err != nil {
		t.Fatal(err)
	}
	if most := 50 * time.Millisecond; gaps.Sent < 100 || gaps.Longest() > most+gaps.Late {
		t.Errorf("%d of %d pings lost, the longest gap %s", gaps.Lost, gaps.Sent, gaps.Longest())
	}
	if _, err := streams.Since(start); err != nil {
		t.Errorf("the stream: %v", err)
	}
	if log := h.read("units/log"); strings.Contains(log, "kubelet") {
		t.Errorf("the units:\n%s", log)
	}
}

// If something is wrong with the old device, the pods stay on the other one. They work there, and the report says how
// to move them back.
func TestViaThePodsStay(t *testing.T) {
	h := newHostWithSpare(t)
	if h == nil {
		return
	}
	for line, want := range map[string]string{
		reload + "; exit 3":        "shop/web-0 eth0: on lan2, and not moved back: the command has ended with exit status 3: later type relink move lan2=lan0 POD",
		reload + "; kill -TERM $$": "shop/web-0 eth0: on lan2, and not moved back: the command has ended with exit status 143: later type relink move lan2=lan0 POD",
		reload + "; sleep 1000":    "shop/web-0 eth0: on lan2, and not moved back: the command has passed its limit: later type relink move lan2=lan0 POD",
		"ip link del lan0":         "shop/web-0 eth0: on lan2, and not moved back: lan0 (veth) is not there: later type relink move lan2=lan0 POD",
		"ip link set lan1 down":    "shop/web-0 eth0: on lan2, and not moved back: lan0: no carrier: later type relink move lan2=lan0 POD",
	} {
		out := h.guard(t, 123, line, "--via", "lan2", "--limit", reloads, "--wait", "300ms")
		contains(t, out, "NOT BACK: "+want, "gateways that answer: 1 of 1", "not all is back: see above, and relink status\n")
		h.isOn(t, "lan2")
		fresh.Run(t, h.netns, "ip link show lan0 >/dev/null 2>&1 || ip link add lan0 type veth peer name lan1; ip link set lan1 master br0 up; ip link set lan0 up")
		h.goHome(t)
	}
}

// The kubelet runs on, so pods are deleted while others are moved there and back. That is no failure: the command runs.
func TestViaPodsAreDeletedMeanwhile(t *testing.T) {
	h := newHostWithSpare(t)
	if h == nil {
		return
	}
	store := checkpoint.OpenStore(filepath.Join(h.dir, "checkpoints"))
	paths := map[string]string{}
	for _, id := range []string{"c2", "c3", "c4"} {
		paths[id] = filepath.Join(h.dir, id)
		fresh.At(t, paths[id])
		h.cni(t, "ADD", id, paths[id], id)
	}
	for _, switched := range []string{"switched#1", "switched#4"} { // Of the second guard, the first one of the way back.
		pause := filepath.Join(t.TempDir(), "pause")
		cmd := h.relink(h.guardArgs(reload+`; echo >>"$UNITS/ran"`, "--via", "lan2")...)
		cmd.Env = append(slices.Clone(h.env), "RELINK_FAILPOINT_PAUSE="+switched, "RELINK_FAILPOINT_PAUSE_FILE="+pause, "RELINK_FAILPOINT_ALL_PROCESSES=1")
		deleted := ""
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if out, status := h.status(t, cmd); status != 0 {
				t.Errorf("%s: guard: %d\n%s", switched, status, out)
			}
		}()
		eventually(t, "a pod has switched, and another one is still at it", func() bool {
			if _, err := os.Stat(pause); err != nil {
				return false
			}
			for id := range paths {
				if m, err := store.LoadMove(attachment.Key{ContainerID: id, IfName: "eth0"}); err == nil && m.State == checkpoint.MoveSwitched {
					deleted = id
				}
			}
			return deleted != ""
		})
		h.cni(t, "DEL", deleted, paths[deleted], deleted)
		fresh.Remove(t, paths[deleted])
		delete(paths, deleted)
		if err := os.Remove(pause); err != nil {
			t.Fatal(err)
		}
		<-ended
		h.isOn(t, "lan0")
	}
	if ran := h.read("units/ran"); ran != "\n\n" {
		t.Errorf("the command has run %d times", len(ran))
	}
}

// The guard reports a pod that cannot be moved before it touches anything. With --force, that pod is cut off and
// restored.
func TestViaWhatCannotBeMoved(t *testing.T) {
	h := newHostWithSpare(t)
	if h == nil {
		return
	}
	for flag, want := range map[string]string{
		"lan9":      "the command was not run: --via lan0=lan9: lan9 is not there: name a device of this host",
		"lan2=lan0": "the command was not run: --via lan2=lan0: no attachment is on lan2",
		"lan0":      "invalid --via lan0: no pod is on another device: leave --via out",
		"a/b":       `invalid --via "a/b": device "a/b" `,
		"lan0=":     `invalid --via "lan0=": device "" `,
	} {
		contains(t, h.guard(t, 125, "true", "--via", flag), want)
	}
	// lan2 leads to another network. Only the gateways show that.
	fresh.Run(t, h.netns, "ip link set lan3 nomaster; echo 1 >/proc/sys/net/ipv4/conf/lan3/arp_ignore")
	contains(t, h.guard(t, 125, "true", "--via", "lan2", "--wait", "0s"),
		"not everything can be moved: shop/web-0 eth0: its gateway 10.3.0.1 does not answer on lan2: look whether the switch's port carries the VLAN")
	h.isOn(t, "lan0")
	fresh.Run(t, h.netns, "ip link set lan3 master br0")
	// A pod does not move if a macvlan of its own would stay behind.
	fresh.Run(t, h.pod, "ip link add link eth0 name vrrp.1 type macvlan")
	const behind = "shop/web-0 eth0: vrrp.1 of the pod is on lan0 too and has no checkpoint: it would stay behind"
	contains(t, h.guard(t, 125, "true", "--via", "lan2"), "the command was not run: --via lan0=lan2: not everything can be moved: "+behind, "--force goes on all the same")
	if log := h.read("units/log"); strings.Contains(log, "kubelet") {
		t.Errorf("the units:\n%s", log)
	}
	contains(t, h.guard(t, 0, reload, "--via", "lan2", "--force"), "note: not everything can be moved: "+behind,
		"kubelet.service is stopped", "restored or repaired 1 attachment", "kubelet.service is started", "everything is back")
	h.isOn(t, "lan0")
}

// A guard is killed at each step. The interface is then on one of the two uplinks, and a resume finishes the work.
func TestViaKilledAtEachStep(t *testing.T) {
	h := newHostWithSpare(t)
	if h == nil {
		return
	}
	trace := filepath.Join(h.dir, "trace")
	cmd := h.relink(h.guardArgs(reload, "--via", "lan2")...)
	cmd.Env = append(slices.Clone(h.env), "RELINK_FAILPOINT_TRACE="+trace)
	if out, status := h.status(t, cmd); status != 0 {
		t.Fatalf("undisturbed: %d\n%s", status, out)
	}
	// Besides the steps, there are two more points: after the switch there, and after the switch back.
	var points []string
	count := map[string]int{}
	ran := 0
	for line := range strings.Lines(h.read("trace")) {
		point := strings.TrimSpace(line)
		if point == "guard: run the command" {
			ran = len(points)
		}
		if count[point]++; strings.HasPrefix(point, "guard: ") {
			points = append(points, point+"#1")
		} else if point == "switched" {
			points = append(points, point+"#"+string(rune('0'+count[point])))
		}
	}
	if len(points) != 16 {
		t.Fatalf("the points: %q", points)
	}
	for i, point := range points {
		t.Run(point, func(t *testing.T) {
			cmd := h.relink(h.guardArgs(reload, "--via", "lan2")...)
			cmd.Env = append(slices.Clone(h.env), "RELINK_FAILPOINT="+point)
			if out, _ := h.status(t, cmd); !cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
				t.Fatalf("it is not killed\n%s", out)
			}
			fresh.Run(t, h.pod, "ping -q -c 1 -W 3 10.3.0.1") // It is on one of the two.
			want := 125
			if i > ran {
				want = 0
			}
			if out, status := h.status(t, h.relink("guard", "--resume")); status != want {
				t.Errorf("resume: %d, want %d\n%s", status, want, out)
			}
			h.isOn(t, "lan0")
		})
	}
}

// The next agent finishes what a killed move has left.
func TestTheAgentFinishesAKilledMove(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	fresh.Run(t, h.netns, "ip link add lan2 type veth peer name lan3; ip link set lan3 master br0 up; ip link set lan2 up")
	cmd := h.relink("move", "lan0=lan2")
	cmd.Env = append(slices.Clone(h.env), "RELINK_FAILPOINT=switched#1")
	if out, _ := h.status(t, cmd); !cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
		t.Fatalf("it is not killed\n%s", out)
	}
	if left := fresh.Run(t, h.pod, "ip -o link show | grep -c macvlan || ip -o link show"); strings.TrimSpace(left) == "1" {
		t.Fatalf("nothing is left of the move")
	}
	agent := exec.Command(filepath.Join(bin, "relink-agent"))
	agent.Env = h.env
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent sees the pod on lan2", func() bool {
		out, _ := h.status(t, h.relink("status"))
		_, after, _ := strings.Cut(out, "AGENT\n")
		return strings.Contains(after, ": 1 base whole")
	})
	h.isOn(t, "lan2")
	_ = agent.Process.Signal(syscall.SIGTERM)
	_ = agent.Wait()
}
