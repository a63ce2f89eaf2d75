package hostaccess

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// LostPod is a pod whose checkpoint is lost.
type LostPod struct {
	// Devices are those of the sandbox, and Interface is the pod's.
	Devices   netstate.Devices
	Interface netstate.Interface
	// Assigned are the addresses that the runtime was told at the ADD. Nobody knows them if it is empty.
	Assigned []netip.Addr
	// Extra are the networks for which the host has rules of iptables.
	Extra []netip.Prefix
}

// Capture returns the host access of the pod as it is there, nil if there is none. What the host's rules of iptables name is Extra. The
// pod can have made any other route through the node itself: those are Services, for which the pod gets no address of the node.
func Capture(host, sandbox *kernel.Namespace, lost LostPod) (*Access, error) {
	for _, d := range lost.Devices {
		if d.Kind != netstate.KindVeth {
			continue
		}
		pod, end, err := pairOf(host, sandbox, d.Name)
		if err != nil {
			return nil, err
		}
		key, ours := ParseAlias(end.Alias)
		if !ours || key.IfName != lost.Interface.Link.Name || HostName(key, false) != end.Name && HostName(key, true) != end.Name {
			continue
		}
		node, err := ReadNode(host)
		if err != nil {
			return nil, err
		}
		a := captureAccess(pod.Interface, end, node, lost.Extra)
		a.Masquerade = HostName(key, true) == end.Name
		a.Addresses, err = trustedAddresses(host, end.Index, a.Addresses, lost, node)
		return &a, err
	}
	return nil, nil
}

// pairOf returns both ends of a pair. They are empty if the other end is not in the host, or goes meanwhile.
func pairOf(host, sandbox *kernel.Namespace, name string) (pod kernel.End, end netstate.LiveDevice, err error) {
	isPodRoute := func(r netstate.Route) bool { return r.Protocol == podProtocol && r.Table == tableMain }
	pod, err = sandbox.CaptureEnd(name, host, kernel.EndParts{Routes: isPodRoute, Rules: true})
	if err == nil && pod.Joined {
		end, err = host.Device(pod.PeerIndex)
	}
	if errors.Is(err, kernel.ErrNoDevice) {
		err = nil
	}
	return pod, end, err
}

// trustedAddresses are the addresses that are the pod's. A pod can give its interfaces any address. The node sends to those only that the
// runtime was told, or that the host's routes lead to the pod.
func trustedAddresses(host *kernel.Namespace, end int, addresses []netip.Addr, lost LostPod, node Node) ([]netip.Addr, error) {
	trusted := slices.Clone(lost.Assigned)
	if len(trusted) == 0 {
		routes, err := host.TableRoutes(Table, nil)
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			if r.Index == end {
				trusted = append(trusted, r.Destination.Addr())
			}
		}
	}
	return slices.DeleteFunc(addresses, func(addr netip.Addr) bool {
		live := slices.ContainsFunc(lost.Interface.Addresses, func(a netstate.Address) bool { return a.Prefix.Addr() == addr })
		return !live || !slices.Contains(trusted, addr) || slices.Contains(node.reserved, addr)
	}), nil
}

// captureAccess is a pure function: it reads the settings out of what is in the pod.
func captureAccess(pod netstate.Interface, host netstate.LiveDevice, node Node, extra []netip.Prefix) Access {
	a := Access{Options: Options{Name: pod.Link.Name}, HostName: host.Name, Alias: host.Alias, MAC: pod.Link.MAC, MTU: pod.Link.MTU}
	for _, address := range pod.Addresses {
		if address.Prefix.IsSingleIP() {
			a.Addresses = append(a.Addresses, address.Prefix.Addr())
		}
	}
	nodes := a.reachableNetworks(node)
	for _, r := range pod.Routes {
		switch {
		case r.Protocol != podProtocol || r.Table != tableMain || slices.Contains(nodes, r.Destination) || r.Destination.Bits() == 0:
		case slices.Contains(extra, r.Destination):
			a.Extra = append(a.Extra, r.Destination)
		case len(a.Services) < maxServices:
			a.Services = append(a.Services, r.Destination)
		}
	}
	slices.SortFunc(a.Services, netip.Prefix.Compare)
	for _, r := range pod.Rules {
		if r.Priority == Priority && r.Table == Table && r.Protocol == podProtocol {
			a.PreserveSource, a.Mark = true, uint32(r.Selectors["fwmark"])
		}
	}
	return a
}

// maxServices is how many networks through the node are believed to be the configuration's.
const maxServices = 64
