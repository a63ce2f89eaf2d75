package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// supervisor is systemd, if it watches this process (Type=notify). Without systemd its methods do nothing. They may be
// called from several goroutines at once.
type supervisor struct {
	// every is the least time between two signs of life: a quarter of the unit's WatchdogSec. It is 0 if nobody waits for
	// them.
	every time.Duration

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
	return &supervisor{every: limit / 4}, nil
}

// ready says that the agent has reconciled for the first time and watches. systemd then starts what is ordered after it.
func (s *supervisor) ready() { tell(daemon.SdNotifyReady) }

// stopping says that the agent ends in order.
func (s *supervisor) stopping() { tell(daemon.SdNotifyStopping) }

// alive is a sign of life. The working loop calls it each time that it comes round, and no timer does: so an agent whose
// loop hangs is restarted. It returns at once if it was called a moment ago.
func (s *supervisor) alive() {
	if s.every == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.last) < s.every {
		return
	}
	s.last = time.Now()
	tell(daemon.SdNotifyWatchdog)
}

// patience is how long the working loop may wait for an event before it comes round by itself.
func (s *supervisor) patience() time.Duration {
	const longest = time.Minute
	if s.every == 0 {
		return longest
	}
	return min(s.every, longest)
}

// tell sends a line to systemd. A failure is systemd's to notice: it ends a process that does not report.
func tell(line string) { _, _ = daemon.SdNotify(false, line) }
