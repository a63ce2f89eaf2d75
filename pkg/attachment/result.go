package attachment

import (
	"encoding/json"
	"net/netip"
)

// ResultAddresses returns the addresses in the result of an ADD, as the runtime was told. There are none if the result is not known, or of no
// version of the CNI specification.
func ResultAddresses(result json.RawMessage) (addresses []netip.Addr) {
	type ip struct{ Address, IP string }
	var r struct {
		IPs []ip
		// Versions before 0.3.0 have these.
		IP4, IP6 ip
	}
	if json.Unmarshal(result, &r) != nil {
		return nil
	}
	for _, entry := range append(r.IPs, ip{Address: r.IP4.IP}, ip{Address: r.IP6.IP}) {
		if p, err := netip.ParsePrefix(entry.Address); err == nil {
			addresses = append(addresses, p.Addr().Unmap())
		}
	}
	return addresses
}
