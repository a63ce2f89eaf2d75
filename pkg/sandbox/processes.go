package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"github.com/relink-cni/relink/pkg/attachment"
	kernelid "github.com/relink-cni/relink/pkg/kernel/identity"
)

// processPaths returns the namespaces that processes are in. A process that has ended meanwhile is left
// out.
func processPaths() ([]foundPath, error) {
	pids, err := processes()
	if err != nil {
		return nil, err
	}
	var paths []foundPath
	for _, pid := range pids {
		path := namespaceOf(pid)
		if id, ok := Identify(path); ok {
			paths = append(paths, foundPath{NamespaceFile: id, path: path, pid: pid})
		}
	}
	return paths, nil
}

// Hidden returns the processes whose namespaces the caller may not see. List does not find a namespace that
// only such a process is in. PID 1 is left out: it is in no sandbox.
func Hidden() (hidden []int, err error) {
	pids, err := processes()
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		if pid != 1 && isHidden(pid) {
			hidden = append(hidden, pid)
		}
	}
	return hidden, nil
}

// isHidden asks twice: while a process ends, the kernel says that it may not be seen.
func isHidden(pid int) bool {
	for range 2 {
		if _, err := os.Stat(namespaceOf(pid)); !errors.Is(err, fs.ErrPermission) {
			return false
		}
	}
	return true
}

func namespaceOf(pid int) string { return fmt.Sprintf("/proc/%d/ns/net", pid) }

// processes returns the IDs of all processes.
func processes() (pids []int, err error) {
	names, err := namesIn("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// namesIn returns the names of what is in the directory, in no order.
func namesIn(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return f.Readdirnames(-1)
}

// Identify returns the file of the namespace at the path, if there is one. It follows links, such as those in
// /proc/<pid>/ns. The runtime's path can be below a directory that is not here under that name (kernelid.Resolve).
func Identify(path string) (file attachment.NamespaceFile, ok bool) {
	var st syscall.Stat_t
	err := syscall.Stat(path, &st)
	if errors.Is(err, fs.ErrNotExist) {
		err = syscall.Stat(kernelid.Resolve(path), &st)
	}
	return attachment.NamespaceFile{Device: uint64(st.Dev), Inode: st.Ino}, err == nil //nolint:unconvert // Dev has 32 bits on some architectures.
}
