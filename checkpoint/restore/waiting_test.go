package restore

import (
	"slices"
	"testing"
	"time"
)

func TestWaitingSaysForHowLong(t *testing.T) {
	var told []string
	waiting := TellWaiting(30*time.Second, "; ^C ends the wait", func(text string) { told = append(told, text) })
	for _, reasons := range [][]string{nil, {"eth0 is not there"}, {"eth0 is not there", "eth1 has no carrier"}} {
		waiting(reasons)
	}
	if want := []string{"30s at most for devices, and again for their carrier; ^C ends the wait", "eth0 is not there", "eth1 has no carrier"}; !slices.Equal(told, want) {
		t.Errorf("%q", told)
	}
}
