package kernel

import (
	"errors"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// linkRequest returns a request of that type for the device of that index. The index is 0 for a
// device that has none yet. The request sets the flags in mask to those in flags.
func linkRequest(kind, index int, flags, mask uint32) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(kind, 0)
	info := nl.NewIfInfomsg(unix.AF_UNSPEC)
	info.Index, info.Flags, info.Change = int32(index), flags, mask
	request.AddData(info)
	return request
}

// addNumber adds an attribute that is a number of four bytes, in the machine's order.
func addNumber[N ~int | ~int32 | ~uint32](request *nl.NetlinkRequest, attribute int, value N) {
	request.AddData(nl.NewRtAttr(attribute, nl.Uint32Attr(uint32(value))))
}

// addText adds an attribute that is a text.
func addText(request *nl.NetlinkRequest, attribute int, value string) {
	request.AddData(nl.NewRtAttr(attribute, nl.ZeroTerminated(value)))
}

// familyOf returns the number of the address's family.
func familyOf(address netip.Addr) int {
	if address.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// requestsOf returns the request for each of the list. A request that cannot be made is left out, and its error is returned.
func requestsOf[T any](list []T, request func(T) (rtnl.Message, error)) (batch []rtnl.Message, err error) {
	var errs []error
	for _, entry := range list {
		m, err := request(entry)
		if errs = append(errs, err); err == nil {
			batch = append(batch, m)
		}
	}
	return batch, errors.Join(errs...)
}

// newDevice returns a request that makes a device with the flags set.
func newDevice(name string, index int, flags uint32) *nl.NetlinkRequest {
	request := linkRequest(unix.RTM_NEWLINK, index, flags, flags)
	request.Flags |= unix.NLM_F_CREATE | unix.NLM_F_EXCL
	addText(request, unix.IFLA_IFNAME, name)
	return request
}

// setLink returns a request that changes the device. It sets the flags in mask to those in flags.
func setLink(index int, flags, mask uint32) *nl.NetlinkRequest {
	return linkRequest(unix.RTM_SETLINK, index, flags, mask)
}

// setUp returns the request that sets the device up.
func setUp(index int, name string) rtnl.Message {
	return rtnl.Message{Request: setLink(index, unix.IFF_UP, unix.IFF_UP), Action: "set " + name + " up"}
}

// setDown returns the request that sets the device down.
func setDown(index int, name string) rtnl.Message {
	return rtnl.Message{Request: setLink(index, 0, unix.IFF_UP), Action: "set " + name + " down"}
}

func deleteLink(index int, name string) rtnl.Message {
	return rtnl.Message{Request: linkRequest(unix.RTM_DELLINK, index, 0, 0), Action: "delete " + name}
}

// hasAttributes says whether a new device lacks something that setAttributes sets. A NIC always
// does, because it is not made: its MAC, MTU and the like are set.
func hasAttributes(link netstate.Link) bool {
	_, mask := flagBits(link.LinkFlags)
	return mask != 0 || link.Alias != "" || link.Kind == netstate.KindNIC
}

// setAttributes returns the request that sets the alias, the flags, and for a NIC or an end of a pair the MAC, MTU and
// the like. The kernel takes these only of a device that is there already.
func setAttributes(index int, link netstate.Link) (rtnl.Message, error) {
	flags, mask := flagBits(link.LinkFlags)
	m := rtnl.Message{Request: setLink(index, flags, mask), Action: "set the attributes of " + link.Name}
	if link.Kind == netstate.KindNIC || link.Kind == netstate.KindVeth {
		mac, err := macAttr(link.MAC)
		if err != nil {
			return m, err
		}
		m.Request.AddData(mac)
		addNumber(m.Request, unix.IFLA_MTU, link.MTU)
		addNumber(m.Request, unix.IFLA_GROUP, link.Group)
		addTxQueueLen(m.Request, link)
	}
	if link.Alias != "" {
		m.Request.AddData(nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(link.Alias)))
	}
	return m, nil
}

func addTxQueueLen(request *nl.NetlinkRequest, link netstate.Link) {
	if link.TxQueueLen != nil {
		addNumber(request, unix.IFLA_TXQLEN, *link.TxQueueLen)
	}
}

func macAttr(mac string) (*nl.RtAttr, error) {
	hw, err := net.ParseMAC(mac)
	if err != nil {
		return nil, err
	}
	return nl.NewRtAttr(unix.IFLA_ADDRESS, hw), nil
}

// flagBits returns the bits of the flags, and the mask of those to change.
func flagBits(f netstate.LinkFlags) (flags, mask uint32) {
	for _, flag := range []struct {
		set bool
		bit uint32
	}{{f.Promiscuous, unix.IFF_PROMISC}, {f.AllMulticast, unix.IFF_ALLMULTI}, {f.NoARP, unix.IFF_NOARP}} {
		if flag.set {
			flags, mask = flags|flag.bit, mask|flag.bit
		}
	}
	if f.NoMulticast {
		mask |= unix.IFF_MULTICAST
	}
	return flags, mask
}
