package flock

import (
	"strings"
	"time"
)

// NoticeAfter is how long a wait lasts before it is reported. Most waits are over in milliseconds.
const NoticeAfter = time.Second

// Wait is a wait for a lock, for the person who started the program.
type Wait struct {
	// Subject is what the lock is of, such as "shop/web-0".
	Subject string
	// Holders have the lock. It is empty where the kernel does not tell.
	Holders []Holder
}

// String is the wait in one line.
func (w Wait) String() string {
	line := "waiting for the lock of " + w.Subject
	if len(w.Holders) > 0 {
		line += " (held by " + holderNames(w.Holders) + ")"
	}
	return line
}

// OnWait is called once for each wait that lasts longer than NoticeAfter, by the goroutine that
// waits. Several goroutines can call it at once. nil is for nobody.
type OnWait func(Wait)

func holderNames(holders []Holder) string {
	var list []string
	for _, h := range holders {
		list = append(list, h.String())
	}
	return strings.Join(list, "; ")
}
