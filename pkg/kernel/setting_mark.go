package kernel

import (
	"hash/maphash"
	"slices"

	"github.com/vishvananda/netlink/nl"
)

// SettingsMark stands for the values of an interface's sysctls. It lasts as long as this process.
type SettingsMark uint64

var markSeed = maphash.MakeSeed()

// SettingsMark returns the mark of the interface's sysctls below conf. If it is as before, so are these, except for stable_secret and for what
// Linux 6.7 and later added to IPv6 (ra_honor_pio_life, regen_min_advance), of which the kernel tells nothing. Reading all sysctls takes much
// longer: the kernel looks for the directory of eth0 among those of all namespaces. It goes through those of all namespaces as well to tell
// the ones below neigh.
func (n *Namespace) SettingsMark(index int) (SettingsMark, error) {
	l, err := n.linkByIndex(index)
	if err != nil {
		return 0, err
	}
	mtu := nl.Uint32Attr(uint32(l.MTU)) // It is the default of ipv6/mtu.
	return SettingsMark(maphash.Bytes(markSeed, slices.Concat(l.conf4, l.conf6, mtu))), nil
}
