package netstate

import (
	"fmt"
	"net/netip"
)

// Neighbour is an entry of the neighbour table that somebody made: a permanent one,
// or one to answer for.
type Neighbour struct {
	Address netip.Addr `json:"address"`
	// MAC is empty for a proxy.
	MAC   string `json:"mac,omitempty"`
	Proxy bool   `json:"proxy,omitempty"`
	// Flags are the kernel's numbers (NTF_ROUTER, ...), but for NTF_PROXY.
	Flags uint8 `json:"flags,omitempty"`
}

func (n Neighbour) String() string {
	if n.Proxy {
		return fmt.Sprintf("proxy %s", n.Address)
	}
	return fmt.Sprintf("%s lladdr %s", n.Address, n.MAC)
}
