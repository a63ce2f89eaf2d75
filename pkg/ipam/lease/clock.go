package lease

import (
	"context"
	"errors"
	"time"
)

// The time of a store is not the time of day. A node without a battery boots with a clock that is months
// behind. A clock that is wrong by years is set right at some time. Reservations would end too early by such a clock,
// or years too late. Within a boot the time of the store follows the kernel's time since the boot, which
// nobody can set. Between boots only the time of day says how much time has passed.

// clockMark is the time of a store at its last change, in JSON under keyClock.
type clockMark struct {
	Time   time.Time     `json:"time"`
	Uptime time.Duration `json:"uptime"`
	BootID string        `json:"bootID"`
}

// storeTime returns the store's time now.
func (l *leaseTx) storeTime() (_ time.Time, err error) {
	var last, start clockMark
	if start.BootID, err = l.store.boot(); err != nil {
		return time.Time{}, err
	}
	if start.Uptime, err = l.store.uptime(); err != nil {
		return time.Time{}, err
	}
	start.Uptime = start.Uptime.Truncate(time.Millisecond)
	l.startMark = start
	if err := decodeFrom(l.meta, keyClock, "clock", &last); err != nil {
		return time.Time{}, err
	}
	if last.BootID == start.BootID {
		return last.Time.Add(max(0, start.Uptime-last.Uptime)), nil
	}
	return latest(last.Time, l.wallClock()), nil
}

// bootID returns the ID of this boot.
func (l *leaseTx) bootID() string { return l.startMark.BootID }

// setMark notes the time of this change, and the time since the boot when it was read. So the time that the
// change itself takes counts.
func (l *leaseTx) setMark() error {
	mark := l.startMark
	mark.Time = l.instant
	return l.meta.Put([]byte(keyClock), encode(&mark))
}

// ClockAhead returns how far the time of the store is ahead of the time of day. It is negative if the
// store is behind. ErrNotLeased: there is no store.
func (s *Store) ClockAhead(ctx context.Context) (time.Duration, error) {
	return result(ctx, s.view, func(l *leaseTx) (time.Duration, error) { return l.instant.Sub(l.wallClock()), nil })
}

func (l *leaseTx) wallClock() time.Time { return l.store.wallClock() }

func (s *Store) wallClock() time.Time { return s.clock().UTC().Truncate(time.Millisecond) }

// ResetClock sets the time of the store to the time of day, and returns how far it was ahead. What is
// reserved or in quarantine keeps the time that it has left. What ended only because the time was ahead is
// in force again, if it was not cleared away yet. ErrNotLeased: there is no store.
func (s *Store) ResetClock(ctx context.Context) (ahead time.Duration, err error) {
	return result(ctx, s.change, func(l *leaseTx) (time.Duration, error) {
		previous := l.instant
		l.instant = l.wallClock()
		leases, err := l.all()
		for _, lease := range leases {
			err = errors.Join(err, l.put(lease.withTimeSet(previous, l.instant)))
		}
		l.addEvent(Event{Type: ClockReset, Reason: "the store's time was " + previous.Format(time.RFC3339)})
		return previous.Sub(l.instant), err
	})
}

// withTimeSet returns the lease after the time of its store was set from previous to current.
func (l Lease) withTimeSet(previous, current time.Time) Lease {
	// end moves the end of what was made at that time.
	end := func(t *time.Time, start time.Time) {
		switch {
		case t.After(previous):
			*t = current.Add(t.Sub(previous))
		case t.After(current) && start.After(current):
			*t = current // It began and ended while the time was ahead.
		}
	}
	begun := func(t *time.Time) {
		if t.After(current) {
			*t = latest(time.Time{}, current.Add(t.Sub(previous)))
		}
	}
	end(&l.Until, latest(l.ReleasedAt, l.ByHandAt))
	end(&l.ByHandUntil, l.ByHandAt)
	begun(&l.ByHandAt)
	begun(&l.ReleasedAt)
	begun(&l.Last.Since)
	holders := l.Holders
	l.Holders = nil
	for _, h := range holders {
		begun(&h.Since)
		l.Holders = append(l.Holders, h)
	}
	return l
}

// endChange ends a change: it notes what happened and when.
func (l *leaseTx) endChange() error { return errors.Join(l.writeEvents(), l.setMark()) }

// SetClock gives the store another boot and another time than the kernel's, for tests: clock is the time of
// day, uptime the time since that boot.
func (s *Store) SetClock(bootID string, clock func() time.Time, uptime func() (time.Duration, error)) {
	s.bootID, s.clock, s.uptime = bootID, clock, uptime
}

// SetMachine gives the store another machine's ID than the file's, for tests.
func (s *Store) SetMachine(id string) { s.machine = func() string { return id } }

// SetWait bounds the wait for the store, which is 30 s otherwise.
func (s *Store) SetWait(d time.Duration) { s.wait = d }
