// Package wait waits for a time or for a context, and wakes who waits.
package wait

import (
	"context"
	"time"
)

// Sleep waits for the time. It returns false if ctx is done before the time is up.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Wake gives the channel a value, unless it has one that nobody has taken yet.
func Wake(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}
