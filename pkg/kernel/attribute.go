package kernel

import (
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// nlaTypeMask takes the flags off the type of an attribute.
const nlaTypeMask = ^uint16(unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)

// eachAttribute calls f with the type and the value of each attribute in b, until f returns an
// error. It makes no list of them, as nl.ParseRouteAttr does: it is for what is read of each
// interface. The value is a part of b.
func eachAttribute(b []byte, f func(attr uint16, value []byte) error) error {
	for len(b) >= unix.SizeofRtAttr {
		size := int(nl.NativeEndian().Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return unix.EINVAL
		}
		if err := f(nl.NativeEndian().Uint16(b[2:])&nlaTypeMask, b[unix.SizeofRtAttr:size]); err != nil {
			return err
		}
		b = b[min(len(b), (size+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1)):]
	}
	return nil
}
