package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// kernelAtLeast says whether the running kernel has this version or a later one.
func kernelAtLeast(major, minor int) bool {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return false
	}
	var haveMajor, haveMinor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &haveMajor, &haveMinor); err != nil {
		return false
	}
	return haveMajor > major || haveMajor == major && haveMinor >= minor
}
