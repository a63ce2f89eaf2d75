package netstate

import (
	"fmt"
	"net/netip"
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
}

// Network returns the prefix of the route that the kernel makes of the address.
func (a Address) Network() netip.Prefix {
	if a.Peer.IsValid() {
		return a.Peer.Masked()
	}
	return a.Prefix.Masked()
}

func (a Address) String() string {
	if a.Peer.IsValid() {
		return fmt.Sprintf("%s peer %s", a.Prefix.Addr(), a.Peer)
	}
	return a.Prefix.String()
}

// Same says that both are the same address with the same attributes. The kernel's route for the prefix is not
// one of these.
func (a Address) Same(other Address) bool {
	other.WithoutRoute = a.WithoutRoute
	return a == other
}

// Detail returns everything about the address, for two addresses with the same String.
func (a Address) Detail() string {
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
