package main

import (
	"fmt"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// supervisor is systemd, if systemd watches this process (Type=notify).
type supervisor struct {
	// interval is the least time between two signs of life: a quarter of the unit's WatchdogSec. It is 0 if nobody waits
	// for signs of life.
	interval time.Duration
	last     time.Time
}

// newSupervisor reads from the environment whether systemd watches this process.
func newSupervisor() (*supervisor, error) {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("read WATCHDOG_USEC=%q and WATCHDOG_PID=%q, which systemd sets: %w",
			os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID"), err)
	}
	return &supervisor{interval: limit / 4}, nil
}

// notifyWatchdog sends a sign of life. The agent's loop calls it in each round, and no timer does. So systemd restarts an agent
// whose loop hangs. notifyWatchdog does nothing if the last sign was a moment ago.
func (s *supervisor) notifyWatchdog() {
	if s.interval > 0 && time.Since(s.last) >= s.interval {
		s.last = time.Now()
		notifySystemd(daemon.SdNotifyWatchdog)
	}
}

// notifySystemd sends a line to systemd, if there is one. It ignores failures: systemd ends a process that sends no signs of life.
func notifySystemd(line string) { _, _ = daemon.SdNotify(false, line) }
