package crash

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/test/fresh"
	testnode "github.com/relink-cni/relink/test/node"
)

// withAccess asks for host access with everything that it can have. Its path has all parts then: a pair, routes, rules, and
// chains of iptables in the pod and in the host.
const withAccess = `, "hostAccess": {"preserveSource": true, "masquerade": true, "services": ["10.96.0.0/12", "fd00:96::/112"],
	"extra": ["169.254.20.10"]}`

// addAccess is the same for a pod that runs. removeAccess takes it away.
const (
	addAccess    = "host-access add --preserve-source --masquerade --services 10.96.0.0/12,fd00:96::/112 --extra 169.254.20.10 default/c1"
	removeAccess = "host-access remove default/c1"
)

// accessNode is a node whose host has no address, so that the pods need its stand-ins. Those are one more thing to be left behind.
type accessNode struct{ *node }

func newAccessNode(t *testing.T) *accessNode {
	t.Helper()
	n := &accessNode{newNode(t)}
	fresh.IP(t, "", "link set lo up")
	return n
}

// newPod is a pod of both families. Without duplicate address detection, an ADD takes a second less.
func (n *accessNode) newPod(t *testing.T) *pod {
	t.Helper()
	p := n.node.newPod(t, "c1", false)
	p.quick(t)
	p.ipam = fmt.Sprintf(both, n.leases(), 0)
	return p
}

func (p *pod) quick(t *testing.T) {
	t.Helper()
	fresh.Run(t, p.netns, "echo 0 | tee /proc/sys/net/ipv6/conf/*/accept_dad")
}

// call runs relink-macvlan with these keys.
func (p *pod) call(t *testing.T, command, keys string) {
	t.Helper()
	_, err := output(p.plugin("relink-macvlan", command, keys))
	must(t, err)
}

// leftovers are what the host has of host access, and the checkpoints in the store.
func (n *accessNode) leftovers(t *testing.T) map[string]int {
	t.Helper()
	found := testnode.AccessLeft(t)
	records, unreadable, err := n.store.List()
	must(t, err)
	if count := len(records) + len(unreadable); count > 0 {
		found["checkpoints"] = count
	}
	return found
}

// left expects exactly these leftovers.
func (n *accessNode) left(t *testing.T, when string, want map[string]int) {
	t.Helper()
	if diff := cmp.Diff(want, n.leftovers(t)); diff != "" {
		t.Errorf("%s, the host does not have what it should (-want +got):\n%s", when, diff)
	}
}

// sequel is what comes after a kill.
type sequel struct {
	name string
	// follow does it, with the keys of the network's configuration. It returns whether the pod lives on.
	follow func(t *testing.T, n *accessNode, p *pod, keys string) (lives bool)
}

// endings end the pod: by a DEL, and by a runtime that forgets the DEL and calls GC. Nothing is left of it in the host.
var endings = []sequel{
	{"DEL", func(t *testing.T, n *accessNode, p *pod, keys string) bool {
		p.call(t, "DEL", keys)
		if diff := cmp.Diff(map[string]int{}, testnode.AccessLeftByDEL(t)); diff != "" {
			t.Errorf("after DEL, the host does not have what it should (-want +got):\n%s", diff)
		}
		p.call(t, "GC", keys+`, "cni.dev/valid-attachments": []`)
		n.left(t, "after DEL and GC", map[string]int{})
		return false
	}},
	{"no DEL, then GC", func(t *testing.T, n *accessNode, p *pod, keys string) bool {
		p.loseSandbox(t)
		// The kernel deletes the pair a moment later. Until then, GC takes it for that of a pod that lives.
		await(t, "the pair is gone", func() bool {
			return !slices.ContainsFunc(links(t, ""), func(name string) bool { return strings.HasPrefix(name, "rl") })
		})
		p.call(t, "GC", keys+`, "cni.dev/valid-attachments": []`)
		n.left(t, "after the sandbox's end and GC", map[string]int{})
		must(t, os.RemoveAll(p.leases())) // This version of host-local knows no GC.
		return false
	}},
}

// again is a runtime that tries again in the same sandbox.
var again = sequel{"DEL and ADD", func(t *testing.T, n *accessNode, p *pod, keys string) bool {
	p.call(t, "DEL", keys)
	p.call(t, "ADD", keys)
	n.works(t)
	return endings[0].follow(t, n, p, keys)
}}

// command is an operator who repeats what was killed.
func command(args string, check func(*testing.T, *accessNode)) sequel {
	return sequel{args, func(t *testing.T, n *accessNode, _ *pod, _ string) bool {
		n.says(t, 0, args)
		check(t, n)
		return true
	}}
}

// works expects that everything is as recorded, and that node and pod reach each other.
func (n *accessNode) works(t *testing.T) {
	t.Helper()
	n.says(t, 0, "check", "1 attachment as recorded, 0 not")
	n.says(t, 0, "host-access show", "1 pod with host access, 0 with a problem")
}

// victim is an operation on a pod, which is killed.
type victim struct {
	// begin does what comes before the operation, on a new pod. Then run returns the operation, on a pod that may have gone
	// through it before.
	begin func(t *testing.T, p *pod)
	run   func(t *testing.T, p *pod) *exec.Cmd
	// keys are those of the network's configuration. from is the first step that has to do with host access.
	keys, from string
	sequels    []sequel
}

// killedWithEachSequel kills the operation at every step. make test-long does that with each sequel. make test does it once, with
// a sequel by chance for each kill.
func (v victim) killedWithEachSequel(t *testing.T) {
	if os.Getenv("RELINK_LONG") == "" {
		v.killed(t, operation.killAtSomeStepsFrom)
		return
	}
	all := func(o operation, t *testing.T, _ string) { o.killAtEveryStep(t) }
	for _, s := range v.sequels {
		v.sequels = []sequel{s}
		t.Run(s.name, func(t *testing.T) { v.killed(t, all) })
	}
}

// killed has the kills done by kill. What is left of the last pod goes in the end.
func (v victim) killed(t *testing.T, kill func(operation, *testing.T, string)) {
	n, all := newAccessNode(t), t
	var p *pod
	kill(operation{
		prepare: func(t *testing.T) *exec.Cmd {
			if p == nil {
				p = n.newPod(all) // It may live longer than this kill's test.
				v.begin(t, p)
			}
			return v.run(t, p)
		},
		after: func(t *testing.T) {
			s := v.sequels[rand.IntN(len(v.sequels))]
			t.Logf("then %s", s.name)
			if !s.follow(t, n, p, v.keys) {
				p = nil
			}
		},
	}, t, v.from)
	if p != nil {
		endings[0].follow(t, n, p, v.keys)
	}
}

// killAtSomeStepsFrom is killAtEveryStep for make test. It leaves out the steps before the first one of that name: the tests of
// an operation without host access go through these.
func (o operation) killAtSomeStepsFrom(t *testing.T, first string) {
	t.Helper()
	passed, err := traced(t, o.prepare(t))
	if err != nil {
		t.Fatalf("undisturbed: %v", err)
	}
	o.after(t)
	from := slices.IndexFunc(passed, func(s step) bool { return s.name == first })
	if from < 0 {
		t.Fatalf("it does not pass %q: %v", first, passed)
	}
	chosen := few(passed[from:])
	kills := map[string]int{}
	for _, at := range chosen {
		t.Run(at.String(), func(t *testing.T) {
			if o.killed(t, at) {
				kills[at.name]++
			}
			o.after(t)
		})
	}
	logKills(t, kills, len(chosen))
}

// fewKills are the kills of an operation in make test.
const fewKills = 5

// ownSteps are those of package hostaccess.
var ownSteps = []string{"after pair", "before pair's end", "before host routes", "after host rules"}

// few returns the steps of package hostaccess, and some others by chance, each with another name. What a kill before a step
// leaves, a kill after the step before leaves, too.
func few(passed []step) []step {
	times := map[string][]int{}
	for _, s := range passed {
		times[s.name] = append(times[s.name], s.n)
	}
	chosen := map[step]bool{}
	for _, name := range ownSteps {
		if n := times[name]; len(n) > 0 {
			chosen[step{name, n[rand.IntN(len(n))]}] = true
			delete(times, name)
		}
	}
	for name, n := range times { // In an order by chance.
		what, before := strings.CutPrefix(name, "before ")
		if len(chosen) < fewKills && (!before || len(times["after "+what]) == 0) {
			chosen[step{name, n[rand.IntN(len(n))]}] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(passed), func(s step) bool { return !chosen[s] })
}

func nothing(*testing.T, *pod) {}

// attachedWith attaches the pod with these keys.
func attachedWith(keys string) func(*testing.T, *pod) {
	return func(t *testing.T, p *pod) { p.call(t, "ADD", keys) }
}

func TestAddWithHostAccessKilledAtEveryStep(t *testing.T) {
	victim{
		begin:   nothing,
		run:     func(_ *testing.T, p *pod) *exec.Cmd { return p.plugin("relink-macvlan", "ADD", withAccess) },
		keys:    withAccess,
		from:    "after create-pair",
		sequels: append(slices.Clip(endings), again),
	}.killedWithEachSequel(t)
}

// A repeated DEL has no checkpoint any more. What is left to do, it has to see in the host.
func TestDelWithHostAccessKilledAtEveryStep(t *testing.T) {
	for name, keys := range map[string]string{"everything": withAccess, "true": `, "hostAccess": true`} {
		t.Run(name, func(t *testing.T) {
			victim{
				begin:   attachedWith(keys),
				run:     func(_ *testing.T, p *pod) *exec.Cmd { return p.plugin("relink-macvlan", "DEL", keys) },
				keys:    keys,
				from:    "before forgetting",
				sequels: endings,
			}.killedWithEachSequel(t)
		})
	}
}

// breakages are what happens to the host access of a running pod.
var breakages = map[string]func(t *testing.T, p *pod){
	"the pair is deleted and the tables are flushed": func(t *testing.T, p *pod) {
		fresh.Run(t, p.netns, "ip link del host0; iptables -t mangle -F; ip6tables -t mangle -F; ip rule del priority 1140; ip -6 rule del priority 1140")
		fresh.Run(t, "", `ip rule del priority 1140; ip -6 rule del priority 1140; iptables -t nat -F; ip6tables -t nat -F
			ip address flush dev lo scope link; ip address del fd72:656c:696e:6b::1/128 dev lo`)
	},
	"the parent goes and comes back": func(t *testing.T, _ *pod) { loseParent(t) },
	"the pair is changed": func(t *testing.T, p *pod) {
		fresh.Run(t, p.netns, "ip link set host0 down mtu 1400 address 02:00:00:00:00:01; ip address flush dev host0; iptables -t mangle -D OUTPUT 1")
		fresh.Run(t, "", "ip link set $(ip -o link show type veth | grep -oE ' rlm?[0-9a-f]+@' | tr -d ' @' | head -n 1) down; ip rule del priority 1140")
	},
}

// The next restore finishes a killed one. Otherwise the pod ends, and nobody restores anything between. make test breaks more at
// once.
func TestRestoreOfHostAccessKilledAtEveryStep(t *testing.T) {
	finished := command("restore --wait 5s", func(t *testing.T, n *accessNode) {
		n.says(t, 0, "restore --wait 5s", "1 as recorded")
		n.works(t)
	})
	restored := func(t *testing.T, breaks ...string) {
		victim{
			begin: attachedWith(withAccess),
			run: func(t *testing.T, p *pod) *exec.Cmd {
				for _, name := range breaks {
					breakages[name](t, p)
				}
				return p.command("restore --wait 5s")
			},
			keys:    withAccess,
			from:    "after create-pair",
			sequels: append(slices.Clip(endings), finished, finished),
		}.killedWithEachSequel(t)
	}
	if os.Getenv("RELINK_LONG") == "" {
		restored(t, "the pair is deleted and the tables are flushed", "the parent goes and comes back")
		return
	}
	for name := range breakages {
		t.Run(name, func(t *testing.T) { restored(t, name) })
	}
}

// removed expects that nothing of host access is left, and that the pod is as its checkpoint says.
func removed(t *testing.T, n *accessNode) {
	t.Helper()
	n.left(t, "after remove", map[string]int{"checkpoints": 1})
	n.says(t, 0, "check", "1 attachment as recorded, 0 not")
}

// The network does not ask for host access. So a DEL and a GC learn of it from the host and the store alone.
func TestHostAccessAddKilledAtEveryStep(t *testing.T) {
	repeated := command(addAccess, func(t *testing.T, n *accessNode) {
		n.works(t)
		n.says(t, 0, removeAccess)
		removed(t, n)
	})
	victim{
		begin:   attachedWith(""),
		run:     func(_ *testing.T, p *pod) *exec.Cmd { return p.command(addAccess) },
		from:    "after create-pair",
		sequels: append(slices.Clip(endings), repeated, command(removeAccess, removed)),
	}.killedWithEachSequel(t)
}

func TestHostAccessRemoveKilledAtEveryStep(t *testing.T) {
	victim{
		begin: attachedWith(""),
		run: func(t *testing.T, p *pod) *exec.Cmd {
			p.says(t, 0, addAccess)
			return p.command(removeAccess)
		},
		from:    "locked",
		sequels: append(slices.Clip(endings), command(removeAccess, removed)),
	}.killedWithEachSequel(t)
}

// killer is a directory with programs that stand before iptables. After the n-th change of the tables, they kill relink.
// relink has no failpoint there: each change is a program of its own.
type killer struct{ dir string }

func newKiller(t *testing.T) killer {
	k := killer{t.TempDir()}
	for _, program := range []string{"iptables", "ip6tables"} {
		path, err := exec.LookPath(program + "-nft")
		must(t, err)
		script := fmt.Sprintf(`#!/bin/sh
in=$(cat)
echo "$in" | %[1]s-restore "$@" || exit
echo "%[3]s" $(echo "$in" | sed -n '1s/.//p;2p') >> %[2]s/changes
[ $(wc -l < %[2]s/changes) != "$RELINK_TEST_KILL_AFTER" ] || kill -9 $PPID
`, path, k.dir, program)
		must(t, os.Symlink(path, filepath.Join(k.dir, program+"-nft")))
		must(t, os.WriteFile(filepath.Join(k.dir, program+"-nft-restore"), []byte(script), 0o700))
	}
	return k
}

// before puts the killer before the real programs. 0 kills never.
func (k killer) before(t *testing.T, cmd *exec.Cmd, after int) *exec.Cmd {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(k.dir, "changes"), nil, 0o600))
	cmd.Env = append(cmd.Environ(), "PATH="+k.dir+":"+os.Getenv("PATH"), fmt.Sprintf("RELINK_TEST_KILL_AFTER=%d", after))
	return cmd
}

// changes are the tables that were changed until now, each with the first line for iptables-restore.
func (k killer) changes(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(k.dir, "changes"))
	must(t, err)
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

// killAfterChanges kills the program after changes of iptables: make test-long after each, make test after those of IPv4 in the
// host.
func (k killer) killAfterChanges(t *testing.T, o operation) {
	t.Helper()
	_, err := output(k.before(t, o.prepare(t), 0))
	must(t, err)
	changes := k.changes(t)
	o.after(t)
	kills := 0
	for i, change := range changes {
		if os.Getenv("RELINK_LONG") == "" && (!strings.HasPrefix(change, "iptables ") || !strings.Contains(change, ":RELINK-MASQUERADE")) {
			continue
		}
		t.Run(fmt.Sprintf("after %d %s", i+1, change), func(t *testing.T) {
			if _, err := output(k.before(t, o.prepare(t), i+1)); err == nil || !strings.Contains(err.Error(), "killed") {
				t.Errorf("not killed: %v", err)
			}
			kills++
			o.after(t)
		})
	}
	if kills == 0 {
		t.Errorf("no kill: %q", changes)
	}
	total.kills.Add(int64(kills))
}

func TestAddKilledBetweenChangesOfIptables(t *testing.T) {
	n, k := newAccessNode(t), newKiller(t)
	var p *pod
	k.killAfterChanges(t, operation{
		prepare: func(t *testing.T) *exec.Cmd {
			p = n.newPod(t)
			return p.plugin("relink-macvlan", "ADD", withAccess)
		},
		after: func(t *testing.T) { endings[rand.IntN(len(endings))].follow(t, n, p, withAccess) },
	})
}

func TestRestoreKilledBetweenChangesOfIptables(t *testing.T) {
	n, k := newAccessNode(t), newKiller(t)
	p := n.newPod(t)
	p.call(t, "ADD", withAccess)
	k.killAfterChanges(t, operation{
		prepare: func(t *testing.T) *exec.Cmd {
			breakages["the pair is deleted and the tables are flushed"](t, p)
			return n.command("restore --wait 5s")
		},
		after: func(t *testing.T) {
			n.says(t, 0, "restore --wait 5s")
			n.works(t)
		},
	})
	endings[0].follow(t, n, p, withAccess)
}

// A GC of other pods leaves the host access of the pod that lives, and takes what the others have left.
func TestGCWithHostAccessLeavesTheLivingAlone(t *testing.T) {
	n := newAccessNode(t)
	valid := n.newPod(t)
	valid.id = "valid"
	valid.call(t, "ADD", withAccess)
	const list = withAccess + `, "cni.dev/valid-attachments": [{"containerID": "valid", "ifname": "eth0"}]`
	living := n.leftovers(t)
	devices := links(t, "")
	operation{
		prepare: func(t *testing.T) *exec.Cmd {
			p := n.newPod(t)
			p.call(t, "ADD", withAccess)
			testnode.EndSandbox(t, p.netns)
			// The kernel deletes the pair a moment later. GC passes more steps if it comes before that.
			await(t, "the pair is gone", func() bool { return slices.Equal(links(t, ""), devices) })
			return valid.plugin("relink-macvlan", "GC", list)
		},
		after: func(t *testing.T) {
			valid.call(t, "GC", list)
			valid.keepsItsLeases(t)
			if diff := cmp.Diff(living, n.leftovers(t)); diff != "" {
				t.Errorf("after GC, the host does not have what it had before the other pod came (-want +got):\n%s", diff)
			}
			n.works(t)
		},
	}.killAtSomeStepsFrom(t, "forgotten")
	endings[0].follow(t, n, valid, withAccess)
}

// Many pods come and go while restores run, and all share the host's rules and chains.
func TestHostAccessOfManyAtOnce(t *testing.T) {
	n := newAccessNode(t)
	var pods []*pod
	for i := range 4 {
		p := n.newPod(t)
		p.id = fmt.Sprintf("c%d", i)
		pods = append(pods, p)
	}
	var group sync.WaitGroup
	run := func(cmd *exec.Cmd) {
		if _, err := output(cmd); err != nil {
			t.Error(err)
		}
	}
	for _, p := range pods {
		group.Go(func() {
			for range times(2) {
				run(p.plugin("relink-macvlan", "ADD", withAccess))
				run(p.plugin("relink-macvlan", "DEL", withAccess))
			}
			run(p.plugin("relink-macvlan", "ADD", withAccess))
		})
	}
	ended := make(chan struct{})
	go func() { group.Wait(); close(ended) }()
	for alive := true; alive; {
		select {
		case <-ended:
			alive = false
		default:
			_ = finish(n.command("restore --wait 5s")) // A pod may go meanwhile.
		}
	}
	n.says(t, 0, "restore --wait 5s")
	n.says(t, 0, "host-access show", "4 pods with host access, 0 with a problem")
	for _, p := range pods {
		group.Go(func() { run(p.plugin("relink-macvlan", "DEL", withAccess)) })
	}
	group.Wait()
	run(pods[0].plugin("relink-macvlan", "GC", withAccess+`, "cni.dev/valid-attachments": []`))
	n.left(t, "after all", map[string]int{})
}

// keepsItsLeases frees the addresses of all other pods. This version of host-local knows no GC.
func (p *pod) keepsItsLeases(t *testing.T) {
	t.Helper()
	must(t, filepath.WalkDir(p.leases(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.ContainsAny(d.Name(), "_") || d.Name() == "lock" {
			return err
		}
		content, err := os.ReadFile(path)
		if err == nil && !strings.Contains(string(content), p.id) {
			err = os.Remove(path)
		}
		return err
	}))
}
