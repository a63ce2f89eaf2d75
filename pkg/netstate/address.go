package netstate

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Address is an IP address of an interface.
type Address struct {
	// Prefix is the address with its prefix length; host bits are kept.
	Prefix netip.Prefix `json:"prefix"`
	// Peer is the other end's prefix on a point-to-point address.
	Peer      netip.Prefix `json:"peer,omitzero"`
	Broadcast netip.Addr   `json:"broadcast,omitzero"`
	Label     string       `json:"label,omitempty"`
	// Scope and Flags are the kernel's numbers (rtnetlink(7)). Flags does not have those that tell the
	// progress of the kernel, such as IFA_F_TENTATIVE.
	Scope uint8  `json:"scope,omitempty"`
	Flags uint32 `json:"flags,omitempty"`
	// Metric is the metric of the route that the kernel makes for the prefix.
	Metric uint32 `json:"metric,omitempty"`
	// WithoutRoute says that somebody took that route away, as the sbr plugin does.
	WithoutRoute bool `json:"withoutRoute,omitempty"`
	// ValidUntil is when the address expires, and PreferredUntil is when it becomes deprecated, in seconds since the
	// boot (boot.Uptime). 0 means never. Whoever gave the address a lifetime, such as a DHCP client, renews it all
	// the time.
	ValidUntil     int64 `json:"validUntil,omitempty"`
	PreferredUntil int64 `json:"preferredUntil,omitempty"`
}

// Remaining returns the whole seconds from uptime until the time, at least 0. Both count from the boot.
func Remaining(until int64, uptime time.Duration) int64 {
	return max(0, until-int64((uptime+time.Second-1)/time.Second))
}

// IsExpired says that less than a second is left of the address.
func (a Address) IsExpired(uptime time.Duration) bool {
	return a.ValidUntil != 0 && Remaining(a.ValidUntil, uptime) == 0
}

// Network returns the prefix of the route that the kernel makes of the address.
func (a Address) Network() netip.Prefix {
	if a.Peer.IsValid() {
		return a.Peer.Masked()
	}
	return a.Prefix.Masked()
}

// Is6 says that it is an IPv6 address.
func (a Address) Is6() bool { return a.Prefix.Addr().Is6() }

func (a Address) String() string {
	if a.Peer.IsValid() {
		return fmt.Sprintf("%s peer %s", a.Prefix.Addr(), a.Peer)
	}
	return a.Prefix.String()
}

// AddressKey is what tells the addresses of an interface apart. The kernel gives an interface each only once.
type AddressKey struct{ Prefix, Peer netip.Prefix }

// Key returns what tells the address apart from others.
func (a Address) Key() AddressKey { return AddressKey{a.Prefix, a.Peer} }

// AddressesOf returns the addresses in a form in which they can be looked up.
func AddressesOf(list []Address) map[AddressKey]Address {
	addresses := make(map[AddressKey]Address, len(list))
	for _, a := range list {
		addresses[a.Key()] = a
	}
	return addresses
}

// SameAddress says that both are the same address, whatever their attributes. The kernel gives an interface each only once.
func (a Address) SameAddress(address Address) bool {
	return a.Key() == address.Key()
}

// Same says that both are the same address with the same attributes. The kernel's route for the prefix and the
// lifetimes are none of these.
func (a Address) Same(address Address) bool {
	if a.PreferredUntil != 0 || address.PreferredUntil != 0 { // It becomes deprecated by itself.
		a.Flags, address.Flags = a.Flags&^flagDeprecated, address.Flags&^flagDeprecated
	}
	address.WithoutRoute, address.ValidUntil, address.PreferredUntil = a.WithoutRoute, a.ValidUntil, a.PreferredUntil
	return a == address
}

// flagDeprecated is IFA_F_DEPRECATED (linux/if_addr.h).
const flagDeprecated = 0x20

// Unexpired returns the interface without the addresses that have expired, and without the routes that need them. The
// kernel drops most of these routes with the addresses, and would not accept the others again. uptime is the time since
// the boot.
func (i Interface) Unexpired(uptime time.Duration) Interface {
	var expired, rest []Address
	for _, a := range i.Addresses {
		if a.IsExpired(uptime) {
			expired = append(expired, a)
		} else {
			rest = append(rest, a)
		}
	}
	if len(expired) == 0 {
		return i
	}
	i.Addresses = rest
	i.Routes = slices.DeleteFunc(slices.Clone(i.Routes), func(r Route) bool { return r.dependsOn(expired, rest) })
	return i
}

// dependsOn says that the route cannot be without the addresses that have expired: its source is one of them, or only they
// lead to its gateway. With the last IPv4 address of a device, the kernel drops all its IPv4 routes.
func (r Route) dependsOn(expired, rest []Address) bool {
	onlyExpired := func(match func(Address) bool) bool {
		return slices.ContainsFunc(expired, match) && !slices.ContainsFunc(rest, match)
	}
	if r.Source.IsValid() && onlyExpired(func(a Address) bool { return a.Prefix.Addr() == r.Source }) {
		return true
	}
	if r.Device != "" {
		return false
	}
	if !r.Is6() && onlyExpired(func(a Address) bool { return !a.Is6() }) {
		return true
	}
	return slices.ContainsFunc(append(slices.Clone(r.NextHops), NextHop{Gateway: r.Gateway, OnLink: r.OnLink}), func(h NextHop) bool {
		return h.Device == "" && !h.OnLink && onlyExpired(func(a Address) bool { return a.Network().Contains(h.Gateway) })
	})
}

// detail returns everything about the address, for two addresses with the same String.
func (a Address) detail() string {
	return fmt.Sprintf("%s (broadcast %s, label %q, scope %d, flags %#x, metric %d)", a, a.Broadcast, a.Label, a.Scope, a.Flags, a.Metric)
}

// Last returns the last address of the prefix. For IPv4 that is the broadcast address, unless the prefix is too
// long for one.
func Last(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := range b {
		host := max(0, min(8, 8*(i+1)-p.Bits()))
		b[i] |= byte(1<<host - 1)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}
