package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
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

// kernelModules are the names of the kernel modules that make devices, by the kind of the device.
var kernelModules = map[string]string{
	netstate.KindMacvlan: "macvlan", netstate.KindMacvtap: "macvtap", netstate.KindIPvlan: "ipvlan",
	netstate.KindVLAN: "8021q", netstate.KindBond: "bonding",
}

// missingModule returns a function for Message.Advise. It names the module to load if the kernel
// cannot make devices of that kind (rtnl_newlink). The kernel has tried to load the module itself
// by then. That fails, for example, in a container without modprobe, or if the module is not
// installed.
func missingModule(kind string) func(error) string {
	return func(err error) string {
		var refused *rtnl.Error
		module, ok := kernelModules[kind]
		if !ok || !errors.As(err, &refused) || refused.Errno != unix.EOPNOTSUPP || refused.Message != "Unknown device type" {
			return ""
		}
		return "the kernel module for it is missing: run modprobe " + module
	}
}
