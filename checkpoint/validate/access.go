package validate

import (
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/netfilter"
)

// AccessNode is what is known of a node for host access. All of it is false on a node where nothing stands in the way.
type AccessNode struct {
	// NoForwarding4 and NoForwarding6 say that the node forwards nothing.
	NoForwarding4, NoForwarding6 bool
	// ProxyARP says that the node answers ARP for what it has a route to.
	ProxyARP bool
	// Cilium says that Cilium runs there.
	Cilium bool
	// NoIPTables says why iptables cannot be used, empty if it can.
	NoIPTables string
}

// lookAtAccess finds out what concerns host access.
func (n *Node) lookAtAccess() {
	n.Access = &AccessNode{
		NoForwarding4: sysctl("net/ipv4/ip_forward") == "0",
		NoForwarding6: sysctl("net/ipv6/conf/all/forwarding") == "0",
		ProxyARP:      sysctl("net/ipv4/conf/all/proxy_arp") == "1",
	}
	_, n.Access.Cilium = n.Devices.ByName("cilium_host")
	for _, family := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		if err := netfilter.Installed(family); err != nil {
			n.Access.NoIPTables = err.Error()
		}
	}
}

// sysctl is empty if it cannot be read.
func sysctl(path string) string {
	b, _ := os.ReadFile("/proc/sys/" + path)
	return strings.TrimSpace(string(b))
}

// lacksForAccess says what stands in the way of host access on the node.
func (r *reading) lacksForAccess(p plugin, node Node) {
	if p.access == nil || node.Access == nil {
		return
	}
	for key, asked := range map[string]bool{"preserveSource": p.access.PreserveSource, "masquerade": p.access.Masquerade} {
		if asked && node.Access.NoIPTables != "" {
			r.say(Error, p.place, "%q needs iptables: %s", key, node.Access.NoIPTables)
		}
	}
	for _, f := range []struct {
		off, ipv6 bool
		sysctl    string
	}{{node.Access.NoForwarding4, false, "net.ipv4.ip_forward"}, {node.Access.NoForwarding6, true, "net.ipv6.conf.all.forwarding"}} {
		if f.off && beyondTheNode(*p.access, f.ipv6) {
			r.say(Warning, p.place, "%s is 0 on this node: pods reach no ClusterIP whose backend is another pod. relink changes no sysctl of the node: set it to 1, as kube-proxy needs it", f.sysctl)
		}
	}
	if node.Access.ProxyARP {
		r.say(Warning, p.place, "net.ipv4.conf.all.proxy_arp is 1 on this node: it answers ARP on the VLAN for its pods' addresses, and takes their packets. Set it to 0")
	}
	if node.Access.Cilium && len(p.access.Services) > 0 {
		r.say(Warning, p.place, "this node has Cilium. Its socket load balancer sends what a pod connects to a ClusterIP straight to a backend's address. %s", ciliumAdvice)
	}
}

const ciliumAdvice = `Set socketLB.hostNamespaceOnly to true in Cilium, or name the networks of the backends in "extra" (docs/host-access.md, "Cilium")`

func beyondTheNode(o hostaccess.Options, ipv6 bool) bool {
	return slices.ContainsFunc(o.Services, func(p netip.Prefix) bool { return p.Addr().Is6() == ipv6 })
}

// needlessAccess says what the configuration of host access leaves open. It holds on each node.
func (r *reading) needlessAccess(p plugin) {
	if p.access == nil || len(p.access.Services) == 0 || p.access.Masquerade {
		return
	}
	r.say(Warning, p.place, `"services" without "masquerade": backends answer the pod directly, past the node, and the pod does not know these answers. Set "masquerade": true, unless kube-proxy masquerades the pods itself (docs/host-access.md, "Services")`)
}
