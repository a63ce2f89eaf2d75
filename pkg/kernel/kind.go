package kernel

import (
	"cmp"
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

// macvlanModes are the names of the modes, by their numbers (linux/if_link.h).
var macvlanModes = map[uint32]string{
	nl.MACVLAN_MODE_PRIVATE: "private", nl.MACVLAN_MODE_VEPA: "vepa", nl.MACVLAN_MODE_BRIDGE: "bridge",
	nl.MACVLAN_MODE_PASSTHRU: "passthru", nl.MACVLAN_MODE_SOURCE: "source",
}

func parseMacvlan(data []byte) (*netstate.Macvlan, error) {
	m := &netstate.Macvlan{}
	err := rtnl.EachAttribute(data, 0, func(a *rtnl.Attribute) {
		switch a.Type() {
		case nl.IFLA_MACVLAN_MODE:
			m.Mode = nameOf(macvlanModes, a.Uint32(), "mode %d")
		case nl.IFLA_MACVLAN_FLAGS:
			flags := a.Uint16()
			m.NoPromiscuous, m.NoDestination = flags&macvlanNoPromisc != 0, flags&macvlanNoDestMAC != 0
		case nl.IFLA_MACVLAN_BC_QUEUE_LEN:
			m.BCQueueLen = a.Uint32()
		case iflaMacvlanBCCutoff:
			cutoff := int32(a.Uint32())
			m.BCCutoff = &cutoff
		case nl.IFLA_MACVLAN_MACADDR_DATA:
			a.Each(func(source *rtnl.Attribute) {
				m.Sources = append(m.Sources, net.HardwareAddr(source.Value()).String())
			})
			slices.Sort(m.Sources)
		}
	})
	return m, err
}

func addMacvlan(data *nl.RtAttr, m netstate.Macvlan) {
	data.AddRtAttr(nl.IFLA_MACVLAN_MODE, nl.Uint32Attr(numberOf(macvlanModes, m.Mode)))
	var flags uint16
	if m.NoPromiscuous {
		flags |= macvlanNoPromisc
	}
	if m.NoDestination {
		flags |= macvlanNoDestMAC
	}
	data.AddRtAttr(nl.IFLA_MACVLAN_FLAGS, nl.Uint16Attr(flags))
	if m.BCQueueLen != 0 {
		data.AddRtAttr(nl.IFLA_MACVLAN_BC_QUEUE_LEN, nl.Uint32Attr(m.BCQueueLen))
	}
	if m.BCCutoff != nil && kernelAtLeast(6, 4) {
		data.AddRtAttr(iflaMacvlanBCCutoff, nl.Uint32Attr(uint32(*m.BCCutoff)))
	}
	if len(m.Sources) == 0 {
		return
	}
	data.AddRtAttr(nl.IFLA_MACVLAN_MACADDR_MODE, nl.Uint32Attr(macvlanSetSources))
	list := data.AddRtAttr(nl.IFLA_MACVLAN_MACADDR_DATA, nil)
	for _, source := range m.Sources {
		list.AddRtAttr(nl.IFLA_MACVLAN_MACADDR, macBytes(source))
	}
}

// vlanProtocols are the names of the VLAN protocols, by their EtherTypes.
var vlanProtocols = map[uint16]string{unix.ETH_P_8021Q: netstate.Protocol8021Q, unix.ETH_P_8021AD: netstate.Protocol8021AD}

// etherType returns the EtherType of the VLAN protocol.
func etherType(protocol string) uint16 {
	return cmp.Or(numberOf(vlanProtocols, protocol), unix.ETH_P_8021Q)
}

// nameOf returns the name of the number. For a number without a name, the format makes one.
func nameOf[N cmp.Ordered](names map[N]string, number N, format string) string {
	if name, ok := names[number]; ok {
		return name
	}
	return fmt.Sprintf(format, number)
}

// numberOf returns the number of the name, 0 for an unknown one.
func numberOf[N cmp.Ordered](names map[N]string, name string) (number N) {
	for n, candidate := range names {
		if candidate == name {
			number = n
		}
	}
	return number
}

func parseIPvlan(data []byte) (*netstate.IPvlan, error) {
	var mode, flag uint16
	err := readFields(data, 0, field{nl.IFLA_IPVLAN_MODE, &mode}, field{nl.IFLA_IPVLAN_FLAG, &flag})
	return &netstate.IPvlan{Mode: nameAt(netstate.IPvlanModes, int(mode)), Flag: nameAt(netstate.IPvlanFlags, int(flag))}, err
}

func nameAt(names []string, number int) string {
	if number < len(names) {
		return names[number]
	}
	return fmt.Sprintf("%d", number)
}

func addIPvlan(data *nl.RtAttr, v netstate.IPvlan) {
	data.AddRtAttr(nl.IFLA_IPVLAN_MODE, nl.Uint16Attr(uint16(slices.Index(netstate.IPvlanModes, v.Mode))))
	data.AddRtAttr(nl.IFLA_IPVLAN_FLAG, nl.Uint16Attr(uint16(slices.Index(netstate.IPvlanFlags, v.Flag))))
}

func parseVLAN(data []byte) (*netstate.VLAN, *netstate.VLANOptions, error) {
	v := &netstate.VLAN{Protocol: netstate.Protocol8021Q}
	options := &netstate.VLANOptions{Flags: []string{}}
	err := rtnl.EachAttribute(data, 0, func(a *rtnl.Attribute) {
		switch a.Type() {
		case nl.IFLA_VLAN_ID:
			v.ID = int(a.Uint16())
		case nl.IFLA_VLAN_PROTOCOL:
			v.Protocol = nameOf(vlanProtocols, a.NetworkUint16(), "protocol %#04x")
		case nl.IFLA_VLAN_FLAGS:
			options.Flags = vlanFlags(a.Uint32())
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

func vlanFlags(bits uint32) []string {
	flags := []string{}
	for bit, name := range netstate.VLANFlags {
		if bits&(1<<bit) != 0 {
			flags = append(flags, name)
		}
	}
	return flags
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
		addIPvlan(data, *link.IPvlan)
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
