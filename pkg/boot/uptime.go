package boot

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Uptime returns the time since this boot (CLOCK_BOOTTIME), including the time in suspend. Unlike the time of
// day, nobody can set it.
func Uptime() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0, fmt.Errorf("read CLOCK_BOOTTIME: %w", err)
	}
	return time.Duration(t.Nano()), nil
}
