package services

// Condition is a node or a kube-proxy with other settings than that of Rows.
type Condition struct {
	// Name says what is other, Which are the connections that come out differently, as Differs says, and Why is the reason.
	Name, Which, Why string
	// Mode is the only mode of kube-proxy that it is for, if it is not empty.
	Mode string
	// Proxy are keys of kube-proxy's configuration.
	Proxy map[string]any
	// Node and Pods are commands in the node and in all its pods. UndoNode and UndoPods take them back. What relink restore brings
	// back in the pods needs no UndoPods.
	Node, UndoNode, Pods, UndoPods string
	// Followed says that relink restore runs after Node, which does there what the agent does.
	Followed bool
	// Extra is more for the key "extra" of the pods.
	Extra []string
	// Differs returns what the server sees, for rows that come out differently. Nil is for none.
	Differs func(Row) (Seen, bool)
	// IPv4 says that they differ by IPv4 only.
	IPv4 bool
}

const (
	drop         = "for t in iptables ip6tables; do $t -w -P FORWARD DROP; done"
	noDrop       = "for t in iptables ip6tables; do $t -w -P FORWARD ACCEPT; done"
	acceptPods   = "for t in iptables ip6tables; do $t -w -I FORWARD -i rl+ -j ACCEPT; $t -w -I FORWARD -o rl+ -j ACCEPT; done"
	acceptNoPods = "for t in iptables ip6tables; do $t -w -D FORWARD -i rl+ -j ACCEPT; $t -w -D FORWARD -o rl+ -j ACCEPT; done"
	strict       = "sysctl -qw net.ipv4.conf.all.rp_filter=1"
	loose        = "sysctl -qw net.ipv4.conf.all.rp_filter=2"
	unfiltered   = "sysctl -qw net.ipv4.conf.all.rp_filter=0"
	// docker0 is before the uplink in the kernel's list of devices.
	docker0   = "ip address add 172.17.0.1/16 dev docker0"
	noDocker0 = "ip address del 172.17.0.1/16 dev docker0"
	onVLAN    = "ip address add 10.3.0.5/24 dev vlan0; ip address add fd00:3::5/64 dev vlan0 nodad"
	notOnVLAN = "ip address del 10.3.0.5/24 dev vlan0; ip address del fd00:3::5/64 dev vlan0"
)

// Connections that several conditions are about.
const (
	masqueradedToPods = "what kube-proxy masquerades and a pod on this node answers"
	localFar          = "a pod asks a NodePort of the policy Local, and a pod on another node answers"
	clusterIPElse     = "a pod asks a ClusterIP, and a pod or another node answers"
)

// balancers are the addresses of LoadBalancers.
var balancers = []string{"203.0.113.0/24", "2001:db8:ff::/64"}

// Conditions are tried one after the other. Those with the same kube-proxy are side by side.
var Conditions = []Condition{
	{Name: "as in the table above"},
	{
		Name: "rp_filter=2, arp_ignore=1 and arp_announce=2 on the node", Why: "relink's routes need no neighbours, and 2 wants only that there is a route back",
		Node: loose + " net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2", UndoNode: unfiltered + " net.ipv4.conf.all.arp_ignore=0 net.ipv4.conf.all.arp_announce=0",
	},
	{
		Name: "rp_filter=1 on the node", IPv4: true, Node: strict, UndoNode: unfiltered, Differs: podsBalanced(all(None)), Which: "a pod asks a LoadBalancer",
		Why: "the pod's packet to the LoadBalancer comes back to the node by the router, from a side where the node does not expect the pod",
	},
	{
		Name: `rp_filter=1 on the node, and "extra" has the addresses of LoadBalancers`, Why: "the packet goes to the node at once, by host0 and not by the router",
		Node: strict, UndoNode: unfiltered, Extra: balancers, Differs: podsBalancedLocally, Which: "a pod asks a LoadBalancer of the policy Local, and another pod on the same node answers",
	},
	{
		Name: "rp_filter=1 in the pods", Pods: strict, UndoPods: unfiltered,
		Why: "relink sets 2 for host0, and the higher one counts. The answer of a LoadBalancer comes there, and the pod asked by the VLAN",
	},
	{
		Name: "the pods have no default route", Pods: "ip route del default; ip -6 route del default", Differs: needsDefaultRoute,
		Which: "a pod asks a LoadBalancer, or an address outside of the VLAN; a client outside asks, and the pod sees its own address",
		Why:   "the pod has no route there: preserveSource changes the way of packets that have one",
	},
	{
		Name: "the policy of FORWARD is DROP", Mode: "iptables", Node: drop, UndoNode: noDrop, Differs: keptSource,
		Which: "what the node forwards and kube-proxy does not masquerade",
		Why:   "kube-proxy accepts only what it has masqueraded",
	},
	{
		Name: "the policy of FORWARD is DROP", Mode: "nftables", Node: drop, UndoNode: noDrop, Differs: forwarded,
		Which: "all that the node forwards",
		Why:   "kube-proxy's rules are in another table, and cannot accept for this one",
	},
	{
		Name: "the policy of FORWARD is DROP, and rules accept rl+", Mode: "iptables", Node: drop + "; " + acceptPods, UndoNode: noDrop + "; " + acceptNoPods,
		Why: "the rules accept what the pods send and get, and kube-proxy's accept the rest",
	},
	{
		Name: "the policy of FORWARD is DROP, and rules accept rl+", Mode: "nftables", Node: drop + "; " + acceptPods, UndoNode: noDrop + "; " + acceptNoPods,
		Differs: notByPods, Which: "a client outside asks a NodePort, or a pod asks a LoadBalancer, and a pod on another node answers",
		Why: "the packets come by the uplink and leave by it: no device of a pod has a part in it",
	},
	{
		Name: "the node has an address on the pods' VLAN", Why: "the pods get a route to it through the node",
		Node: onVLAN, UndoNode: notOnVLAN, Followed: true,
	},
	{
		Name: "a device with an address is before the uplink in the kernel's list, as docker0 after a reload of the uplink's driver",
		Node: docker0, UndoNode: noDocker0, Followed: true, IPv4: true,
		Differs: masqueradedHere(all(Another)), Which: masqueradedToPods, Why: "for kube-proxy, the kernel masquerades with the first address of the node, because the device to the pod has none",
	},
	{
		Name: "the same, and the pods have no route to that address, as without the agent", Node: docker0, UndoNode: noDocker0, IPv4: true,
		Differs: masqueradedHere(Seen{None, Another, None, Another}), Which: masqueradedToPods, Why: "the backend answers to the masqueraded source by the VLAN, unless it has preserveSource",
	},
	{
		Name: "clusterCIDR has the pods' addresses", Proxy: m{"clusterCIDR": "10.3.0.0/24,fd00:3::/64", "detectLocalMode": "ClusterCIDR"},
		Differs: podsFarEndpoints, Which: localFar, Why: "kube-proxy takes a NodePort of the policy Local for a ClusterIP when a pod asks",
	},
	{
		Name: "detectLocalMode InterfaceNamePrefix with rl", Proxy: m{"detectLocalMode": "InterfaceNamePrefix", "detectLocal": m{"interfaceNamePrefix": "rl"}},
		Differs: podsFarEndpoints, Which: localFar, Why: "the same",
	},
	{
		Name: "clusterCIDR has other addresses, such as those of the pods' usual network", Proxy: m{"clusterCIDR": "10.244.0.0/16,fd00:244::/48", "detectLocalMode": "ClusterCIDR"},
		Differs: podsMasqueraded, Which: clusterIPElse, Why: "kube-proxy masquerades what comes from elsewhere to a ClusterIP: masquerade is not needed",
	},
	{
		Name: "detectLocalMode NodeCIDR", Proxy: m{"detectLocalMode": "NodeCIDR"},
		Differs: podsMasqueraded, Which: clusterIPElse, Why: "the same, if the node's podCIDR does not have the pods' addresses",
	},
	{
		Name: "masqueradeAll", Proxy: m{"iptables": m{"masqueradeAll": true}, "nftables": m{"masqueradeAll": true}},
		Differs: podsMasqueraded, Which: clusterIPElse, Why: "kube-proxy masquerades all that goes to a ClusterIP: masquerade is not needed",
	},
}

// m is a part of an object of the API.
type m = map[string]any

func toPods(r Row) bool { return r.Backend == SameNode || r.Backend == Itself }

// throughNode says that the node forwards the packets.
func throughNode(r Row) bool {
	return r.From != Node && r.Backend != Node && r.To != Direct && r.To != ClusterDNS
}

func forwarded(r Row) (Seen, bool) { return all(None), throughNode(r) }

// keptSource are the rows where kube-proxy does not masquerade.
func keptSource(r Row) (Seen, bool) { return all(None), throughNode(r) && r.Seen != all(Node1) }

// notByPods are the rows where neither side goes through the pair of a pod.
func notByPods(r Row) (Seen, bool) {
	return all(None), throughNode(r) && !toPods(r) && (r.From != Pod || r.To == LoadBalancer)
}

func podsBalanced(seen Seen) func(Row) (Seen, bool) {
	return func(r Row) (Seen, bool) {
		return seen, r.From == Pod && (r.To == LoadBalancer || r.To == LoadBalancerL)
	}
}

// podsBalancedLocally is the row where masquerade counts only for what comes by host0.
func podsBalancedLocally(r Row) (Seen, bool) {
	return backendKeeps, r.Connection == Connection{Pod, LoadBalancerL, SameNode}
}

// needsDefaultRoute are the rows where a pod sends to who is neither on the VLAN nor in its routes through the node.
func needsDefaultRoute(r Row) (Seen, bool) {
	_, balanced := podsBalanced(Seen{})(r)
	answers := r.From == Outside && toPods(r) && r.Seen != all(Node1)
	asks := r.From == Pod && r.To == Direct && (r.Backend == Other || r.Backend == Outside)
	return all(None), balanced || answers || asks
}

// masqueradedHere are the rows where a pod of the node sees an address of the node, as kube-proxy's masquerading gave it.
func masqueradedHere(seen Seen) func(Row) (Seen, bool) {
	return func(r Row) (Seen, bool) {
		differs := r.Seen
		for i, was := range r.Seen {
			if toPods(r) && r.Seen != backendKeeps && (was == Node1 || r.From == Node && r.To != Direct && r.To != ClusterIP) {
				differs[i] = seen[i]
			}
		}
		return differs, differs != r.Seen
	}
}

// podsFarEndpoints is the row where kube-proxy finds endpoints on other nodes.
func podsFarEndpoints(r Row) (Seen, bool) {
	return onlyMasqueraded, r.Connection == Connection{Pod, NodePortL, FarPod}
}

func podsMasqueraded(r Row) (Seen, bool) {
	return all(Node1), r.From == Pod && r.To == ClusterIP && r.Backend != Node
}
