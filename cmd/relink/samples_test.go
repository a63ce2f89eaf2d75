package main

import (
	"net/netip"

	"github.com/relink-cni/relink/pkg/netstate"
)

// samples are interfaces that together have every attribute that a record can have.
func samples() map[string]netstate.Interface {
	queue, cutoff := 1000, int32(3)
	link := netstate.Link{
		Kind: netstate.KindMacvlan, Name: "eth0", Index: 2, MAC: "02:00:00:00:00:05", MTU: 1500, Up: true, TxQueueLen: &queue, TxQueues: 1, RxQueues: 1,
		Alias: "shop", Group: 5, LinkFlags: netstate.LinkFlags{Promiscuous: true, AllMulticast: true, NoARP: true, NoMulticast: true},
	}
	macvlan, vlan, ipvlan, nic := link, link, link, link
	macvlan.Macvlan = &netstate.Macvlan{
		Mode: "source", NoPromiscuous: true, NoDestination: true, BCQueueLen: 1000, BCCutoff: &cutoff, Sources: []string{"02:00:00:00:00:06", "02:00:00:00:00:07"},
	}
	vlan.Kind, vlan.VLAN = netstate.KindVLAN, &netstate.VLAN{ID: 3, Protocol: netstate.Protocol8021Q}
	vlan.VLANOptions = &netstate.VLANOptions{
		Flags: []string{"reorder_hdr", "gvrp"}, IngressQoS: map[uint32]uint32{1: 2}, EgressQoS: map[uint32]uint32{3: 4},
	}
	ipvlan.Kind, ipvlan.IPvlan = netstate.KindIPvlan, &netstate.IPvlan{Mode: "l2", Flag: "bridge"}
	hardware := netstate.NIC{PermanentMAC: "52:54:00:00:00:01", BusAddress: "0000:00:03.0", DevPort: "1"}
	nic.Kind, nic.NIC = netstate.KindNIC, &hardware
	onBus := netstate.Device{Kind: netstate.KindNIC, Name: "eth1", MTU: 1500, NIC: netstate.NIC{BusAddress: "0000:00:04.0", DevPort: "0"}}
	return map[string]netstate.Interface{
		"macvlan": carrying(macvlan, netstate.Device{Kind: netstate.KindVLAN, Name: "bond4.3", MTU: 1500, VLAN: &netstate.VLAN{ID: 3, Protocol: netstate.Protocol8021Q}},
			netstate.Device{Kind: netstate.KindBond, Name: "bond4", MTU: 1500, Bond: &netstate.Bond{
				Mode: "active-backup", Members: []netstate.Member{{Name: "eth0", NIC: hardware}},
			}}),
		"vlan":   {Link: vlan, Parents: []netstate.Device{{Kind: netstate.KindNIC, Name: "eth0", MTU: 1500, NIC: hardware}}},
		"ipvlan": {Link: ipvlan, Parents: []netstate.Device{onBus}, Settings: map[string]string{"ipv4/arp_notify": "1"}},
		"nic":    {Link: nic},
	}
}

// carrying returns an interface with one item of each kind.
func carrying(link netstate.Link, parents ...netstate.Device) netstate.Interface {
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	return netstate.Interface{
		Link: link, Parents: parents, ParentsInSandbox: true,
		Master: &netstate.Master{Kind: netstate.KindBridge, Name: "br0", Port: map[string]uint32{"learning": 1, "hairpin": 1}},
		Addresses: []netstate.Address{
			{Prefix: prefix("10.3.0.5/24"), Broadcast: addr("10.3.0.255"), Label: "eth0:1", Scope: 1, Flags: 0x80, Metric: 7, WithoutRoute: true},
			{Prefix: prefix("10.3.0.6/32"), Peer: prefix("10.3.0.9/32"), ValidUntil: 600, PreferredUntil: 300},
		},
		Routes: []netstate.Route{
			{
				Destination: prefix("10.9.0.0/16"), Gateway: addr("10.3.0.1"), Source: addr("10.3.0.5"), Table: 100, Priority: 5, Scope: 1, Protocol: 4, Type: 1,
				TOS: 4, OnLink: true, MTU: 1400, AdvMSS: 1300, Metrics: map[string]uint32{"window": 9}, CongestionControl: "cubic",
			},
			{Destination: prefix("10.10.0.0/16"), Table: 254, NextHops: []netstate.NextHop{
				{Gateway: addr("10.3.0.1"), Weight: 1, OnLink: true}, {Device: "net1", Gateway: addr("10.4.0.1"), Weight: 2},
			}},
			{Destination: prefix("fd00:9::/64"), From: prefix("fd00:8::/64"), Gateway: addr("fd00:3::1"), Table: 254, Priority: 1024, Preference: 1},
			{Destination: prefix("10.11.0.0/16"), Table: 254, First: true, Source: addr("10.3.0.5"), Device: "net1"},
		},
		Rules: []netstate.Rule{{
			IPv6: true, Priority: 10, Invert: true, From: prefix("fd00:3::/64"), To: prefix("fd00:4::/64"), TOS: 4, InputDevice: "eth0", OutputDevice: "net1",
			Action: 7, Table: 100, Protocol: 4, Selectors: map[string]uint64{"fwmark": 1},
		}},
		Neighbours: []netstate.Neighbour{{Address: addr("10.3.0.1"), MAC: "02:00:00:00:00:01", Flags: 0x80}, {Address: addr("10.3.0.2"), Proxy: true}},
		Settings:   map[string]string{"ipv4/arp_notify": "1", "ipv6/disable_ipv6": "1"},
		Qdiscs: []netstate.Qdisc{{
			Kind: "tbf", Handle: 0x10000, Parent: 0xffffffff, Options: []byte{1, 2}, Filters: []netstate.Filter{{
				Kind: "u32", Parent: 0x10000, Info: 3, ClassID: 4, Selector: []byte{5}, Flags: 1,
				Redirects: []netstate.Redirect{{Device: "net1", EAction: 1, Control: 4}},
			}},
		}},
		NotCaptured: []string{"an XDP program"},
	}
}
