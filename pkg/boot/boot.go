package boot

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
)

// path is where the kernel tells it. Tests take it away.
var path = "/proc/sys/kernel/random/boot_id"

// known is the ID once it has been read. A failure to read it is not remembered: the next
// call may be luckier.
var known atomic.Pointer[string]

// ID returns the ID that the kernel chose for this boot.
func ID() (string, error) {
	if id := known.Load(); id != nil {
		return *id, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read boot ID: %w", err)
	}
	id := strings.TrimSpace(string(b))
	known.Store(&id)
	return id, nil
}
