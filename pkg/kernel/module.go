package kernel

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// modules are the names of the kernel's modules that make devices, by the kind of the device.
var modules = map[string]string{
	netstate.KindMacvlan: "macvlan", netstate.KindMacvtap: "macvtap", netstate.KindIPvlan: "ipvlan",
	netstate.KindVLAN: "8021q", netstate.KindBond: "bonding",
}

// missingModule returns what to do about the error of a request that makes a device of that kind:
// which module is missing, if that is what the kernel says (rtnl_newlink). It has tried to load
// the module itself, which fails for example in a container without modprobe.
func missingModule(kind string) func(error) string {
	return func(err error) string {
		var refused *rtnl.Error
		module, ok := modules[kind]
		if !ok || !errors.As(err, &refused) || refused.Errno != unix.EOPNOTSUPP || refused.Words != "Unknown device type" {
			return ""
		}
		return "the kernel module for it is missing: run modprobe " + module
	}
}
