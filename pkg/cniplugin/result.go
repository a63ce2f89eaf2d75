package cniplugin

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/relink-cni/relink/pkg/netstate"
)

// InterfaceIndex returns the place of the pod's interface in the result, or -1.
func InterfaceIndex(r *current.Result, ifName string) int {
	return slices.IndexFunc(r.Interfaces, func(i *current.Interface) bool { return i != nil && i.Name == ifName && i.Sandbox != "" })
}

// ForInterface returns the result's routes, and its addresses for the pod's interface: other plugins of the list may have added interfaces of
// their own.
func ForInterface(r *current.Result, ifName string) *current.Result {
	index := InterfaceIndex(r, ifName)
	return &current.Result{
		IPs: slices.DeleteFunc(slices.Clone(r.IPs), func(ip *current.IPConfig) bool {
			return ip == nil || ip.Interface != nil && *ip.Interface != index
		}),
		Routes: slices.DeleteFunc(slices.Clone(r.Routes), func(route *types.Route) bool { return route == nil }),
	}
}

// Addresses returns the result's addresses as an interface carries them.
func Addresses(r *current.Result) ([]netstate.Address, error) {
	var addresses []netstate.Address
	for _, ip := range r.IPs {
		prefix, err := toPrefix(ip.Address)
		if err != nil {
			return nil, Error(types.ErrInternal, "address %s of the IPAM plugin's result: %v", ip.Address.String(), err)
		}
		addresses = append(addresses, netstate.Address{Prefix: prefix, Broadcast: broadcast(prefix)})
	}
	return addresses, nil
}

// broadcast returns the last address of an IPv4 network, as ifconfig(8) and other CNI plugins set it. A network
// that is too small has none.
func broadcast(p netip.Prefix) netip.Addr {
	if !p.Addr().Is4() || p.Bits() > 30 {
		return netip.Addr{}
	}
	return netstate.Last(p)
}

// Numbers of a route as rtnetlink(7) has them.
const (
	tableMain    = 254
	protocolBoot = 3
	typeUnicast  = 1
	scopeLink    = 253
)

// Routes returns the result's routes as an interface carries them. A route
// without a gateway takes the first gateway of its family among the addresses,
// as the reference plugins do.
func Routes(r *current.Result) ([]netstate.Route, error) {
	var routes []netstate.Route
	for _, route := range r.Routes {
		destination, err := toPrefix(route.Dst)
		if err != nil {
			return nil, Error(types.ErrInternal, "route to %s of the IPAM plugin's result: %v", route.Dst.String(), err)
		}
		if err := CheckRoute("", route); err != nil {
			return nil, Wrap(err, "route to "+route.Dst.String())
		}
		entry := netstate.Route{
			Destination: destination.Masked(), Table: tableMain, Protocol: protocolBoot, Type: typeUnicast,
			Priority: uint32(route.Priority), MTU: uint32(route.MTU), AdvMSS: uint32(route.AdvMSS),
		}
		entry.Gateway = gateway(route, destination, r.IPs)
		if route.Table != nil {
			entry.Table = uint32(*route.Table)
		}
		if route.Scope != nil {
			entry.Scope = uint8(*route.Scope)
		}
		routes = append(routes, entry)
	}
	return routes, nil
}

// CheckRoute reports the first thing about the route that the kernel does not take: a number that is too large, or a
// gateway of the other family. Its code is 7. path is the route's place in the configuration or in the result.
func CheckRoute(path string, route *types.Route) error {
	numbers := []struct {
		key   string
		value *int
		limit int
	}{
		{"priority", &route.Priority, math.MaxUint32}, {"mtu", &route.MTU, math.MaxUint32}, {"advmss", &route.AdvMSS, math.MaxUint32},
		{"table", route.Table, math.MaxUint32}, {"scope", route.Scope, math.MaxUint8},
	}
	for _, n := range numbers {
		if n.value != nil && (*n.value < 0 || *n.value > n.limit) {
			return ConfigError(joinPath(path, n.key), *n.value, fmt.Sprintf("must be between 0 and %d", n.limit))
		}
	}
	destination, err := toPrefix(route.Dst)
	if err != nil {
		return ConfigError(joinPath(path, "dst"), route.Dst.String(), "must be a network such as 10.0.0.0/8")
	}
	if route.GW == nil {
		return nil
	}
	if gw, ok := netip.AddrFromSlice(route.GW); !ok || gw.Unmap().Is4() != destination.Addr().Is4() {
		return ConfigError(joinPath(path, "gw"), route.GW.String(), "must be of the family of the destination "+destination.String())
	}
	return nil
}

// gateway returns the gateway of a route that CheckRoute takes. It is the zero address for a route to the link
// itself.
func gateway(route *types.Route, destination netip.Prefix, ips []*current.IPConfig) netip.Addr {
	if gw, ok := netip.AddrFromSlice(route.GW); ok {
		return gw.Unmap()
	}
	if route.Scope != nil && *route.Scope >= scopeLink {
		return netip.Addr{} // The destination is on the link itself.
	}
	for _, ip := range ips {
		gw, ok := netip.AddrFromSlice(ip.Gateway)
		if gw = gw.Unmap(); ok && gw.Is4() == destination.Addr().Is4() {
			return gw
		}
	}
	return netip.Addr{}
}

func toPrefix(n net.IPNet) (netip.Prefix, error) {
	addr, ok := netip.AddrFromSlice(n.IP)
	bits, size := n.Mask.Size()
	if addr = addr.Unmap(); !ok || size != addr.BitLen() {
		return netip.Prefix{}, errors.New("is no IP address with a prefix length")
	}
	return netip.PrefixFrom(addr, bits), nil
}

// HasIPv6Gateway says whether the result names a gateway for IPv6.
func HasIPv6Gateway(r *current.Result) bool {
	for _, ip := range r.IPs {
		if ip.Gateway != nil && ip.Gateway.To4() == nil {
			return true
		}
	}
	return false
}
