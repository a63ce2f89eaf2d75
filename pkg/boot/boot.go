package boot

import (
	"fmt"
	"os"
	"strings"
	"sync"
)

// ID returns the ID that the kernel chose for this boot.
func ID() (string, error) { return id() }

var id = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot ID: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
})
