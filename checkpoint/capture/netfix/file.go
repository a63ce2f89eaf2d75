package netfix

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

// File is a checkpoint of i40e_net_fix.
type File struct {
	// Netns is the path of the sandbox's namespace when the file was written. By now it can lead to a
	// stranger's.
	Netns string
	// PodName is the tool's name for the pod, for people to read.
	PodName     string
	ContainerID string
	IfName      string
	// MAC is in the form of netstate.Link.MAC.
	MAC       string
	Addresses []netstate.Address
	Routes    []netstate.Route
	// Result is the CNI result as the file has it.
	Result json.RawMessage
}

// content is the file as the tool writes it. Other keys are refused: what they ask for would be
// lost.
type content struct {
	Netns   string          `json:"netns"`
	PodName string          `json:"podname"`
	Sandbox string          `json:"sandbox"`
	IfName  string          `json:"ifname"`
	Result  json.RawMessage `json:"result"`
}

// errTorn says that a file has not the form in which the tool writes it.
var errTorn = errors.New("torn or no checkpoint of i40e_net_fix")

// Parse returns the whole checkpoint in b, or an error that names the key, its value and what to do.
// It refuses keys that the tool does not write. Result can have more keys, which it keeps and does
// not look at.
func Parse(b []byte) (File, error) {
	var c content
	decoder := json.NewDecoder(strings.NewReader(string(b)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return File{}, fmt.Errorf("%w: %s", errTorn, printable.Line(err.Error()))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return File{}, fmt.Errorf("%w: more follows after its end", errTorn)
	}
	f := File{Netns: c.Netns, PodName: c.PodName, ContainerID: c.Sandbox, IfName: c.IfName, Result: c.Result}
	if err := f.validate(); err != nil {
		return File{}, err
	}
	// The tool writes the layout of 0.3.0 to 1.1.0 whatever cniVersion says, even if cniVersion is missing.
	var r current.Result
	if err := json.Unmarshal(f.Result, &r); err != nil {
		return File{}, fmt.Errorf("%w: result: %s", errTorn, printable.Line(err.Error()))
	}
	if err := f.parseResult(&r); err != nil {
		return File{}, err
	}
	return f, nil
}

// validate returns the first error in a key other than result.
func (f File) validate() error {
	if !filepath.IsAbs(f.Netns) || strings.ContainsRune(f.Netns, 0) {
		return invalidValue("netns", f.Netns, "must be the absolute path of the sandbox's network namespace")
	}
	if err := (attachment.Key{Network: "unknown", ContainerID: f.ContainerID, IfName: f.IfName}).Validate(); err != nil {
		return fmt.Errorf("invalid \"sandbox\" or \"ifname\": %w", err)
	}
	return nil
}

// Pod is the pod's name, if PodName can be one. The file does not tell the pod's namespace. A name
// that joins several is not taken apart.
func (f File) Pod() attachment.Pod {
	if (attachment.Pod{Namespace: "default", Name: f.PodName}).Validate() != nil {
		return attachment.Pod{}
	}
	return attachment.Pod{Name: f.PodName}
}

// invalidValue is an error about the value of a key.
func invalidValue(key, value, requirement string) error {
	return fmt.Errorf("invalid %q: %q: %s", key, value, requirement)
}

// fileNameLength is how much of the container ID the tool uses as the file's name.
const fileNameLength = 12

// checkName reports a file without the name of its sandbox. It may be a copy of another file, and
// out of date.
func (f File) checkName(name string) error {
	if strings.HasPrefix(f.ContainerID, name) && len(name) >= min(fileNameLength, len(f.ContainerID)) {
		return nil
	}
	return invalidValue("sandbox", f.ContainerID, "the file's name is not the beginning of it: remove the file if it is a copy, or rename it")
}

// parseResult takes the MAC, the addresses and the routes from the result. A result from before CNI 0.3.0 has no interface, and so no MAC for
// a restore.
func (f *File) parseResult(r *current.Result) (err error) {
	if len(r.Interfaces) != 1 || slices.Contains(r.Interfaces, nil) || slices.Contains(r.IPs, nil) || slices.Contains(r.Routes, nil) {
		return errors.New(`invalid "result": must be the CNI result of the attachment, with the pod's one interface and its MAC: relink capture remembers what is alive without this file`)
	}
	link := r.Interfaces[0]
	if link.Name != "" && link.Name != f.IfName {
		return invalidValue("result.interfaces[0].name", link.Name, "must be that of ifname, "+f.IfName)
	}
	if f.MAC, err = netstate.ParseMAC(link.Mac); err != nil {
		return invalidValue("result.interfaces[0].mac", link.Mac, "must be the interface's MAC: "+err.Error())
	}
	if err := f.configure(r); err != nil {
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

const (
	// ipv6Priority is the metric of an IPv6 route that is added without one (IP6_RT_PRIO_USER).
	ipv6Priority = 1024
	// tableMain is RT_TABLE_MAIN, the kernel's default.
	tableMain = 254
)

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

// Interface is the interface as the tool built it.
func (f File) Interface(parents []netstate.Device, mtu int) netstate.Interface {
	return netstate.Interface{
		Link: netstate.Link{
			Kind: netstate.KindMacvlan, Name: f.IfName, MAC: f.MAC, MTU: mtu, Up: true,
			Macvlan: &netstate.Macvlan{Mode: "bridge"},
		},
		Parents: parents, Addresses: f.Addresses, Routes: f.Routes, Settings: f.Settings(),
	}
}

// Settings are the sysctls that the tool set. The pod answers for others (proxy ARP), and IPv6 is on
// if it is used.
func (f File) Settings() map[string]string {
	s := map[string]string{"ipv4/proxy_arp": "1"}
	if slices.ContainsFunc(f.Addresses, func(a netstate.Address) bool { return a.Prefix.Addr().Is6() }) {
		s["ipv6/disable_ipv6"] = "0"
	}
	return s
}
