package agent

import (
	"context"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/test/fresh"
)

// observed keeps what an observer hears.
type observed struct {
	mu        sync.Mutex
	woke      map[WakeSource]int
	lost      []int
	tries     []Try
	outages   []Outage
	connected []time.Duration
	changes   []InterfaceChange
}

func (o *observed) add(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
}

func (o *observed) hear(event Event) {
	o.add(func() {
		switch e := event.(type) {
		case WakeSource:
			if o.woke == nil {
				o.woke = map[WakeSource]int{}
			}
			o.woke[e]++
		case LossCount:
			o.lost = append(o.lost, int(e))
		case Try:
			o.tries = append(o.tries, e)
		case Outage:
			o.outages = append(o.outages, e)
		case Connection:
			o.connected = append(o.connected, time.Duration(e))
		case Changes:
			o.changes = append(o.changes, e...)
		}
	})
}

// has waits until f accepts what was heard.
func (o *observed) has(t *testing.T, what string, f func() bool) {
	t.Helper()
	within(t, patience, what, func() (is bool) {
		o.add(func() { is = f() })
		return is
	})
}

// The agent measures three parts of an outage. Here the NIC stays away for 100 ms, and has no carrier for 200 ms more.
func TestAnOutageIsMeasured(t *testing.T) {
	n, o := newNode(t, "lan0"), &observed{}
	pods := []pod{n.attach(t, "lan0", 1), n.attach(t, "lan0", 2)}
	n.start(t, func(opts *Options) { opts.Observers = []func(Event){o.hear} })
	fresh.IP(t, "", "link del lan0")
	n.awaitState(t, "lan0", control.Lost)
	o.has(t, "the loss", func() bool { return slices.Equal(o.lost, []int{2}) })
	time.Sleep(100 * time.Millisecond)
	fresh.Run(t, "", "ip link add lan0 type veth peer name lan0p; ip link set lan0 up") // The other end is down: no carrier.
	n.awaitState(t, "lan0", control.Whole)
	o.has(t, "the end of the outage", func() bool { return len(o.outages) == 1 })
	time.Sleep(200 * time.Millisecond)
	o.add(func() {
		if out := o.outages[0]; out.WholeAt.Sub(out.LostAt) < 100*time.Millisecond || out.WholeAt.Before(out.BackAt) || out.BackAt.Sub(out.LostAt) < 100*time.Millisecond {
			t.Errorf("outage %+v", out)
		}
		if try := o.tries[len(o.tries)-1]; try.Reason != "" || try.Duration <= 0 || len(try.Outcomes) != 2 || try.Outcomes[0].State != restore.Restored {
			t.Errorf("try %+v", try)
		}
		if len(o.connected) > 0 {
			t.Error("the observer heard of a connection without carrier")
		}
	})
	fresh.IP(t, "", "link set lan0p up")
	o.has(t, "the carrier", func() bool { return len(o.connected) == 1 && o.connected[0] > 300*time.Millisecond })
	o.has(t, "what woke the loop", func() bool { return o.woke[WakeDevices] > 0 && o.woke[WakeCheckpoints] > 0 && o.woke[WakeRestores] > 0 })
	for _, p := range pods {
		if p.state(t) == "" {
			t.Error("a pod is not restored")
		}
	}
	if f := n.agent.Figures(); f.Oldest.IsZero() || f.Newest.Before(f.Oldest) || f.Absent != 0 || f.Unreadable != 0 || f.Refresher.Readings == 0 {
		t.Errorf("figures %+v", f)
	}

	// Pods end while they are lost. The agent has not ended that outage.
	if _, err := n.agent.Pause(t.Context(), 0, ""); err != nil {
		t.Fatal(err)
	}
	fresh.IP(t, "", "link del lan0")
	n.awaitState(t, "lan0", control.Lost)
	for _, p := range pods {
		n.forget(t, p)
	}
	within(t, patience, "nothing is lost", func() bool { return n.chain("lan0").Lost == 0 })
	if err := n.agent.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.add(func() {
		if len(o.outages) != 1 || len(o.lost) != 2 {
			t.Errorf("outages %+v, losses %v", o.outages, o.lost)
		}
	})
}

// Healthy is about the loop: an agent whose loop hangs is not healthy, even if the process answers.
func TestHealth(t *testing.T) {
	n := newNode(t, "lan0")
	n.start(t, func(opts *Options) { opts.LoopInterval = 20 * time.Millisecond })
	if err := n.agent.Healthy(); err != nil {
		t.Error(err)
	}
	hangs, stop := make(chan struct{}), make(chan struct{})
	go func() { _ = n.agent.runInLoop(context.Background(), func() { close(hangs); <-stop }) }()
	<-hangs
	came := n.agent.Figures().LastRound
	earlier := came.Add(-maxRoundDelay)
	n.agent.lastRound.Store(&earlier)                                             // As if this time went by.
	thirty := regexp.MustCompile(`the working loop has not come round for 3\ds;`) // A busy machine adds some.
	within(t, patience, "the loop hangs, and the agent says so", func() bool {
		err := n.agent.Healthy()
		return err != nil && thirty.MatchString(err.Error())
	})
	close(stop)
	within(t, patience, "the loop is healthy again", func() bool { return n.agent.Healthy() == nil })
	if !n.agent.Figures().LastRound.After(came) {
		t.Error("the loop made no round")
	}
}
