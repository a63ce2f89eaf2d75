package capture

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
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
		want   change.State
		reason string
	}{
		"an address":     {func(i *netstate.Interface) { i.Addresses = nil }, Refreshed, "address 10.0.0.2/24 is missing"},
		"a route":        {func(i *netstate.Interface) { i.Routes = nil }, Refreshed, "route 0.0.0.0/0 via 10.0.0.1 is missing"},
		"down":           {func(i *netstate.Interface) { i.Link.Up = false }, change.Refused, "eth0 is down" + repair},
		"another parent": {func(i *netstate.Interface) { i.Parents[0].Name = "bond1" }, change.Refused, "parent is bond1 (bond), not bond0 (bond)" + repair},
	} {
		f := found("c1", 1, test.change)
		f.NeverDown = true
		a := Decide(nodeWith([]LiveInterface{f}, []checkpoint.Record{recordOn("c1", 1, "")}), true)[0]
		if a.State != test.want || a.Reason != test.reason {
			t.Errorf("%s: %s: %s", name, a.State, a.Reason)
		}
	}
}

// What a parent has lost stays as it was recorded. Another change of the parent counts.
func TestWhatAParentLostStaysRecorded(t *testing.T) {
	member := func(name, mac string, index int) netstate.Member {
		return netstate.Member{Name: name, IfIndex: index, NIC: netstate.NIC{PermanentMAC: mac}}
	}
	bond := func(mtu, index int, members ...netstate.Member) netstate.Device {
		return netstate.Device{Kind: netstate.KindBond, Name: "bond4", MTU: mtu, IfIndex: index, Bond: &netstate.Bond{Members: members}}
	}
	carrying := func(d netstate.Device, addresses ...netstate.Address) netstate.Device {
		d.Carried = &netstate.Carried{Addresses: addresses}
		return d
	}
	one, two := member("eth0", "02:00:00:00:00:01", 2), member("eth1", "02:00:00:00:00:02", 3)
	oneAnew := member("eth0", "02:00:00:00:00:01", 12)
	address := netstate.Address{Prefix: netip.MustParsePrefix("10.0.0.1/24")}
	for name, test := range map[string]struct{ was, is, want netstate.Device }{
		"nothing":                       {bond(1500, 5, one), bond(1500, 5, one), bond(1500, 5, one)},
		"another MTU":                   {bond(1500, 5, one), bond(9000, 5, one), bond(9000, 5, one)},
		"a member":                      {bond(1500, 5, one, two), bond(9000, 5, one), bond(1500, 5, one, two)},
		"all members":                   {bond(1500, 5, one), bond(1500, 5), bond(1500, 5, one)},
		"a member of a new bond":        {bond(1500, 5, one, two), bond(1500, 15, oneAnew), bond(1500, 15, oneAnew, two)},
		"a member is a new one":         {bond(1500, 5, one), bond(1500, 5, oneAnew), bond(1500, 5, oneAnew)},
		"a member is renamed":           {bond(1500, 5, one), bond(9000, 5, member("eth7", one.PermanentMAC, 2)), bond(9000, 5, member("eth7", one.PermanentMAC, 2))},
		"the other member has its name": {bond(1500, 5, one, two), bond(1500, 5, member("eth0", two.PermanentMAC, 12)), bond(1500, 5, one, member("eth0", two.PermanentMAC, 12))},
		"one member more":               {bond(1500, 5, one), bond(1500, 5, one, two), bond(1500, 5, one, two)},
		"an address":                    {carrying(bond(1500, 5), address), bond(9000, 6), carrying(bond(9000, 6), address)},
		"an address and a member":       {carrying(bond(1500, 5, one), address), bond(1500, 6), carrying(bond(1500, 6, one), address)},
		"one address more":              {bond(1500, 5), carrying(bond(1500, 5), address), carrying(bond(1500, 5), address)},
		"another bond": {
			bond(1500, 5, one), netstate.Device{Kind: netstate.KindBond, Name: "bond5", Bond: &netstate.Bond{}},
			netstate.Device{Kind: netstate.KindBond, Name: "bond5", Bond: &netstate.Bond{}},
		},
	} {
		got := mergeLostParts([]netstate.Device{test.was}, []netstate.Device{test.is}, 0)
		if diff := cmp.Diff([]netstate.Device{test.want}, got, addresses); diff != "" {
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
		told      []kernel.Event
		routes    []netstate.Route
		addresses []string
		differs   bool
	}{
		"nothing":                       {nil, []netstate.Route{recorded}, []string{"10.0.0.2/24"}, false},
		"a route came":                  {[]kernel.Event{{Route: lan}}, []netstate.Route{recorded, *lan}, []string{"10.0.0.2/24"}, true},
		"a recorded route came":         {[]kernel.Event{{Route: &recorded}}, []netstate.Route{recorded}, []string{"10.0.0.2/24"}, false},
		"a route came and went":         {[]kernel.Event{{Route: lan}, {Route: lan, Deleted: true}}, []netstate.Route{recorded}, []string{"10.0.0.2/24"}, false},
		"a recorded route went":         {[]kernel.Event{{Route: &recorded, Deleted: true}}, nil, []string{"10.0.0.2/24"}, true},
		"an unknown route went":         {[]kernel.Event{{Route: other, Deleted: true}}, []netstate.Route{recorded}, []string{"10.0.0.2/24"}, false},
		"a route came beside another":   {[]kernel.Event{{Route: lan}, {Route: other}}, []netstate.Route{recorded}, []string{"10.0.0.2/24"}, false},
		"a route took the other's slot": {[]kernel.Event{{Route: lan}, {Route: lan, Deleted: true}, {Route: other}}, []netstate.Route{recorded, *other}, []string{"10.0.0.2/24"}, true},
		"an IPv4 address came": {
			[]kernel.Event{{Address: address("fd00::2/64")}, {Address: address("10.0.0.3/24")}}, []netstate.Route{recorded},
			[]string{"10.0.0.2/24", "10.0.0.3/24", "fd00::2/64"}, true,
		},
		"IPv6 addresses came": {
			[]kernel.Event{{Address: address("fd00::2/64")}, {Address: address("fd00::3/64")}}, []netstate.Route{recorded},
			[]string{"10.0.0.2/24", "fd00::3/64", "fd00::2/64"}, true,
		},
		"a recorded address came": {[]kernel.Event{{Address: address("10.0.0.2/24")}}, []netstate.Route{recorded}, []string{"10.0.0.2/24"}, false},
		"an address went":         {[]kernel.Event{{Route: lan}, {Address: address("10.0.0.2/24"), Deleted: true}}, []netstate.Route{recorded}, []string{"10.0.0.2/24"}, false},
	} {
		is, differs := applyEvents(eth0(nil), test.told)
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

// A checkpoint is written for a renewed lifetime if a restore would give much less than what is left, or more.
func TestARenewalRarelyChangesTheContent(t *testing.T) {
	const now = 1000
	for name, test := range map[string]struct {
		was, is int64
		same    bool
	}{
		"the same":                     {now + 600, now + 600, true},
		"the same, rounded up":         {now + 600, now + 601, true},
		"the same, rounded down":       {now + 600, now + 599, true},
		"renewed after a few seconds":  {now + 595, now + 600, true},
		"renewed when half is left":    {now + 300, now + 600, false},
		"renewed when nothing is left": {now, now + 600, false},
		"shorter than before":          {now + 600, now + 500, false},
		"for ever from now on":         {now + 600, 0, false},
		"for a time from now on":       {0, now + 600, false},
		"over":                         {now - 5, now, true},
		"over long ago":                {now - 500, now, true},
	} {
		for part, set := range map[string]func(*netstate.Address, int64){
			"valid":     func(a *netstate.Address, until int64) { a.ValidUntil = until },
			"preferred": func(a *netstate.Address, until int64) { a.PreferredUntil = until },
		} {
			for place, addressIn := range map[string]func(*checkpoint.Record) *netstate.Address{
				"interface": func(r *checkpoint.Record) *netstate.Address { return &r.Interface.Addresses[0] },
				"parent":    func(r *checkpoint.Record) *netstate.Address { return &r.Interface.Parents[0].Carried.Addresses[0] },
			} {
				was, is := recordOn("c1", 1, ""), recordOn("c1", 1, "")
				for _, r := range []*checkpoint.Record{&was, &is} {
					r.Interface.Parents[0].Carried = &netstate.Carried{Addresses: []netstate.Address{{Prefix: netip.MustParsePrefix("10.0.0.250/24")}}}
				}
				set(addressIn(&was), test.was)
				set(addressIn(&is), test.is)
				if got := isSameContent(was, is, now*time.Second); got != test.same {
					t.Errorf("%s, %s of the %s: the same: %t", name, part, place, got)
				}
			}
		}
	}
}

// An address that has expired is not missing, whatever happened to the device.
func TestAnExpiredAddressIsNotMissing(t *testing.T) {
	for until, want := range map[int64]change.State{1000: Refreshed, 1002: change.Refused} {
		r := recordOn("c1", 1, "")
		r.Interface.Addresses[0].ValidUntil = until
		f := found("c1", 1, func(i *netstate.Interface) { i.Addresses, i.Routes = nil, nil })
		f.ReadAt = 1000 * time.Second
		if a := Decide(nodeWith([]LiveInterface{f}, []checkpoint.Record{r}), true)[0]; a.State != want {
			t.Errorf("until %d: %s: %s", until, a.State, a.Reason)
		}
	}
}

// A client has renewed its lease right before the loss.
func TestWithToldOfARenewal(t *testing.T) {
	renewed := eth0(nil).Addresses[0]
	renewed.ValidUntil, renewed.PreferredUntil = 1200, 900
	is, differs := applyEvents(eth0(nil), []kernel.Event{{Address: &renewed}})
	if diff := cmp.Diff([]netstate.Address{renewed}, is.Addresses, addresses); diff != "" || !differs {
		t.Errorf("differs: %t (-want +got):\n%s", differs, diff)
	}
}
