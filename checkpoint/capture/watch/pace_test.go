package watch

import (
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// A pod that changes something 1,000 times per second for ten seconds, and then stops.
func TestThePaceIsBounded(t *testing.T) {
	const cost = time.Millisecond
	start := time.Unix(1000, 0)
	var p pace
	var readings []time.Duration
	for tick := time.Duration(0); tick < 30*time.Second; tick += time.Millisecond {
		now := start.Add(tick)
		if tick < 10*time.Second {
			p.mark(now)
		}
		if at, is := p.due(); is && !at.After(now) {
			p.begin()
			p.end(now, now.Add(cost))
			readings = append(readings, tick)
		}
	}
	if readings[0] != 0 {
		t.Errorf("the first reading comes after %s, not at once", readings[0])
	}
	if n := len(readings); n < 10 || n > 20 {
		t.Errorf("%d readings: %v", n, readings)
	}
	last := readings[len(readings)-1]
	if last < 11*time.Second-time.Millisecond || last > 12*time.Second {
		t.Errorf("the last reading is at %s, not when the pod has settled", last)
	}
	p.mark(start.Add(40 * time.Second))
	if at, is := p.due(); !is || at != start.Add(40*time.Second) {
		t.Errorf("a change after a quiet time is read %s later", at.Sub(start.Add(40*time.Second)))
	}
}

func TestThePaceOfAnExpensiveSandbox(t *testing.T) {
	now := time.Unix(1000, 0)
	var p pace
	p.mark(now)
	p.begin()
	p.mark(now)
	p.end(now, now.Add(time.Second))
	if at, is := p.due(); !is || at != now.Add(10*time.Second) {
		t.Errorf("a reading takes a second, and the next one comes %s after the begin of the first", at.Sub(now))
	}
}

func TestAFailedReadingIsTriedAgain(t *testing.T) {
	now := time.Unix(1000, 0)
	var p pace
	p.mark(now)
	var pauses []time.Duration
	for range 15 {
		at, is := p.due()
		if !is {
			t.Fatal("the failed reading is not repeated")
		}
		pauses = append(pauses, at.Sub(now))
		now = at
		p.begin()
		p.failed(now, now, longestRetry)
	}
	if pauses[1] != firstPause || pauses[2] != 2*firstPause || pauses[14] != longestRetry {
		t.Errorf("the pauses are %v", pauses)
	}
}

// What fails for long does not keep the rest of the sandbox from being read, unless its reading takes long.
func TestAChangeBesideAFailureIsReadSoon(t *testing.T) {
	now := time.Unix(1000, 0)
	var p pace
	for range 15 {
		p.begin()
		p.failed(now, now, longestRetry)
	}
	p.mark(now.Add(time.Millisecond))
	if at, is := p.due(); !is || at != now.Add(longestPause) {
		t.Errorf("it is read %s later", at.Sub(now))
	}
	p.begin()
	p.failed(now, now.Add(time.Second), longestRetry)
	p.mark(now.Add(2 * time.Second))
	if at, _ := p.due(); at != now.Add(time.Second+longestRetry) {
		t.Errorf("one whose reading takes a second is read %s later", at.Sub(now))
	}
}

// Somebody types a command every second: each change is read at once.
func TestAChangeAfterAQuietTimeIsReadAtOnce(t *testing.T) {
	now := time.Unix(1000, 0)
	var p pace
	for i := range 20 {
		now = now.Add(time.Second / 2)
		p.mark(now)
		if at, is := p.due(); !is || at != now {
			t.Errorf("change %d is read %s later", i, at.Sub(now))
		}
		p.begin()
		p.end(now, now.Add(time.Millisecond))
	}
}

// Whether a pod goes on changing or a new one rests: each has its turns, and one that is not due has none.
func TestChangedAndNewSandboxesTakeTurns(t *testing.T) {
	now := time.Now()
	r := &Refresher{}
	recorded := map[attachment.Key]*attached{{}: {}}
	changing, another, rested := &sandbox{attachments: recorded}, &sandbox{attachments: recorded}, &sandbox{}
	for s, ago := range map[*sandbox]time.Duration{changing: time.Hour, another: time.Minute, rested: 5 * time.Second} {
		s.pace = pace{dirty: true, unsettled: true, changed: now.Add(-ago)}
		s.restlessSince = s.pace.changed
		r.enqueue(s)
	}
	turns := map[*sandbox]int{}
	for range 6 {
		s, _ := r.nextDue()
		turns[s]++
	}
	if turns[rested] != 3 || turns[changing] != 3 {
		t.Errorf("of 6 turns, %d were of the one that rests, and %d of the one that changed first", turns[rested], turns[changing])
	}
	rested.pace.changed = now
	r.enqueue(rested)
	for range 2 {
		if s, _ := r.nextDue(); s != changing {
			t.Error("one that is not due has a turn")
		}
	}
	rested.restlessSince = now.Add(-unrestLimit)
	if r.enqueue(rested); rested.due.After(now) {
		t.Error("one that goes on changing is never due")
	}
}
