package services

import (
	"crypto/sha256"
	"fmt"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/relink-cni/relink/test/fresh"
)

// topology is a node, whose pods have a VLAN device as their parent, and what is around it. Its fields are paths of namespaces.
type topology struct {
	node string
	// dir has the namespaces and the files of relink. checkpoints is a part of it.
	dir, checkpoints string
	// wire is the switch of the VLAN and of the nodes' network, and the router between them and to the outside.
	wire string
	// other is another node, and farPod is a pod on it.
	other, farPod, outside string
	// clients and backends are pods on the node, for each of Settings.
	clients, backends [4]*pod
	// ports counts the ports of clients.
	ports atomic.Int32
}

// pod is a pod with an address on the VLAN.
type pod struct {
	name, ns string
	address
}

func newTopology(t *testing.T) *topology {
	t.Helper()
	s := &topology{dir: t.TempDir()}
	s.checkpoints = filepath.Join(s.dir, "checkpoints")
	s.node, s.wire, s.other, s.farPod, s.outside = s.namespace(t, "node"), s.namespace(t, "wire"), s.namespace(t, "other"), s.namespace(t, "far-pod"), s.namespace(t, "outside")
	s.router(t)
	s.nodeNetwork(t)
	s.farHosts(t)
	return s
}

// attach attaches the pods. kube-proxy starts later: so its masquerading comes before relink's, in both modes. In the mode nftables,
// the kernel asks first whoever came last.
func (s *topology) attach(t *testing.T) {
	t.Helper()
	for i, keys := range Settings {
		s.clients[i] = s.pod(t, fmt.Sprintf("client%d", i), clientLast+i, keys)
		s.backends[i] = s.pod(t, fmt.Sprintf("backend%d", i), backendLast+i, keys)
	}
}

func (s *topology) namespace(t *testing.T, name string) (path string) {
	t.Helper()
	path = filepath.Join(s.dir, name)
	fresh.At(t, path)
	fresh.IP(t, path, "link set lo up")
	return path
}

func (s *topology) pods() []*pod {
	return append(s.clients[:len(s.clients):len(s.clients)], s.backends[:]...)
}

// router makes a bridge for the nodes' network, a bridge for the VLAN, and the way outside. The router drops what comes from a
// wrong side. It sends the addresses of LoadBalancers to the node.
func (s *topology) router(t *testing.T) {
	t.Helper()
	fresh.Run(t, s.wire, fmt.Sprintf(`
		sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=1
		ip link add nodes address 02:00:00:00:01:01 type bridge
		ip link add vlan address 02:00:00:00:01:02 type bridge
		ip link add outside type veth peer name eth0 netns %s
		for d in nodes vlan outside; do ip link set $d up; done
		ip address add 192.168.7.1/24 dev nodes
		ip address add fd00:7::1/64 dev nodes nodad
		ip address add 10.3.0.1/24 dev vlan
		ip address add fd00:3::1/64 dev vlan nodad
		ip address add 198.51.100.1/24 dev outside
		ip address add 2001:db8:51::1/64 dev outside nodad
		ip route add 203.0.113.0/24 via %s
		ip -6 route add 2001:db8:ff::/64 via %s`, s.outside, nodeAddress.v4, nodeAddress.v6))
}

// nodeNetwork makes the node's uplink, the pods' parent, and a device with the addresses of node-local DNS, as NodeLocal DNSCache
// does. docker0 comes before them.
func (s *topology) nodeNetwork(t *testing.T) {
	t.Helper()
	fresh.Run(t, s.node, "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1; ip link add docker0 type bridge")
	s.plug(t, s.node, "up0", "nodes", "node")
	s.plug(t, s.node, "vlan0", "vlan", "node-vlan")
	addresses(t, s.node, "up0", nodeAddress, "192.168.7.1", "fd00:7::1")
	fresh.IP(t, s.node, "link add nodelocaldns type bridge")
	for _, a := range []address{dnsAddress, clusterDNS} {
		fresh.Run(t, s.node, fmt.Sprintf(`
			ip address add %[1]s/32 dev nodelocaldns
			ip address add %[2]s/128 dev nodelocaldns nodad
			for p in udp tcp; do
				iptables -w -t raw -A PREROUTING -d %[1]s -p $p --dport %[3]d -j CT --notrack
				iptables -w -t raw -A OUTPUT -s %[1]s -p $p --sport %[3]d -j CT --notrack
				ip6tables -w -t raw -A PREROUTING -d %[2]s -p $p --dport %[3]d -j CT --notrack
				ip6tables -w -t raw -A OUTPUT -s %[2]s -p $p --sport %[3]d -j CT --notrack
			done`, a.v4, a.v6, dnsPort))
	}
}

// farHosts makes the other node, the pod on it, and the client outside.
func (s *topology) farHosts(t *testing.T) {
	t.Helper()
	s.plug(t, s.other, "up0", "nodes", "other")
	addresses(t, s.other, "up0", otherAddress, "192.168.7.1", "fd00:7::1")
	s.plug(t, s.farPod, "eth0", "vlan", "far-pod")
	addresses(t, s.farPod, "eth0", farPodAddress, "10.3.0.1", "fd00:3::1")
	fresh.IP(t, s.outside, "link set eth0 up")
	addresses(t, s.outside, "eth0", outsideAddress, "198.51.100.1", "2001:db8:51::1")
}

// plug connects a new device of the namespace to a bridge of the wire.
func (s *topology) plug(t *testing.T, ns, name, bridge, peer string) {
	t.Helper()
	// A NIC that comes back has its own MAC.
	sum := sha256.Sum256([]byte(peer))
	mac := net.HardwareAddr{2, 1, sum[0], sum[1], sum[2], sum[3]}
	fresh.Run(t, s.wire, fmt.Sprintf("ip link add %[2]s master %[3]s type veth peer name %[4]s address %[5]s netns %[1]s; ip link set %[2]s up", ns, peer, bridge, name, mac))
	fresh.IP(t, ns, "link set "+name+" up")
}

// addresses gives the device its addresses and the default routes.
func addresses(t *testing.T, ns, name string, a address, gateway4, gateway6 string) {
	t.Helper()
	fresh.Run(t, ns, fmt.Sprintf(`
		ip address add %[2]s/24 dev %[1]s
		ip address add %[3]s/64 dev %[1]s nodad
		ip route add default via %[4]s
		ip -6 route add default via %[5]s`, name, a.v4, a.v6, gateway4, gateway6))
}

// serve starts all servers. Those of node-local DNS have a port of their own: another server has all addresses.
func (s *topology) serve(t *testing.T) {
	t.Helper()
	for _, p := range s.pods() {
		serve(t, p.ns, "", port)
	}
	for _, ns := range []string{s.node, s.other, s.farPod, s.outside} {
		serve(t, ns, "", port)
	}
	for _, a := range []address{dnsAddress, clusterDNS} {
		serve(t, s.node, a.v4, dnsPort)
		serve(t, s.node, a.v6, dnsPort)
	}
}
