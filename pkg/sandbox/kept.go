package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/relink-cni/relink/pkg/failpoint"
	kernelid "github.com/relink-cni/relink/pkg/kernel/identity"
)

// NamespaceKeeper keeps a network namespace.
type NamespaceKeeper struct {
	// Description says what it is, for people.
	Description string
	// Path is one by which the namespace can be opened, if it still leads there: one that lasts longest. It is empty if only a
	// socket keeps the namespace.
	Path       string
	durability durability
	// Device and Cookie are those of a namespace that a socket keeps, else 0: Path tells them.
	Device, Cookie uint64
}

// durability tells ways apart by how long they last.
type durability int

// The shortest first: a thread can be in a namespace for a moment, to look into it.
const (
	byThread durability = iota
	byFile
	byMount
)

// isThread says that nothing but threads was found to keep the namespace.
func (k NamespaceKeeper) isThread() bool { return k.Path != "" && k.durability == byThread }

// with returns the keeper with the path, if that lasts as long. Of those that last equally long, the newest counts.
func (k NamespaceKeeper) with(description, path string, l durability) NamespaceKeeper {
	if k.Path != "" && k.durability > l {
		return k
	}
	return NamespaceKeeper{Description: description, Path: path, durability: l}
}

// keepers are what was found to keep namespaces.
type keepers struct {
	// found are by the inodes of the namespaces.
	found map[uint64]NamespaceKeeper
	// mountsSeen are the mount namespaces that were read, each with the root from which it was seen.
	mountsSeen map[string]bool
}

func newKeepers() keepers {
	return keepers{found: map[uint64]NamespaceKeeper{}, mountsSeen: map[string]bool{}}
}

// addProcess notes what the process keeps, and returns its open files. A thread can leave a namespace after it has opened a file there, so
// the files come last.
func (k keepers) addProcess(pid int) []file {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	var threads []string
	for _, task := range linksIn(dir + "/task") {
		threads = append(threads, task+"/ns/net")
	}
	k.addLinks(threads, "a thread of process "+strconv.Itoa(pid), byThread)
	files := k.addLinks(filesOf(pid), "an open file of process "+strconv.Itoa(pid), byFile)
	mounts, err := os.Readlink(filepath.Join(dir, "ns", "mnt"))
	root, noRoot := os.Readlink(filepath.Join(dir, "root"))
	// A process shows only the mounts below its root. If it ends right now, another process has to show them.
	if key := mounts + " " + root; err == nil && noRoot == nil && !k.mountsSeen[key] && k.addMounts(dir) == nil {
		k.mountsSeen[key] = true
	}
	return files
}

// filesOf returns the links to the open files of the process, and to those of threads that have files of their
// own. If the first thread has ended and others go on, only these have the files.
func filesOf(pid int) []string {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	links := linksIn(dir + "/fd")
	noLinks := len(links) == 0
	for _, task := range linksIn(dir + "/task") {
		thread, err := strconv.Atoi(filepath.Base(task))
		if err == nil && thread != pid && (noLinks || !kernelid.ShareFiles(pid, thread)) {
			links = append(links, linksIn(task+"/fd")...)
		}
	}
	return links
}

// linksIn returns the paths of what is in the directory. There is nothing if the process has ended. filepath.Glob takes twice the time.
func linksIn(dir string) (links []string) {
	names, _ := namesIn(dir)
	for _, name := range names {
		links = append(links, dir+"/"+name)
	}
	return links
}

// file is a link, and what it leads to.
type file struct{ link, target string }

// addLinks notes what the links lead to, and returns it.
func (k keepers) addLinks(links []string, description string, l durability) (files []file) {
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil {
			continue
		}
		files = append(files, file{link, target})
		if inode, ok := netInode(target); ok {
			k.add(inode, description, link, l)
		}
		// A file that was opened at a mount that is gone has this name. The root directory has it, too.
		if target != "/" {
			continue
		}
		if id, err := kernelid.Read(link); err == nil {
			k.add(id.Inode, description, link, l)
		}
	}
	return files
}

// addMounts notes what is mounted where the process is.
func (k keepers) addMounts(process string) error {
	mountinfo, err := os.ReadFile(filepath.Join(process, "mountinfo"))
	for _, m := range parseMounts(mountinfo) {
		description := fmt.Sprintf("a mount at %s, as process %s sees it,", m.path, filepath.Base(process))
		k.add(m.inode, description, filepath.Join(process, "root", m.path), byMount)
	}
	return err
}

func (k keepers) add(inode uint64, description, path string, l durability) {
	k.found[inode] = k.found[inode].with(description, path, l)
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
