package hostaccess

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Recall returns the host access of the sandbox's interface as it is there, for a pod whose checkpoint is lost. devices are the
// sandbox's. It returns nil if there is none. It cannot tell services from other networks that are reached through the node: all
// of them are Extra. masquerades says whether a rule of iptables in the host may be relink's.
func Recall(host, sandbox *kernel.Namespace, devices netstate.Devices, live netstate.Interface, masquerades bool) (*Access, error) {
	var own []netip.Addr
	for _, a := range live.Addresses {
		own = append(own, a.Prefix.Addr())
	}
	for _, d := range devices {
		if d.Kind != netstate.KindVeth {
			continue
		}
		pod, err := sandbox.CaptureEnd(d.Name, host, nil)
		if errors.Is(err, kernel.ErrNoDevice) || err == nil && !pod.Joined {
			continue
		}
		if err != nil {
			return nil, err
		}
		end, err := host.Device(pod.PeerIndex)
		if errors.Is(err, kernel.ErrNoDevice) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if key, ours := Whose(end.Alias); !ours || key.IfName != live.Link.Name || HostName(key) != end.Name {
			continue
		}
		node, err := ReadNode(host)
		if err != nil {
			return nil, err
		}
		a := recalled(pod.Interface, end.Name, node)
		// A pod can give its end any address. The node sends to those only that are of no use to it elsewhere.
		a.Addresses = slices.DeleteFunc(a.Addresses, func(addr netip.Addr) bool {
			return !slices.Contains(own, addr) || MayReach(host, []netip.Addr{addr}) != nil
		})
		if masquerades {
			a.Masquerade, err = hasMasquerade(host, node, a)
		}
		return &a, err
	}
	return nil, nil
}

// recalled is a pure function: it reads the settings out of what is in the pod.
func recalled(pod netstate.Interface, hostName string, node Node) Access {
	a := Access{Options: Options{Name: pod.Link.Name}, HostName: hostName, MAC: pod.Link.MAC, MTU: pod.Link.MTU}
	for _, address := range pod.Addresses {
		if address.Prefix.IsSingleIP() {
			a.Addresses = append(a.Addresses, address.Prefix.Addr())
		}
	}
	nodes := a.reached(node)
	for _, r := range pod.Routes {
		if r.Protocol == podProtocol && r.Table == tableMain && !slices.Contains(nodes, r.Destination) {
			a.Extra = append(a.Extra, r.Destination)
		}
	}
	slices.SortFunc(a.Extra, netip.Prefix.Compare)
	for _, r := range pod.Rules {
		if r.Priority == Priority && r.Table == Table && r.Protocol == podProtocol {
			a.PreserveSource, a.Mark = true, uint32(r.Selectors["fwmark"])
		}
	}
	return a
}

func hasMasquerade(host *kernel.Namespace, node Node, a Access) (bool, error) {
	a.Masquerade = true
	missing, _, err := MasqueradeDiffers(host, node, a)
	return len(missing) == 0, err
}
