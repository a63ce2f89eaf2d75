package sandbox

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/attachment"
)

// Sandbox is a network namespace of this node that is not the host's.
type Sandbox struct {
	// The kernel reuses an inode as soon as it is free: after opening one of the paths, compare.
	attachment.NamespaceFile
	// Paths are the paths by which the namespace can be opened, those that last longest first:
	// /run/netns, other mounts, then /proc/<pid>/ns/net, the oldest process first. There is at least one.
	Paths []string
}

// List returns the network namespaces that are mounted somewhere or that have a process, in the order of
// their first paths, without those of PID 1 and of the caller. It does not find a namespace that only an open
// file or a single thread keeps. Mounts and processes that go while they are read are left out. The error says
// that /proc cannot be read at all.
func List() ([]Sandbox, error) {
	processes, err := processPaths()
	if err != nil {
		return nil, err
	}
	return listWith(processes)
}

// ListMounted is List without those that only processes are in. It takes less time.
func ListMounted() ([]Sandbox, error) { return listWith(nil) }

func listWith(processes []foundPath) ([]Sandbox, error) {
	mounted, err := mountPaths()
	if err != nil {
		return nil, err
	}
	hosts := map[attachment.NamespaceFile]bool{}
	for _, path := range []string{"/proc/1/ns/net", "/proc/self/ns/net"} {
		if id, ok := Identify(path); ok {
			hosts[id] = true
		}
	}
	return merge(append(mounted, processes...), hosts), nil
}

// foundPath is a namespace that was seen at one path.
type foundPath struct {
	attachment.NamespaceFile
	path string
	// pid is that of the process, 0 for a mount.
	pid int
}

func mountPaths() ([]foundPath, error) {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounted namespaces: %w", err)
	}
	var paths []foundPath
	for _, m := range parseMounts(mountinfo) {
		// If something else was mounted over it, the path leads there.
		if id, ok := Identify(m.path); ok && id.Inode == m.inode {
			paths = append(paths, foundPath{NamespaceFile: id, path: m.path})
		}
	}
	return paths, nil
}

// merge returns a sandbox for each namespace that was seen and is not a host's.
func merge(paths []foundPath, hosts map[attachment.NamespaceFile]bool) []Sandbox {
	slices.SortStableFunc(paths, func(a, b foundPath) int {
		return cmp.Or(rank(a)-rank(b), a.pid-b.pid, strings.Compare(a.path, b.path))
	})
	var found []Sandbox
	place := map[attachment.NamespaceFile]int{}
	for _, s := range paths {
		if hosts[s.NamespaceFile] {
			continue
		}
		i, ok := place[s.NamespaceFile]
		if !ok {
			i = len(found)
			place[s.NamespaceFile] = i
			found = append(found, Sandbox{NamespaceFile: s.NamespaceFile})
		}
		if !slices.Contains(found[i].Paths, s.path) {
			found[i].Paths = append(found[i].Paths, s.path)
		}
	}
	return found
}

// rank puts the paths that last longest first. Runtimes mount the namespaces that they keep below
// /run/netns. /var/run is a link to /run on a modern node.
func rank(s foundPath) int {
	switch {
	case s.pid != 0:
		return 3
	case strings.HasPrefix(s.path, "/run/netns/"):
		return 0
	case strings.HasPrefix(s.path, "/var/run/netns/"):
		return 1
	}
	return 2
}
