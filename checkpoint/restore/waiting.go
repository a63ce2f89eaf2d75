package restore

import (
	"fmt"
	"time"
)

// TellWaiting returns a function for Options.Waiting. It tells each reason to wait once, after how long the wait is at most and what
// ends it, which begins with "; " or is empty.
func TellWaiting(limit time.Duration, end string, tell func(text string)) func(reasons []string) {
	told := map[string]bool{}
	return func(reasons []string) {
		if len(told) == 0 && len(reasons) > 0 {
			tell(fmt.Sprintf("%s at most for devices, and again for their carrier%s", limit, end))
		}
		for _, r := range reasons {
			if !told[r] {
				told[r] = true
				tell(r)
			}
		}
	}
}
