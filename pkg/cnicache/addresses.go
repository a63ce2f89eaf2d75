package cnicache

import (
	"encoding/json"
	"net/netip"
)

// Addresses returns the addresses of the result. There are none if the cache does not keep it, or if it is of no version of the CNI
// specification.
func (e Entry) Addresses() (addresses []netip.Addr) {
	var r struct {
		IPs []struct{ Address string }
		// Versions before 0.3.0 have these.
		IP4, IP6 *struct{ IP string }
	}
	if json.Unmarshal(e.Result, &r) != nil {
		return nil
	}
	add := func(text string) {
		if p, err := netip.ParsePrefix(text); err == nil {
			addresses = append(addresses, p.Addr().Unmap())
		}
	}
	for _, ip := range r.IPs {
		add(ip.Address)
	}
	for _, ip := range []*struct{ IP string }{r.IP4, r.IP6} {
		if ip != nil {
			add(ip.IP)
		}
	}
	return addresses
}
