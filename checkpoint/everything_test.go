package checkpoint

import (
	"net/netip"

	"github.com/relink-cni/relink/pkg/netstate"
)

func number[T any](n T) *T { return &n }

// fullRecord returns a record with all but the owner, host access and lifetimes.
func fullRecord() Record {
	r := dualStack()
	i := &r.Interface
	i.Link.TxQueueLen, i.Link.TxQueues, i.Link.RxQueues = number(0), 1, 1
	i.Link.Alias, i.Link.Group = "the pod's", 7
	i.Link.LinkFlags = netstate.LinkFlags{Promiscuous: true, AllMulticast: true, NoARP: true, NoMulticast: true}
	i.Link.Macvlan = &netstate.Macvlan{
		Mode: "source", NoDestination: true, BCQueueLen: 1000, BCCutoff: number(1), Sources: []string{"02:00:00:00:00:77"},
	}
	i.Master = &netstate.Master{Kind: netstate.KindBridge, Name: "k6t-eth0", Port: netstate.Numbers{"learning": 0, "cost": 2}}
	i.Parents[0].VLANOptions = &netstate.VLANOptions{
		Flags: []string{"reorder_hdr", "gvrp"}, IngressQoS: map[uint32]uint32{1: 2}, EgressQoS: map[uint32]uint32{3: 4},
	}
	i.Parents[0].Carried = &netstate.Carried{
		Addresses: []netstate.Address{{Prefix: netip.MustParsePrefix("10.3.0.250/24"), Metric: 100}},
		Routes:    []netstate.Route{route("10.8.0.0/16", "10.3.0.1")},
	}
	bond := i.Parents[1].Bond
	bond.Options, bond.Primary = netstate.Numbers{"miimon": 100}, "eth1"
	bond.ARPTargets, bond.ActorSystem = []netip.Addr{netip.MustParseAddr("10.3.0.1")}, "02:00:00:00:00:99"
	i.Routes = append(i.Routes, manyHops(), via6())
	i.Rules = []netstate.Rule{{
		Priority: 100, Invert: true, From: netip.MustParsePrefix("10.3.0.5/32"), To: netip.MustParsePrefix("10.9.0.0/16"), TOS: 8,
		InputDevice: "eth0", OutputDevice: "lo", Action: 1, Table: 100, Protocol: 3,
		Selectors: map[string]uint64{"fwmark": 7, "sport": 80<<32 | 90},
	}, {IPv6: true, Priority: 100, From: netip.MustParsePrefix("fd00:3::5/128"), Action: 1, Table: 100}}
	i.Neighbours = []netstate.Neighbour{
		{Address: netip.MustParseAddr("10.3.0.1"), MAC: "02:00:00:00:00:01", Flags: 0x80},
		{Address: netip.MustParseAddr("fd00:3::9"), Proxy: true},
	}
	i.Settings = map[string]string{"ipv4/arp_notify": "1", "ipv6/neigh/gc_stale_time": "30"}
	i.Qdiscs = []netstate.Qdisc{
		{Kind: "tbf", Handle: 0x10000, Parent: 0xffffffff, Options: []byte{1, 2, 3}},
		{Kind: "ingress", Handle: 0xffff0000, Parent: 0xfffffff1, Filters: []netstate.Filter{{
			Kind: "u32", Parent: 0xffff0000, Info: 0x10003, ClassID: 0x10001, Selector: []byte{1}, Flags: 1,
			Redirects: []netstate.Redirect{{Device: "ifb0", EAction: 1, Control: 4}},
		}}},
	}
	i.NotCaptured = []string{"qdisc htb 2:"}
	r.AnnouncementOwed = true
	i.Parents[0].Carried.NotRestored = []string{"member of br0 (bridge)", "setting ipv4/rp_filter=2"}
	i.Parents[0].IfIndex, i.Parents[1].IfIndex = 12, 5
	members := bond.Members
	members[0].DevPort, members[1].DevPort = "0", "1"
	members[0].IfIndex, members[1].IfIndex = 2, 3
	return r
}

func manyHops() netstate.Route {
	r := route("10.7.0.0/16", "")
	r.NextHops = []netstate.NextHop{
		{Gateway: netip.MustParseAddr("10.3.0.1"), Weight: 2, OnLink: true},
		{Gateway: netip.MustParseAddr("10.4.0.1"), Weight: 1, Device: "net1"},
	}
	r.Metrics, r.CongestionControl = map[string]uint32{"initcwnd": 30, "lock": 4}, "reno"
	return r
}

// via6 returns an IPv4 route through an IPv6 gateway.
func via6() netstate.Route { return route("10.77.0.0/16", "fe80::1") }

func onIPvlan() Record {
	r := record(sandboxID, "eth0")
	r.Interface.Link.Kind, r.Interface.Link.Macvlan = netstate.KindIPvlan, nil
	r.Interface.Link.IPvlan = &netstate.IPvlan{Mode: "l3s", Flag: "private"}
	from := route("fd00:6::/48", "fd00:3::2")
	from.From, from.Preference = netip.MustParsePrefix("fd00:3::/64"), 1
	r.Interface.Routes = []netstate.Route{from}
	return r
}

func hostDevice() Record {
	r := record(sandboxID, "net1")
	r.Interface.Link.Kind, r.Interface.Link.Macvlan = netstate.KindNIC, nil
	r.Interface.Link.NIC, r.Interface.Link.Alias = &eth2, "eth2"
	r.Interface.Parents = nil
	return r
}

// routesOfOthers returns a record whose routes depend on other interfaces.
func routesOfOthers() Record {
	r := podRecord(sandboxID, "eth0", "default", "two-defaults")
	leans, leg := route("192.0.2.0/24", ""), route("::/0", "")
	leans.Device, leans.Source = "net1", netip.MustParseAddr("10.3.0.5")
	leg.NextHops = []netstate.NextHop{{Gateway: netip.MustParseAddr("fe80::1"), Weight: 3}}
	r.Interface.Routes = []netstate.Route{route("0.0.0.0/0", "10.3.0.1"), leans, leg}
	r.Interface.Routes[0].First = true
	return r
}
