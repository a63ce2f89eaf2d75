package crash

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/test/fresh"
)

// twoUplinks adds the uplink lan2 to the node, and a bridge that joins it with lan0 and has the pods' gateway.
func twoUplinks(t *testing.T) {
	t.Helper()
	fresh.Run(t, "", `printf '%s\n' 'link add lan2 up type veth peer name lan3' 'link add name wire0 type bridge' \
		'link set lan1 master wire0' 'link set lan3 up master wire0' 'link set wire0 up' 'addr add 10.9.0.1/24 dev wire0' \
		'addr add fd00:9::1/64 dev wire0 nodad' | ip -batch -`)
	t.Cleanup(func() { fresh.Run(t, "", "ip link del lan2; ip link del wire0") })
}

// A move is killed at each of its steps. The next run finishes: a move in one half of the rounds, a restore in the
// other. Where the kernel renames an interface that is up, the pod reaches its gateway at every moment.
func TestMoveKilledAtEveryStep(t *testing.T) {
	eachWay(t, func(t *testing.T, n *node) {
		twoUplinks(t)
		netns := fresh.Sandbox(t)
		fresh.Run(t, netns, "echo 0 | tee /proc/sys/net/ipv6/conf/*/accept_dad")
		p := &pod{node: n, id: "c0", ifName: "eth0", netns: netns, ipam: fmt.Sprintf(both, n.leases(), 0)}
		must(t, p.add())
		before, round := append(state(t, netns), settings(t, netns)...), 0
		operation{
			prepare: func(*testing.T) *exec.Cmd { return n.command("move --wait 2s --no-probe lan0=lan2") },
			after: func(t *testing.T) {
				if n.env == nil {
					fresh.Run(t, netns, "ping -q -c 1 -W 2 10.9.0.1")
				}
				if round++; round%2 == 0 {
					n.says(t, 0, "restore --wait 5s")
				} else {
					_ = finish(n.command("move --wait 2s lan0=lan2 -q")) // Nothing may be left to move.
				}
				n.says(t, 0, "check")
				fresh.Run(t, netns, "ping -q -c 1 -W 2 10.9.0.1; ping -q -c 1 -W 2 fd00:9::1")
				_ = finish(n.command("move --wait 2s lan2=lan0"))
				n.says(t, 0, "check", "1 attachment as recorded")
				if diff := cmp.Diff(before, append(state(t, netns), settings(t, netns)...)); diff != "" {
					t.Errorf("not as before:\n%s", diff)
				}
				if got := links(t, ""); slices.ContainsFunc(got, func(name string) bool { return strings.HasPrefix(name, "rlnk") }) {
					t.Errorf("the host has %v", got)
				}
			},
		}.killAtEveryStep(t)
	})
}

// A move is killed at each of its steps beside a running agent. The agent finishes it by itself: the pod has its interface on
// one of the two uplinks, with the addresses and the routes, and the checkpoint has the interface's name.
func TestAgentFinishesAKilledMove(t *testing.T) {
	n := &agentNode{node: newNode(t)}
	twoUplinks(t)
	n.addPod(t)
	p := n.pods[0]
	n.start(t)
	t.Cleanup(func() { _ = n.cmd.Process.Kill(); _ = n.cmd.Wait() })
	n.listens(t)
	index := regexp.MustCompile(`(?m)^[0-9]+: `)
	state := func(text string) string { return index.ReplaceAllString(text, "") }
	whole := func(t *testing.T) {
		n.eventually(t, func() string {
			if in := links(t, p.netns); !slices.Equal(in, []string{"eth0", "lo"}) {
				return fmt.Sprintf("the pod has the interfaces %v", in)
			}
			if now := state(p.now(t)); now != state(p.state) {
				return fmt.Sprintf("the pod has\n%s\nand not\n%s", now, p.state)
			}
			if r, err := n.store.Load(p.id, "eth0"); err != nil || r.Interface.Link.Name != "eth0" {
				return fmt.Sprintf("the checkpoint has %q: %v", r.Interface.Link.Name, err)
			}
			if notes, err := n.store.Moves(); err != nil || slices.ContainsFunc(notes, func(m checkpoint.Move) bool { return m.State != checkpoint.MoveDone }) {
				return fmt.Sprintf("the notes are %+v: %v", notes, err)
			}
			return ""
		})
		n.checks(t)
	}
	operation{
		prepare: func(*testing.T) *exec.Cmd { return n.command("move --wait 2s --no-probe lan0=lan2") },
		after: func(t *testing.T) {
			whole(t)
			_ = finish(n.command("move --wait 2s --no-probe lan2=lan0"))
			whole(t)
		},
	}.killAtEveryStep(t)
}
