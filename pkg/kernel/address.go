package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

const (
	// keptFlags are the flags that somebody gave an address. The other flags say how far the kernel
	// is with the address, or how it was added; but see parseAddress for IFA_F_DEPRECATED.
	keptFlags = unix.IFA_F_HOMEADDRESS | unix.IFA_F_MANAGETEMPADDR | unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_MCAUTOJOIN | unix.IFA_F_NODAD
	// ifaProto is IFA_PROTO (since 5.18): who made the address. So far every value but 0 means the
	// kernel (linux/if_addr.h, IFAPROT_*).
	ifaProto = 11
)

// addresses returns the addresses that somebody gave the device. It leaves out the addresses that
// the kernel makes by itself and will make again: link-local ones, and those from router
// advertisements.
func (n *Namespace) addresses(index int, families []int) (addresses []netstate.Address, err error) {
	live, err := n.liveAddresses(index, families)
	for _, a := range live {
		if !a.kernels {
			addresses = append(addresses, a.Address)
		}
	}
	return addresses, err
}

// pendingRoutes returns the networks to which the kernel has no route yet: of an IPv6 address with a peer, it makes the route when
// it has found no other host with the address (__ipv6_ifa_notify). Whoever wants to know which routes are missing calls it before
// the routes are read.
func (n *Namespace) pendingRoutes(index int, addresses []netstate.Address) (networks []netip.Prefix, err error) {
	if !slices.ContainsFunc(addresses, func(a netstate.Address) bool { return a.Peer.IsValid() && a.Peer.Addr().Is6() }) {
		return nil, nil
	}
	live, err := n.liveAddresses(index, []int{unix.AF_INET6})
	for _, a := range live {
		if a.Peer.IsValid() && a.flags&unix.IFA_F_TENTATIVE != 0 {
			networks = append(networks, a.Network())
		}
	}
	return networks, err
}

// liveAddresses returns the addresses of the device. Index 0 means every device.
func (n *Namespace) liveAddresses(index int, families []int) ([]liveAddress, error) {
	return listOf(n, addressList(index, families), func(payload []byte) (liveAddress, bool, error) {
		a, err := parseAddress(payload)
		return a, a.index != 0 && (index == 0 || a.index == index), err
	})
}

// addressList returns the request for the addresses of the device.
func addressList(index int, families []int) rtnl.Message {
	info := nl.NewIfAddrmsg(unix.AF_UNSPEC) // One answer has both families.
	if len(families) == 1 {
		info.Family = uint8(families[0])
	}
	info.Index = uint32(index)
	return newMessage(unix.RTM_GETADDR, 0, "list addresses", info)
}

// liveAddress is an address with what no record keeps of it.
type liveAddress struct {
	netstate.Address
	// index is that of its device, 0 for an address of another family than IPv4 and IPv6.
	index int
	flags uint32
	// kernels says that the kernel made it by itself.
	kernels bool
}

// parseAddress returns the address in an answer.
func parseAddress(payload []byte) (a liveAddress, err error) {
	if err := rtnl.CheckHeader(payload, unix.SizeofIfAddrmsg); err != nil {
		return a, err
	}
	info := nl.DeserializeIfAddrmsg(payload)
	if info.Family != unix.AF_INET && info.Family != unix.AF_INET6 {
		return a, nil
	}
	var local, peer netip.Addr
	flags, proto := uint32(info.Flags), uint8(0)
	valid, preferred := uint32(unlimited), uint32(unlimited)
	fields := append(addressFields(&a.Address, &local, &peer, &flags), field{ifaProto, &proto})
	err = rtnl.EachAttribute(payload, unix.SizeofIfAddrmsg, func(attr *rtnl.Attribute) {
		if !readField(fields, attr) && attr.Type() == unix.IFA_CACHEINFO {
			preferred, valid = attr.Uint32(), attr.Uint32At(4) // struct ifa_cacheinfo (linux/if_addr.h), of 16 bytes
		}
	})
	if err != nil {
		return liveAddress{}, err
	}
	bits := int(info.Prefixlen)
	switch {
	case !local.IsValid():
		local = peer
	case !peer.IsValid():
		peer = netip.IPv4Unspecified() // The kernel leaves this one out (inet_fill_ifaddr).
	}
	a.Prefix = netip.PrefixFrom(local, bits)
	if peer != local {
		a.Prefix, a.Peer = netip.PrefixFrom(local, local.BitLen()), netip.PrefixFrom(peer, bits)
	}
	if !a.Prefix.IsValid() || !a.Peer.IsValid() && peer != local {
		return liveAddress{}, fmt.Errorf("%w: an address of length %d with a prefix of %d bits", rtnl.ErrMalformed, local.BitLen()/8, bits)
	}
	a.Scope, a.Flags = info.Scope, flags&keptFlags
	if flags&unix.IFA_F_PERMANENT != 0 { // No lifetime has made it deprecated, but somebody.
		a.Flags |= flags & unix.IFA_F_DEPRECATED
	}
	setLifetimes(&a.Address, valid, preferred)
	a.index, a.flags, a.kernels = int(info.Index), flags, isKernels(a.Address, flags, proto)
	return a, nil
}

// isKernels recognises the addresses that the kernel makes itself. It makes IPv6 addresses with a
// lifetime from router advertisements, and marks them since 5.18. It makes link-local addresses
// too, and kernels before 5.18 do not mark those.
func isKernels(a netstate.Address, flags uint32, proto uint8) bool {
	addr := a.Prefix.Addr()
	switch {
	case proto != 0 || flags&unix.IFA_F_TEMPORARY != 0 && addr.Is6(),
		flags&unix.IFA_F_PERMANENT == 0 && addr.Is6() && !kernelAtLeast(5, 18):
		return true
	case flags&unix.IFA_F_PERMANENT == 0, !addr.Is6() || !addr.IsLinkLocalUnicast() || a.Prefix.Bits() != 64:
		return false
	}
	b := addr.As16()
	return flags&unix.IFA_F_STABLE_PRIVACY != 0 || b[11] == 0xff && b[12] == 0xfe
}

// addAddresses returns the requests that give the device the addresses. With rebuild, the interface
// had these addresses before: its IPv6 addresses are usable at once, without duplicate address
// detection.
func addAddresses(index int, addresses []netstate.Address, rebuild bool) []rtnl.Message {
	var batch []rtnl.Message
	for _, a := range inListOrder(unexpired(addresses)) {
		if rebuild && a.Is6() && a.Flags&unix.IFA_F_NODAD == 0 {
			// Add it without detection first. The flag for that is not one of the address, so the
			// second request takes it off.
			first := a
			first.Flags |= unix.IFA_F_NODAD
			batch = append(batch, addAddress(index, first))
		}
		batch = append(batch, addAddress(index, a))
	}
	return batch
}

// inListOrder returns the addresses in the order in which to add them. The kernel puts each new
// IPv6 address before the others, so the IPv6 addresses are reversed: then the kernel lists them in
// the given order.
func inListOrder(addresses []netstate.Address) []netstate.Address {
	ordered := slices.Clone(addresses)
	_, ipv6 := byFamily(ordered)
	slices.Reverse(ipv6)
	return ordered
}

// byFamily divides a list of the kernel, which has the IPv4 addresses first.
func byFamily(addresses []netstate.Address) (ipv4, ipv6 []netstate.Address) {
	first := slices.IndexFunc(addresses, netstate.Address.Is6)
	if first < 0 {
		first = len(addresses)
	}
	return addresses[:first], addresses[first:]
}

// addAddress returns the request that gives the device the address.
func addAddress(index int, a netstate.Address) rtnl.Message {
	m := addressMessage(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, "add address ", index, a)
	if valid, preferred := lifetimes(a); valid != unlimited || preferred != unlimited { // Without the attribute, both are.
		m.AddRtAttr(unix.IFA_CACHEINFO, slices.Concat(nl.Uint32Attr(preferred), nl.Uint32Attr(valid), make([]byte, 8)))
	}
	return m
}

func deleteAddress(index int, a netstate.Address) rtnl.Message {
	a.Label = "" // With a label, the kernel deletes only an address that has the same one.
	return addressMessage(unix.RTM_DELADDR, 0, "remove address ", index, a)
}

func addressMessage(kind, flags int, verb string, index int, a netstate.Address) rtnl.Message {
	local, peer := a.Prefix.Addr(), a.Prefix.Addr()
	bits := a.Prefix.Bits()
	if a.Peer.IsValid() {
		peer, bits = a.Peer.Addr(), a.Peer.Bits()
	}
	info := nl.NewIfAddrmsg(familyOf(local))
	info.Index, info.Prefixlen, info.Scope, info.Flags = uint32(index), uint8(bits), a.Scope, uint8(a.Flags)
	m := newMessage(kind, flags, verb+a.String(), info)
	addFields(m, addressFields(&a, &local, &peer, &a.Flags)...)
	return m
}

// addressFields are the attributes of an address that are alike in requests and answers.
func addressFields(a *netstate.Address, local, peer *netip.Addr, flags *uint32) []field {
	return []field{
		{unix.IFA_LOCAL, local}, {unix.IFA_ADDRESS, peer}, {unix.IFA_FLAGS, flags},
		{unix.IFA_BROADCAST, &a.Broadcast}, {unix.IFA_RT_PRIORITY, &a.Metric}, {unix.IFA_LABEL, &a.Label},
	}
}

// HasAddresses says whether somebody gave the device an address.
func (n *Namespace) HasAddresses(index int) (bool, error) {
	addresses, err := n.addresses(index, bothFamilies)
	return len(addresses) > 0, err
}

// Addresses returns the addresses of the device of that index, without those that the kernel made
// by itself.
func (n *Namespace) Addresses(index int) ([]netip.Addr, error) {
	addresses, err := n.addresses(index, bothFamilies)
	var addrs []netip.Addr
	for _, a := range addresses {
		addrs = append(addrs, a.Prefix.Addr())
	}
	return addrs, err
}

// AllAddresses returns the addresses of all devices of the namespace, whoever made them. If they change while they are read, it returns
// those of all readings, most of them more than once: a pod can change its addresses all the time.
func (n *Namespace) AllAddresses() (addrs []netip.Addr, err error) {
	err = n.eachAddress(func(a netip.Addr) { addrs = append(addrs, a) })
	return addrs, err
}

// eachAddress calls f with each address of each reading.
func (n *Namespace) eachAddress(f func(netip.Addr)) error {
	err := n.socket.Dump(addressList(0, bothFamilies), func() {}, func(payload []byte) error {
		a, err := parseAddress(payload)
		if addr := a.Prefix.Addr(); addr.IsValid() {
			f(addr)
		}
		return err
	})
	if errors.Is(err, rtnl.ErrChanging) {
		return nil
	}
	return err
}

// AddAddresses gives the device of that index addresses that it had before. An address that is
// there with another broadcast address, label or scope is removed first, because the kernel changes
// none of these in place. The routes that depend on it go too. An address without a label may have any:
// the kernel gives an IPv4 address the device's name.
func (n *Namespace) AddAddresses(index int, addresses []netstate.Address) error {
	present, err := n.addresses(index, bothFamilies)
	if err != nil {
		return err
	}
	existing := netstate.AddressesOf(present)
	var batch []rtnl.Message
	for _, a := range addresses {
		if t, ok := existing[a.Key()]; ok {
			a.ValidUntil, a.PreferredUntil = t.ValidUntil, t.PreferredUntil // Somebody may have renewed it since.
			a.Label = cmp.Or(a.Label, t.Label)
			if !t.Same(a) {
				remove := deleteAddress(index, a)
				remove.MayLack = true // It can have gone with the first address of its network.
				batch = append(batch, remove)
			}
		}
		batch = append(batch, addAddresses(index, []netstate.Address{a}, true)...)
		batch = append(batch, removeRoutes(index, []netstate.Address{a})...)
	}
	return n.socket.Run(batch...)
}
