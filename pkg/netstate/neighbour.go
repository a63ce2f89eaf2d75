package netstate

import (
	"fmt"
	"net/netip"
)

// Neighbour is an entry of the neighbour table that somebody made: a permanent entry, or an address for which
// the kernel answers (proxy).
type Neighbour struct {
	Address netip.Addr `json:"address"`
	// MAC is empty for a proxy.
	MAC   string `json:"mac,omitempty"`
	Proxy bool   `json:"proxy,omitempty"`
	// Flags are the kernel's numbers (NTF_ROUTER, ...), without NTF_PROXY.
	Flags uint8 `json:"flags,omitempty"`
}

func (n Neighbour) String() string {
	if n.Proxy {
		return fmt.Sprintf("proxy %s", n.Address)
	}
	return fmt.Sprintf("%s lladdr %s", n.Address, n.MAC)
}
