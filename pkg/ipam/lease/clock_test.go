package lease

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A clock that jumps ahead ends nothing early. What begins afterwards ends in time, in this boot and in the next
// one, when the clock is right again.
func TestClockThatJumpedAhead(t *testing.T) {
	const years = 10
	n := newNode(t, "10.3.0.20", stickyFor(72*time.Hour))
	n.add(t, "c1/eth0", "web-1", "10.3.0.2")
	n.del(t, "c1/eth0")
	n.reserve(t, "10.3.0.10", "hand-1", 48*time.Hour)

	n.day = n.day.AddDate(years, 0, 0)
	n.expect(t, "by a look after the jump", "10.3.0.2 reserved c1/eth0 web-1", "10.3.0.10 reserved hand-1")
	n.add(t, "c2/eth0", "web-2", "10.3.0.3")
	n.del(t, "c2/eth0")
	n.reserve(t, "10.3.0.11", "hand-2", 48*time.Hour)
	n.expect(t, "after a change after the jump", "10.3.0.2 reserved c1/eth0 web-1", "10.3.0.3 reserved c2/eth0 web-2",
		"10.3.0.10 reserved hand-1", "10.3.0.11 reserved hand-2")

	n.later(48*time.Hour - time.Millisecond)
	n.add(t, "x/eth0", "x", "10.3.0.4")
	n.del(t, "x/eth0")
	n.expect(t, "before the end of the first", "10.3.0.2 reserved c1/eth0 web-1", "10.3.0.3 reserved c2/eth0 web-2",
		"10.3.0.4 reserved x/eth0 x", "10.3.0.10 reserved hand-1", "10.3.0.11 reserved hand-2")
	n.later(time.Millisecond)
	n.expect(t, "48 hours", "10.3.0.2 reserved c1/eth0 web-1", "10.3.0.3 reserved c2/eth0 web-2", "10.3.0.4 reserved x/eth0 x")

	// Somebody sets the clock right. The next boot begins with it.
	n.day = n.day.AddDate(-years, 0, 0)
	n.expect(t, "the clock is right", "10.3.0.2 reserved c1/eth0 web-1", "10.3.0.3 reserved c2/eth0 web-2", "10.3.0.4 reserved x/eth0 x")
	n.reboot("boot-2", time.Minute)
	n.add(t, "y/eth0", "y", "10.3.0.5")
	n.expect(t, "after the next boot", "10.3.0.2 reserved c1/eth0 web-1", "10.3.0.3 reserved c2/eth0 web-2", "10.3.0.4 reserved x/eth0 x",
		"10.3.0.5 held y/eth0 y")
	n.later(24 * time.Hour)
	n.expect(t, "72 hours", "10.3.0.4 reserved x/eth0 x", "10.3.0.5 held y/eth0 y")
	n.later(48 * time.Hour)
	n.expect(t, "120 hours", "10.3.0.5 held y/eth0 y")
}

// A node that boots with a clock years ahead believes the clock: nothing else tells how long the node was off. Its
// later leases still end in time, in that boot and in the next one, whose clock is right.
func TestClockThatWasAheadAtBoot(t *testing.T) {
	n := newNode(t, "10.3.0.20", stickyFor(72*time.Hour))
	n.add(t, "c1/eth0", "web-1", "10.3.0.2")
	n.reboot("boot-2", time.Minute)
	right := n.day
	n.day = right.AddDate(10, 0, 0)
	n.add(t, "c2/eth0", "web-2", "10.3.0.3")
	n.del(t, "c2/eth0")
	n.reserve(t, "10.3.0.10", "hand-1", 96*time.Hour)
	n.expect(t, "in that boot", "10.3.0.2 reserved c1/eth0 web-1", "10.3.0.3 reserved c2/eth0 web-2", "10.3.0.10 reserved hand-1")

	n.day = right
	n.later(71 * time.Hour)
	n.reboot("boot-3", time.Minute)
	// If nothing was changed before the boot, the store knows only the time of the last change.
	n.expect(t, "the next boot goes on from the last change", "10.3.0.2 reserved c1/eth0 web-1", "10.3.0.3 reserved c2/eth0 web-2", "10.3.0.10 reserved hand-1")
	n.add(t, "c3/eth0", "web-3", "10.3.0.4")
	n.later(72 * time.Hour)
	n.expect(t, "72 hours of it", "10.3.0.4 held c3/eth0 web-3", "10.3.0.10 reserved hand-1")
	n.later(24 * time.Hour)
	n.expect(t, "96 hours of it", "10.3.0.4 held c3/eth0 web-3")
}

// A clock that is months behind after a boot ends nothing early, not even when it is set right.
func TestClockThatWasBehind(t *testing.T) {
	n := newNode(t, "10.3.0.20", stickyFor(72*time.Hour))
	n.add(t, "c1/eth0", "web-1", "10.3.0.2")
	n.reboot("boot-2", time.Hour)
	right := n.day
	n.day = right.AddDate(0, -3, 0)
	n.add(t, "c2/eth0", "web-2", "10.3.0.3")
	n.later(time.Hour)
	n.day = right.Add(time.Hour)
	n.add(t, "c1/eth0", "web-1", "10.3.0.2")
	n.del(t, "c1/eth0")
	n.later(72*time.Hour - time.Millisecond)
	n.expect(t, "before its end", "10.3.0.2 reserved c1/eth0 web-1", "10.3.0.3 held c2/eth0 web-2")
	n.later(time.Millisecond)
	n.expect(t, "at its end", "10.3.0.3 held c2/eth0 web-2")
}

func TestTimeOfTheStore(t *testing.T) {
	start := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	at := func(boot string, day, uptime time.Duration) node {
		return node{boot: boot, day: start.Add(day), uptime: uptime}
	}
	for name, test := range map[string]struct {
		// changes are the times of the changes. The look comes last.
		changes []node
		look    node
		want    time.Duration
	}{
		"of a store without a change: the time of day":     {nil, at("a", time.Hour, 0), time.Hour},
		"in the same boot: by the time since it":           {[]node{at("a", 0, time.Minute)}, at("a", 24*time.Hour, 3*time.Minute), 2 * time.Minute},
		"in the same boot, the clock is set back":          {[]node{at("a", 0, time.Minute)}, at("a", -24*time.Hour, 3*time.Minute), 2 * time.Minute},
		"in the same boot, to the millisecond":             {[]node{at("a", 0, time.Minute)}, at("a", 0, time.Minute+1900*time.Microsecond), time.Millisecond},
		"in the next boot: the time of day":                {[]node{at("a", 0, time.Minute)}, at("b", time.Hour, 0), time.Hour},
		"in the next boot, the clock is behind":            {[]node{at("a", 0, time.Minute)}, at("b", -time.Hour, time.Minute), 0},
		"in the next boot, later, the clock is behind":     {[]node{at("a", 0, 0), at("b", -time.Hour, 0)}, at("b", -time.Hour, time.Minute), time.Minute},
		"in the next boot, the clock is set right by then": {[]node{at("a", 0, 0), at("b", -time.Hour, 0)}, at("b", time.Hour, time.Minute), time.Minute},
		"in the boot after that, the clock is right":       {[]node{at("a", 0, 0), at("b", -time.Hour, 0)}, at("c", time.Hour, 0), time.Hour},
		"a look changes nothing":                           {[]node{at("a", 0, 0)}, at("b", time.Hour, time.Minute), time.Hour},
		"an uptime before that of the last change":         {[]node{at("a", 0, time.Hour)}, at("a", 0, time.Minute), 0},
	} {
		n := newNode(t, "10.3.0.20", minute)
		must(t, n.store(t).create(t.Context()))
		for i, c := range test.changes {
			n.boot, n.day, n.uptime = c.boot, c.day, c.uptime
			if _, err := n.try(t, fmt.Sprintf("c%d/eth0", i), ""); err != nil {
				t.Fatal(err)
			}
		}
		n.boot, n.day, n.uptime = test.look.boot, test.look.day, test.look.uptime
		ahead, err := n.store(t).ClockAhead(t.Context())
		must(t, err)
		if got := n.day.Add(ahead).Sub(start); got != test.want {
			t.Errorf("%s: %s after the start, want %s", name, got, test.want)
		}
	}
}

// Changes take time themselves. That does not make the store's time fall behind.
func TestTimeOfTheStoreKeepsUpWithManyChanges(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.add(t, "c1/eth0", "", "10.3.0.2")
	for range 100 {
		s := n.store(t)
		s.uptime = func() (time.Duration, error) {
			n.later(10 * time.Millisecond)
			return n.uptime, nil
		}
		if _, err := s.Allocate(t.Context(), n.request("c1/eth0", "")); err != nil {
			t.Fatal(err)
		}
	}
	ahead, err := n.store(t).ClockAhead(t.Context())
	must(t, err)
	if ahead != 0 {
		t.Errorf("the store is ahead by %s", ahead)
	}
}

func TestResetClock(t *testing.T) {
	for name, off := range map[string]time.Duration{"ahead": 10 * 365 * 24 * time.Hour, "behind": -90 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "10.3.0.20", stickyFor(72*time.Hour))
			n.day = n.day.Add(off)
			n.add(t, "c1/eth0", "web-1", "10.3.0.2")
			n.add(t, "c2/eth0", "web-2", "10.3.0.3")
			n.del(t, "c2/eth0")
			n.reserve(t, "10.3.0.10", "hand-1", 48*time.Hour)
			n.reserve(t, "10.3.0.11", "hand-2", 0)
			n.later(time.Hour)
			before := n.lines(t)
			// It ended because of a wrong time, and nobody has cleared it away yet.
			n.day = n.day.Add(-off)
			ahead, err := n.store(t).ResetClock(t.Context())
			if err != nil || ahead != off {
				t.Fatalf("ahead by %s, %v, want %s", ahead, err, off)
			}
			if now, err := n.store(t).ClockAhead(t.Context()); err != nil || now != 0 {
				t.Errorf("after that it is ahead by %s, %v", now, err)
			}
			n.expect(t, "after the reset", before...)
			for _, a := range []string{"10.3.0.2", "10.3.0.3", "10.3.0.10", "10.3.0.11"} {
				l := n.get(t, a)
				for what, when := range map[string]time.Time{"since": l.Newest().Since, "released at": l.ReleasedAt, "by hand at": l.ByHandAt} {
					if when.After(n.day) {
						t.Errorf("%s is %s %s, now is %s", a, what, when, n.day)
					}
				}
			}
			n.later(47*time.Hour - time.Millisecond)
			n.expect(t, "before the first ends", before...)
			n.later(time.Millisecond)
			n.expect(t, "the first has ended", "10.3.0.2 held c1/eth0 web-1", "10.3.0.3 reserved c2/eth0 web-2", "10.3.0.11 reserved hand-2")
			n.later(24 * time.Hour)
			n.expect(t, "the second has ended", "10.3.0.2 held c1/eth0 web-1", "10.3.0.11 reserved hand-2")
			// The next boot has the same time.
			n.del(t, "c1/eth0")
			n.reboot("boot-2", 71*time.Hour)
			n.expect(t, "in the next boot", "10.3.0.2 reserved c1/eth0 web-1", "10.3.0.11 reserved hand-2")
			n.later(time.Hour)
			n.expect(t, "all have ended", "10.3.0.11 reserved hand-2")
		})
	}
}

// A holder from long before the clock jumped keeps the time at which it got its address.
func TestResetClockLeavesWhatWasBeforeTheJump(t *testing.T) {
	n := newNode(t, "10.3.0.20", sticky)
	given := n.day
	n.add(t, "c1/eth0", "web-1", "10.3.0.2")
	n.reboot("boot-2", 24*time.Hour)
	n.add(t, "c1/eth0", "web-1", "10.3.0.2")
	again := n.day
	n.later(time.Hour)
	n.day = n.day.AddDate(10, 0, 0)
	n.reboot("boot-3", time.Minute)
	n.expect(t, "by a look", "10.3.0.2 reserved c1/eth0 web-1")
	_, err := n.store(t).Reserve(t.Context(), addr("10.3.0.9"), pod("x"), 0)
	must(t, err)
	n.day = n.day.AddDate(-10, 0, 0)
	_, err = n.store(t).ResetClock(t.Context())
	must(t, err)
	if got := n.get(t, "10.3.0.2").Last.Since; !got.Equal(again) || !got.After(given) {
		t.Errorf("it was given at %s, not %s", again, got)
	}
	events, err := n.store(t).History(t.Context(), addr("10.3.0.2"))
	must(t, err)
	if len(events) != 4 {
		t.Errorf("events: %+v", events)
	}
}

// A lease that ended only because the time was ahead is in force again, unless it was cleared away.
func TestResetClockBringsBackWhatHasEndedTooEarly(t *testing.T) {
	n := newNode(t, "10.3.0.20", stickyFor(72*time.Hour))
	n.add(t, "c1/eth0", "web-1", "10.3.0.2")
	n.del(t, "c1/eth0")
	n.reboot("boot-2", time.Minute)
	right := n.day
	n.day = right.AddDate(10, 0, 0)
	n.expect(t, "by the wrong clock it has ended")
	n.day = right
	if _, err := n.store(t).ResetClock(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.expect(t, "by the right one it has not", "10.3.0.2 reserved c1/eth0 web-1")
}

// A lease that was made and ended while the time was ahead does not come back for years.
func TestResetClockEndsWhatHasEndedWhileItWasAhead(t *testing.T) {
	n := newNode(t, "10.3.0.20", stickyFor(time.Hour))
	right := n.day
	n.day = right.AddDate(10, 0, 0)
	n.add(t, "c1/eth0", "web-1", "10.3.0.2")
	n.add(t, "c2/eth0", "web-2", "10.3.0.3")
	n.del(t, "c1/eth0")
	n.reserve(t, "10.3.0.3", "web-2", time.Hour)
	n.reserve(t, "10.3.0.9", "hand-1", time.Hour)
	n.later(2 * time.Hour)
	n.expect(t, "they have ended", "10.3.0.3 held c2/eth0 web-2")
	n.day = right
	_, err := n.store(t).ResetClock(t.Context())
	must(t, err)
	n.expect(t, "after the reset", "10.3.0.3 held c2/eth0 web-2")
	n.del(t, "c2/eth0")
	n.later(time.Hour)
	n.expect(t, "its own time is over as well")
	n.add(t, "c3/eth0", "web-3", "10.3.0.4")
	n.expectVerified(t)
}

func TestResetClockIsRecorded(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	if _, err := n.store(t).ResetClock(t.Context()); !errors.Is(err, ErrNotLeased) {
		t.Errorf("without a store: %v", err)
	}
	if _, err := n.store(t).ClockAhead(t.Context()); !errors.Is(err, ErrNotLeased) {
		t.Errorf("without a store: %v", err)
	}
	n.add(t, "c1/eth0", "", "10.3.0.2")
	was := n.day.Format(time.RFC3339)
	n.day = n.day.AddDate(-1, 0, 0)
	_, err := n.store(t).ResetClock(t.Context())
	must(t, err)
	_, _, events := n.all(t)
	last := events[len(events)-1]
	if last.Type != ClockReset || !strings.Contains(last.Reason, was) || last.Address.IsValid() || !last.Time.Equal(n.day) {
		t.Errorf("%+v, want the time before, %s", last, was)
	}
}
