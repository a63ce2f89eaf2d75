package netstate

import (
	"net/netip"
	"testing"
)

func TestRouteInTheWordsOfIPRoute(t *testing.T) {
	full := route("10.9.0.0/16", "10.3.0.9")
	full.Table, full.Priority, full.Scope, full.MTU, full.AdvMSS, full.OnLink = 100, 50, 253, 1400, 1360, true
	full.Source = netip.MustParseAddr("10.3.0.5")
	for want, r := range map[string]Route{
		"0.0.0.0/0 via 10.3.0.1": route("0.0.0.0/0", "10.3.0.1"),
		"fd00:9::/64":            route("fd00:9::/64", ""),
		"10.9.0.0/16 via 10.3.0.9 table 100 metric 50 src 10.3.0.5 scope 253 mtu 1400 advmss 1360 onlink": full,
	} {
		if got := r.String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
}

func TestAddressAndVLANAsText(t *testing.T) {
	peer := address("10.3.0.5/32")
	peer.Peer = netip.MustParsePrefix("10.3.0.9/32")
	for got, want := range map[string]string{
		address("10.3.0.5/24").String(): "10.3.0.5/24",
		peer.String():                   "10.3.0.5 peer 10.3.0.9/32",
		v3.String():                     "VLAN 3",
		service.String():                "VLAN 100 (802.1ad)",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestRouteSameSlot(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Route)
		want   bool
	}{
		"the same":            {func(*Route) {}, true},
		"another gateway":     {func(r *Route) { r.Gateway = netip.MustParseAddr("10.3.0.2") }, true},
		"another scope":       {func(r *Route) { r.Scope = 253 }, true},
		"another destination": {func(r *Route) { r.Destination = netip.MustParsePrefix("10.9.0.0/17") }, false},
		"another table":       {func(r *Route) { r.Table = 100 }, false},
		"another metric":      {func(r *Route) { r.Priority = 1 }, false},
		"another TOS":         {func(r *Route) { r.TOS = 8 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := route("10.9.0.0/16", "10.3.0.1"), route("10.9.0.0/16", "10.3.0.1")
			test.change(&b)
			if a.SameSlot(b) != test.want || b.SameSlot(a) != test.want {
				t.Errorf("SameSlot() = %v and %v, want %v", a.SameSlot(b), b.SameSlot(a), test.want)
			}
		})
	}
}

func TestRouteLeadsAs(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Route)
		want   bool
	}{
		"the same":               {func(*Route) {}, true},
		"other attributes":       {func(r *Route) { r.Priority, r.Scope, r.MTU, r.AdvMSS, r.Protocol = 50, 200, 1400, 536, 4 }, true},
		"another table":          {func(r *Route) { r.Table = 100 }, true},
		"another destination":    {func(r *Route) { r.Destination = netip.MustParsePrefix("10.9.0.0/25") }, false},
		"another gateway":        {func(r *Route) { r.Gateway = netip.MustParseAddr("10.3.0.2") }, false},
		"no gateway":             {func(r *Route) { r.Gateway = netip.Addr{} }, false},
		"through another device": {func(r *Route) { r.Device = "net1" }, false},
		"through several gateways": {func(r *Route) {
			r.NextHops, r.Gateway = []NextHop{{Gateway: r.Gateway}, {Gateway: netip.MustParseAddr("10.3.0.2")}}, netip.Addr{}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := route("10.9.0.0/16", "10.3.0.1"), route("10.9.0.0/16", "10.3.0.1")
			test.change(&b)
			if a.SamePath(b) != test.want || b.SamePath(a) != test.want {
				t.Errorf("LeadsAs() = %v and %v, want %v", a.SamePath(b), b.SamePath(a), test.want)
			}
		})
	}
	leg := Route{Destination: netip.MustParsePrefix("::/0"), NextHops: []NextHop{{Gateway: netip.MustParseAddr("fd00::1"), Weight: 1}}}
	if !leg.SamePath(Route{Destination: leg.Destination, Gateway: leg.NextHops[0].Gateway}) {
		t.Error("a leg of an IPv6 route with several next hops is not the route with its gateway")
	}
}
