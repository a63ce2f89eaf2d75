package validate

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/netfilter"
)

// AccessNode is what is known of a node for host access. All of it is false on a node where nothing stands in the way.
type AccessNode struct {
	// NoForwarding4 and NoForwarding6 say that the node forwards nothing.
	NoForwarding4, NoForwarding6 bool
	// ProxyARP are the devices, or "all", on which the node answers ARP for what it has a route to.
	ProxyARP []string
	// ReversePath are the devices on which the node drops what comes from where it would not send to (rp_filter 1).
	ReversePath []string
	// ForwardDrop are the programs of iptables that show the policy DROP for forwarded packets, and no rule that accepts relink's
	// devices.
	ForwardDrop []string
	// Cilium says that Cilium runs there, IPVS that kube-proxy works in its mode ipvs.
	Cilium, IPVS bool
	// NoIPTables says why iptables cannot be used, empty if it can.
	NoIPTables string
}

// probeHostAccess finds out what concerns host access.
func (n *Node) probeHostAccess() {
	n.Access = &AccessNode{
		NoForwarding4: sysctl("net/ipv4/ip_forward") == "0",
		NoForwarding6: sysctl("net/ipv6/conf/all/forwarding") == "0",
		ProxyARP:      devicesWith("proxy_arp", 1),
		ReversePath:   devicesWith("rp_filter", 1),
	}
	_, n.Access.Cilium = n.Devices.ByName("cilium_host")
	_, n.Access.IPVS = n.Devices.ByName("kube-ipvs0")
	n.probeForwarding()
}

// probeForwarding asks iptables whether the policy for forwarded packets is DROP, and no rule accepts relink's devices. Only root may.
func (n *Node) probeForwarding() {
	accepts := func(rule string) bool {
		return strings.Contains(rule, " "+relinkDevices+" ") && strings.HasSuffix(rule, " -j ACCEPT")
	}
	for _, family := range netfilter.Families {
		var policy string
		var rules []string
		table, err := netfilter.Open(family)
		if err == nil {
			policy, rules, err = table.Rules("filter", "FORWARD")
		}
		switch {
		case errors.Is(err, netfilter.ErrNotInstalled):
			n.Access.NoIPTables = err.Error()
		case err != nil:
			n.addUnknown(fmt.Errorf("whether the node forwards what pods send by %s: %w", family, err))
		case policy == "DROP" && !slices.ContainsFunc(rules, accepts):
			n.Access.ForwardDrop = append(n.Access.ForwardDrop, table.Program())
		}
	}
}

// relinkDevices are all of relink's devices in the host, as iptables names them.
const relinkDevices = "rl+"

// devicesWith returns the devices for which a sysctl of IPv4 has this value, "all" if it is set for all. The higher one of a device's own
// and that of "all" counts (ip-sysctl.rst). Loopback and relink's own do not matter.
func devicesWith(key string, want int) (names []string) {
	const conf = "net/ipv4/conf/"
	global, _ := strconv.Atoi(sysctl(conf + "all/" + key))
	paths, _ := filepath.Glob("/proc/sys/" + conf + "*/" + key)
	for _, path := range paths {
		name := filepath.Base(filepath.Dir(path))
		value, _ := strconv.Atoi(sysctl(conf + name + "/" + key))
		if max(global, value) == want && name != "lo" && name != "default" && name != "all" && !strings.HasPrefix(name, "rl") {
			names = append(names, name)
		}
	}
	if global == want && len(names) > 0 {
		return []string{"all"}
	}
	return names
}

// sysctl is empty if it cannot be read.
func sysctl(path string) string {
	b, _ := os.ReadFile("/proc/sys/" + path)
	return strings.TrimSpace(string(b))
}

// checkNodeAccess says what stands in the way of host access on the node.
func (r *chainReader) checkNodeAccess(p plugin, node Node) {
	n := node.Access
	if p.access == nil || n == nil {
		return
	}
	for _, key := range []struct {
		name  string
		asked bool
	}{{"preserveSource", p.access.PreserveSource}, {"masquerade", p.access.Masquerade}} {
		if key.asked && n.NoIPTables != "" {
			r.addFinding(Error, p.place, "%q needs iptables: %s", key.name, n.NoIPTables)
		}
	}
	for _, f := range []struct {
		disabled, ipv6 bool
		sysctl         string
	}{{n.NoForwarding4, false, "net.ipv4.ip_forward"}, {n.NoForwarding6, true, "net.ipv6.conf.all.forwarding"}} {
		if f.disabled && hasServices(*p.access, f.ipv6) {
			r.addFinding(Warning, p.place, "%s is 0 on this node: pods reach no ClusterIP whose backend is another pod. relink changes no sysctl of the node: set it to 1, as kube-proxy needs it", f.sysctl)
		}
	}
	if devices := n.ProxyARP; len(devices) > 0 {
		r.addFinding(Warning, p.place, "net.ipv4.conf.%s.proxy_arp is 1 on this node: it answers ARP there for its pods' addresses, and takes their packets. Set it to 0", strings.Join(devices, ", "))
	}
	if devices := n.ReversePath; len(devices) > 0 {
		r.addFinding(Note, p.place, "net.ipv4.conf.%s.rp_filter is 1 on this node: it drops what a pod sends to a LoadBalancer by the VLAN. If pods do that, name the range of these addresses in \"extra\"", strings.Join(devices, ", "))
	}
	if drop := n.ForwardDrop; len(drop) > 0 && (len(p.access.Services) > 0 || p.access.PreserveSource) {
		r.addFinding(Warning, p.place, "the policy of FORWARD is DROP on this node (%s), and no rule accepts %s: pods reach no ClusterIP whose backend is another pod (docs/host-access.md, \"Strict firewalls\")", strings.Join(drop, ", "), relinkDevices)
	}
	if n.IPVS {
		r.addFinding(Note, p.place, "kube-proxy works in its mode ipvs on this node, for which host access was not tried")
	}
	if n.Cilium && len(p.access.Services) > 0 {
		r.addFinding(Warning, p.place, "this node has Cilium. Its socket load balancer sends what a pod connects to a ClusterIP straight to a backend's address. %s", ciliumAdvice)
	}
}

const ciliumAdvice = `Set socketLB.hostNamespaceOnly to true in Cilium, or name the networks of the backends in "extra" (docs/host-access.md, "Cilium")`

func hasServices(o hostaccess.Options, ipv6 bool) bool {
	return slices.ContainsFunc(o.Services, func(p netip.Prefix) bool { return p.Addr().Is6() == ipv6 })
}

// checkAccessNetworks says which network of "services" or "extra" would take away the pod's own network. An ADD would refuse it.
func (r *chainReader) checkAccessNetworks(p plugin) {
	if p.access == nil {
		return
	}
	for _, key := range []struct {
		name     string
		networks []netip.Prefix
	}{{"services", p.access.Services}, {"extra", p.access.Extra}} {
		for i, network := range key.networks {
			if r.isPodNetwork(network) {
				r.addFinding(Error, p.place, "invalid \"%s[%d]\": %q: has the pods' own network or its gateway: leave it out", key.name, i, network)
			}
		}
	}
}

// isPodNetwork says that the network is the one of the pods, or has their gateway.
func (r *chainReader) isPodNetwork(network netip.Prefix) bool {
	for _, p := range r.plugins {
		for _, set := range p.sets {
			for _, addrRange := range set {
				if network == addrRange.Subnet || network.Bits() >= addrRange.Subnet.Bits() && addrRange.Gateway.IsValid() && network.Contains(addrRange.Gateway) {
					return true
				}
			}
		}
	}
	return false
}

// checkMasquerade says what the configuration of host access leaves open. It holds on each node.
func (r *chainReader) checkMasquerade(p plugin) {
	if p.access == nil || len(p.access.Services) == 0 || p.access.Masquerade {
		return
	}
	r.addFinding(Warning, p.place, `"services" without "masquerade": backends answer the pod directly, past the node, and the pod does not know these answers. Set "masquerade": true, unless kube-proxy masquerades the pods itself (docs/host-access.md, "Services")`)
}
