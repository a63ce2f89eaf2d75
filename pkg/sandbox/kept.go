package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/relink-cni/relink/pkg/failpoint"
	kernelid "github.com/relink-cni/relink/pkg/kernel/identity"
)

// Keeper keeps a network namespace.
type Keeper struct {
	// By says what it is, for people.
	By string
	// Path is one by which the namespace can be opened, if it still leads there. It is empty if only a
	// socket keeps the namespace. Paths has it and others.
	Path string
	// Device and Cookie are those of a namespace that a socket keeps, else 0: Path tells them.
	Device, Cookie uint64
	// ways are the paths, those that last longest first.
	ways [4]way
}

// way is a path to a namespace.
type way struct {
	path  string
	lasts lasts
}

// lasts tells ways apart by how long they last.
type lasts int

// The shortest first: a thread can be in a namespace for a moment, to look into it.
const (
	byThread lasts = iota
	byFile
	byMount
)

// Paths returns some of the paths by which the namespace can be opened, those that last longest first. Each
// may lead elsewhere by now.
func (k Keeper) Paths() []string {
	var all []string
	for _, w := range k.ways {
		if w.path != "" {
			all = append(all, w.path)
		}
	}
	return all
}

// isThread says that nothing but threads was found to keep the namespace.
func (k Keeper) isThread() bool { return k.ways[0].path != "" && k.ways[0].lasts == byThread }

// with returns the keeper with one more way. Of those that last equally long, the newest goes first.
func (k Keeper) with(by, path string, l lasts) Keeper {
	i := 0
	for i < len(k.ways) && k.ways[i].path != "" && k.ways[i].lasts > l {
		i++
	}
	if i == len(k.ways) {
		return k
	}
	copy(k.ways[i+1:], k.ways[i:])
	k.ways[i] = way{path, l}
	if i == 0 {
		k.By, k.Path, k.Device, k.Cookie = by, path, 0, 0
	}
	return k
}

// Kept returns the network namespaces that something on this node keeps, by their inodes. It finds some that
// List does not: those that a thread or an open file of a process keeps, a mount in another mount namespace, or
// a mount that something else was mounted over. What goes meanwhile is left out. Search is slower and finds
// more.
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
	// mountsSeen are the mount namespaces that were read, each with the root from which it was seen.
	mountsSeen map[string]bool
}

func newKeepers() keepers {
	return keepers{found: map[uint64]Keeper{}, mountsSeen: map[string]bool{}}
}

// ofProcess notes what the process keeps.
func (k keepers) ofProcess(pid int) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	k.byLinks(linksIn(filepath.Join(dir, "task", "*", "ns", "net")), "a thread of process "+strconv.Itoa(pid), byThread)
	k.byLinks(filesOf(pid), "an open file of process "+strconv.Itoa(pid), byFile)
	mounts, err := os.Readlink(filepath.Join(dir, "ns", "mnt"))
	root, noRoot := os.Readlink(filepath.Join(dir, "root"))
	// A process shows only the mounts below its root. If it ends right now, another process has to show them.
	if seen := mounts + " " + root; err == nil && noRoot == nil && !k.mountsSeen[seen] && k.byMounts(dir) == nil {
		k.mountsSeen[seen] = true
	}
}

// filesOf returns the links to the open files of the process, and to those of threads that have files of their
// own. If the first thread has ended and others go on, only these have the files.
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
func (k keepers) byLinks(links []string, by string, l lasts) {
	for _, link := range links {
		to, err := os.Readlink(link)
		if err != nil {
			continue
		}
		if inode, ok := netInode(to); ok {
			k.note(inode, by, link, l)
		}
		// A file that was opened at a mount that is gone has this name. The root directory has it, too.
		if to != "/" {
			continue
		}
		if id, err := kernelid.Read(link); err == nil {
			k.note(id.Inode, by, link, l)
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
		by := fmt.Sprintf("a mount at %s, as process %s sees it,", m.path, filepath.Base(process))
		k.note(m.inode, by, filepath.Join(process, "root", m.path), byMount)
	}
	return nil
}

func (k keepers) note(inode uint64, by, path string, l lasts) {
	k.found[inode] = k.found[inode].with(by, path, l)
}

// initialPIDs is the inode of the first PID namespace (PROC_PID_INIT_INO in linux/proc_ns.h).
const initialPIDs = 0xEFFFFFFC

// SeesAllProcesses says whether the processes that are seen here are all of the node's: they are
// not in a PID namespace of a container.
func SeesAllProcesses() bool {
	if failpoint.AllProcesses() {
		return true
	}
	link, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && link == fmt.Sprintf("pid:[%d]", uint64(initialPIDs))
}
