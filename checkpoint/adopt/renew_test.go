package adopt

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// addresses compares addresses and prefixes.
var addresses = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

// What is missing was taken away on purpose if no device was down. An interface that is down or on another parent is
// refused all the same.
func TestWhatWasTakenAwayOnPurposeIsRenewed(t *testing.T) {
	const repair = ": relink restore repairs it"
	for name, test := range map[string]struct {
		change func(*netstate.Interface)
		want   Verb
		reason string
	}{
		"an address":     {func(i *netstate.Interface) { i.Addresses = nil }, Refresh, "address 10.0.0.2/24 is missing"},
		"a route":        {func(i *netstate.Interface) { i.Routes = nil }, Refresh, "route 0.0.0.0/0 via 10.0.0.1 is missing"},
		"down":           {func(i *netstate.Interface) { i.Link.Up = false }, Refuse, "eth0 is down" + repair},
		"another parent": {func(i *netstate.Interface) { i.Parents[0].Name = "bond1" }, Refuse, "parent is bond1 (bond), not bond0 (bond)" + repair},
	} {
		f := found("c1", 1, test.change)
		f.Unbroken = true
		a := Decide(Node{Found: []Found{f}, Records: []checkpoint.Record{recordOn("c1", 1, "")}}, true)[0]
		if a.Do != test.want || a.Reason != test.reason {
			t.Errorf("%s: %s: %s", name, a.Do, a.Reason)
		}
	}
}

// A parent that has lost something stays as it was recorded. Another change of it counts.
func TestAParentThatLostSomethingStaysAsItWas(t *testing.T) {
	member := func(name, mac string) netstate.Member {
		return netstate.Member{Name: name, NIC: netstate.NIC{PermanentMAC: mac}}
	}
	bond := func(mtu int, members ...netstate.Member) netstate.Device {
		return netstate.Device{Kind: netstate.KindBond, Name: "bond4", MTU: mtu, Bond: &netstate.Bond{Members: members}}
	}
	carrying := func(addresses ...netstate.Address) netstate.Device {
		d := bond(1500)
		d.Carried = &netstate.Carried{Addresses: addresses}
		return d
	}
	one, two := member("eth0", "02:00:00:00:00:01"), member("eth1", "02:00:00:00:00:02")
	address := netstate.Address{Prefix: netip.MustParsePrefix("10.0.0.1/24")}
	for name, test := range map[string]struct {
		was, is netstate.Device
		kept    bool
	}{
		"nothing":             {bond(1500, one), bond(1500, one), false},
		"another MTU":         {bond(1500, one), bond(9000, one), false},
		"a member":            {bond(1500, one, two), bond(9000, one), true},
		"all members":         {bond(1500, one), bond(1500), true},
		"a member is renamed": {bond(1500, one), bond(9000, member("eth7", one.PermanentMAC)), false},
		"one member more":     {bond(1500, one), bond(1500, one, two), false},
		"an address":          {carrying(address), bond(9000), true},
		"one address more":    {bond(1500), carrying(address), false},
		"another bond":        {bond(1500, one), netstate.Device{Kind: netstate.KindBond, Name: "bond5", Bond: &netstate.Bond{}}, false},
	} {
		want := test.is
		if test.kept {
			want = test.was
		}
		got := withLost([]netstate.Device{test.was}, []netstate.Device{test.is})
		if diff := cmp.Diff([]netstate.Device{want}, got, addresses); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestWithTold(t *testing.T) {
	route := func(destination, gateway string) *netstate.Route {
		return &netstate.Route{Destination: netip.MustParsePrefix(destination), Gateway: netip.MustParseAddr(gateway), Table: 254}
	}
	address := func(prefix string) *netstate.Address {
		return &netstate.Address{Prefix: netip.MustParsePrefix(prefix)}
	}
	lan, other := route("10.8.0.0/24", "10.0.0.1"), route("10.8.0.0/24", "10.0.0.9")
	recorded := *route("0.0.0.0/0", "10.0.0.1")
	for name, test := range map[string]struct {
		told      []kernel.Told
		routes    []netstate.Route
		addresses []string
		differs   bool
	}{
		"nothing":                       {nil, []netstate.Route{recorded}, []string{"10.0.0.2/24"}, false},
		"a route came":                  {[]kernel.Told{{Route: lan}}, []netstate.Route{recorded, *lan}, []string{"10.0.0.2/24"}, true},
		"a recorded route came":         {[]kernel.Told{{Route: &recorded}}, []netstate.Route{recorded}, []string{"10.0.0.2/24"}, false},
		"a route came and went":         {[]kernel.Told{{Route: lan}, {Route: lan, Gone: true}}, []netstate.Route{recorded}, []string{"10.0.0.2/24"}, false},
		"a recorded route went":         {[]kernel.Told{{Route: &recorded, Gone: true}}, nil, []string{"10.0.0.2/24"}, true},
		"an unknown route went":         {[]kernel.Told{{Route: other, Gone: true}}, []netstate.Route{recorded}, []string{"10.0.0.2/24"}, false},
		"a route came beside another":   {[]kernel.Told{{Route: lan}, {Route: other}}, []netstate.Route{recorded}, []string{"10.0.0.2/24"}, false},
		"a route took the other's slot": {[]kernel.Told{{Route: lan}, {Route: lan, Gone: true}, {Route: other}}, []netstate.Route{recorded, *other}, []string{"10.0.0.2/24"}, true},
		"an IPv4 address came": {
			[]kernel.Told{{Address: address("fd00::2/64")}, {Address: address("10.0.0.3/24")}}, []netstate.Route{recorded},
			[]string{"10.0.0.2/24", "10.0.0.3/24", "fd00::2/64"}, true,
		},
		"IPv6 addresses came": {
			[]kernel.Told{{Address: address("fd00::2/64")}, {Address: address("fd00::3/64")}}, []netstate.Route{recorded},
			[]string{"10.0.0.2/24", "fd00::3/64", "fd00::2/64"}, true,
		},
		"a recorded address came": {[]kernel.Told{{Address: address("10.0.0.2/24")}}, []netstate.Route{recorded}, []string{"10.0.0.2/24"}, false},
		"an address went":         {[]kernel.Told{{Route: lan}, {Address: address("10.0.0.2/24"), Gone: true}}, []netstate.Route{recorded}, []string{"10.0.0.2/24"}, false},
	} {
		is, differs := withTold(eth0(nil), test.told)
		var prefixes []string
		for _, a := range is.Addresses {
			prefixes = append(prefixes, a.Prefix.String())
		}
		if differs != test.differs {
			t.Errorf("%s: differs: %t", name, differs)
		}
		if diff := cmp.Diff(test.addresses, prefixes); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(test.routes, is.Routes, addresses, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
