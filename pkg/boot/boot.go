package boot

import (
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// path is the file with the boot ID. Tests replace it.
var path = "/proc/sys/kernel/random/boot_id"

// cachedID is the ID after it was read. A failure is not remembered: the next call may succeed.
var cachedID atomic.Pointer[string]

// read reads the file, if it is the kernel's. systemd-nspawn and others mount one of their own over it. By such
// an ID, everything from this boot would seem to be of an earlier one.
func read() ([]byte, error) {
	// os.Open would start the poller of the Go runtime and a thread for it, in a plugin that lives for two
	// milliseconds.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return nil, err
	}
	if st.Type != unix.PROC_SUPER_MAGIC {
		return nil, fmt.Errorf("%s is not the kernel's: something is mounted over it, as in a container", path)
	}
	const length = 36 // The length of a UUID as text. The kernel adds a newline.
	b := make([]byte, length+1)
	n, err := unix.Read(fd, b)
	return b[:max(n, 0)], err
}

// ID returns the ID that the kernel chose for this boot.
func ID() (string, error) {
	if id := cachedID.Load(); id != nil {
		return *id, nil
	}
	b, err := read()
	if err != nil {
		return "", fmt.Errorf("read boot ID: %w", err)
	}
	id := strings.TrimSpace(string(b))
	cachedID.Store(&id)
	return id, nil
}
