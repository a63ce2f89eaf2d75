package sandbox

import (
	"strconv"
	"strings"
)

// mount is a network namespace that is mounted at a path.
type mount struct {
	path  string
	inode uint64
}

// parseMounts returns the network namespaces in the form of /proc/self/mountinfo
// (proc_pid_mountinfo(5)): nsfs mounts whose root is net:[inode].
func parseMounts(mountinfo []byte) (mounts []mount) {
	for line := range strings.Lines(string(mountinfo)) {
		if m, ok := parseMount(line); ok {
			mounts = append(mounts, m)
		}
	}
	return mounts
}

func parseMount(line string) (mount, bool) {
	const root, path, atLeast = 3, 4, 6
	before, after, ok := strings.Cut(line, " - ")
	fields := strings.Fields(before)
	if !ok || len(fields) < atLeast || !strings.HasPrefix(after, "nsfs ") {
		return mount{}, false
	}
	inode, ok := netInode(fields[root])
	if !ok {
		return mount{}, false
	}
	return mount{path: unescape(fields[path]), inode: inode}, true
}

// netInode returns the number in net:[4026532287].
func netInode(name string) (uint64, bool) {
	number, ok := strings.CutPrefix(name, "net:[")
	if !ok {
		return 0, false
	}
	number, ok = strings.CutSuffix(number, "]")
	if !ok {
		return 0, false
	}
	inode, err := strconv.ParseUint(number, 10, 64)
	return inode, err == nil
}

// unescape turns the kernel's octal escapes (\040 for a space) back.
func unescape(path string) string {
	const digits = 3
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] == '\\' && i+digits < len(path) {
			if c, err := strconv.ParseUint(path[i+1:i+1+digits], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += digits
				continue
			}
		}
		b.WriteByte(path[i])
	}
	return b.String()
}
