package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

// The parent comes back. The agent restores the pods without a command.
func TestInterfacesComeBackWithTheirParent(t *testing.T) {
	n := newNode(t, "lan0")
	pods := []pod{n.attach(t, "lan0", 1), n.attach(t, "lan0", 2)}
	before := []string{pods[0].state(t), pods[1].state(t)}
	n.start(t, nil)
	n.awaitState(t, "lan0", control.Whole)
	for range 3 {
		fresh.IP(t, "", "link del lan0")
		n.awaitState(t, "lan0", control.Lost)
		if c := n.chain("lan0"); c.Lost != 2 || !strings.Contains(c.Reason, "lan0") {
			t.Errorf("status %+v", c)
		}
		makeParent(t, "lan0")
		n.awaitState(t, "lan0", control.Whole)
		for i, p := range pods {
			if now := p.state(t); now != before[i] || now == "" {
				t.Errorf("the interface is\n%s\nand was\n%s", now, before[i])
			}
		}
	}
}

// A base that stays away does not delay pods on other bases.
func TestADeadBaseDelaysNobodyElse(t *testing.T) {
	n := newNode(t, "lan0", "wan0")
	p, other := n.attach(t, "lan0", 1), n.attach(t, "wan0", 2)
	n.start(t, nil)
	fresh.IP(t, "", "link del lan0")
	fresh.IP(t, "", "link del wan0")
	n.awaitState(t, "lan0", control.Lost)
	makeParent(t, "lan0")
	n.awaitState(t, "lan0", control.Whole)
	if p.state(t) == "" || other.state(t) != "" || n.chain("wan0").State != control.Lost {
		t.Errorf("lan0's pod %q, wan0's pod %q, wan0 %+v", p.state(t), other.state(t), n.chain("wan0"))
	}
}

// Somebody takes an interface away while its parent is there. The agent does not bring it back: neither at once, nor
// when the parent of another pod comes back.
func TestDriftIsLeftAlone(t *testing.T) {
	n := newNode(t, "lan0", "wan0")
	gone, changed, lost := n.attach(t, "lan0", 1), n.attach(t, "lan0", 2), n.attach(t, "wan0", 3)
	n.start(t, nil)
	fresh.Run(t, gone.netns, "ip link del eth0")
	fresh.Run(t, changed.netns, "ip route del default")
	is := changed.state(t)
	fresh.IP(t, "", "link del wan0")
	n.awaitState(t, "wan0", control.Lost)
	makeParent(t, "wan0")
	n.awaitState(t, "wan0", control.Whole)
	if gone.state(t) != "" || changed.state(t) != is || lost.state(t) == "" {
		t.Errorf("deleted by somebody: %q; changed by somebody: %q, was %q; lost: %q", gone.state(t), changed.state(t), is, lost.state(t))
	}
}

// The network manager is first to handle a new device. When its time is over, the agent sets the device up.
func TestTheNetworkManagerComesFirst(t *testing.T) {
	n := newNode(t, "lan0")
	p := n.attach(t, "lan0", 1)
	n.start(t, func(o *Options) { o.HostGrace = 3 * time.Second })
	fresh.IP(t, "", "link del lan0")
	n.awaitState(t, "lan0", control.Lost)
	fresh.Run(t, "", "ip link add lan0 type veth peer name lan0p; ip link set lan0p up")
	n.awaitState(t, "lan0", control.Waiting)
	waiting := n.chain("lan0")
	if !strings.Contains(waiting.Reason, "the host's network manager has 3s for this: set lan0 up") || waiting.NextTry.IsZero() {
		t.Errorf("status %+v", waiting)
	}
	n.awaitState(t, "lan0", control.Whole)
	if waited := n.chain("lan0").Since.Sub(waiting.Since); waited < 3*time.Second {
		t.Errorf("the agent waited only %s", waited)
	}
	if p.state(t) == "" {
		t.Error("the pod is not restored")
	}

	// The manager sets the device up: the agent does not wait any longer.
	n.stop()
	n.start(t, func(o *Options) { o.HostGrace = time.Hour })
	fresh.IP(t, "", "link del lan0")
	fresh.Run(t, "", "ip link add lan0 type veth peer name lan0p; ip link set lan0p up")
	n.awaitState(t, "lan0", control.Waiting)
	fresh.IP(t, "", "link set lan0 up")
	n.awaitState(t, "lan0", control.Whole)
}

// The kernel refuses the VLAN device that one of two pods needs. The agent says why, and the other pod's base is not
// taken for one that cannot be restored.
func TestADeviceThatTheKernelRefuses(t *testing.T) {
	n := newNode(t, "lan0")
	whole, cut := n.attach(t, "lan0", 1), n.attach(t, "lan0", 2)
	r := must(n.store.Load(cut.key.ContainerID, "eth0"))(t)
	// No kernel makes a VLAN device with a multicast address, and this machine's may have no VLANs.
	vlan := netstate.Device{Name: "lan0.3", Kind: netstate.KindVLAN, MTU: 1500, MAC: "01:00:5e:00:00:01", IfIndex: 9999, VLAN: &netstate.VLAN{ID: 3, Protocol: netstate.Protocol8021Q}}
	r.Interface.Parents = append([]netstate.Device{vlan}, r.Interface.Parents...)
	if err := n.store.Save(r); err != nil {
		t.Fatal(err)
	}
	n.start(t, nil)
	fresh.IP(t, "", "link del lan0")
	makeParent(t, "lan0")
	within(t, patience, "the agent has tried", func() bool {
		c := n.chain("lan0")
		return c.Lost == 1 && c.State == control.Lost && whole.state(t) != "" && strings.Contains(c.Reason, "create vlan lan0.3") && !c.NextTry.IsZero()
	})
	if log := n.log.String(); !strings.Contains(log, "create vlan lan0.3") {
		t.Error("the log does not have the kernel's error")
	}
}

// A paused agent does nothing until its pause ends. A restart does not end the pause.
func TestPause(t *testing.T) {
	n := newNode(t, "lan0")
	p := n.attach(t, "lan0", 1)
	n.start(t, nil)
	if _, err := n.agent.Pause(t.Context(), 0, "new driver"); err != nil {
		t.Fatal(err)
	}
	fresh.IP(t, "", "link del lan0")
	makeParent(t, "lan0")
	n.awaitState(t, "lan0", control.Lost)
	n.stop()
	n.start(t, nil)
	n.awaitState(t, "lan0", control.Lost)
	if s := n.agent.Status(); s.Paused == nil || s.Paused.Reason != "new driver" || p.state(t) != "" {
		t.Fatalf("status %+v, pod %q", s, p.state(t))
	}
	if err := n.agent.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.awaitState(t, "lan0", control.Whole)
	if _, err := n.agent.Pause(t.Context(), 300*time.Millisecond, ""); err != nil {
		t.Fatal(err)
	}
	fresh.IP(t, "", "link del lan0")
	n.awaitState(t, "lan0", control.Lost) // Until then, it is whole still.
	makeParent(t, "lan0")
	n.awaitState(t, "lan0", control.Whole)
	if n.agent.Status().Paused != nil {
		t.Error("still paused")
	}
}

// While a guard is at work, the agent restores nothing, although nobody has paused it. This also holds for an agent
// that starts during that time.
func TestNoRestoreWhileAGuardIsAtWork(t *testing.T) {
	n := newNode(t, "lan0")
	p := n.attach(t, "lan0", 1)
	end, err := n.store.BeginGuard()
	if err != nil {
		t.Fatal(err)
	}
	fresh.IP(t, "", "link del lan0")
	makeParent(t, "lan0")
	n.start(t, nil)
	n.awaitState(t, "lan0", control.Lost)
	time.Sleep(guardInterval + 100*time.Millisecond) // The agent has looked again.
	if c := n.chain("lan0"); c.State != control.Lost || !strings.HasSuffix(c.Reason, "; relink guard is at work") || p.state(t) != "" {
		t.Errorf("status %+v, pod %q", c, p.state(t))
	}
	end()
	n.awaitState(t, "lan0", control.Whole)
	if p.state(t) == "" {
		t.Error("the pod is not restored")
	}
}

// An agent that starts after a loss finds the loss.
func TestALossWithoutTheAgent(t *testing.T) {
	n := newNode(t, "lan0")
	p := n.attach(t, "lan0", 1)
	was := p.state(t)
	fresh.IP(t, "", "link del lan0")
	makeParent(t, "lan0")
	n.start(t, nil)
	n.awaitState(t, "lan0", control.Whole)
	if p.state(t) != was {
		t.Errorf("the interface is\n%s\nand was\n%s", p.state(t), was)
	}
}

// The agent knows a new pod at once, and forgets a pod that ends.
func TestPodsComeAndGo(t *testing.T) {
	n := newNode(t, "lan0")
	n.start(t, nil)
	p := n.attach(t, "lan0", 1)
	within(t, patience, "the agent knows the pod", func() bool { return n.chain("lan0").Attachments == 1 })
	fresh.IP(t, "", "link del lan0")
	makeParent(t, "lan0")
	n.awaitState(t, "lan0", control.Whole)
	within(t, patience, "the pod is whole", func() bool { return p.state(t) != "" })
	n.forget(t, p)
	within(t, patience, "the agent forgets the pod", func() bool { return n.chain("lan0").Attachments == 0 })

	// A sandbox that ended without a DEL is not a loss.
	q := n.attach(t, "lan0", 2)
	fresh.IP(t, "", "link del lan0")
	fresh.Remove(t, q.netns)
	makeParent(t, "lan0")
	within(t, patience, "nothing is lost", func() bool { return n.chain("lan0").Lost == 0 })
}

// An interface that somebody took away stays away when the parent goes and comes back. A restart of the agent does not
// change that. Only the operator brings it back.
func TestWhatWasTakenAwayStaysAway(t *testing.T) {
	n := newNode(t, "lan0")
	gone, down, other := n.attach(t, "lan0", 1), n.attach(t, "lan0", 2), n.attach(t, "lan0", 3)
	n.start(t, nil)
	fresh.Run(t, gone.netns, "ip link del eth0")
	fresh.Run(t, down.netns, "ip link set eth0 down")
	drift := func() (names []string) {
		for _, d := range n.agent.Status().Drift {
			names = append(names, d.Attachment.ContainerID)
		}
		return names
	}
	within(t, patience, "both are drift", func() bool { return len(drift()) == 2 && n.confirmedDrifts() == 2 })
	for range 2 {
		fresh.IP(t, "", "link del lan0")
		n.awaitState(t, "lan0", control.Lost)
		makeParent(t, "lan0")
		n.awaitState(t, "lan0", control.Whole)
		if gone.state(t) != "" || down.state(t) != "" || other.state(t) == "" || len(drift()) != 2 {
			t.Errorf("deleted: %q; set down: %q; lost: %q; drift %q", gone.state(t), down.state(t), other.state(t), drift())
		}
		n.stop()
		n.start(t, nil)
	}
	if _, err := restore.Run(t.Context(), restore.Options{Store: n.store}); err != nil {
		t.Fatal(err)
	}
	within(t, patience, "no drift", func() bool { return len(drift()) == 0 })
	if gone.state(t) == "" || down.state(t) == "" {
		t.Error("relink restore did not bring them back")
	}
}

// A pod that is read for long delays no restore of another one. But what was unplugged while its NIC was away does not come back with it.
func TestWhatWasDetachedStaysAwayBesideALongReading(t *testing.T) {
	n := newNode(t, "lan0", "lan1")
	netns, busy := fresh.Sandbox(t), n.attach(t, "lan1", 2)
	whole, detached := n.attachTo(t, netns, "lan1", "eth0", 1), n.attachTo(t, netns, "lan0", "net1", 1)
	record := must(n.store.Load("c1", "net1"))(t)
	record.Writer, record.CNI.Result = capture.AgentWriter, []byte(`{"cniVersion": "1.0.0"}`)
	if err := n.store.Save(record); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	results := filepath.Join(dir, "multus", "results")
	fresh.Run(t, "", fmt.Sprintf(`mkdir -p %[1]s; echo '{"kind":"cniCacheV1","containerId":"c1","ifName":"eth0","networkName":"lan","netns":"%[2]s","config":"e30=","result":{}}' >%[1]s/lan-c1-eth0
		echo '{"kind":"cniCacheV1","containerId":"c1","ifName":"net1","networkName":"lan","netns":"%[2]s","config":"e30=","result":{"cniVersion":"1.0.0"}}' >%[1]s/lan-c1-net1`, results, netns))
	n.start(t, func(o *Options) { o.Identities.Cache = &cnicache.Cache{Dir: dir} })
	parents := must(n.store.LockParents(t.Context()))(t)
	within(t, patience, "nobody else holds the parents", func() bool {
		if parents.TryExclusive() {
			return true
		}
		parents.Release()
		parents = must(n.store.LockParents(t.Context()))(t)
		return false
	})
	fresh.Run(t, busy.netns, "ip link set eth0 mtu 1400")
	time.Sleep(200 * time.Millisecond)
	fresh.IP(t, "", "link del lan0")
	n.awaitState(t, "lan0", control.Lost)
	if err := os.Remove(filepath.Join(results, "lan-c1-net1")); err != nil {
		t.Fatal(err)
	}
	makeParent(t, "lan0")
	time.Sleep(time.Second) // The restore does not wait for the reading, but for the parents.
	parents.Release()
	within(t, patience, "its checkpoint is forgotten", func() bool { _, err := n.store.Load("c1", "net1"); return errors.Is(err, checkpoint.ErrNoCheckpoint) })
	time.Sleep(200 * time.Millisecond)
	if detached.state(t) != "" || whole.state(t) == "" {
		t.Errorf("detached: %q; beside it: %q", detached.state(t), whole.state(t))
	}
}

// confirmedDrifts counts the drifts that have settled.
func (n *node) confirmedDrifts() (count int) {
	_ = n.agent.runInLoop(context.Background(), func() {
		for _, m := range n.agent.members {
			if m.drift != nil && m.drift.Confirmed {
				count++
			}
		}
	})
	return count
}

// Somebody adds a route in a pod. The route is in the checkpoint, so it comes back with the parent. A route that
// somebody removed does not come back.
func TestCheckpointsAreKeptFresh(t *testing.T) {
	n := newNode(t, "lan0")
	p := n.attach(t, "lan0", 1)
	n.start(t, nil)
	fresh.Run(t, p.netns, "ip route add 10.70.0.0/16 via 10.1.2.1; ip route add 10.71.0.0/16 via 10.1.2.1")
	within(t, patience, "the checkpoint has the routes", func() bool {
		return len(must(n.store.Load(p.key.ContainerID, "eth0"))(t).Interface.Routes) == 3
	})
	fresh.IP(t, "", "link del lan0")
	n.awaitState(t, "lan0", control.Lost)
	makeParent(t, "lan0")
	n.awaitState(t, "lan0", control.Whole) // The restore has ended, so that what the pod does next is no part of it.
	within(t, patience, "the routes are back", func() bool {
		return strings.Contains(p.state(t), "10.70.0.0/16") && strings.Contains(p.state(t), "10.71.0.0/16")
	})
	routes := func() int { return len(must(n.store.Load(p.key.ContainerID, "eth0"))(t).Interface.Routes) }
	fresh.Run(t, p.netns, "ip route add 10.72.0.0/16 dev eth0")
	within(t, patience, "the pod is read after the restore", func() bool { return routes() == 4 })
	fresh.Run(t, p.netns, "ip route del 10.70.0.0/16")
	within(t, patience, "the checkpoint is refreshed", func() bool { return routes() == 3 })
	fresh.IP(t, "", "link del lan0")
	n.awaitState(t, "lan0", control.Lost)
	makeParent(t, "lan0")
	n.awaitState(t, "lan0", control.Whole)
	within(t, patience, "the pod is whole", func() bool { return strings.Contains(p.state(t), "10.71.0.0/16") })
	if strings.Contains(p.state(t), "10.70.0.0/16") {
		t.Errorf("a route that somebody removed is back:\n%s", p.state(t))
	}
}

// A restore without carrier leaves addresses unannounced. The agent announces them when there is carrier.
func TestAnnouncementsOfOthers(t *testing.T) {
	n := newNode(t, "lan0")
	p := n.attach(t, "lan0", 1)
	fresh.Run(t, "", "ip link del lan0; ip link add lan0 type veth peer name lan0p; ip link set lan0 up")
	if _, err := restore.Run(t.Context(), restore.Options{Store: n.store}); err != nil {
		t.Fatal(err)
	}
	owed := func() bool { return must(n.store.Load(p.key.ContainerID, "eth0"))(t).AnnouncementOwed }
	if !owed() {
		t.Fatal("nothing is owed")
	}
	n.start(t, nil)
	within(t, patience, "the agent knows what is owed", func() bool { return n.agent.Status().Unannounced == 1 })
	fresh.IP(t, "", "link set lan0p up")
	within(t, patience, "it is announced", func() bool { return !owed() && n.agent.Status().Unannounced == 0 })
}

// A restore was killed before it told the neighbours, or could not write that it has. Its record has the old indices of the parents.
// The agent tells them, and writes so.
func TestARestoreThatWasKilled(t *testing.T) {
	n := newNode(t, "lan0")
	p := n.attach(t, "lan0", 1)
	old := must(n.store.Load(p.key.ContainerID, "eth0"))(t)
	fresh.Run(t, "", "ip link del lan0; ip link add lan0 up type veth peer name lan0p; ip link set lan0p up")
	must(restore.Run(t.Context(), restore.Options{Store: n.store}))(t)
	if err := n.store.Save(old); err != nil {
		t.Fatal(err)
	}
	if report := must(restore.Run(t.Context(), restore.Options{Store: n.store, DryRun: true}))(t); report.Complete() {
		t.Error("nothing is owed")
	}
	n.start(t, nil)
	within(t, patience, "it is announced", func() bool {
		report := must(restore.Run(t.Context(), restore.Options{Store: n.store, DryRun: true}))(t)
		return report.Complete() && n.agent.Status().Unannounced == 0
	})
}

// Another process works on the sandbox when the agent sends its announcement. The checkpoint says that nothing is owed
// as soon as the agent can write it.
func TestAnAnnouncementOfABusySandbox(t *testing.T) {
	n := newNode(t, "lan0")
	p := n.attach(t, "lan0", 1)
	fresh.Run(t, "", "ip link del lan0; ip link add lan0 type veth peer name lan0p; ip link set lan0 up")
	if _, err := restore.Run(t.Context(), restore.Options{Store: n.store}); err != nil {
		t.Fatal(err)
	}
	n.start(t, nil)
	within(t, patience, "the agent knows what is owed", func() bool { return n.agent.Status().Unannounced == 1 })
	unlock := must(n.store.Lock(t.Context(), p.key.ContainerID))(t)
	fresh.IP(t, "", "link set lan0p up")
	time.Sleep(500 * time.Millisecond)
	unlock()
	within(t, patience, "nothing is owed", func() bool {
		return !must(n.store.Load(p.key.ContainerID, "eth0"))(t).AnnouncementOwed && n.agent.Status().Unannounced == 0
	})
}

// What a restore owes is over when the next one owes nothing: its devices have gone.
func TestAnAnnouncementThatALaterRestoreMakes(t *testing.T) {
	n := newNode(t, "lan0")
	p := n.attach(t, "lan0", 1)
	n.start(t, nil)
	fresh.Run(t, "", "ip link del lan0; ip link add lan0 type veth peer name lan0p; ip link set lan0 up")
	within(t, patience, "the first restore owes an announcement", func() bool { return n.agent.Status().Unannounced == 1 })
	fresh.Run(t, "", "ip link del lan0; ip link add lan1 up type veth peer name lan0p; ip link set lan0p up")
	within(t, patience, "there is carrier", func() bool { return strings.Contains(fresh.IP(t, "", "link show lan1"), "LOWER_UP") })
	fresh.Run(t, "", "ip link set lan1 down; ip link set lan1 name lan0; ip link set lan0 up")
	within(t, patience, "nothing is owed", func() bool {
		return n.chain("lan0").State == control.Whole && !must(n.store.Load(p.key.ContainerID, "eth0"))(t).AnnouncementOwed && n.agent.Status().Unannounced == 0
	})
}

// While the agent is paused, the NIC goes again, and a restore by hand owes the announcement. The agent makes it. Nothing is owed of a pod that ends.
func TestAnAnnouncementThatARestoreByHandOwes(t *testing.T) {
	n := newNode(t, "lan0")
	p := n.attach(t, "lan0", 1)
	n.start(t, nil)
	lose := func() {
		fresh.Run(t, "", "ip link del lan0; ip link add lan0 type veth peer name lan0p; ip link set lan0 up")
	}
	unannounced := func(want int) {
		t.Helper()
		within(t, patience, fmt.Sprintf("%d announcements are owed", want), func() bool { return n.agent.Status().Unannounced == want })
	}
	lose()
	unannounced(1)
	if _, err := n.agent.Pause(t.Context(), 0, ""); err != nil {
		t.Fatal(err)
	}
	lose()
	if report := must(restore.Run(t.Context(), restore.Options{Store: n.store}))(t); report.Outcomes[0].State != restore.Restored {
		t.Fatalf("%+v", report.Outcomes)
	}
	if err := n.agent.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	fresh.IP(t, "", "link set lan0p up")
	unannounced(0)
	if must(n.store.Load(p.key.ContainerID, "eth0"))(t).AnnouncementOwed {
		t.Error("it is still owed")
	}
	lose()
	unannounced(1)
	n.forget(t, p)
	unannounced(0)
}

// Somebody removes the store's directory, or puts another one in its place. The agent watches the new one.
func TestAnotherDirectoryOfCheckpoints(t *testing.T) {
	n := newNode(t, "lan0")
	p := n.attach(t, "lan0", 1)
	n.start(t, nil)
	attachments := func(want int) {
		t.Helper()
		within(t, patience, fmt.Sprintf("the agent knows %d attachments", want), func() bool { return n.chain("lan0").Attachments == want })
	}
	attachments(1)
	// The agent may be about to write into it.
	within(t, patience, "the directory can be removed", func() bool { return os.RemoveAll(n.store.Dir()) == nil })
	attachments(0)
	n.save(t, p)
	attachments(1)
	if err := os.Rename(n.store.Dir(), n.store.Dir()+".old"); err != nil {
		t.Fatal(err)
	}
	attachments(0)
	n.save(t, p)
	attachments(1)
	// No event tells about a mount. The agent finds it when it looks, once a minute.
	fresh.Run(t, "", "mount -t tmpfs none "+n.store.Dir())
	t.Cleanup(func() { fresh.Run(t, "", "umount -l "+n.store.Dir()) }) // The agent still runs, and may read a file.
	n.save(t, n.attach(t, "lan0", 2))
	if err := n.agent.runInLoop(t.Context(), n.agent.index.checkWatches); err != nil {
		t.Fatal(err)
	}
	within(t, patience, "the agent knows the other pod", func() bool {
		found := false
		_ = n.agent.runInLoop(t.Context(), func() {
			found = len(n.agent.index.sandboxes["c2"].records) == 1 && len(n.agent.index.sandboxes["c1"].records) == 0
		})
		return found
	})
}
