package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// supervisor is systemd, if systemd watches this process (Type=notify). Without systemd, its methods do nothing.
// Several goroutines may call them at once.
type supervisor struct {
	// interval is the least time between two signs of life: a quarter of the unit's WatchdogSec. It is 0 if nobody waits
	// for signs of life.
	interval time.Duration

	mu   sync.Mutex
	last time.Time
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

// notifyReady says that the agent knows all checkpoints, and hears of each change. Then systemd starts the units that are ordered
// after the agent.
func (s *supervisor) notifyReady() { notifySystemd(daemon.SdNotifyReady) }

// notifyStopping says that the agent ends in order.
func (s *supervisor) notifyStopping() { notifySystemd(daemon.SdNotifyStopping) }

// notifyWatchdog sends a sign of life. The agent's loop calls it in each round, and no timer does. So systemd restarts an agent
// whose loop hangs. notifyWatchdog does nothing if the last sign was a moment ago.
func (s *supervisor) notifyWatchdog() {
	if s.interval == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.last) < s.interval {
		return
	}
	s.last = time.Now()
	notifySystemd(daemon.SdNotifyWatchdog)
}

// maxWait is how long the agent's loop may wait for an event before its next round.
func (s *supervisor) maxWait() time.Duration {
	const longest = time.Minute
	if s.interval == 0 {
		return longest
	}
	return min(s.interval, longest)
}

// notifySystemd sends a line to systemd. It ignores failures: systemd ends a process that sends no signs of life.
func notifySystemd(line string) { _, _ = daemon.SdNotify(false, line) }
