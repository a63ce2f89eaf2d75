package boot

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// path is where the kernel tells it. Tests take it away.
var path = "/proc/sys/kernel/random/boot_id"

// known is the ID once it has been read. A failure to read it is not remembered: the next
// call may be luckier.
var known atomic.Pointer[string]

// read reads the file, if it is the kernel's. systemd-nspawn and others put one of their own in its
// place: by that all that was made in this boot would look like an earlier boot's.
func read() ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return nil, err
	}
	if fs.Type != unix.PROC_SUPER_MAGIC {
		return nil, fmt.Errorf("%s is not the kernel's: something is mounted over it, as in a container", path)
	}
	return io.ReadAll(f)
}

// ID returns the ID that the kernel chose for this boot.
func ID() (string, error) {
	if id := known.Load(); id != nil {
		return *id, nil
	}
	b, err := read()
	if err != nil {
		return "", fmt.Errorf("read boot ID: %w", err)
	}
	id := strings.TrimSpace(string(b))
	known.Store(&id)
	return id, nil
}
