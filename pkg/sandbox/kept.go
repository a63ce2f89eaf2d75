package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	kernelid "github.com/relink-cni/relink/pkg/kernel/identity"
)

// Keeper keeps a network namespace.
type Keeper struct {
	// By says what it is, for people.
	By string
	// Path is one by which the namespace can be opened, if it still leads there.
	Path string
}

// Kept returns the network namespaces, by their inodes, that something on this node keeps and that
// List may not find: a thread or an open file of a process, or a mount that something else was
// mounted over or that is in another mount namespace. What goes meanwhile is left out.
func Kept() (map[uint64]Keeper, error) {
	pids, err := processes()
	if err != nil {
		return nil, err
	}
	kept, mountsSeen := map[uint64]Keeper{}, map[string]bool{}
	for _, pid := range pids {
		dir := filepath.Join("/proc", strconv.Itoa(pid))
		keptByLinks(kept, filepath.Join(dir, "task", "*", "ns", "net"), "a thread of process "+strconv.Itoa(pid))
		keptByLinks(kept, filepath.Join(dir, "fd", "*"), "an open file of process "+strconv.Itoa(pid))
		if mounts, err := os.Readlink(filepath.Join(dir, "ns", "mnt")); err == nil && !mountsSeen[mounts] {
			mountsSeen[mounts] = true
			keptByMounts(kept, dir)
		}
	}
	return kept, nil
}

// keptByLinks notes what the links lead to that the pattern matches.
func keptByLinks(kept map[uint64]Keeper, pattern, by string) {
	links, _ := filepath.Glob(pattern)
	for _, link := range links {
		to, err := os.Readlink(link)
		if err != nil {
			continue
		}
		if inode, ok := netInode(to); ok {
			kept[inode] = Keeper{by, link}
		}
		// What was opened by a mount that is no more has no other name than this one, as the root
		// directory has.
		if to != "/" {
			continue
		}
		if id, err := kernelid.Read(link); err == nil {
			kept[id.Inode] = Keeper{by, link}
		}
	}
}

// keptByMounts notes what is mounted where the process is.
func keptByMounts(kept map[uint64]Keeper, process string) {
	f, err := os.Open(filepath.Join(process, "mountinfo"))
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	mounts, err := parseMounts(f)
	if err != nil {
		return
	}
	for _, m := range mounts {
		if _, known := kept[m.inode]; !known {
			by := fmt.Sprintf("a mount at %s, as process %s sees it,", m.path, filepath.Base(process))
			kept[m.inode] = Keeper{by, filepath.Join(process, "root", m.path)}
		}
	}
}

// initialPIDs is the inode of the first PID namespace (PROC_PID_INIT_INO in linux/proc_ns.h).
const initialPIDs = 0xEFFFFFFC

// SeesAllProcesses says whether the processes that are seen here are all of the node's: they are
// not in a PID namespace of a container.
func SeesAllProcesses() bool {
	link, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && link == fmt.Sprintf("pid:[%d]", uint64(initialPIDs))
}
