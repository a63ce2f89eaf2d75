package crash

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/test/fresh"
)

// ipv4 and both give addresses, and routes that no other interface of the sandbox has.
const (
	ipv4 = `{"type": "host-local", "dataDir": %[1]q, "ranges": [[{"subnet": "10.9.%[2]d.0/24"}]], "routes": [{"dst": "10.10%[2]d.0.0/16"}]}`
	both = `{"type": "host-local", "dataDir": %[1]q, "ranges": [[{"subnet": "10.9.%[2]d.0/24"}], [{"subnet": "fd00:9:%[2]d::/64"}]],
		"routes": [{"dst": "10.10%[2]d.0.0/16"}, {"dst": "fd00:10%[2]d::/32"}]}`
)

// wholeNode is a node with sandboxes of two interfaces each, and their recorded state.
type wholeNode struct {
	*node
	pods   []*pod
	before map[string][]string
}

func newWholeNode(t *testing.T, n *node) *wholeNode {
	w := &wholeNode{node: n, before: map[string][]string{}}
	for i, ipam := range []string{both, ipv4, ipv4} {
		netns := fresh.Sandbox(t)
		// Without duplicate address detection, an ADD takes a second less.
		fresh.Run(t, netns, "echo 0 | tee /proc/sys/net/ipv6/conf/*/accept_dad")
		for j, ifName := range []string{"eth0", "net1"} {
			p := &pod{
				node: n, id: fmt.Sprintf("c%d", i), ifName: ifName, netns: netns, chained: i == 2,
				ipam: fmt.Sprintf(ipam, n.leases(), j),
			}
			must(t, p.add())
			w.pods = append(w.pods, p)
		}
		w.before[netns] = w.state(t, netns)
	}
	// Refresh now, so that a later refresh changes nothing. An ADD also remembers settings that it checked and that are
	// the default.
	w.says(t, 0, "capture --refresh")
	return w
}

// state returns the state of the sandbox at that path.
func (w *wholeNode) state(t *testing.T, netns string) []string {
	t.Helper()
	return append(state(t, netns), settings(t, netns)...)
}

// asBefore expects that all sandboxes are in their first state.
func (w *wholeNode) asBefore(t *testing.T) {
	t.Helper()
	for netns, before := range w.before {
		if diff := cmp.Diff(before, w.state(t, netns)); diff != "" {
			t.Errorf("%s is not as before:\n%s", netns, diff)
		}
	}
}

// whole expects that everything is as before, for restore, for check and in the kernel.
func (w *wholeNode) whole(t *testing.T) {
	t.Helper()
	w.says(t, 0, "restore --wait 5s")
	w.says(t, 0, "restore --wait 5s", fmt.Sprintf("%d as recorded", len(w.pods)))
	w.says(t, 0, "check")
	w.asBefore(t)
	w.nothingTemporary(t)
}

// The next restore finishes a killed one. No capture remembers what the kill left half-built.
func TestRestoreKilledAtEveryStep(t *testing.T) {
	eachWay(t, func(t *testing.T, n *node) {
		restoreKilledAtEveryStep(t, n, func(t *testing.T, _ *wholeNode) { loseParent(t) }, "capture --refresh")
	})
}

func TestRepairKilledAtEveryStep(t *testing.T) {
	eachWay(t, func(t *testing.T, n *node) {
		restoreKilledAtEveryStep(t, n, func(t *testing.T, w *wholeNode) {
			a, b, c := w.pods[0].netns, w.pods[2].netns, w.pods[4].netns
			fresh.Run(t, a, "ip link del eth0; ip link set net1 mtu 1400; ip addr flush dev net1 scope global")
			fresh.Run(t, b, "ip link set eth0 address 02:00:00:00:00:77; ip link set net1 down; ip route del 10.100.0.0/16")
			fresh.Run(t, c, "ip route del 10.100.0.0/16; ip link set net1 type macvlan mode private; ip addr flush dev net1 scope global")
		}, "list")
	})
}

// While a route is moved, another one stands in for it. No kill leaves the stand-in behind, and no capture remembers
// it.
func TestPuttingRoutesInOrderKilledAtEveryStep(t *testing.T) {
	w := newWholeNode(t, newNode(t))
	netns := w.pods[0].netns
	inOrder := func(first, second string) string {
		return `set -e; for device in ` + first + " " + second + `; do
			for i in $(seq 1 60); do echo "route append 10.50.$i.0/24 dev $device"; done | ip -batch -
			ip -6 route append fd00:50::/64 dev $device
		done`
	}
	fresh.Run(t, netns, inOrder("net1", "eth0"))
	w.before[netns] = w.state(t, netns)
	w.says(t, 0, "capture --refresh")
	operation{
		prepare: func(t *testing.T) *exec.Cmd {
			fresh.Run(t, netns, "ip route flush root 10.50.0.0/16; ip -6 route flush fd00:50::/64")
			fresh.Run(t, netns, inOrder("eth0", "net1"))
			return w.command("restore --wait 5s")
		},
		after: func(t *testing.T) {
			w.says(t, 0, "capture --refresh")
			if all := fresh.IP(t, netns, "route show") + fresh.IP(t, netns, "-6 route show"); strings.Contains(all, "metric 1 ") || strings.Contains(all, "metric 1025") {
				t.Errorf("a route still stands in:\n%s", all)
			}
			// The capture may have seen the routes half in order.
			fresh.Run(t, netns, "ip route flush root 10.50.0.0/16; ip -6 route flush fd00:50::/64")
			fresh.Run(t, netns, inOrder("net1", "eth0"))
			w.says(t, 0, "capture --refresh")
			w.whole(t)
		},
	}.killAtEveryStep(t)
}

// restoreKilledAtEveryStep runs relink with meanwhile between the kill and the next restore.
func restoreKilledAtEveryStep(t *testing.T, n *node, breakIt func(*testing.T, *wholeNode), meanwhile string) {
	w := newWholeNode(t, n)
	operation{
		prepare: func(t *testing.T) *exec.Cmd {
			breakIt(t, w)
			return w.command("restore --wait 5s")
		},
		after: func(t *testing.T) {
			_ = finish(w.command(meanwhile)) // It may refuse, because much is missing.
			w.whole(t)
		},
	}.killAtEveryStep(t)
}

// The host may have a device with the index that an interface had in its sandbox. Then an older kernel makes the
// interface in the host and moves it.
func TestRestoreThatMovesKilledAtEveryStep(t *testing.T) {
	n := newNode(t)
	n.env = []string{olderEnv + "=1"}
	restoreKilledAtEveryStep(t, n, func(t *testing.T, _ *wholeNode) {
		// The parent's peer has the pods' index, the first after lo's. The parent has another index each time.
		fresh.Run(t, "", "ip link del lan0; ip link add lan0 up type veth peer index 2 name lan1; ip link set lan1 up; "+
			"until ip link show lan0 | grep -q 'state UP'; do sleep 0.01; done")
	}, "capture --refresh")
}

// A DEL also finishes what a killed restore has begun.
func TestDelAfterARestoreKilledAtEveryStep(t *testing.T) {
	eachWay(t, delAfterARestoreKilledAtEveryStep)
}

func delAfterARestoreKilledAtEveryStep(t *testing.T, n *node) {
	eachPlugin(t, n, func(t *testing.T, newPod func(*testing.T) *pod) {
		var p *pod
		operation{
			prepare: func(t *testing.T) *exec.Cmd {
				p = newPod(t)
				must(t, p.add())
				loseParent(t)
				return p.command("restore --wait 5s")
			},
			after: func(t *testing.T) {
				must(t, p.del())
				p.says(t, 0, "restore") // It removes the killed restore's note, if there is one.
				p.gone(t)
			},
		}.killAtEveryStep(t)
	})
}

// A restore that records the parent's new name is killed. All checkpoints can still be read, whichever of the two names
// they have. The next restore finishes the work.
func TestRestoreOfARenamedParentKilledAtEveryStep(t *testing.T) {
	w := newWholeNode(t, newNode(t))
	was, is := "lan0", "lan9"
	operation{
		prepare: func(t *testing.T) *exec.Cmd {
			replaceParent(t, was, is)
			cmd := w.command("restore --wait 5s --parent " + was + "=" + is)
			was, is = is, was
			return cmd
		},
		after: func(t *testing.T) {
			records, unreadable, err := w.store.List()
			if err != nil || len(unreadable) > 0 || len(records) != len(w.pods) {
				t.Errorf("%d records, unreadable: %v %v", len(records), unreadable, err)
			}
			// was and is were exchanged above, so the device is now called was.
			w.says(t, 0, fmt.Sprintf("restore --wait 5s --parent %s=%s", is, was))
			w.says(t, 0, "restore --wait 5s", fmt.Sprintf("%d as recorded", len(w.pods)))
			w.says(t, 0, "check")
			w.asBefore(t)
			if left := w.temporary(t); len(left) > 0 {
				t.Errorf("temporary files are left: %v", left)
			}
		},
	}.killAtEveryStep(t)
	// The clean-up looks for lan0.
	if was != "lan0" {
		fresh.IP(t, "", "link set "+was+" down name lan0")
	}
}
