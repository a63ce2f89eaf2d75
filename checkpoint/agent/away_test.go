package agent

import (
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/test/fresh"
)

// awaitConfirmed waits until the agent has judged a drift of each pod.
func (n *node) awaitConfirmed(t *testing.T, away ...pod) {
	t.Helper()
	within(t, patience, "the drift is judged", func() bool {
		of := map[any]bool{}
		if err := n.agent.runInLoop(t.Context(), func() {
			for key, m := range n.agent.members {
				of[key] = m.drift != nil && m.drift.Confirmed && m.drift.TakenAway
			}
		}); err != nil {
			t.Fatal(err)
		}
		for _, p := range away {
			if !of[p.key] {
				return false
			}
		}
		return true
	})
}

// An interface that somebody took away stays away: also if it drifted in another way before, and also if nobody could
// look into the sandbox since then. An interface that somebody renamed was still in use: it comes back.
func TestTakenAwayForCertain(t *testing.T) {
	n := newNode(t, "lan0")
	renamed, covered, later := n.attach(t, "lan0", 1), n.attach(t, "lan0", 2), n.attach(t, "lan0", 3)
	n.start(t, nil)
	fresh.Run(t, renamed.netns, "ip link set eth0 down; ip link set eth0 name net1; ip link set net1 up")
	fresh.Run(t, covered.netns, "ip link del eth0")
	fresh.Run(t, later.netns, "ip link set eth0 down; ip link set eth0 up")
	n.awaitConfirmed(t, covered)
	within(t, patience, "a drift without its route", func() bool {
		is := false
		_ = n.agent.runInLoop(t.Context(), func() { d := n.agent.members[later.key].drift; is = d != nil && d.Confirmed && !d.TakenAway })
		return is
	})
	fresh.Run(t, later.netns, "ip link del eth0")
	fresh.Run(t, "", "mount --bind /proc/self/ns/net "+covered.netns)
	n.awaitConfirmed(t, covered, later)
	fresh.Run(t, "", "umount -l "+covered.netns) // The agent can be looking into it.

	fresh.IP(t, "", "link del lan0")
	n.awaitState(t, "lan0", control.Lost)
	makeParent(t, "lan0")
	n.awaitState(t, "lan0", control.Whole)
	if renamed.state(t) == "" || covered.state(t) != "" || later.state(t) != "" {
		t.Errorf("renamed: %q; deleted, then hidden: %q; drifted, then deleted: %q", renamed.state(t), covered.state(t), later.state(t))
	}
}

// An interface counts as taken away only if somebody can look at it, and only if its parent did not go.
func TestPresence(t *testing.T) {
	n := newNode(t, "lan0")
	p := n.attach(t, "lan0", 1)
	host := must(kernel.OpenHost())(t)
	t.Cleanup(host.Close)
	record := must(n.store.Load(p.key.ContainerID, p.key.IfName))(t)
	other, elsewhere := record, record
	other.Namespace.Inode++
	elsewhere.Namespace.Path += "-gone"
	ended := elsewhere
	ended.Namespace.Cookie++
	for _, step := range []struct {
		name, netns, run string
		record           checkpoint.Record
		want             presence
	}{
		{"as it was", "", "true", record, present},
		{"another namespace is at the path", "", "true", other, presenceUnknown},
		{"the path is gone", "", "true", ended, presenceUnknown},
		{"it is at another path", "", "true", elsewhere, present},
		{"another device has its name", p.netns, "ip link set eth0 down; ip link set eth0 name net1; ip link set net1 up; ip link add eth0 type veth peer name x", record, present},
		{"gone", p.netns, "ip link del net1; ip link del eth0", record, away},
		{"gone, and the parent is down", "", "ip link set lan0 down", record, presenceUnknown},
		{"gone, and the parent is up", "", "ip link set lan0 up", record, away},
		{"gone with its parent", "", "ip link del lan0", record, presenceUnknown},
	} {
		fresh.Run(t, step.netns, step.run)
		if is := presenceOf(host, step.record, []checkpoint.Record{step.record}); is != step.want {
			t.Errorf("%s: %d, want %d", step.name, is, step.want)
		}
	}
}

// On a node with an event every second, the agent still checks once a minute whether another directory of checkpoints
// was mounted.
func TestABusyNodeDoubtsItsIndex(t *testing.T) {
	n := newNode(t, "lan0")
	n.start(t, nil)
	fresh.Run(t, "", "mount -t tmpfs none "+n.store.Dir())
	// The agent may be reading it.
	t.Cleanup(func() { fresh.Run(t, "", "umount -l "+n.store.Dir()) })
	n.save(t, n.attach(t, "lan0", 1))
	err := n.agent.runInLoop(t.Context(), func() {
		now := time.Now()
		n.agent.verifiedAt, n.agent.scannedAt = now.Add(-roundInterval), now
		if wake := n.agent.nextWake(now); wake != 0 {
			t.Errorf("the loop waits %s", wake)
		}
		n.agent.checkPeriodic(now)
	})
	if err != nil {
		t.Fatal(err)
	}
	within(t, patience, "the agent knows the pod", func() bool { return n.chain("lan0").Attachments == 1 })
}

// A look at an interface that was taken away can take long: a pod can have thousands of devices. So the loop pauses
// between two looks. When the pause is over, it looks without an event.
func TestLooksAtATakenInterfaceAreLimited(t *testing.T) {
	n := newNode(t, "lan0")
	p := n.attach(t, "lan0", 1)
	n.start(t, nil)
	fresh.Run(t, p.netns, "ip link set eth0 down")
	n.awaitConfirmed(t, p)
	next := time.Now().Add(2 * time.Second)
	if err := n.agent.runInLoop(t.Context(), func() { n.agent.members[p.key].drift.nextLook = next }); err != nil {
		t.Fatal(err)
	}
	fresh.Run(t, p.netns, "ip link set eth0 up")
	within(t, 10*time.Second, "it is not taken away any more", func() bool {
		is := false
		_ = n.agent.runInLoop(t.Context(), func() { d := n.agent.members[p.key].drift; is = d != nil && d.TakenAway })
		return !is
	})
	if early := time.Until(next); early > 0 {
		t.Errorf("the loop looked %s too early", early)
	}
}

// The look at one interface that was taken away must not wake the loop for another one, for ever.
func TestTakenInterfacesAreLookedAtTogether(t *testing.T) {
	n := newNode(t, "lan0")
	p := n.attach(t, "lan0", 1)
	n.start(t, nil)
	fresh.Run(t, p.netns, "ip link set eth0 down")
	n.awaitConfirmed(t, p)
	for range 3 {
		time.Sleep(10 * time.Millisecond)
		err := n.agent.runInLoop(t.Context(), func() {
			d, began := &drift{}, time.Now()
			if n.agent.isBack(d, n.agent.members[p.key].record) || !d.nextLook.Equal(d.nextLook.Truncate(driftDelay)) ||
				d.nextLook.Sub(began) > lookShare*time.Since(began)+driftDelay {
				t.Errorf("the next look is %s after this one, at %s", d.nextLook.Sub(began), d.nextLook)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
