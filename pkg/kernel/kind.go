package kernel

import (
	"fmt"
	"maps"
	"net"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Attributes that the netlink library does not have (linux/if_link.h).
const (
	iflaMacvlanBCCutoff = 9
	macvlanNoPromisc    = 1
	macvlanNoDestMAC    = 2
	// macvlanSetSources is MACVLAN_MACADDR_SET.
	macvlanSetSources = 3
)

// macvlanModes are the names of the modes, each at its number (linux/if_link.h).
var macvlanModes = []string{
	nl.MACVLAN_MODE_PRIVATE: "private", nl.MACVLAN_MODE_VEPA: "vepa", nl.MACVLAN_MODE_BRIDGE: "bridge",
	nl.MACVLAN_MODE_PASSTHRU: "passthru", nl.MACVLAN_MODE_SOURCE: "source",
}

// macvlanFields are the attributes of a macvlan that are alike in requests and answers.
func macvlanFields(m *netstate.Macvlan) []field {
	return []field{
		{nl.IFLA_MACVLAN_MODE, named{&m.Mode, macvlanModes, netstate.U32}}, {nl.IFLA_MACVLAN_FLAGS, macvlanFlags{m}},
		{nl.IFLA_MACVLAN_BC_QUEUE_LEN, &m.BCQueueLen}, {iflaMacvlanBCCutoff, &m.BCCutoff},
	}
}

// macvlanFlags are the flags of a macvlan. They are written also if none is set: SetKind takes back what somebody has set.
type macvlanFlags struct{ *netstate.Macvlan }

func (m macvlanFlags) read(a *rtnl.Attribute) {
	flags := a.Uint16()
	m.NoPromiscuous, m.NoDestination = flags&macvlanNoPromisc != 0, flags&macvlanNoDestMAC != 0
}

func (m macvlanFlags) write() []byte {
	var flags uint16
	if m.NoPromiscuous {
		flags |= macvlanNoPromisc
	}
	if m.NoDestination {
		flags |= macvlanNoDestMAC
	}
	return nl.Uint16Attr(flags)
}

func parseMacvlan(data []byte) (*netstate.Macvlan, error) {
	m := &netstate.Macvlan{}
	fields := macvlanFields(m)
	err := rtnl.EachAttribute(data, 0, func(a *rtnl.Attribute) {
		if !readField(fields, a) && a.Type() == nl.IFLA_MACVLAN_MACADDR_DATA {
			a.Each(func(source *rtnl.Attribute) {
				m.Sources = append(m.Sources, net.HardwareAddr(source.Value()).String())
			})
			slices.Sort(m.Sources)
		}
	})
	return m, err
}

func addMacvlan(data *nl.RtAttr, m netstate.Macvlan) {
	if !kernelAtLeast(6, 4) {
		m.BCCutoff = nil
	}
	addFields(data, macvlanFields(&m)...)
	if len(m.Sources) == 0 {
		return
	}
	data.AddRtAttr(nl.IFLA_MACVLAN_MACADDR_MODE, nl.Uint32Attr(macvlanSetSources))
	list := data.AddRtAttr(nl.IFLA_MACVLAN_MACADDR_DATA, nil)
	for _, source := range m.Sources {
		list.AddRtAttr(nl.IFLA_MACVLAN_MACADDR, macBytes(source))
	}
}

// ipvlanFields are the attributes of an ipvlan.
func ipvlanFields(v *netstate.IPvlan) []field {
	return []field{
		{nl.IFLA_IPVLAN_MODE, named{&v.Mode, netstate.IPvlanModes, netstate.U16}}, {nl.IFLA_IPVLAN_FLAG, named{&v.Flag, netstate.IPvlanFlags, netstate.U16}},
	}
}

func parseIPvlan(data []byte) (*netstate.IPvlan, error) {
	v := &netstate.IPvlan{}
	return v, readFields(data, 0, ipvlanFields(v)...)
}

// etherType returns the EtherType of the VLAN protocol.
func etherType(protocol string) uint16 {
	if protocol == netstate.Protocol8021AD {
		return unix.ETH_P_8021AD
	}
	return unix.ETH_P_8021Q
}

// vlanProtocol returns the name of the VLAN protocol with that EtherType.
func vlanProtocol(number uint16) string {
	for _, protocol := range []string{netstate.Protocol8021Q, netstate.Protocol8021AD} {
		if etherType(protocol) == number {
			return protocol
		}
	}
	return fmt.Sprintf("protocol %#04x", number)
}

func parseVLAN(data []byte) (*netstate.VLAN, *netstate.VLANOptions, error) {
	v := &netstate.VLAN{Protocol: netstate.Protocol8021Q}
	options := &netstate.VLANOptions{Flags: []string{}}
	err := rtnl.EachAttribute(data, 0, func(a *rtnl.Attribute) {
		switch a.Type() {
		case nl.IFLA_VLAN_ID:
			v.ID = int(a.Uint16())
		case nl.IFLA_VLAN_PROTOCOL:
			v.Protocol = vlanProtocol(a.NetworkUint16())
		case nl.IFLA_VLAN_FLAGS:
			for bit, name := range netstate.VLANFlags {
				if a.Uint32()&(1<<bit) != 0 {
					options.Flags = append(options.Flags, name)
				}
			}
		case nl.IFLA_VLAN_INGRESS_QOS:
			options.IngressQoS = parseQoS(a)
		case nl.IFLA_VLAN_EGRESS_QOS:
			options.EgressQoS = parseQoS(a)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	return v, options, nil
}

// parseQoS reads a list of struct ifla_vlan_qos_mapping. It returns nil if there is no mapping.
func parseQoS(list *rtnl.Attribute) map[uint32]uint32 {
	var qos map[uint32]uint32
	list.Each(func(a *rtnl.Attribute) {
		key, value := a.Uint32(), a.Uint32At(4)
		if value == 0 {
			return // A priority without a mapping has 0 too.
		}
		if qos == nil {
			qos = map[uint32]uint32{}
		}
		qos[key] = value
	})
	return qos
}

func addVLAN(data *nl.RtAttr, v netstate.VLAN, options *netstate.VLANOptions) {
	data.AddRtAttr(nl.IFLA_VLAN_ID, nl.Uint16Attr(uint16(v.ID)))
	data.AddRtAttr(nl.IFLA_VLAN_PROTOCOL, nl.BEUint16Attr(etherType(v.Protocol)))
	if options == nil {
		return
	}
	var bits uint32
	for bit, flag := range netstate.VLANFlags {
		if slices.Contains(options.Flags, flag) {
			bits |= 1 << bit
		}
	}
	// struct ifla_vlan_flags: the flags, and the mask of those to set.
	mask := uint32(1)<<len(netstate.VLANFlags) - 1
	data.AddRtAttr(nl.IFLA_VLAN_FLAGS, append(nl.Uint32Attr(bits), nl.Uint32Attr(mask)...))
	addQoS(data, nl.IFLA_VLAN_INGRESS_QOS, options.IngressQoS)
	addQoS(data, nl.IFLA_VLAN_EGRESS_QOS, options.EgressQoS)
}

func addQoS(data *nl.RtAttr, attr int, qos map[uint32]uint32) {
	if len(qos) == 0 {
		return
	}
	list := data.AddRtAttr(attr, nil)
	for _, key := range slices.Sorted(maps.Keys(qos)) {
		list.AddRtAttr(nl.IFLA_VLAN_QOS_MAPPING, append(nl.Uint32Attr(key), nl.Uint32Attr(qos[key])...))
	}
}

// linkInfoAttr returns IFLA_LINKINFO: the kind of the device, and the attributes of that kind. netstate has validated them. Of others, the
// kernel refuses the request.
func linkInfoAttr(link netstate.Link) *nl.RtAttr {
	info, data := newLinkInfo(link.Kind)
	switch {
	case link.Macvlan != nil:
		addMacvlan(data, *link.Macvlan)
	case link.IPvlan != nil:
		addFields(data, ipvlanFields(link.IPvlan)...)
	case link.VLAN != nil:
		addVLAN(data, *link.VLAN, link.VLANOptions)
	}
	return info
}

// newLinkInfo returns IFLA_LINKINFO for that kind, and the list in it for the attributes of the kind.
func newLinkInfo(kind string) (info, data *nl.RtAttr) {
	info = nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(kind))
	return info, info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
}

// isCreatable says whether Create makes devices of that kind.
func isCreatable(kind string) bool {
	switch kind {
	case netstate.KindMacvlan, netstate.KindMacvtap, netstate.KindIPvlan, netstate.KindVLAN:
		return true
	}
	return false
}
