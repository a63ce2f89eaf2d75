package main

import (
	"bytes"
	"testing"
	"time"
)

// Whoever waits knows for how long, for what, and how to end it. Each reason comes once.
func TestWaitingSaysForHowLong(t *testing.T) {
	var out bytes.Buffer
	waiting := (&screen{err: &out}).printWaiting(30 * time.Second)
	for _, reasons := range [][]string{nil, {"eth0 is not there"}, {"eth0 is not there", "eth1 has no carrier"}} {
		waiting(reasons)
	}
	const want = `waiting: 30s at most for devices, and again for their carrier; ^C ends the wait
waiting: eth0 is not there
waiting: eth1 has no carrier
`
	if out.String() != want {
		t.Errorf("%s", &out)
	}
}
