package kernel

import (
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/netstate"
)

const (
	// keptFlags are the flags that somebody gave an address. The others say how
	// far the kernel is with it, or how it was added.
	keptFlags = unix.IFA_F_HOMEADDRESS | unix.IFA_F_MANAGETEMPADDR | unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_MCAUTOJOIN
	// ifaProto is IFA_PROTO (since 5.18): who made the address. Every value but
	// 0 that the kernel has so far means the kernel (linux/if_addr.h, IFAPROT_*).
	ifaProto = 11
)

// addresses returns the addresses of the device that somebody gave it. Those
// that the kernel makes by itself, link-local ones and those from router
// advertisements, it will make again.
func (n *Namespace) addresses(index int) ([]netstate.Address, error) {
	var addresses []netstate.Address
	request := nl.NewNetlinkRequest(unix.RTM_GETADDR, 0)
	info := nl.NewIfAddrmsg(unix.AF_UNSPEC)
	info.Index = uint32(index)
	request.AddData(info)
	list := message{request, "list addresses"}
	err := n.conn.dump(list, func() { addresses = nil }, func(payload []byte) error {
		info := nl.DeserializeIfAddrmsg(payload)
		if int(info.Index) != index {
			return nil
		}
		address, own, err := parseAddress(info, payload[info.Len():])
		if err == nil && own {
			addresses = append(addresses, address)
		}
		return err
	})
	return addresses, err
}

// parseAddress returns the address in an answer, and whether somebody other than
// the kernel made it.
func parseAddress(info *nl.IfAddrmsg, payload []byte) (a netstate.Address, own bool, err error) {
	attrs, err := nl.ParseRouteAttr(payload)
	if err != nil {
		return a, false, err
	}
	var local, other netip.Addr
	flags, proto := uint32(info.Flags), uint8(0)
	for _, attr := range attrs {
		switch attr.Attr.Type {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(attr.Value)
		case unix.IFA_ADDRESS:
			other, _ = netip.AddrFromSlice(attr.Value)
		case unix.IFA_BROADCAST:
			a.Broadcast, _ = netip.AddrFromSlice(attr.Value)
		case unix.IFA_LABEL:
			a.Label = nl.BytesToString(attr.Value)
		case unix.IFA_FLAGS:
			flags = nl.NativeEndian().Uint32(attr.Value)
		case ifaProto:
			proto = attr.Value[0]
		}
	}
	bits := int(info.Prefixlen)
	if !local.IsValid() {
		local = other
	}
	a.Prefix = netip.PrefixFrom(local, bits)
	if other != local {
		a.Prefix, a.Peer = netip.PrefixFrom(local, local.BitLen()), netip.PrefixFrom(other, bits)
	}
	a.Scope, a.Flags = info.Scope, flags&keptFlags
	return a, !kernelMade(a, flags, proto), nil
}

// kernelMade tells the kernel's own addresses: temporary ones (from router
// advertisements), and link-local ones, which older kernels don't mark as theirs.
func kernelMade(a netstate.Address, flags uint32, proto uint8) bool {
	if proto != 0 || flags&unix.IFA_F_PERMANENT == 0 {
		return true
	}
	addr := a.Prefix.Addr()
	if !addr.Is6() || !addr.IsLinkLocalUnicast() || a.Prefix.Bits() != 64 {
		return false
	}
	b := addr.As16()
	return flags&unix.IFA_F_STABLE_PRIVACY != 0 || (b[11] == 0xff && b[12] == 0xfe)
}

// addAddress returns the request that gives the device the address. noDAD makes
// an IPv6 address usable at once: it was this interface's before.
func addAddress(index int, a netstate.Address, noDAD bool) message {
	request := nl.NewNetlinkRequest(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	fillAddress(request, index, a, noDAD)
	return message{request, "add address " + a.String()}
}

func deleteAddress(index int, a netstate.Address) message {
	request := nl.NewNetlinkRequest(unix.RTM_DELADDR, 0)
	a.Label = "" // It would have to match.
	fillAddress(request, index, a, false)
	return message{request, "remove address " + a.String()}
}

func fillAddress(request *nl.NetlinkRequest, index int, a netstate.Address, noDAD bool) {
	local, other := a.Prefix.Addr(), a.Prefix.Addr()
	bits := a.Prefix.Bits()
	if a.Peer.IsValid() {
		other, bits = a.Peer.Addr(), a.Peer.Bits()
	}
	flags := a.Flags
	family := unix.AF_INET
	if local.Is6() {
		family = unix.AF_INET6
		if noDAD {
			flags |= unix.IFA_F_NODAD
		}
	}
	info := nl.NewIfAddrmsg(family)
	info.Index, info.Prefixlen, info.Scope, info.Flags = uint32(index), uint8(bits), a.Scope, uint8(flags)
	request.AddData(info)
	request.AddData(nl.NewRtAttr(unix.IFA_LOCAL, local.AsSlice()))
	request.AddData(nl.NewRtAttr(unix.IFA_ADDRESS, other.AsSlice()))
	request.AddData(nl.NewRtAttr(unix.IFA_FLAGS, nl.Uint32Attr(flags)))
	if a.Broadcast.IsValid() {
		request.AddData(nl.NewRtAttr(unix.IFA_BROADCAST, a.Broadcast.AsSlice()))
	}
	if a.Label != "" {
		request.AddData(nl.NewRtAttr(unix.IFA_LABEL, nl.ZeroTerminated(a.Label)))
	}
}

// HasAddresses says whether somebody gave the device an address.
func (n *Namespace) HasAddresses(index int) (bool, error) {
	addresses, err := n.addresses(index)
	return len(addresses) > 0, err
}
