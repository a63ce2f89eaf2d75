package sandbox

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Sandbox is a network namespace of this node that is not the host's.
type Sandbox struct {
	// Device and Inode are those of the nsfs file. The kernel gives an inode
	// again as soon as it is free: who opens one of the paths compares.
	Device, Inode uint64
	// Paths are those by which the namespace can be opened, the steadiest first:
	// /run/netns, other mounts, then /proc/<pid>/ns/net, the oldest process's
	// first. There is at least one.
	Paths []string
}

// List returns the network namespaces that are mounted somewhere or that a process
// is in, in the order of their first paths, without those of PID 1 and of the
// caller. One that is kept by an open file or by a single thread alone is not found.
// Mounts and processes that go while they are read are left out: the error is that
// /proc can't be read at all.
func List() ([]Sandbox, error) {
	mounted, err := mountedSeen()
	if err != nil {
		return nil, err
	}
	processes, err := processesSeen()
	if err != nil {
		return nil, err
	}
	hosts := map[identity]bool{}
	for _, path := range []string{"/proc/1/ns/net", "/proc/self/ns/net"} {
		if id, ok := identify(path); ok {
			hosts[id] = true
		}
	}
	return merge(append(mounted, processes...), hosts), nil
}

// identity tells namespaces apart at one moment.
type identity struct{ device, inode uint64 }

// seen is a namespace by one of its paths.
type seen struct {
	identity
	path string
	// pid is the process's, 0 for a mount.
	pid int
}

func mountedSeen() ([]seen, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounted namespaces: %w", err)
	}
	defer func() { _ = f.Close() }()
	mounts, err := parseMounts(f)
	if err != nil {
		return nil, fmt.Errorf("list mounted namespaces: %w", err)
	}
	var all []seen
	for _, m := range mounts {
		// Another one is seen where something was mounted over it.
		if id, ok := identify(m.path); ok && id.inode == m.inode {
			all = append(all, seen{identity: id, path: m.path})
		}
	}
	return all, nil
}

// merge returns a sandbox for each namespace that was seen and is no host's.
func merge(all []seen, hosts map[identity]bool) []Sandbox {
	slices.SortStableFunc(all, func(a, b seen) int {
		return cmp.Or(rank(a)-rank(b), a.pid-b.pid, strings.Compare(a.path, b.path))
	})
	var found []Sandbox
	place := map[identity]int{}
	for _, s := range all {
		if hosts[s.identity] {
			continue
		}
		i, known := place[s.identity]
		if !known {
			i = len(found)
			place[s.identity] = i
			found = append(found, Sandbox{Device: s.device, Inode: s.inode})
		}
		if !slices.Contains(found[i].Paths, s.path) {
			found[i].Paths = append(found[i].Paths, s.path)
		}
	}
	return found
}

// rank puts the paths that last longest first. Runtimes mount what they keep below
// /run/netns; /var/run is /run on a node of today.
func rank(s seen) int {
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
