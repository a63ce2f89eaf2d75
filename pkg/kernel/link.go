package kernel

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// link is a device as the kernel describes it. The Link lacks what only links of its kind have.
type link struct {
	netstate.Link
	parent, master int
	// parentNSID is the number by which the device's namespace knows the namespace of the parent, or
	// -1 if the parent is in the same namespace.
	parentNSID int
	flags      uint32
	altNames   []string
	// nic is what netlink tells of a NIC's hardware.
	nic netstate.NIC
	// xdp is 0 if the device has no XDP program.
	xdp uint8
	// operState is the operational state (RFC 2863), carrierChanges the number of times that carrier came or went.
	operState      uint8
	carrierChanges int
	// conf4 and conf6 are the settings of IPv4 and IPv6 that the kernel tells with a link.
	conf4, conf6 []byte
	// data are the attributes of the kind. portData are those of a port.
	data, portData []byte
}

// parseLink returns the device in an answer. It keeps nothing of the payload.
func parseLink(payload []byte) (*link, error) {
	if err := rtnl.CheckHeader(payload, unix.SizeofIfInfomsg); err != nil {
		return nil, err
	}
	info := nl.DeserializeIfInfomsg(payload)
	has := func(flag uint32) bool { return info.Flags&flag != 0 }
	l := &link{flags: info.Flags, parentNSID: -1, Link: netstate.Link{
		Kind: netstate.KindNIC, Index: int(info.Index), Up: has(unix.IFF_UP), TxQueueLen: new(int),
		LinkFlags: netstate.LinkFlags{
			Promiscuous: has(unix.IFF_PROMISC), AllMulticast: has(unix.IFF_ALLMULTI), NoARP: has(unix.IFF_NOARP), NoMulticast: !has(unix.IFF_MULTICAST),
		},
	}}
	if err := readFields(payload, unix.SizeofIfInfomsg, l.fields()...); err != nil {
		return nil, err
	}
	return l, nil
}

// fields are the attributes of a link.
func (l *link) fields() []field {
	return []field{
		{unix.IFLA_IFNAME, &l.Name}, {unix.IFLA_ADDRESS, (*macText)(&l.MAC)}, {unix.IFLA_PERM_ADDRESS, (*macText)(&l.nic.PermanentMAC)},
		{unix.IFLA_MTU, &l.MTU}, {unix.IFLA_OPERSTATE, &l.operState}, {unix.IFLA_CARRIER_CHANGES, &l.carrierChanges}, {unix.IFLA_TXQLEN, &l.TxQueueLen},
		{unix.IFLA_NUM_TX_QUEUES, &l.TxQueues}, {unix.IFLA_NUM_RX_QUEUES, &l.RxQueues}, {unix.IFLA_LINK, &l.parent},
		{unix.IFLA_LINK_NETNSID, &l.parentNSID}, {unix.IFLA_MASTER, &l.master}, {unix.IFLA_IFALIAS, &l.Alias}, {unix.IFLA_GROUP, &l.Group},
		{unix.IFLA_PARENT_DEV_NAME, &l.nic.BusAddress}, {unix.IFLA_PROP_LIST, nested{{unix.IFLA_ALT_IFNAME, &l.altNames}}},
		{unix.IFLA_AF_SPEC, nested{
			{unix.AF_INET, nested{{unix.IFLA_INET_CONF, &l.conf4}}}, {unix.AF_INET6, nested{{unix.IFLA_INET6_CONF, &l.conf6}}},
		}},
		{unix.IFLA_XDP, nested{{nl.IFLA_XDP_ATTACHED, &l.xdp}}},
		{unix.IFLA_LINKINFO, nested{{nl.IFLA_INFO_KIND, &l.Kind}, {nl.IFLA_INFO_DATA, &l.data}, {nl.IFLA_INFO_SLAVE_DATA, &l.portData}}},
	}
}

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
	return l.carrier() || dormant && l.Up && l.flags&unix.IFF_LOWER_UP != 0
}

// parentIndex returns the index of the parent, in this namespace or in another one. If a parent in
// another namespace has the same index as the link, the kernel leaves it out of its answer.
func (l *link) parentIndex() int {
	if l.parent == 0 && netstate.IsStacked(l.Kind) {
		return l.Index
	}
	return l.parent
}

// describe returns the link as a checkpoint has it. It returns ErrUnsupported for a link that
// cannot be described, and a VFError for a VF.
func (n *Namespace) describe(l *link) (netstate.Link, error) {
	described := l.Link
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
			return described, fmt.Errorf("%s is a NIC without permanent MAC and without bus address: %w", l.Name, ErrUnsupported)
		}
		if pf != "" {
			return described, &VFError{Name: l.Name, PF: pf}
		}
	default:
		return described, fmt.Errorf("%s is a %s: %w", l.Name, described.Kind, ErrUnsupported)
	}
	return described, err
}
