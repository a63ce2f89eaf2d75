package services

import "strings"

// Who asks, and who answers.
const (
	Pod      = "pod"
	Node     = "node"
	Itself   = "itself"
	SameNode = "pod on the same node"
	FarPod   = "pod on another node"
	Other    = "another node"
	Outside  = "client outside"
)

// What is asked for.
const (
	Direct        = "its address"
	ClusterIP     = "ClusterIP"
	NodePort      = "NodePort, Cluster"
	NodePortL     = "NodePort, Local"
	LoadBalancer  = "LoadBalancer, Cluster"
	LoadBalancerL = "LoadBalancer, Local"
	NodeDNS       = "node-local DNS"
	ClusterDNS    = "cluster DNS, node-local"
)

// What the server sees as the source. Own is the client's address.
const (
	None    = "—"
	Own     = "own"
	Node1   = "node"
	Another = "another address of the node"
)

// Seen is what the server sees, for each of Settings.
type Seen [4]string

// Settings are the keys of hostAccess in the pods, for each column.
var Settings = [4]Keys{{}, {PreserveSource: true}, {Masquerade: true}, {PreserveSource: true, Masquerade: true}}

// Keys are those of hostAccess that change what works.
type Keys struct{ PreserveSource, Masquerade bool }

func (k Keys) String() string {
	var on []string
	if k.PreserveSource {
		on = append(on, "preserveSource")
	}
	if k.Masquerade {
		on = append(on, "masquerade")
	}
	if len(on) == 0 {
		return "neither"
	}
	return strings.Join(on, ", ")
}

// Connection is who asks for what, and who answers.
type Connection struct{ From, To, Backend string }

// Row is a connection and what becomes of it, by IPv4 and IPv6, by TCP and UDP, with a kube-proxy in the mode iptables and nftables.
type Row struct {
	Connection
	Seen Seen
	Why  string
}

func all(seen string) Seen { return Seen{seen, seen, seen, seen} }

// Patterns of the columns.
var (
	// backendKeeps needs preserveSource at the backend, or a source that is the node's.
	backendKeeps = Seen{None, Own, Node1, Node1}
	// onlyPreserved needs preserveSource at the backend.
	onlyPreserved = Seen{None, Own, None, Own}
	// onlyMasqueraded needs masquerade at the client.
	onlyMasqueraded = Seen{None, None, Node1, Node1}
)

// Reasons that several rows have.
const (
	proxyMasquerades = "kube-proxy gives the connection the node's address"
	answersPastNode  = "the backend answers to the client by the VLAN, past the node, unless it has preserveSource"
	returnsPastNode  = "the answer to the pod's address goes by the VLAN, past the node"
	noService        = "no Service: the path is the VLAN, and hostAccess changes nothing"
	localNode        = "the node answers by itself"
)

// Rows are with a kube-proxy that does not know the pods' addresses: neither clusterCIDR nor masqueradeAll is set.
var Rows = []Row{
	{Connection{Pod, ClusterIP, SameNode}, backendKeeps, answersPastNode},
	{Connection{Pod, ClusterIP, Itself}, all(Node1), proxyMasquerades},
	{Connection{Pod, ClusterIP, FarPod}, onlyMasqueraded, returnsPastNode},
	{Connection{Pod, ClusterIP, Node}, all(Own), localNode},
	{Connection{Pod, ClusterIP, Other}, onlyMasqueraded, returnsPastNode},
	{Connection{Pod, NodePort, SameNode}, all(Node1), proxyMasquerades},
	{Connection{Pod, NodePort, Itself}, all(Node1), proxyMasquerades},
	{Connection{Pod, NodePort, FarPod}, all(Node1), proxyMasquerades},
	{Connection{Pod, NodePort, Node}, all(Own), localNode},
	{Connection{Pod, NodePort, Other}, all(Node1), proxyMasquerades},
	{Connection{Pod, NodePortL, SameNode}, backendKeeps, answersPastNode},
	{Connection{Pod, NodePortL, Itself}, all(Node1), proxyMasquerades},
	{Connection{Pod, NodePortL, FarPod}, all(None), "the node has no endpoint of the Service"},
	{Connection{Pod, LoadBalancer, SameNode}, all(Node1), proxyMasquerades},
	{Connection{Pod, LoadBalancer, Itself}, all(Node1), proxyMasquerades},
	{Connection{Pod, LoadBalancer, FarPod}, all(Node1), proxyMasquerades},
	{Connection{Pod, LoadBalancerL, SameNode}, onlyPreserved, answersPastNode},
	{Connection{Pod, LoadBalancerL, Itself}, all(Node1), proxyMasquerades},
	{Connection{Pod, Direct, Node}, all(Own), localNode},
	{Connection{Pod, NodeDNS, Node}, all(Own), localNode},
	{Connection{Pod, ClusterDNS, Node}, all(Own), localNode},
	{Connection{Pod, Direct, SameNode}, all(Own), noService},
	{Connection{Pod, Direct, FarPod}, all(Own), noService},
	{Connection{Pod, Direct, Other}, all(Own), noService},
	{Connection{Pod, Direct, Outside}, all(Own), noService},
	{Connection{Node, Direct, SameNode}, all(Own), "as a probe of the kubelet"},
	{Connection{Node, ClusterIP, SameNode}, all(Own), "the backend knows the node's address"},
	{Connection{Node, ClusterIP, FarPod}, all(Own), "hostAccess has no part in it"},
	{Connection{Node, NodePort, SameNode}, all(Own), "the backend knows the node's address"},
	{Connection{Node, NodePortL, SameNode}, all(Own), "the backend knows the node's address"},
	{Connection{Node, LoadBalancer, SameNode}, all(Own), "the backend knows the node's address"},
	{Connection{Outside, Direct, SameNode}, all(Own), noService},
	{Connection{Outside, NodePort, SameNode}, all(Node1), proxyMasquerades},
	{Connection{Outside, NodePort, FarPod}, all(Node1), "hostAccess has no part in it"},
	{Connection{Outside, NodePortL, SameNode}, onlyPreserved, answersPastNode},
	{Connection{Outside, LoadBalancer, SameNode}, all(Node1), proxyMasquerades},
	{Connection{Outside, LoadBalancerL, SameNode}, onlyPreserved, answersPastNode},
	{Connection{FarPod, Direct, SameNode}, all(Own), noService},
	{Connection{FarPod, NodePort, SameNode}, all(Node1), proxyMasquerades},
	{Connection{FarPod, NodePortL, SameNode}, onlyPreserved, answersPastNode},
	{Connection{FarPod, LoadBalancerL, SameNode}, onlyPreserved, answersPastNode},
}
