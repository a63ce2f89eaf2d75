package netstate

// Interface is a network interface inside a sandbox: the link, what it is
// stacked on and what it carries.
type Interface struct {
	Link Link `json:"link"`
	// Parents are the devices below the link, the nearest first, the base (a
	// NIC, a bond, any other device without a parent) last. A link that is a NIC
	// itself has none.
	Parents []Device `json:"parents"`
	// ParentsInSandbox says that Parents are in the sandbox's own namespace
	// (CNI's linkInContainer) and not in the host's.
	ParentsInSandbox bool `json:"parentsInSandbox,omitempty"`
	// Master is the bridge or VRF in the sandbox that the interface is enslaved to.
	Master    *Master   `json:"master,omitempty"`
	Addresses []Address `json:"addresses,omitempty"`
	Routes    []Route   `json:"routes,omitempty"`
	// RouteOrder are the slots of the routes that have more than one, of the interface or of
	// another one. The routes that the kernel makes of addresses are in it too.
	RouteOrder []Order `json:"routeOrder,omitempty"`
	// Rules are the sandbox's policy rules that have to do with the interface.
	Rules      []Rule      `json:"rules,omitempty"`
	Neighbours []Neighbour `json:"neighbours,omitempty"`
	// Settings are the interface's sysctls to set before it goes up, keyed
	// "ipv4/arp_notify" for net.ipv4.conf.<name>.arp_notify and
	// "ipv4/neigh/gc_stale_time" for net.ipv4.neigh.<name>.gc_stale_time.
	Settings map[string]string `json:"settings,omitempty"`
	Qdiscs   []Qdisc           `json:"qdiscs,omitempty"`
	// Carrier says that the link could send when it was captured, which is nothing to
	// remember.
	Carrier bool `json:"-"`
	// NotCaptured names, for people, what the interface had besides and what is
	// not described here.
	NotCaptured []string `json:"notCaptured,omitempty"`
}
