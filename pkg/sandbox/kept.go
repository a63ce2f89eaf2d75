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
	// Path is one by which the namespace can be opened, if it still leads there. It is empty where
	// only a socket keeps it.
	Path string
	// Device and Cookie are those of a namespace that a socket keeps, else 0: Path tells them.
	Device, Cookie uint64
}

// Kept returns the network namespaces, by their inodes, that something on this node keeps and that
// List may not find: a thread or an open file of a process, or a mount that something else was
// mounted over or that is in another mount namespace. What goes meanwhile is left out. Search is
// slower and finds more.
func Kept() (map[uint64]Keeper, error) {
	pids, err := processes()
	if err != nil {
		return nil, err
	}
	k := newKeepers()
	for _, pid := range pids {
		k.ofProcess(pid)
	}
	return k.found, nil
}

// keepers are what was found to keep namespaces.
type keepers struct {
	// found are by the inodes of the namespaces.
	found map[uint64]Keeper
	// mountsSeen are the mount namespaces that were read, each with the root that it was seen from.
	mountsSeen map[string]bool
}

func newKeepers() keepers {
	return keepers{found: map[uint64]Keeper{}, mountsSeen: map[string]bool{}}
}

// ofProcess notes what the process keeps.
func (k keepers) ofProcess(pid int) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	k.byLinks(linksIn(filepath.Join(dir, "task", "*", "ns", "net")), "a thread of process "+strconv.Itoa(pid))
	k.byLinks(filesOf(pid), "an open file of process "+strconv.Itoa(pid))
	mounts, err := os.Readlink(filepath.Join(dir, "ns", "mnt"))
	root, noRoot := os.Readlink(filepath.Join(dir, "root"))
	// A process shows the mounts that are below its root. If it ends right now, another one has to show
	// them.
	if seen := mounts + " " + root; err == nil && noRoot == nil && !k.mountsSeen[seen] && k.byMounts(dir) == nil {
		k.mountsSeen[seen] = true
	}
}

// filesOf returns the links to the open files of the process, and to those of its threads that have
// files of their own. Where its first thread has ended and others go on, only these have them.
func filesOf(pid int) []string {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	links := linksIn(filepath.Join(dir, "fd", "*"))
	if len(links) == 0 {
		return linksIn(filepath.Join(dir, "task", "*", "fd", "*"))
	}
	for _, task := range linksIn(filepath.Join(dir, "task", "*")) {
		thread, err := strconv.Atoi(filepath.Base(task))
		if err == nil && thread != pid && !kernelid.ShareFiles(pid, thread) {
			links = append(links, linksIn(filepath.Join(task, "fd", "*"))...)
		}
	}
	return links
}

func linksIn(pattern string) []string {
	links, _ := filepath.Glob(pattern) // Only a bad pattern is an error.
	return links
}

// byLinks notes what the links lead to.
func (k keepers) byLinks(links []string, by string) {
	for _, link := range links {
		to, err := os.Readlink(link)
		if err != nil {
			continue
		}
		if inode, ok := netInode(to); ok {
			k.found[inode] = Keeper{By: by, Path: link}
		}
		// What was opened by a mount that is no more has no other name than this one, as the root
		// directory has.
		if to != "/" {
			continue
		}
		if id, err := kernelid.Read(link); err == nil {
			k.found[id.Inode] = Keeper{By: by, Path: link}
		}
	}
}

// byMounts notes what is mounted where the process is.
func (k keepers) byMounts(process string) error {
	f, err := os.Open(filepath.Join(process, "mountinfo"))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	mounts, err := parseMounts(f)
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if _, known := k.found[m.inode]; !known {
			by := fmt.Sprintf("a mount at %s, as process %s sees it,", m.path, filepath.Base(process))
			k.found[m.inode] = Keeper{By: by, Path: filepath.Join(process, "root", m.path)}
		}
	}
	return nil
}

// initialPIDs is the inode of the first PID namespace (PROC_PID_INIT_INO in linux/proc_ns.h).
const initialPIDs = 0xEFFFFFFC

// SeesAllProcesses says whether the processes that are seen here are all of the node's: they are
// not in a PID namespace of a container.
func SeesAllProcesses() bool {
	link, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && link == fmt.Sprintf("pid:[%d]", uint64(initialPIDs))
}
