package fresh

import "time"

const (
	// settle is how long a sandbox is quiet before it is read once more. The kernel does not report some changes, such
	// as most sysctls. They often come together with changes that it does report.
	settle = time.Second
	// firstPause is the pause between the first two readings of a sandbox that goes on changing. Each further pause is
	// twice as long, up to longestPause. If the reading fails, the limit is longestRetry.
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
	longestRetry = 30 * time.Second
	// quiet is how many pauses a sandbox must be quiet until the pauses start again with firstPause.
	quiet = 4
	// 1/share of the time may be spent on one sandbox.
	share = 10
	// long is longer than most readings, even on a busy machine.
	long = 100 * time.Millisecond
)

// pace decides when a sandbox is read. The first change after a quiet time is read at once, because the parent may go
// next.
type pace struct {
	// dirty says that something has changed since the last reading began. unsettled says that the sandbox still needs
	// the reading after a quiet time.
	dirty, unsettled bool
	// changed is when the last change was reported.
	changed time.Time
	// read is when the last reading ended. notBefore is the earliest time of the next one.
	read, notBefore time.Time
	pause           time.Duration
	// slow says that the last reading took long. A pod can have any number of routes and devices.
	slow bool
}

// mark notes a change.
func (p *pace) mark(now time.Time) {
	if !p.dirty && now.Sub(p.read) > quiet*p.pause {
		p.pause = 0
	}
	p.dirty, p.unsettled, p.changed = true, true, now
}

// due returns when the sandbox is to be read next. It returns false if nothing has changed.
func (p *pace) due() (time.Time, bool) {
	at := p.changed
	if !p.dirty {
		at = at.Add(settle)
	}
	if at.Before(p.notBefore) {
		at = p.notBefore
	}
	return at, p.dirty || p.unsettled
}

// hurried reports whether the reading that begins now comes soon after a change. Then another reading follows when the
// sandbox has settled.
func (p *pace) hurried(now time.Time) bool { return now.Sub(p.changed) < settle }

// begin notes that a reading begins. Later changes need another reading.
func (p *pace) begin() { p.dirty = false }

// end notes that the reading has ended.
func (p *pace) end(began, ended time.Time) {
	p.slow = ended.Sub(began) >= long
	if !p.dirty && began.Sub(p.changed) >= settle {
		p.unsettled, p.pause = false, 0
		return
	}
	p.rest(began, ended, longestPause)
}

// failed notes that the reading has failed. The next try comes after the longest pause at the latest.
func (p *pace) failed(began, ended time.Time, longest time.Duration) {
	p.slow = ended.Sub(began) >= long
	p.dirty, p.unsettled = true, true
	p.rest(began, ended, longest)
}

func (p *pace) rest(began, ended time.Time, longest time.Duration) {
	p.read = ended
	p.pause = min(max(2*p.pause, firstPause), longest)
	p.notBefore = ended.Add(max(p.pause, (share-1)*ended.Sub(began)))
}
