package kernel

import (
	"strconv"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
)

// arpNotify is the setting by which the kernel announces IPv4 addresses.
const arpNotify = "ipv4/arp_notify"

// devconf are the settings that each ADD makes, by their places in what the kernel tells with a
// link: IPV4_DEVCONF_* of linux/ip.h less 1, and DEVCONF_* of linux/ipv6.h. They are not read from
// their files. If a thousand interfaces have the same name in a thousand namespaces, the kernel
// looks at all of them to find the file of one. That took a quarter of the time of a restore of
// 1,000 on one parent.
var devconf = map[string]struct{ family, place int }{
	arpNotify:                {unix.AF_INET, 21},
	"ipv6/disable_ipv6":      {unix.AF_INET6, 26},
	"ipv6/ndisc_notify":      {unix.AF_INET6, 29},
	"ipv6/keep_addr_on_down": {unix.AF_INET6, 42},
}

// setting returns the setting of that key, if the kernel has told it with the link.
func (l *link) setting(key string) (string, bool) {
	const size = 4
	entry, ok := devconf[key]
	conf := l.conf4
	if entry.family == unix.AF_INET6 {
		conf = l.conf6
	}
	if !ok || len(conf) < size*(entry.place+1) {
		return "", false
	}
	return strconv.Itoa(int(int32(nl.NativeEndian().Uint32(conf[size*entry.place:])))), true
}

// parseFamily reads the settings that an address family tells with the link.
func (l *link) parseFamily(family *rtnl.Attribute) {
	switch family.Type() {
	case unix.AF_INET:
		readNested(family, field{unix.IFLA_INET_CONF, &l.conf4})
	case unix.AF_INET6:
		readNested(family, field{unix.IFLA_INET6_CONF, &l.conf6})
	}
}

// arpNotifyRequest returns the request that sets arpNotify, if it is in the settings. Its value is a
// number. For IPv6 there is no such request.
func arpNotifyRequest(index int, settings map[string]string) []rtnl.Message {
	value, ok := settings[arpNotify]
	if !ok {
		return nil
	}
	number, _ := strconv.Atoi(value)
	m := setLink("set "+arpNotify+" to "+value, index)
	conf := m.AddRtAttr(unix.IFLA_AF_SPEC, nil).AddRtAttr(unix.AF_INET, nil).AddRtAttr(unix.IFLA_INET_CONF, nil)
	conf.AddRtAttr(devconf[arpNotify].place+1, nl.Uint32Attr(uint32(number)))
	return []rtnl.Message{m}
}
