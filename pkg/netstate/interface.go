package netstate

import (
	"fmt"
	"net/netip"
)

// Interface is a network interface inside a sandbox: the link, the devices below it, and what it carries.
type Interface struct {
	Link Link `json:"link"`
	// Parents are the devices below the link, the nearest first. The last one is the base: a NIC, a bond, or any
	// other device without a parent. A link that is a NIC itself has no parents.
	Parents []Device `json:"parents"`
	// ParentsInSandbox says that Parents are in the sandbox's own namespace
	// (CNI's linkInContainer) and not in the host's.
	ParentsInSandbox bool `json:"parentsInSandbox,omitempty"`
	// Master is the bridge or VRF in the sandbox that the interface is enslaved to.
	Master    *Master   `json:"master,omitempty"`
	Addresses []Address `json:"addresses,omitempty"`
	Routes    []Route   `json:"routes,omitempty"`
	// Rules are those of the sandbox's policy rules that concern the interface.
	Rules      []Rule      `json:"rules,omitempty"`
	Neighbours []Neighbour `json:"neighbours,omitempty"`
	// Settings are the interface's sysctls to set before it goes up, keyed
	// "ipv4/arp_notify" for net.ipv4.conf.<name>.arp_notify and
	// "ipv4/neigh/gc_stale_time" for net.ipv4.neigh.<name>.gc_stale_time.
	Settings map[string]string `json:"settings,omitempty"`
	Qdiscs   []Qdisc           `json:"qdiscs,omitempty"`
	// Carrier says that the link could send when it was captured. It is not stored.
	Carrier bool `json:"-"`
	// NotCaptured names, for people, what the interface had and what is not described here.
	NotCaptured []string `json:"notCaptured,omitempty"`
}

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
