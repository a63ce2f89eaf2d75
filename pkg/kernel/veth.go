package kernel

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Pair is a veth pair between the host and a sandbox. Both ends have the same MAC and MTU.
type Pair struct {
	// HostName is the name of the host's end, Name that of the sandbox's.
	HostName, Name string
	MAC            string
	MTU            int
	// Alias says whose the pair is. It is the host end's (ip-link(8), "alias"), at most 255 bytes.
	Alias string
}

// CreatePair makes both ends, down and without addresses. Neither end asks for neighbours (NOARP): each sends to its own
// MAC, which is the other's too. If one of the names is taken, CreatePair returns ErrExists and makes nothing. The name
// and the alias of the host's end come in one datagram, so a kill leaves no end without an alias.
func CreatePair(host, sandbox *Namespace, p Pair) error {
	// The kernel works through the second message even if the first one fails: the device of somebody else would get the alias.
	if exists, err := host.Exists(p.HostName); err != nil || exists {
		return errors.Join(err, fmt.Errorf("%s in the host: %w", p.HostName, ErrExists))
	}
	outcomes := host.socket.RunEach(newPair(sandbox, p), setAlias(p.HostName, p.Alias))
	switch {
	case isTaken(outcomes[0]):
		return fmt.Errorf("%s in the host, or %s in %s: %w", p.HostName, p.Name, sandbox.Path(), ErrExists)
	case outcomes[0] != nil:
		return outcomes[0]
	}
	return outcomes[1]
}

// vethInfoPeer is VETH_INFO_PEER (linux/veth.h).
const vethInfoPeer = 1

func newPair(sandbox *Namespace, p Pair) rtnl.Message {
	m := newDevice("create-pair "+p.HostName, p.HostName, 0, unix.IFF_NOARP)
	mac, mtu := macAttr(p.MAC), uint32Attr(unix.IFLA_MTU, p.MTU)
	info, data := newLinkInfo(netstate.KindVeth)
	m.Add(mac, mtu, info)
	peer := data.AddRtAttr(vethInfoPeer, nil)
	for _, part := range append(newDevice("", p.Name, 0, unix.IFF_NOARP).Request.Data, mac, mtu, targetNamespace(sandbox)) {
		peer.AddChild(part)
	}
	return m
}

// setAlias returns the request that sets the alias of the device of that name. The kernel takes no alias for a device that it
// is about to make.
func setAlias(name, alias string) rtnl.Message {
	return setLink("set the alias of "+name, 0, textAttr(unix.IFLA_IFNAME, name), nl.NewRtAttr(unix.IFLA_IFALIAS, []byte(alias)))
}

// End is one end of a veth pair.
type End struct {
	netstate.Interface
	// PeerIndex is the index of the other end in its namespace.
	PeerIndex int
	// Joined says that the other end is in the namespace that CaptureEnd was asked about.
	Joined bool
}

// EndParts are the parts of an end, and of its namespace, that CaptureEnd reads beside the link.
type EndParts struct {
	// Settings are the keys of sysctls.
	Settings []string
	// Routes says which of the routes through the end are kept: a pod can have very many. Without it, neither addresses nor routes are read.
	Routes func(netstate.Route) bool
	// Rules says that the policy rules of the namespace are read, if Routes is set.
	Rules bool
}

// CaptureEnd reads the end of a veth pair of that name. It returns ErrNoDevice if there is none, and ErrUnsupported for a device that
// is no veth. peer is the namespace in which the caller expects the peer end.
func (n *Namespace) CaptureEnd(name string, peer *Namespace, parts EndParts) (end End, err error) {
	link, err := n.existingLink(name)
	if err != nil {
		return end, err
	}
	if link.Kind != netstate.KindVeth {
		return end, fmt.Errorf("%s is a %s and no veth: %w", name, link.Kind, ErrUnsupported)
	}
	end.Link, _ = n.describe(link) // Only a checkpoint of an attachment cannot be a veth.
	id, err := n.nsid(peer)
	if err != nil {
		return end, err
	}
	end.PeerIndex, end.Joined = link.parent, link.parentNSID >= 0 && link.parentNSID == id
	if end.Settings, err = n.settings(link, parts.Settings); err != nil || parts.Routes == nil {
		return end, err
	}
	if end.Addresses, err = n.addresses(link.Index, bothFamilies); err != nil {
		return end, err
	}
	filter := uint32Attr(unix.RTA_OIF, link.Index)
	routes, err := n.tableRoutes(name, filter, func(r parsedRoute) bool { return r.oif == link.Index && r.isWhole() && parts.Routes(r.Route) })
	if err != nil {
		return end, err
	}
	for _, r := range routes {
		end.Routes = append(end.Routes, r.Route)
	}
	if parts.Rules {
		end.Rules, _, err = n.Rules()
	}
	return end, err
}

// Ends returns the ends of veth pairs that n has, by their names, with their links alone.
func (n *Namespace) Ends() (map[string]netstate.Link, error) {
	links, err := n.links(ofKind(netstate.KindVeth))
	if err != nil {
		return nil, err
	}
	ends := map[string]netstate.Link{}
	for _, l := range links {
		if l.Kind == netstate.KindVeth {
			ends[l.Name], _ = n.describe(l)
		}
	}
	return ends, nil
}
