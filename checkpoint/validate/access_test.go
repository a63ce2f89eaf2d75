package validate

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/test/fresh"
)

const (
	pods     = `"ipam": {"type": "relink-ipam", "ranges": [[{"subnet": "10.3.0.0/24", "gateway": "10.3.0.1"}], [{"subnet": "fd00:3::/64", "gateway": "fd00:3::1"}]]}`
	services = `"services": ["10.96.0.0/12", "fd00:96::/108"]`
)

// What a configuration says of host access is wrong, or leaves something open, on each node.
func TestHostAccessInAFile(t *testing.T) {
	const at = "10.conflist: plugins[0] relink-macvlan: "
	const open = `warning: "services" without "masquerade": backends answer the pod directly, past the node, and the pod does not know these answers. Set "masquerade": true, unless kube-proxy masquerades the pods itself (docs/host-access.md, "Services")`
	for name, test := range map[string]struct {
		access string
		want   []string
	}{
		"true":                 {`true`, nil},
		"all of it":            {`{` + services + `, "masquerade": true}`, nil},
		"without masquerade":   {`{` + services + `}`, []string{at + open}},
		"the pods' network":    {`{"extra": ["10.3.0.0/24"]}`, []string{at + `error: invalid "extra[0]": "10.3.0.0/24": has the pods' own network or its gateway: leave it out`}},
		"the pods' gateway":    {`{"extra": ["10.9.0.1", "fd00:3::/112"]}`, []string{at + `error: invalid "extra[1]": "fd00:3::/112": has the pods' own network or its gateway: leave it out`}},
		"a part of it":         {`{"extra": ["10.3.0.128/25"]}`, nil},
		"more than it":         {`{"extra": ["10.0.0.0/8"]}`, nil},
		"no network of a node": {`{"extra": ["127.0.0.1"]}`, []string{at + `error: invalid "hostAccess.extra[0]": "127.0.0.1": must not be a loopback, multicast or IPv6 link-local address: the node cannot be reached there`}},
	} {
		t.Run(name, func(t *testing.T) {
			got := findingsOf(t, "10.conflist", list(`{"type": "relink-macvlan", "master": "bond4", `+pods+`, "hostAccess": `+test.access+`}`))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	// In a list, the addresses are those of the plugin before.
	chained := list(`{"type": "macvlan", "ipam": {"type": "host-local", "subnet": "10.3.0.0/24", "gateway": "10.3.0.1"}}, {"type": "relink-host-access", "extra": ["10.3.0.1"]}`)
	want := []string{`10.conflist: plugins[1] relink-host-access: error: invalid "extra[0]": "10.3.0.1/32": has the pods' own network or its gateway: leave it out`}
	if diff := cmp.Diff(want, findingsOf(t, "10.conflist", chained)); diff != "" {
		t.Error(diff)
	}
	twice := list(`{"type": "relink-macvlan", "master": "bond4", ` + pods + `, "hostAccess": true}, {"type": "relink-host-access"}`)
	want = []string{`10.conflist: plugins[1] relink-host-access: error: invalid "type": "relink-host-access": the list has host access already: keep it once`}
	if diff := cmp.Diff(want, findingsOf(t, "10.conflist", twice)); diff != "" {
		t.Error(diff)
	}
}

// What a node has may stand in the way of host access.
func TestHostAccessOnANode(t *testing.T) {
	const at = "10.conflist: plugins[0] relink-macvlan: "
	const all = `{` + services + `, "masquerade": true, "preserveSource": true}`
	for name, test := range map[string]struct {
		access string
		node   AccessNode
		want   []string
	}{
		"nothing":                        {all, AccessNode{}, nil},
		"no iptables":                    {all, AccessNode{NoIPTables: "install it"}, []string{at + `error: "preserveSource" needs iptables: install it`, at + `error: "masquerade" needs iptables: install it`}},
		"no iptables, and no need of it": {`true`, AccessNode{NoIPTables: "install it", NoForwarding4: true, NoForwarding6: true, ForwardDrop: []string{"iptables-nft"}}, nil},
		"no forwarding": {all, AccessNode{NoForwarding4: true, NoForwarding6: true}, []string{
			at + "warning: net.ipv4.ip_forward is 0 on this node: pods reach no ClusterIP whose backend is another pod. relink changes no sysctl of the node: set it to 1, as kube-proxy needs it",
			at + "warning: net.ipv6.conf.all.forwarding is 0 on this node: pods reach no ClusterIP whose backend is another pod. relink changes no sysctl of the node: set it to 1, as kube-proxy needs it",
		}},
		"proxy_arp": {`true`, AccessNode{ProxyARP: []string{"lan0"}}, []string{
			at + "warning: net.ipv4.conf.lan0.proxy_arp is 1 on this node: it answers ARP there for its pods' addresses, and takes their packets. Set it to 0",
		}},
		"rp_filter": {`true`, AccessNode{ReversePath: []string{"all"}}, []string{
			at + `note: net.ipv4.conf.all.rp_filter is 1 on this node: it drops what a pod sends to a LoadBalancer by the VLAN. If pods do that, name the range of these addresses in "extra"`,
		}},
		"a strict firewall": {all, AccessNode{ForwardDrop: []string{"iptables-nft", "ip6tables-nft"}}, []string{
			at + `warning: the policy of FORWARD is DROP on this node (iptables-nft, ip6tables-nft), and no rule accepts rl+: pods reach no ClusterIP whose backend is another pod (docs/host-access.md, "Strict firewalls")`,
		}},
		"ipvs": {`true`, AccessNode{IPVS: true}, []string{at + "note: kube-proxy works in its mode ipvs on this node, for which host access was not tried"}},
		"Cilium": {all, AccessNode{Cilium: true}, []string{
			at + `warning: this node has Cilium. Its socket load balancer sends what a pod connects to a ClusterIP straight to a backend's address. ` +
				`Set socketLB.hostNamespaceOnly to true in Cilium, or name the networks of the backends in "extra" (docs/host-access.md, "Cilium")`,
		}},
		"Cilium, and no services": {`true`, AccessNode{Cilium: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var c collected
			c.read("10.conflist", []byte(list(`{"type": "relink-macvlan", "master": "bond4", `+pods+`, "hostAccess": `+test.access+`}`)))
			chains, _ := readChains(c.networks)
			if diff := cmp.Diff(test.want, lines(judgeNode(chains, Node{Access: &test.node}))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A real node is looked at.
func TestLookAtAccess(t *testing.T) {
	netns := fresh.Sandbox(t)
	look := func(before string) (access AccessNode) {
		t.Helper()
		fresh.Run(t, netns, before)
		if err := fresh.In(netns, func() { access = *probeNode([]chain{{plugins: []plugin{{access: &hostaccess.Options{}}}}}, nil).Access }); err != nil {
			t.Fatal(err)
		}
		return access
	}
	const clean = "echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter; echo 0 >/proc/sys/net/ipv4/conf/default/rp_filter; "
	for _, s := range []struct {
		before string
		want   AccessNode
	}{
		{clean + "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding", AccessNode{}},
		{"ip link add nic0 type bridge; echo 0 >/proc/sys/net/ipv4/conf/nic0/rp_filter; echo 1 >/proc/sys/net/ipv4/conf/nic0/proxy_arp", AccessNode{ProxyARP: []string{"nic0"}}},
		{"echo 0 >/proc/sys/net/ipv4/conf/nic0/proxy_arp; echo 1 >/proc/sys/net/ipv4/conf/nic0/rp_filter", AccessNode{ReversePath: []string{"nic0"}}},
		{"echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter", AccessNode{ReversePath: []string{"all"}}},
		{"echo 2 >/proc/sys/net/ipv4/conf/all/rp_filter; iptables-nft -P FORWARD DROP; iptables-nft -A FORWARD -i rl+ -j DROP", AccessNode{ForwardDrop: []string{"iptables-nft"}}},
		{"ip6tables-nft -P FORWARD DROP", AccessNode{ForwardDrop: []string{"iptables-nft", "ip6tables-nft"}}},
		{"ip6tables-nft -P FORWARD ACCEPT; echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter; echo 2 | tee /proc/sys/net/ipv4/conf/*/rp_filter; echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter",
			AccessNode{ForwardDrop: []string{"iptables-nft"}}},
		{"iptables-nft -A FORWARD -i rl+ -j ACCEPT; ip link add cilium_host type bridge; ip link add kube-ipvs0 type bridge", AccessNode{Cilium: true, IPVS: true}},
	} {
		if diff := cmp.Diff(s.want, look(s.before)); diff != "" {
			t.Errorf("%s: %s", s.before, diff)
		}
	}
}
