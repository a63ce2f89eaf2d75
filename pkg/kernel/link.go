package kernel

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// link is a device as the kernel describes it.
type link struct {
	index, parent, master int
	// parentNSID is the number by which the device's namespace knows the namespace of the parent, or
	// -1 if the parent is in the same namespace.
	parentNSID         int
	flags              uint32
	name, alias        string
	altNames           []string
	mac, permanentMAC  net.HardwareAddr
	mtu, txQueueLen    int
	txQueues, rxQueues int
	group              uint32
	bus                string
	// xdp is 0 if the device has no XDP program.
	xdp uint8
	// operState is the operational state (RFC 2863), carrierChanges the number of times that carrier came or went.
	operState      uint8
	carrierChanges int
	// conf4 and conf6 are the settings of IPv4 and IPv6 that the kernel tells with a link.
	conf4, conf6 []byte
	// kind is empty for a NIC. data are the attributes of the kind. portData are those of a port of
	// a master of the kind masterKind.
	kind, masterKind string
	data, portData   []byte
}

// parseLink returns the device in an answer. It keeps nothing of the payload.
func parseLink(payload []byte) (*link, error) {
	if err := rtnl.CheckHeader(payload, unix.SizeofIfInfomsg); err != nil {
		return nil, err
	}
	info := nl.DeserializeIfInfomsg(payload)
	l := &link{index: int(info.Index), flags: info.Flags, parentNSID: -1}
	fields := l.fields()
	err := rtnl.EachAttribute(payload, unix.SizeofIfInfomsg, func(a *rtnl.Attribute) {
		if !readField(fields, a) {
			l.parseList(a)
		}
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// fields are the attributes of a link that have one value.
func (l *link) fields() []field {
	return []field{
		{unix.IFLA_IFNAME, &l.name}, {unix.IFLA_ADDRESS, &l.mac}, {unix.IFLA_PERM_ADDRESS, &l.permanentMAC}, {unix.IFLA_MTU, &l.mtu},
		{unix.IFLA_OPERSTATE, &l.operState}, {unix.IFLA_CARRIER_CHANGES, &l.carrierChanges}, {unix.IFLA_TXQLEN, &l.txQueueLen},
		{unix.IFLA_NUM_TX_QUEUES, &l.txQueues}, {unix.IFLA_NUM_RX_QUEUES, &l.rxQueues}, {unix.IFLA_LINK, &l.parent},
		{unix.IFLA_LINK_NETNSID, &l.parentNSID}, {unix.IFLA_MASTER, &l.master}, {unix.IFLA_IFALIAS, &l.alias}, {unix.IFLA_GROUP, &l.group},
		{unix.IFLA_PARENT_DEV_NAME, &l.bus},
	}
}

// parseList reads an attribute that is a list.
func (l *link) parseList(a *rtnl.Attribute) {
	switch a.Type() {
	case unix.IFLA_PROP_LIST:
		a.Each(func(property *rtnl.Attribute) {
			if property.Type() == unix.IFLA_ALT_IFNAME {
				l.altNames = append(l.altNames, property.Text())
			}
		})
	case unix.IFLA_AF_SPEC:
		a.Each(l.parseFamily)
	case unix.IFLA_XDP:
		readNested(a, field{nl.IFLA_XDP_ATTACHED, &l.xdp})
	case unix.IFLA_LINKINFO:
		readNested(a, field{nl.IFLA_INFO_KIND, &l.kind}, field{nl.IFLA_INFO_DATA, &l.data},
			field{nl.IFLA_INFO_SLAVE_KIND, &l.masterKind}, field{nl.IFLA_INFO_SLAVE_DATA, &l.portData})
	}
}

// nonZero returns a copy of the address, or nil if all its bytes are zero.
func nonZero(value []byte) net.HardwareAddr {
	for _, b := range value {
		if b != 0 {
			return append(net.HardwareAddr(nil), value...)
		}
	}
	return nil
}

// kindOf returns the kind by its name in netstate.
func (l *link) kindOf() string {
	if l.kind == "" {
		return netstate.KindNIC
	}
	return l.kind
}

func (l *link) up() bool { return l.flags&unix.IFF_UP != 0 }

// carrier says that the device can send. When carrier comes, the kernel first drops what is sent, until it has noticed:
// linkwatch_do_dev (net/core/link_watch.c) sets the operational state and then lets the queues send, up to a second
// later. The state stays unknown if a driver never tells of its carrier. Its queues send from the start. A device that is
// dormant waits for somebody else, such as the switch (802.1X): what it sends goes no further.
func (l *link) carrier() bool {
	if l.flags&(unix.IFF_UP|unix.IFF_LOWER_UP) != unix.IFF_UP|unix.IFF_LOWER_UP {
		return false
	}
	return l.operState == netlink.OperUp || l.operState == netlink.OperUnknown && l.carrierChanges == 0
}

// carrierInSandbox is carrier for an interface of a pod. A pod that may change its link can make it dormant: restores
// would wait for it without end. Nothing but a NIC in the pod has to send by itself.
func (l *link) carrierInSandbox() bool {
	dormant := l.operState == netlink.OperDormant || l.operState == netlink.OperTesting
	return l.carrier() || dormant && l.up() && l.flags&unix.IFF_LOWER_UP != 0
}

// parentIndex returns the index of the parent, in this namespace or in another one. If a parent in
// another namespace has the same index as the link, the kernel leaves it out of its answer.
func (l *link) parentIndex() int {
	if l.parent != 0 {
		return l.parent
	}
	switch l.kind {
	case netstate.KindMacvlan, netstate.KindMacvtap, netstate.KindVLAN, netstate.KindIPvlan, "ipvtap":
		return l.index
	}
	return 0
}

// describe returns the link as a checkpoint has it. It returns ErrUnsupported for a link that
// cannot be described, and a VFError for a VF.
func (n *Namespace) describe(l *link) (netstate.Link, error) {
	described := netstate.Link{
		Kind: l.kindOf(), Name: l.name, Index: l.index, MAC: l.mac.String(), MTU: l.mtu, Up: l.up(),
		TxQueueLen: &l.txQueueLen, TxQueues: l.txQueues, RxQueues: l.rxQueues, Alias: l.alias, Group: l.group,
		LinkFlags: netstate.LinkFlags{
			Promiscuous: l.flags&unix.IFF_PROMISC != 0, AllMulticast: l.flags&unix.IFF_ALLMULTI != 0,
			NoARP: l.flags&unix.IFF_NOARP != 0, NoMulticast: l.flags&unix.IFF_MULTICAST == 0,
		},
	}
	var err error
	switch described.Kind {
	case netstate.KindMacvlan, netstate.KindMacvtap:
		described.Macvlan, err = parseMacvlan(l.data)
	case netstate.KindIPvlan:
		described.IPvlan, err = parseIPvlan(l.data)
		// These flags follow from the mode, and cannot be changed.
		described.NoARP, described.NoMulticast = false, false
	case netstate.KindVLAN:
		described.VLAN, described.VLANOptions, err = parseVLAN(l.data)
	case netstate.KindNIC:
		nic, pf := n.hardware(l)
		described.NIC, described.TxQueues, described.RxQueues = &nic, 0, 0
		if !nic.Identified() {
			return described, fmt.Errorf("%s is a NIC without permanent MAC and without bus address: %w", l.name, ErrUnsupported)
		}
		if pf != "" {
			return described, &VFError{Name: l.name, PF: pf}
		}
	default:
		return described, fmt.Errorf("%s is a %s: %w", l.name, described.Kind, ErrUnsupported)
	}
	return described, err
}
