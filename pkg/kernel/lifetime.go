package kernel

import (
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/netstate"
)

// unlimited is the kernel's lifetime of an address that has no end (linux/if_addr.h,
// INFINITY_LIFE_TIME).
const unlimited = math.MaxUint32

// setLifetimes notes the ends of lifetimes in seconds that the kernel has just told. The kernel
// rounds up what is left of them. If nothing is left of preferred and valid has no end, somebody
// made the address deprecated, and a flag says so.
func setLifetimes(a *netstate.Address, valid, preferred uint32) {
	if valid == unlimited && (preferred == unlimited || preferred == 0) {
		return
	}
	uptime, _ := boot.Uptime() // CLOCK_BOOTTIME is there since Linux 2.6.39.
	seconds := int64(uptime.Seconds())
	if valid != unlimited {
		a.ValidUntil = seconds + int64(valid)
	}
	if preferred != unlimited {
		a.PreferredUntil = seconds + int64(preferred)
	}
}

// lifetimes returns what is left of the address's lifetimes, in seconds.
func lifetimes(a netstate.Address) (valid, preferred uint32) {
	valid, preferred = unlimited, unlimited
	if a.Flags&unix.IFA_F_DEPRECATED != 0 {
		preferred = 0 // The kernel takes the flag by this alone.
	}
	if a.ValidUntil == 0 && a.PreferredUntil == 0 {
		return valid, preferred
	}
	uptime, _ := boot.Uptime()
	remaining := func(until int64) uint32 { return uint32(min(netstate.Remaining(until, uptime), unlimited-1)) }
	if a.ValidUntil != 0 {
		valid = remaining(a.ValidUntil)
	}
	if a.PreferredUntil != 0 {
		preferred = remaining(a.PreferredUntil)
	}
	return valid, min(preferred, valid) // The kernel refuses a preferred lifetime that is longer.
}

// unexpired returns the addresses that have not expired.
func unexpired(addresses []netstate.Address) []netstate.Address {
	uptime, _ := boot.Uptime()
	return slices.DeleteFunc(slices.Clone(addresses), func(a netstate.Address) bool { return a.IsExpired(uptime) })
}
