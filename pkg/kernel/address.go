package kernel

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

const (
	// keptFlags are the flags that somebody gave an address. The others say how
	// far the kernel is with it, or how it was added.
	keptFlags = unix.IFA_F_HOMEADDRESS | unix.IFA_F_MANAGETEMPADDR | unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_MCAUTOJOIN | unix.IFA_F_NODAD
	// ifaProto is IFA_PROTO (since 5.18): who made the address. Every value but
	// 0 that the kernel has so far means the kernel (linux/if_addr.h, IFAPROT_*).
	ifaProto = 11
)

// addresses returns the addresses of the device that somebody gave it, and says which
// of them can't be described. Those that the kernel makes by itself, link-local ones
// and those from router advertisements, it will make again.
func (n *Namespace) addresses(index int, families []int) (addresses []netstate.Address, notes []string, err error) {
	err = n.eachAddress(index, families, func() { addresses, notes = nil, nil }, func(address netstate.Address, by maker) {
		switch by {
		case somebody:
			addresses = append(addresses, address)
		case somebodyForATime:
			notes = append(notes, fmt.Sprintf("address %s: it has a lifetime", address))
		}
	})
	return addresses, notes, err
}

// eachAddress calls take with each address of the device, or with index 0 of every device.
// reset is called before each reading of the list.
func (n *Namespace) eachAddress(index int, families []int, reset func(), take func(netstate.Address, maker)) error {
	request := nl.NewNetlinkRequest(unix.RTM_GETADDR, 0)
	info := nl.NewIfAddrmsg(unix.AF_UNSPEC) // Both in one answer.
	if len(families) == 1 {
		info.Family = uint8(families[0])
	}
	info.Index = uint32(index)
	request.AddData(info)
	return n.socket.Dump(rtnl.Message{Request: request, What: "list addresses"}, reset, func(payload []byte) error {
		address, of, by, err := parseAddress(payload)
		if err == nil && of != 0 && (index == 0 || of == index) {
			take(address, by)
		}
		return err
	})
}

// maker says who made an address.
type maker int

const (
	theKernel maker = iota
	somebody
	// somebodyForATime gave the address a lifetime, and renews it or lets it go.
	somebodyForATime
)

// parseAddress returns the address in an answer, the index of its device, and who made it. The
// index is 0 for an address that is none of IPv4 or IPv6: a list of all families has others, too.
func parseAddress(payload []byte) (a netstate.Address, of int, by maker, err error) {
	if err := rtnl.CheckHeader(payload, unix.SizeofIfAddrmsg); err != nil {
		return a, 0, theKernel, err
	}
	info := nl.DeserializeIfAddrmsg(payload)
	if info.Family != unix.AF_INET && info.Family != unix.AF_INET6 {
		return a, 0, theKernel, nil
	}
	var local, other netip.Addr
	flags, proto := uint32(info.Flags), uint8(0)
	err = rtnl.EachAttribute(payload, unix.SizeofIfAddrmsg, func(attr *rtnl.Attribute) {
		switch attr.Type() {
		case unix.IFA_LOCAL:
			local = attr.Address()
		case unix.IFA_ADDRESS:
			other = attr.Address()
		case unix.IFA_BROADCAST:
			a.Broadcast = attr.Address()
		case unix.IFA_LABEL:
			a.Label = attr.Text()
		case unix.IFA_FLAGS:
			flags = attr.Uint32()
		case unix.IFA_RT_PRIORITY:
			a.Metric = attr.Uint32()
		case ifaProto:
			proto = attr.Uint8()
		}
	})
	if err != nil {
		return a, 0, theKernel, err
	}
	bits := int(info.Prefixlen)
	switch {
	case !local.IsValid():
		local = other
	case !other.IsValid():
		other = netip.IPv4Unspecified() // The kernel does not tell that one (inet_fill_ifaddr).
	}
	a.Prefix = netip.PrefixFrom(local, bits)
	if other != local {
		a.Prefix, a.Peer = netip.PrefixFrom(local, local.BitLen()), netip.PrefixFrom(other, bits)
	}
	if !a.Prefix.IsValid() || !a.Peer.IsValid() && other != local {
		return a, 0, theKernel, fmt.Errorf("%w: an address of length %d with a prefix of %d bits", rtnl.ErrMalformed, local.BitLen()/8, bits)
	}
	a.Scope, a.Flags = info.Scope, flags&keptFlags
	return a, int(info.Index), makerOf(a, flags, proto), nil
}

// makerOf tells the kernel's own addresses: those of IPv6 with a lifetime (from router
// advertisements; since 5.18 they are marked), and link-local ones, which older kernels
// don't mark as theirs.
func makerOf(a netstate.Address, flags uint32, proto uint8) maker {
	addr := a.Prefix.Addr()
	switch {
	case proto != 0 || flags&unix.IFA_F_TEMPORARY != 0 && addr.Is6():
		return theKernel
	case flags&unix.IFA_F_PERMANENT == 0 && addr.Is6() && !kernelAtLeast(5, 18):
		return theKernel
	case flags&unix.IFA_F_PERMANENT == 0:
		return somebodyForATime
	case !addr.Is6() || !addr.IsLinkLocalUnicast() || a.Prefix.Bits() != 64:
		return somebody
	}
	b := addr.As16()
	if flags&unix.IFA_F_STABLE_PRIVACY != 0 || (b[11] == 0xff && b[12] == 0xfe) {
		return theKernel
	}
	return somebody
}

// addAddresses returns the requests that give the device the addresses. Known says that
// they were this interface's before: those of IPv6 are then usable at once, without
// duplicate address detection.
func addAddresses(index int, addresses []netstate.Address, known bool) []rtnl.Message {
	var batch []rtnl.Message
	for _, a := range inListOrder(addresses) {
		if known && a.Prefix.Addr().Is6() && a.Flags&unix.IFA_F_NODAD == 0 {
			// Without detection first. The flag that says so is not the address's
			// own, and taken off again.
			first := a
			first.Flags |= unix.IFA_F_NODAD
			batch = append(batch, addAddress(index, first))
		}
		batch = append(batch, addAddress(index, a))
	}
	return batch
}

// inListOrder returns the addresses in the order in which they are to be added so that
// the kernel lists them as they are here: it puts each of IPv6 before the others.
func inListOrder(addresses []netstate.Address) []netstate.Address {
	is6 := func(a netstate.Address) bool { return a.Prefix.Addr().Is6() }
	if !slices.ContainsFunc(addresses, is6) {
		return addresses
	}
	ordered := slices.Clone(addresses)
	first := slices.IndexFunc(ordered, is6)
	slices.Reverse(ordered[first:])
	return ordered
}

// addAddress returns the request that gives the device the address.
func addAddress(index int, a netstate.Address) rtnl.Message {
	request := nl.NewNetlinkRequest(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	fillAddress(request, index, a)
	return rtnl.Message{Request: request, What: "add address " + a.String()}
}

func deleteAddress(index int, a netstate.Address) rtnl.Message {
	request := nl.NewNetlinkRequest(unix.RTM_DELADDR, 0)
	a.Label = "" // It would have to match.
	fillAddress(request, index, a)
	return rtnl.Message{Request: request, What: "remove address " + a.String()}
}

func fillAddress(request *nl.NetlinkRequest, index int, a netstate.Address) {
	local, other := a.Prefix.Addr(), a.Prefix.Addr()
	bits := a.Prefix.Bits()
	if a.Peer.IsValid() {
		other, bits = a.Peer.Addr(), a.Peer.Bits()
	}
	family := unix.AF_INET
	if local.Is6() {
		family = unix.AF_INET6
	}
	info := nl.NewIfAddrmsg(family)
	info.Index, info.Prefixlen, info.Scope, info.Flags = uint32(index), uint8(bits), a.Scope, uint8(a.Flags)
	request.AddData(info)
	request.AddData(nl.NewRtAttr(unix.IFA_LOCAL, local.AsSlice()))
	request.AddData(nl.NewRtAttr(unix.IFA_ADDRESS, other.AsSlice()))
	request.AddData(nl.NewRtAttr(unix.IFA_FLAGS, nl.Uint32Attr(a.Flags)))
	if a.Broadcast.IsValid() {
		request.AddData(nl.NewRtAttr(unix.IFA_BROADCAST, a.Broadcast.AsSlice()))
	}
	if a.Metric != 0 {
		request.AddData(nl.NewRtAttr(unix.IFA_RT_PRIORITY, nl.Uint32Attr(a.Metric)))
	}
	if a.Label != "" {
		request.AddData(nl.NewRtAttr(unix.IFA_LABEL, nl.ZeroTerminated(a.Label)))
	}
}

// HasAddresses says whether somebody gave the device an address.
func (n *Namespace) HasAddresses(index int) (bool, error) {
	addresses, notes, err := n.addresses(index, bothFamilies)
	return len(addresses)+len(notes) > 0, err
}

// Addresses returns what the device of that index carries, but what the kernel made by
// itself.
func (n *Namespace) Addresses(index int) ([]netip.Addr, error) {
	addresses, _, err := n.addresses(index, bothFamilies)
	var all []netip.Addr
	for _, a := range addresses {
		all = append(all, a.Prefix.Addr())
	}
	return all, err
}

// EveryAddress returns what all devices of the namespace carry, whoever made it.
func (n *Namespace) EveryAddress() (all []netip.Addr, err error) {
	err = n.eachAddress(0, bothFamilies, func() { all = nil }, func(a netstate.Address, _ maker) {
		all = append(all, a.Prefix.Addr())
	})
	return all, err
}

// AddAddresses gives the device of that index addresses that it had before. One that is
// there but differs (in its broadcast address, label, scope) is removed first, with the
// routes that depend on it: the kernel changes none of that in place.
func (n *Namespace) AddAddresses(index int, addresses []netstate.Address) error {
	there, _, err := n.addresses(index, bothFamilies)
	if err != nil {
		return err
	}
	type identity struct{ prefix, peer netip.Prefix }
	known := make(map[identity]netstate.Address, len(there))
	for _, t := range there {
		known[identity{t.Prefix, t.Peer}] = t
	}
	var batch []rtnl.Message
	for _, a := range addresses {
		if t, ok := known[identity{a.Prefix, a.Peer}]; ok && !t.Same(a) {
			batch = append(batch, deleteAddress(index, a))
		}
		batch = append(batch, addAddresses(index, []netstate.Address{a}, true)...)
		batch = append(batch, removeRoutes(index, []netstate.Address{a})...)
	}
	return n.socket.Run(batch...)
}
