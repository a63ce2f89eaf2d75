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

func TestRouteMetByOneThatSaysMore(t *testing.T) {
	kernels := Route{
		Destination: netip.MustParsePrefix("10.9.0.0/24"), Gateway: netip.MustParseAddr("10.3.0.1"),
		Table: 254, Priority: 1024, Scope: 253, Protocol: 3, Type: 1, MTU: 1400, AdvMSS: 1360,
	}
	for name, test := range map[string]struct {
		change func(*Route)
		want   bool
	}{
		"asks for all":                        {func(*Route) {}, true},
		"leaves metric, scope, MTU, MSS open": {func(r *Route) { r.Priority, r.Scope, r.MTU, r.AdvMSS = 0, 0, 0, 0 }, true},
		"does not care who made it":           {func(r *Route) { r.Protocol, r.Type = 4, 0 }, true},
		"wants another metric":                {func(r *Route) { r.Priority = 50 }, false},
		"wants another scope":                 {func(r *Route) { r.Scope = 200 }, false},
		"wants another MTU":                   {func(r *Route) { r.MTU = 1500 }, false},
		"wants another advertised MSS":        {func(r *Route) { r.AdvMSS = 536 }, false},
		"wants another destination":           {func(r *Route) { r.Destination = netip.MustParsePrefix("10.9.0.0/25") }, false},
		"wants another gateway":               {func(r *Route) { r.Gateway = netip.MustParseAddr("10.3.0.2") }, false},
		"wants no gateway":                    {func(r *Route) { r.Gateway = netip.Addr{} }, false},
		"wants another table":                 {func(r *Route) { r.Table = 100 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			asked := kernels
			test.change(&asked)
			if got := asked.MetBy(kernels); got != test.want {
				t.Errorf("MetBy() = %v, want %v", got, test.want)
			}
		})
	}
}

func TestRouteThatLeavesThingsOpenDoesNotMeetOneThatAsks(t *testing.T) {
	asked, open := route("10.9.0.0/16", "10.3.0.1"), route("10.9.0.0/16", "10.3.0.1")
	asked.Priority = 50
	if asked.MetBy(open) {
		t.Error("a route without metric meets one that asks for metric 50")
	}
}
