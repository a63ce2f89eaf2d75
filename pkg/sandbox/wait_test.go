package sandbox

import (
	"os"
	"strconv"
	"testing"
	"time"
)

func fmtSelf() string { return strconv.Itoa(os.Getpid()) }

// waitFor waits until done returns true. It gives up after a minute.
func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatal("waited a minute in vain")
}
