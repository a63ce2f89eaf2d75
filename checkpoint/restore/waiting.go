package restore

import (
	"fmt"
	"time"
)

// TellWaiting returns a function for Options.Waiting. It tells each reason to wait once, after how long the wait is at most.
func TellWaiting(limit time.Duration, tell func(text string)) func(reasons []string) {
	told := map[string]bool{}
	return func(reasons []string) {
		if len(told) == 0 && len(reasons) > 0 {
			tell(fmt.Sprintf("%s at most for devices, and again for their carrier", limit))
		}
		for _, r := range reasons {
			if !told[r] {
				told[r] = true
				tell(r)
			}
		}
	}
}
