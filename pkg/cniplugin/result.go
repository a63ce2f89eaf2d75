package cniplugin

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/relink-cni/relink/pkg/netstate"
)

// Addresses returns the result's addresses as an interface carries them.
func Addresses(r *current.Result) ([]netstate.Address, error) {
	var addresses []netstate.Address
	for _, ip := range r.IPs {
		prefix, err := toPrefix(ip.Address)
		if err != nil {
			return nil, fmt.Errorf("address %s: %w", ip.Address.String(), err)
		}
		addresses = append(addresses, netstate.Address{Prefix: prefix, Broadcast: broadcast(prefix)})
	}
	return addresses, nil
}

// broadcast returns the last address of an IPv4 network that has room for one,
// as ifconfig(8) and other CNI plugins set it.
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
// without gateway goes by the first gateway of its family among the addresses,
// as in the reference plugins.
func Routes(r *current.Result) ([]netstate.Route, error) {
	var routes []netstate.Route
	for _, route := range r.Routes {
		destination, err := toPrefix(route.Dst)
		if err != nil {
			return nil, fmt.Errorf("route to %s: %w", route.Dst.String(), err)
		}
		if err := checkNumbers(route); err != nil {
			return nil, fmt.Errorf("route to %s: %w", route.Dst.String(), err)
		}
		to := netstate.Route{
			Destination: destination.Masked(), Table: tableMain, Protocol: protocolBoot, Type: typeUnicast,
			Priority: uint32(route.Priority), MTU: uint32(route.MTU), AdvMSS: uint32(route.AdvMSS),
		}
		if to.Gateway, err = gateway(route, destination, r.IPs); err != nil {
			return nil, fmt.Errorf("route to %s: %w", route.Dst.String(), err)
		}
		if route.Table != nil {
			to.Table = uint32(*route.Table)
		}
		if route.Scope != nil {
			to.Scope = uint8(*route.Scope)
		}
		routes = append(routes, to)
	}
	return routes, nil
}

// checkNumbers reports the first number of the route that the kernel has no room
// for.
func checkNumbers(route *types.Route) error {
	check := func(key string, value, most int) error {
		if value < 0 || value > most {
			return ConfigError(key, value, fmt.Sprintf("must be between 0 and %d", most))
		}
		return nil
	}
	errs := []error{
		check("priority", route.Priority, math.MaxUint32), check("mtu", route.MTU, math.MaxUint32), check("advmss", route.AdvMSS, math.MaxUint32),
	}
	if route.Table != nil {
		errs = append(errs, check("table", *route.Table, math.MaxUint32))
	}
	if route.Scope != nil {
		errs = append(errs, check("scope", *route.Scope, math.MaxUint8))
	}
	return errors.Join(errs...)
}

func gateway(route *types.Route, destination netip.Prefix, ips []*current.IPConfig) (netip.Addr, error) {
	if route.GW != nil {
		gw, ok := netip.AddrFromSlice(route.GW)
		if gw = gw.Unmap(); !ok || gw.Is4() != destination.Addr().Is4() {
			return netip.Addr{}, fmt.Errorf("gateway %s is of another family", route.GW)
		}
		return gw, nil
	}
	if route.Scope != nil && *route.Scope >= scopeLink {
		return netip.Addr{}, nil // The destination is on the link itself.
	}
	for _, ip := range ips {
		gw, ok := netip.AddrFromSlice(ip.Gateway)
		if gw = gw.Unmap(); ok && gw.Is4() == destination.Addr().Is4() {
			return gw, nil
		}
	}
	return netip.Addr{}, nil
}

func toPrefix(n net.IPNet) (netip.Prefix, error) {
	addr, ok := netip.AddrFromSlice(n.IP)
	bits, size := n.Mask.Size()
	if addr = addr.Unmap(); !ok || size != addr.BitLen() {
		return netip.Prefix{}, fmt.Errorf("%s is no IP prefix", n.String())
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
