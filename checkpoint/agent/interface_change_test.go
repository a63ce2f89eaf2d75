package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/test/fresh"
)

// What the observer hears about an interface, and when it hears it again.
func TestFateIsTold(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	f := &lostInterface{since: began}
	for _, step := range []struct {
		after   time.Duration
		tries   int
		blocked string
		want    LossState
		reason  string
	}{
		{0, 0, "", Lost, ""},
		{time.Second, 0, "", "", ""},
		{2 * time.Second, 4, "", "", "no such device"},
		{3 * time.Second, 5, "", Stuck, "no such device"},
		{4 * time.Second, 6, "", "", "no such device"},
		{40 * time.Minute, 60, "", Stuck, "no such device"}, // A reminder.
		{41 * time.Minute, 60, "lan0 is down", "", "lan0 is down"},
	} {
		now := began.Add(step.after)
		if f.tries = step.tries; f.tries > 0 {
			f.failure = "no such device"
		}
		f.block(step.blocked, now)
		if got := f.next(now); got != step.want || f.reason() != step.reason {
			t.Errorf("after %s: told %q with the reason %q, want %q with %q", step.after, got, f.reason(), step.want, step.reason)
		}
	}

	blocked := &lostInterface{since: began}
	for _, step := range []struct {
		after   time.Duration
		blocked string
		want    LossState
	}{
		{0, "lan0 is down", Lost},
		{9 * time.Second, "lan0 is down", ""},
		{9500 * time.Millisecond, "", ""}, // Somebody is still at work.
		{11 * time.Second, "lan0 is down", ""},
		{22 * time.Second, "lan0 is down", Stuck},
		{23 * time.Second, "", ""},
		{time.Hour, "", Lost}, // It still waits for its device.
		{2 * time.Hour, "", Lost},
	} {
		now := began.Add(step.after)
		blocked.block(step.blocked, now)
		if step.blocked != "" && blocked.reported != Stuck && !blocked.stuckAt().Equal(blocked.blockedSince.Add(stuckAfter)) {
			t.Errorf("after %s: it is stuck at %s", step.after, blocked.stuckAt())
		}
		if got := blocked.next(now); got != step.want {
			t.Errorf("after %s: told %q, want %q", step.after, got, step.want)
		}
	}
}

// An interface that waits is not blocked. An interface that can be restored is not blocked either.
func TestBlockedBy(t *testing.T) {
	down := []string{"lan0: it is down", "lan1: it is down"}
	for _, test := range []struct {
		o    restore.Outlook
		want string
	}{
		{restore.Outlook{}, ""},
		{restore.Outlook{Blocked: down}, "lan0: it is down; lan1: it is down"},
		{restore.Outlook{Blocked: down, Missing: []string{"wan0 is missing"}}, ""},
	} {
		if got := blockedBy(test.o); got != test.want {
			t.Errorf("%+v: %q, want %q", test.o, got, test.want)
		}
	}
}

// shortenStuckLimits makes lost interfaces stuck sooner. Call it before the agent starts.
func shortenStuckLimits(t *testing.T) {
	t.Helper()
	tries, after := stuckTries, stuckAfter
	stuckTries, stuckAfter = 2, time.Second
	t.Cleanup(func() { stuckTries, stuckAfter = tries, after })
}

// changesOf returns what the observer heard about the pod, as words.
func (o *observed) changesOf(p pod) (words []string) {
	o.add(func() {
		for _, c := range o.changes {
			if c.Attachment == p.key {
				words = append(words, string(c.State))
			}
		}
	})
	return words
}

// The observer hears about each interface separately: about the loss, about an interface that cannot be restored, and
// about its return, whoever restored it.
func TestChangesOfInterfaces(t *testing.T) {
	shortenStuckLimits(t)
	n, o := newNode(t, "lan0"), &observed{}
	fine, occupied, ends := n.attach(t, "lan0", 1), n.attach(t, "lan0", 2), n.attach(t, "lan0", 3)
	n.start(t, func(opts *Options) { opts.Observers = []func(Event){new(observed).hear, o.hear} })
	fresh.IP(t, "", "link del lan0")
	n.awaitState(t, "lan0", control.Lost)
	n.forget(t, ends)
	// Somebody gives the interface's name to another device. No restore takes the name away from that device.
	fresh.Run(t, occupied.netns, "ip link add eth0 type veth peer name other")
	time.Sleep(50 * time.Millisecond)
	makeParent(t, "lan0")
	o.has(t, "one pod is back", func() bool {
		return slices.ContainsFunc(o.changes, func(c InterfaceChange) bool { return c.Attachment == fine.key && c.State == Back })
	})
	within(t, 30*time.Second, "the other one is stuck", func() bool { return slices.Equal(o.changesOf(occupied), []string{"lost", "stuck"}) })
	fresh.Run(t, occupied.netns, "ip link del eth0")
	if _, err := restore.Run(t.Context(), restore.Options{Store: n.store}); err != nil {
		t.Fatal(err)
	}
	within(t, 10*time.Second, "somebody restores it", func() bool { return slices.Equal(o.changesOf(occupied), []string{"lost", "stuck", "back"}) })
	if got := o.changesOf(fine); !slices.Equal(got, []string{"lost", "back"}) {
		t.Errorf("told of a pod that was restored at once: %q", got)
	}
	if got := o.changesOf(ends); !slices.Equal(got, []string{"lost"}) {
		t.Errorf("told of a pod that ended: %q", got)
	}
	o.add(func() {
		for _, c := range o.changes {
			switch {
			case c.Pod != attachment.Pod{Namespace: "shop", Name: c.Attachment.ContainerID} || c.Base != "lan0":
				t.Errorf("%+v", c)
			case c.State == Lost && (c.Device != "lan0" || c.Member):
				t.Errorf("%+v", c)
			case c.State == Stuck && (c.Tries < stuckTries || !strings.Contains(c.Reason, "eth0")):
				t.Errorf("%+v", c)
			case c.State == Back && c.Duration <= 0:
				t.Errorf("%+v", c)
			}
		}
	})
}

// A device of another kind has the parent's name: that will not become better by waiting. The pods are stuck soon,
// although the agent tried nothing and no event wakes the loop.
func TestWhatIsBlockedIsStuck(t *testing.T) {
	shortenStuckLimits(t)
	n, o := newNode(t, "lan0"), &observed{}
	p := n.attach(t, "lan0", 1)
	n.start(t, func(opts *Options) { opts.Observers = []func(Event){o.hear} })
	fresh.IP(t, "", "link del lan0")
	n.awaitState(t, "lan0", control.Lost)
	fresh.Run(t, "", "ip link add lan0 type bridge; ip link set lan0 up")
	within(t, stuckAfter+5*time.Second, "it is stuck", func() bool { return slices.Equal(o.changesOf(p), []string{"lost", "stuck"}) })
	if c := o.changes[1]; c.Tries != 0 || !strings.Contains(c.Reason, "lan0") || c.Duration < stuckAfter {
		t.Errorf("%+v", c)
	}
}
