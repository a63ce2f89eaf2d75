package netstate

import (
	"net/netip"
	"testing"
)

func pointer[T any](v T) *T { return &v }

// whole returns pod with all that only few interfaces have.
func whole() Interface {
	i := pod()
	i.Link.TxQueueLen, i.Link.Alias, i.Link.Group = pointer(500), "the pod's", 5
	i.Link.LinkFlags = LinkFlags{Promiscuous: true, AllMulticast: true}
	i.Master = &Master{Kind: KindBridge, Name: "br0", Port: Numbers{"learning": 0}}
	i.Rules = []Rule{{Priority: 10, From: netip.MustParsePrefix("10.3.0.5/32"), Action: 1, Table: 100}}
	i.Neighbours = []Neighbour{{Address: netip.MustParseAddr("10.3.0.1"), MAC: "02:00:00:00:00:99"}}
	i.Settings = map[string]string{"ipv4/arp_notify": "1"}
	i.Qdiscs = []Qdisc{{Kind: "tbf", Handle: 0x10000, Options: []byte{1}}}
	return i
}

func TestDiffOfWhatFewHave(t *testing.T) {
	for name, test := range map[string]diffTest{
		"nothing":                       {},
		"txqueuelen":                    {have: func(i *Interface) { i.Link.TxQueueLen = pointer(0) }, says: []string{"txqueuelen is 0, not 500"}},
		"txqueuelen left to the kernel": {want: func(i *Interface) { i.Link.TxQueueLen = nil }},
		"alias":                         {have: func(i *Interface) { i.Link.Alias = "" }, says: []string{"alias the pod's is missing"}},
		"group":                         {have: func(i *Interface) { i.Link.Group = 0 }, says: []string{"group is 0, not 5"}},
		"a flag":                        {have: func(i *Interface) { i.Link.AllMulticast = false }, says: []string{"flags allmulticast on is missing"}},
		"a flag more":                   {have: func(i *Interface) { i.Link.NoARP = true }},
		"no master":                     {have: func(i *Interface) { i.Master = nil }, says: []string{"master bridge br0 is missing"}},
		"a master that is not wanted":   {want: func(i *Interface) { i.Master = nil }},
		"another port": {
			have: func(i *Interface) {
				i.Master = &Master{Kind: KindBridge, Name: "br0", Port: Numbers{"learning": 1}}
			},
			says: []string{"master is one with learning 1, not bridge br0 with learning 0"},
		},
		"another bridge":                   {have: func(i *Interface) { i.Master = &Master{Kind: KindBridge, Name: "br1"} }, says: []string{"master is bridge br1, not bridge br0"}},
		"a rule":                           {have: func(i *Interface) { i.Rules[0].Table = 101 }, says: []string{"rule 10: from 10.3.0.5/32 lookup 100 is missing"}},
		"a neighbour":                      {have: func(i *Interface) { i.Neighbours = nil }, says: []string{"neighbour 10.3.0.1 lladdr 02:00:00:00:00:99 is missing"}},
		"a setting":                        {have: func(i *Interface) { i.Settings = map[string]string{"ipv4/arp_notify": "0"} }, says: []string{"setting is ipv4/arp_notify=0, not ipv4/arp_notify=1"}},
		"a setting that has the default":   {have: func(i *Interface) { i.Settings = map[string]string{} }, says: []string{"setting ipv4/arp_notify=1 is missing"}},
		"settings that were not looked at": {have: func(i *Interface) { i.Settings = nil }},
		"a qdisc":                          {have: func(i *Interface) { i.Qdiscs[0].Options = []byte{2} }, says: []string{"qdisc tbf 1: is missing"}},
		"sources of a macvlan": {
			want: func(i *Interface) { i.Link.Macvlan.Sources = []string{"02:00:00:00:00:07", "02:00:00:00:00:06"} },
			have: func(i *Interface) { i.Link.Macvlan.Sources = []string{"02:00:00:00:00:06"} },
			says: []string{"options is bcqueuelen 1000, sources 02:00:00:00:00:06, not bcqueuelen 1000, sources 02:00:00:00:00:06 02:00:00:00:00:07"},
		},
		"a cutoff that an older kernel has not": {want: func(i *Interface) { i.Link.Macvlan.BCCutoff = pointer(5) }},
		"a route's next hops": {
			want: func(i *Interface) { i.Routes[0].NextHops = []NextHop{{Weight: 1}, {Device: "net1", Weight: 2}} },
			says: []string{"route is 0.0.0.0/0 via 10.3.0.1, not 0.0.0.0/0 via 10.3.0.1 nexthop weight 1 nexthop dev net1 weight 2"},
		},
		"a route's metric": {
			want: func(i *Interface) { i.Routes[0].Metrics = map[string]uint32{"initcwnd": 30} },
			says: []string{`route is 0.0.0.0/0 via 10.3.0.1 (protocol 0, type 0, tos 0x0, preference 0, metrics map[], congestion control ""), ` +
				`not 0.0.0.0/0 via 10.3.0.1 (protocol 0, type 0, tos 0x0, preference 0, metrics map[initcwnd:30], congestion control "")`},
		},
	} {
		t.Run(name, func(t *testing.T) { test.run(t, whole) })
	}
}

func TestDiffOfAVLANsOptions(t *testing.T) {
	tagged := func() Interface {
		i := vlanPod()
		i.Link.VLANOptions = &VLANOptions{Flags: []string{"reorder_hdr"}, EgressQoS: map[uint32]uint32{1: 2}}
		return i
	}
	for name, test := range map[string]diffTest{
		"nothing":        {},
		"a mapping more": {have: func(i *Interface) { i.Link.VLANOptions.EgressQoS[3] = 4 }},
		"a mapping less": {
			have: func(i *Interface) { i.Link.VLANOptions.EgressQoS = nil },
			says: []string{"options is flags reorder_hdr, not flags reorder_hdr, egress-qos-map 1:2"},
		},
		"not recorded": {want: func(i *Interface) { i.Link.VLANOptions = nil }},
	} {
		t.Run(name, func(t *testing.T) { test.run(t, tagged) })
	}
}

// An ipvlan has its parent's MAC, whatever that MAC is now.
func TestDiffOfAnIPvlan(t *testing.T) {
	ipvlan := func() Interface {
		i := pod()
		i.Link.Kind, i.Link.Macvlan, i.Link.IPvlan = KindIPvlan, nil, &IPvlan{Mode: "l2", Flag: "bridge"}
		return i
	}
	for name, test := range map[string]diffTest{
		"another MAC": {have: func(i *Interface) { i.Link.MAC = "02:00:00:00:00:02" }},
		"mode":        {have: func(i *Interface) { i.Link.IPvlan.Mode = "l3" }, says: []string{"mode is l3 bridge, not l2 bridge"}},
		"flag":        {have: func(i *Interface) { i.Link.IPvlan.Flag = "vepa" }, says: []string{"mode is l2 vepa, not l2 bridge"}},
	} {
		t.Run(name, func(t *testing.T) { test.run(t, ipvlan) })
	}
}

func TestRuleConcerns(t *testing.T) {
	i := pod()
	table := route("10.9.0.0/16", "10.3.0.1")
	table.Table = 100
	i.Routes = append(i.Routes, table)
	from := func(s string) netip.Prefix { return netip.MustParsePrefix(s) }
	for name, test := range map[string]struct {
		rule Rule
		want bool
	}{
		"of its address":                 {Rule{From: from("10.3.0.5/32"), Table: 7}, true},
		"to its address":                 {Rule{To: from("10.3.0.5/32"), Table: 7}, true},
		"of its prefix":                  {Rule{From: from("10.3.0.0/24"), Table: 7}, true},
		"of everybody":                   {Rule{From: from("0.0.0.0/0"), Table: 7}, false},
		"of another address":             {Rule{From: from("10.3.0.6/32"), Table: 7}, false},
		"its name":                       {Rule{InputDevice: "eth0", Table: 7}, true},
		"its name on the way out":        {Rule{OutputDevice: "eth0", Table: 7}, true},
		"another's name":                 {Rule{OutputDevice: "net1", Table: 7}, false},
		"a table with its routes":        {Rule{Table: 100}, true},
		"that table of the other family": {Rule{IPv6: true, Table: 100}, false},
		"the main table, which has them": {Rule{Table: 254}, false},
		"a table that has none of them":  {Rule{Table: 101}, false},
		"no table":                       {Rule{Action: 8}, false},
	} {
		if got := len(Concerning(i, []Rule{test.rule})) > 0; got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestInOrderPutsWhatOthersNeedFirst(t *testing.T) {
	hops := route("10.7.0.0/16", "")
	hops.NextHops = []NextHop{{Gateway: netip.MustParseAddr("10.3.0.1")}}
	got := InOrder([]Route{hops, route("0.0.0.0/0", "10.9.0.1"), route("10.8.0.0/16", ""), route("10.9.0.1/32", "")})
	var order []string
	for _, r := range got {
		order = append(order, r.Destination.String())
	}
	want := []string{"10.8.0.0/16", "10.9.0.1/32", "0.0.0.0/0", "10.7.0.0/16"}
	for i := range want {
		if order[i] != want[i] {
			t.Fatalf("order %v, want %v", order, want)
		}
	}
}
