package sandbox

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// processesSeen returns the namespaces that processes are in. A process that is
// gone by the time it is looked at has none.
func processesSeen() ([]seen, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer func() { _ = proc.Close() }()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var all []seen
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		path := "/proc/" + name + "/ns/net"
		if id, ok := identify(path); ok {
			all = append(all, seen{identity: id, path: path, pid: pid})
		}
	}
	return all, nil
}

// identify returns which file is at the path, if one is. It follows links, as those
// in /proc/<pid>/ns are.
func identify(path string) (identity, bool) {
	info, err := os.Stat(path)
	if err != nil {
		return identity{}, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}, false
	}
	return identity{device: uint64(st.Dev), inode: st.Ino}, true //nolint:unconvert // Dev is 32 bits wide on some.
}

// Identify returns the device and inode of the namespace file at the path, and
// whether there is one.
func Identify(path string) (device, inode uint64, ok bool) {
	id, ok := identify(path)
	return id.device, id.inode, ok
}
