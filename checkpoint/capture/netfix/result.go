package netfix

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/netstate"
)

// result is the part of a CNI result that is read, in the layout of 0.3.0 to 1.1.0. The tool writes
// that layout whatever cniVersion says, even if cniVersion is missing.
type result struct {
	CNIVersion string        `json:"cniVersion"`
	Interfaces []resultLink  `json:"interfaces"`
	IPs        []resultIP    `json:"ips"`
	Routes     []resultRoute `json:"routes"`
}

type resultLink struct {
	Name string `json:"name"`
	MAC  string `json:"mac"`
}

type resultIP struct {
	Version   string `json:"version"`
	Interface *int   `json:"interface"`
	Address   string `json:"address"`
	Gateway   string `json:"gateway"`
}

type resultRoute struct {
	Dst      string `json:"dst"`
	GW       string `json:"gw"`
	MTU      int    `json:"mtu"`
	AdvMSS   int    `json:"advmss"`
	Priority int    `json:"priority"`
	Table    *int   `json:"table"`
	Scope    *int   `json:"scope"`
}

// parseResult takes the MAC, the addresses and the routes from the result.
func (f *File) parseResult() error {
	var r result
	if err := json.Unmarshal(f.Result, &r); err != nil {
		return jsonError("result", err)
	}
	if err := checkVersion(r.CNIVersion); err != nil {
		return err
	}
	if err := f.parseLink(r.Interfaces); err != nil {
		return err
	}
	var parsed current.Result
	for i, ip := range r.IPs {
		config, err := ip.parse("result.ips[" + strconv.Itoa(i) + "].")
		if err != nil {
			return err
		}
		parsed.IPs = append(parsed.IPs, config)
	}
	for i, route := range r.Routes {
		config, err := route.parse("result.routes[" + strconv.Itoa(i) + "].")
		if err != nil {
			return err
		}
		parsed.Routes = append(parsed.Routes, config)
	}
	return f.configure(&parsed)
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
func (f *File) parseLink(links []resultLink) error {
	const key = "result.interfaces"
	if len(links) != 1 {
		return invalidValue(key, strconv.Itoa(len(links))+" interfaces",
			"must be the pod's one, with its MAC: relink capture remembers what is alive without this file")
	}
	if name := links[0].Name; name != "" && name != f.IfName {
		return invalidValue(key+"[0].name", name, "must be that of ifname, "+f.IfName)
	}
	mac, err := netstate.ParseMAC(links[0].MAC)
	if err != nil {
		return invalidValue(key+"[0].mac", links[0].MAC, "must be the interface's MAC: "+err.Error())
	}
	f.MAC = mac
	return nil
}

func (ip resultIP) parse(key string) (*current.IPConfig, error) {
	prefix, err := netip.ParsePrefix(ip.Address)
	if err != nil || !isAssignable(prefix) {
		return nil, invalidValue(key+"address", ip.Address, "must be an address that a pod can have, with its prefix length, such as 10.3.0.5/24")
	}
	family := "6"
	if prefix.Addr().Is4() {
		family = "4"
	}
	if ip.Version != "" && ip.Version != family {
		return nil, invalidValue(key+"version", ip.Version, "must be "+family+", that of "+ip.Address)
	}
	if ip.Interface != nil && *ip.Interface != 0 {
		return nil, invalidValue(key+"interface", strconv.Itoa(*ip.Interface), "must be 0, the pod's one interface")
	}
	config := &current.IPConfig{Interface: ip.Interface, Address: ipNet(prefix)}
	if ip.Gateway != "" {
		gateway, err := parseAddr(ip.Gateway)
		if err != nil || gateway.Is4() != prefix.Addr().Is4() {
			return nil, invalidValue(key+"gateway", ip.Gateway, "must be an address of the same family as "+ip.Address)
		}
		config.Gateway = gateway.AsSlice()
	}
	return config, nil
}

// isAssignable says that an interface can be given the address and then has exactly this one. The kernel
// makes link-local IPv6 addresses itself.
func isAssignable(p netip.Prefix) bool {
	a := p.Addr()
	return p.Bits() > 0 && !a.Is4In6() && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255}) && (a.Is4() || !a.IsLinkLocalUnicast())
}

func (r resultRoute) parse(key string) (*types.Route, error) {
	prefix, err := netip.ParsePrefix(r.Dst)
	if err != nil || prefix.Addr().Is4In6() {
		return nil, invalidValue(key+"dst", r.Dst, "must be a destination with its prefix length, such as 0.0.0.0/0")
	}
	route := &types.Route{
		Dst: ipNet(prefix), MTU: r.MTU, AdvMSS: r.AdvMSS, Priority: r.Priority, Table: r.Table, Scope: r.Scope,
	}
	if r.GW != "" {
		gateway, err := parseAddr(r.GW)
		if err != nil || gateway.Is4() != prefix.Addr().Is4() {
			return nil, invalidValue(key+"gw", r.GW, "must be an address of the same family as "+r.Dst)
		}
		route.GW = gateway.AsSlice()
	}
	return route, nil
}

// parseAddr returns an address that can be a gateway.
func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err == nil && (a.Zone() != "" || a.Is4In6() || a.IsUnspecified() || a.IsMulticast()) {
		err = fmt.Errorf("%s is no gateway", s)
	}
	return a, err
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
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
	for i := range f.Addresses {
		if f.Addresses[i].Prefix.Addr().Is4() {
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
