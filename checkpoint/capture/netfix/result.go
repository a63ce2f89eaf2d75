package netfix

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/netstate"
)

// parseResult takes the MAC, the addresses and the routes from the result. The tool writes the layout of 0.3.0 to 1.1.0 whatever
// cniVersion says, even if cniVersion is missing.
func (f *File) parseResult() error {
	var r current.Result
	if err := json.Unmarshal(f.Result, &r); err != nil {
		return jsonError("result", err)
	}
	if err := checkVersion(r.CNIVersion); err != nil {
		return err
	}
	if slices.Contains(r.Interfaces, nil) || slices.Contains(r.IPs, nil) || slices.Contains(r.Routes, nil) {
		return invalidValue("result", "null", "must not be among the interfaces, ips and routes")
	}
	if err := f.parseLink(r.Interfaces); err != nil {
		return err
	}
	if err := f.configure(&r); err != nil {
		return err
	}
	for _, ip := range r.IPs {
		if ip.Interface != nil && *ip.Interface != 0 {
			return invalidValue("result.ips.interface", strconv.Itoa(*ip.Interface), "must be 0, the pod's one interface")
		}
		if err := checkGateway("result.ips.gateway", ip.Gateway, ip.Address); err != nil {
			return err
		}
	}
	for _, route := range r.Routes {
		if err := checkGateway("result.routes.gw", route.GW, route.Dst); err != nil {
			return err
		}
	}
	return nil
}

// checkVersion accepts the versions that can have this layout, and those that the tool's libraries
// write for no reason.
func checkVersion(v string) error {
	if v == "" {
		return nil
	}
	major, minor, _, err := version.ParseVersion(v)
	if err == nil && (major == 0 && minor >= 2 && minor <= 4 || major == 1) {
		return nil
	}
	return invalidValue("result.cniVersion", v, "must be 0.2.0 to 0.4.0, 1.x, or absent")
}

// parseLink takes the pod's interface. A result from before CNI 0.3.0 has none, and so no MAC for a
// restore.
func (f *File) parseLink(links []*current.Interface) error {
	const key = "result.interfaces"
	if len(links) != 1 {
		return invalidValue(key, strconv.Itoa(len(links))+" interfaces",
			"must be the pod's one, with its MAC: relink capture remembers what is alive without this file")
	}
	if name := links[0].Name; name != "" && name != f.IfName {
		return invalidValue(key+"[0].name", name, "must be that of ifname, "+f.IfName)
	}
	mac, err := netstate.ParseMAC(links[0].Mac)
	if err != nil {
		return invalidValue(key+"[0].mac", links[0].Mac, "must be the interface's MAC: "+err.Error())
	}
	f.MAC = mac
	return nil
}

// checkGateway refuses what is no gateway of an address or a route.
func checkGateway(key string, gateway net.IP, network net.IPNet) error {
	if gateway == nil || (gateway.To4() == nil) == (network.IP.To4() == nil) && !gateway.IsUnspecified() && !gateway.IsMulticast() {
		return nil
	}
	return invalidValue(key, gateway.String(), "must be an address of the same family as "+network.String())
}

// isAssignable says that an interface can be given the address and then has exactly this one. The kernel
// makes link-local IPv6 addresses itself.
func isAssignable(p netip.Prefix) bool {
	a := p.Addr()
	return p.Bits() > 0 && !a.Is4In6() && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255}) && (a.Is4() || !a.IsLinkLocalUnicast())
}

// ipv6Priority is the metric of an IPv6 route that is added without one (IP6_RT_PRIO_USER).
const ipv6Priority = 1024

// tableMain is RT_TABLE_MAIN, the kernel's default.
const tableMain = 254

// configure fills in the addresses and routes as the kernel has them after the tool has set them. Of
// two routes in one slot it leaves out the second.
func (f *File) configure(r *current.Result) (err error) {
	if f.Addresses, err = cniplugin.Addresses(r); err != nil {
		return fmt.Errorf("result.ips: %w", err)
	}
	for i, a := range f.Addresses {
		if !isAssignable(a.Prefix) {
			return invalidValue("result.ips.address", a.Prefix.String(), "must be an address that a pod can have, with its prefix length, such as 10.3.0.5/24")
		}
		if a.Prefix.Addr().Is4() {
			f.Addresses[i].Label = f.IfName
		}
	}
	routes, err := cniplugin.Routes(r)
	if err != nil {
		return fmt.Errorf("result.routes: %w", err)
	}
	for _, route := range routes {
		if route.Table == 0 {
			route.Table = tableMain
		}
		if route.Destination.Addr().Is6() {
			route.Scope = 0 // IPv6 routes have none.
			if route.Priority == 0 {
				route.Priority = ipv6Priority
			}
		}
		if !slices.ContainsFunc(f.Routes, route.SameSlot) {
			f.Routes = append(f.Routes, route)
		}
	}
	return nil
}
