package hostaccess

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/kernel"
)

// Node is what the pods have to know of their node.
type Node struct {
	// Addresses are the node's. Each pod has a route to each of them.
	Addresses []netip.Addr `json:"addresses"`
	// Source4 and Source6 are the sources of what the node sends to pods. If the node has no address of a family, that is its
	// stand-in.
	Source4 netip.Addr `json:"source4"`
	Source6 netip.Addr `json:"source6"`
	// Skipped is how many addresses have no routes in the pods, because the node has too many.
	Skipped int `json:"without,omitempty"`
	// NoIPv6 says that the node has no IPv6, and cannot have its stand-in.
	NoIPv6 bool `json:"noIPv6,omitempty"`

	// reserved are the addresses that no pod can have.
	reserved []netip.Addr
}

// The stand-ins are addresses of the node while it has no other one of the family, as when the NIC with its only address is
// reloaded. They are on lo, and the pods always have a route to them. 72 65 6c 69 6e 6b is "relink".
var (
	standIn4 = netip.MustParseAddr("169.254.114.1")
	standIn6 = netip.MustParseAddr("fd72:656c:696e:6b::1")
)

// maxAddresses is how many addresses of a node the pods get routes to, of each family.
const maxAddresses = 256

// ipvsDevice has the addresses of all services, if kube-proxy works in its mode ipvs. They are not the node's.
const ipvsDevice = "kube-ipvs0"

// ReadNode reads the addresses of the host.
func ReadNode(host *kernel.Namespace) (Node, error) {
	local, err := host.LocalAddresses()
	if err != nil {
		return Node{}, err
	}
	ipv4, ipv6, err := host.DefaultRoutes()
	if err != nil {
		return Node{}, err
	}
	reserved := []netip.Addr{ipv4.Gateway, ipv6.Gateway}
	for _, a := range local {
		reserved = append(reserved, a.Addr)
	}
	ipvs := 0
	if exists, err := host.Exists(ipvsDevice); err == nil && exists {
		if ipvs, err = host.Index(ipvsDevice); err != nil {
			ipvs = 0 // It went meanwhile.
		}
	}
	local = slices.DeleteFunc(local, func(a kernel.LocalAddress) bool { return a.Index == ipvs })
	node := nodeOf(local, ipv4, ipv6)
	node.reserved = reserved
	node.NoIPv6, err = lacksIPv6(host, node)
	return node, err
}

// lacksIPv6 says that the node has no IPv6: its kernel has none, or it has no address and lo takes no stand-in.
func lacksIPv6(host *kernel.Namespace, node Node) (lacks bool, err error) {
	err = host.Inside(func() error {
		b, err := os.ReadFile("/proc/sys/net/ipv6/conf/lo/disable_ipv6")
		lacks = errors.Is(err, fs.ErrNotExist) || err == nil && node.standsIn(true) && strings.TrimSpace(string(b)) == "1"
		return nil
	})
	return lacks, err
}

// CheckPodAddresses returns an error if one of the addresses is not a pod's, or if the node has none of their families.
func (n Node) CheckPodAddresses(addresses []netip.Addr) error {
	for _, addr := range addresses {
		if slices.Contains(n.reserved, addr) {
			return fmt.Errorf("%w: %s is the node's, or its gateway's", ErrNoAddress, addr)
		}
	}
	if n.NoIPv6 && !slices.ContainsFunc(addresses, netip.Addr.Is4) {
		return ErrNoIPv6
	}
	return nil
}

// ErrNoAddress says that the pod has no address to be reached at.
var ErrNoAddress = errors.New("the pod's interface has no address")

// ErrNoIPv6 says that the node cannot reach the pod.
var ErrNoIPv6 = errors.New("the pod has addresses of IPv6 alone, and IPv6 is switched off on this node: set the sysctl net.ipv6.conf.lo.disable_ipv6 to 0, or give the pod an IPv4 address, or no host access")

// nodeOf is a pure function: it decides which addresses count as the node's, and which is the source.
func nodeOf(local []kernel.LocalAddress, ipv4, ipv6 kernel.DefaultRoute) Node {
	local = slices.DeleteFunc(slices.Clone(local), func(a kernel.LocalAddress) bool { return !isNodeAddress(a) })
	node := Node{Source4: sourceOf(local, ipv4, false), Source6: sourceOf(local, ipv6, true)}
	node.add(local, node.Source4, ipv4, false)
	node.add(local, node.Source6, ipv6, true)
	slices.SortFunc(node.Addresses, netip.Addr.Compare)
	node.Source4, node.Source6 = cmp.Or(node.Source4, standIn4), cmp.Or(node.Source6, standIn6)
	return node
}

// add adds the addresses of the family: the source, then those of the default route's device, then the others, up to the limit.
func (n *Node) add(local []kernel.LocalAddress, source netip.Addr, route kernel.DefaultRoute, ipv6 bool) {
	var ranked [3][]netip.Addr
	for _, a := range local {
		rank := 2
		if a.Addr == source {
			rank = 0
		} else if a.Index == route.Index {
			rank = 1
		}
		if a.Addr.Is6() == ipv6 && !slices.Contains(slices.Concat(ranked[:]...), a.Addr) {
			ranked[rank] = append(ranked[rank], a.Addr)
		}
	}
	addresses := slices.Concat(ranked[:]...)
	limit := min(len(addresses), maxAddresses)
	n.Addresses, n.Skipped = append(n.Addresses, addresses[:limit]...), n.Skipped+len(addresses)-limit
}

// Equal says that both are the same.
func (n Node) Equal(node Node) bool {
	return n.NoIPv6 == node.NoIPv6 && n.Source4 == node.Source4 && n.Source6 == node.Source6 && slices.Equal(n.Addresses, node.Addresses)
}

// scopeLink is RT_SCOPE_LINK: an address of that scope or a narrower one is not for other networks.
const scopeLink = 253

func isNodeAddress(a kernel.LocalAddress) bool {
	return a.Addr != standIn4 && a.Addr != standIn6 && !a.Addr.IsLoopback() && !a.Addr.IsUnspecified() && !a.Addr.IsMulticast() &&
		a.Scope < scopeLink && (a.Addr.Is4() || !a.Addr.IsLinkLocalUnicast())
}

// sourceOf returns the address that the node uses for its default route, or else its first one. It prefers an address that
// stays. It is not valid if the node has none of the family.
func sourceOf(local []kernel.LocalAddress, route kernel.DefaultRoute, ipv6 bool) (source netip.Addr) {
	best := -1
	for _, a := range local {
		if a.Addr.Is6() != ipv6 || a.Unusable {
			continue
		}
		rank := 0
		onDevice := route.Index != 0 && a.Index == route.Index
		besideGateway := onDevice && route.Gateway.IsValid() && netip.PrefixFrom(a.Addr, a.Bits).Contains(route.Gateway)
		for place, better := range []bool{a.Addr.IsGlobalUnicast(), onDevice, besideGateway, !a.Transient, a.Addr == route.Source} {
			if better {
				rank |= 1 << place
			}
		}
		if rank > best {
			best, source = rank, a.Addr
		}
	}
	return source
}

// KeepsSources says that what the node sent from before is still an address of its own, in both families. A stand-in is one until no route
// has it as its source.
func (n Node) KeepsSources(before Node) bool {
	keeps := func(ipv6 bool) bool {
		return before.standsIn(ipv6) || slices.Contains(n.Addresses, before.source(ipv6))
	}
	return keeps(false) && keeps(true)
}

// source returns the source of what the node sends in the family.
func (n Node) source(ipv6 bool) netip.Addr {
	if ipv6 {
		return n.Source6
	}
	return n.Source4
}

// standsIn says that the node's stand-in of the family is in use.
func (n Node) standsIn(ipv6 bool) bool { return n.source(ipv6) == standIn(ipv6) }

func standIn(ipv6 bool) netip.Addr {
	if ipv6 {
		return standIn6
	}
	return standIn4
}
