package watch

import "time"

const (
	// settleDelay is how long a sandbox is quiet before it is read once more. The kernel does not report some changes, such
	// as most sysctls. They often come together with changes that it does report.
	settleDelay = time.Second
	// firstPause is the pause between the first two readings of a sandbox that goes on changing. Each further pause is
	// twice as long, up to longestPause. If the reading fails, the limit is longestRetry.
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
	longestRetry = 30 * time.Second
	// quietPauses is how many pauses a sandbox must be quiet until the pauses start again with firstPause.
	quietPauses = 4
	// timeShare: at most 1/timeShare of the time goes into one sandbox.
	timeShare = 10
	// slowReading is longer than most readings, even on a busy machine.
	slowReading = 100 * time.Millisecond
)

// pace decides when a sandbox is read. The first change after a quiet time is read at once, because the parent may go
// next.
type pace struct {
	// dirty says that something has changed since the last reading began. unsettled says that the sandbox still needs
	// the reading after a quiet time.
	dirty, unsettled bool
	// changed is when the last change was reported.
	changed time.Time
	// lastRead is when the last reading ended. notBefore is the earliest time of the next one.
	lastRead, notBefore time.Time
	pause               time.Duration
	// slow says that the last reading took long. A pod can have any number of routes and devices.
	slow bool
}

// mark notes a change.
func (p *pace) mark(instant time.Time) {
	if !p.dirty && instant.Sub(p.lastRead) > quietPauses*p.pause {
		p.pause = 0
	}
	if soon := p.lastRead.Add(longestPause); !p.slow && soon.Before(p.notBefore) { // What failed is not all that there is to read.
		p.notBefore = soon
	}
	p.dirty, p.unsettled, p.changed = true, true, instant
}

// due returns when the sandbox is to be read next. It returns false if nothing has changed.
func (p *pace) due() (time.Time, bool) {
	due := p.changed
	if !p.dirty {
		due = due.Add(settleDelay)
	}
	if due.Before(p.notBefore) {
		due = p.notBefore
	}
	return due, p.dirty || p.unsettled
}

// isAfterChange reports whether the reading that begins now comes soon after a change. Then another reading follows when the
// sandbox has settled.
func (p *pace) isAfterChange(instant time.Time) bool { return instant.Sub(p.changed) < settleDelay }

// begin notes that a reading begins. Later changes need another reading.
func (p *pace) begin() { p.dirty = false }

// end notes that the reading has ended.
func (p *pace) end(began, ended time.Time) {
	p.slow = ended.Sub(began) >= slowReading
	if !p.dirty && began.Sub(p.changed) >= settleDelay {
		p.unsettled, p.pause = false, 0
		return
	}
	p.schedule(began, ended, longestPause)
}

// failed notes that the reading has failed. The next try comes after the longest pause at the latest.
func (p *pace) failed(began, ended time.Time, longest time.Duration) {
	p.slow = ended.Sub(began) >= slowReading
	p.dirty, p.unsettled = true, true
	p.schedule(began, ended, longest)
}

func (p *pace) schedule(began, ended time.Time, longest time.Duration) {
	p.lastRead = ended
	p.pause = min(max(2*p.pause, firstPause), longest)
	p.notBefore = ended.Add(max(p.pause, (timeShare-1)*ended.Sub(began)))
}
