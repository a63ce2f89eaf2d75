package cniplugin

import (
	"encoding/json"
	"net"
	"net/netip"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/relink-cni/relink/pkg/netstate"
)

var plainValues = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

// result is what an IPAM plugin prints.
func result(t *testing.T, s string) *current.Result {
	t.Helper()
	var r current.Result
	if err := json.Unmarshal([]byte(s), &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

func TestAddressesHaveTheBroadcastOfTheirNetwork(t *testing.T) {
	for address, broadcast := range map[string]string{
		"10.3.0.5/24":     "10.3.0.255",
		"10.3.0.5/16":     "10.3.255.255",
		"10.3.0.5/20":     "10.3.15.255",
		"10.3.0.5/8":      "10.255.255.255",
		"10.3.0.5/0":      "255.255.255.255",
		"10.3.0.5/30":     "10.3.0.7",
		"10.3.0.5/31":     "",
		"10.3.0.5/32":     "",
		"fd00:3::5/64":    "",
		"fd00:3::5/24":    "",
		"192.168.1.77/25": "192.168.1.127",
	} {
		want := []netstate.Address{{Prefix: netip.MustParsePrefix(address)}}
		if broadcast != "" {
			want[0].Broadcast = netip.MustParseAddr(broadcast)
		}
		got, err := Addresses(result(t, `{"ips": [{"address": "`+address+`"}]}`))
		if diff := cmp.Diff(want, got, plainValues); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", address, err, diff)
		}
	}
}

func TestAddressesKeepTheirOrder(t *testing.T) {
	r := result(t, `{"ips": [{"address": "fd00::2/64"}, {"address": "10.0.0.2/32"}, {"address": "10.0.0.1/32"}]}`)
	got, err := Addresses(r)
	want := []netstate.Address{
		{Prefix: netip.MustParsePrefix("fd00::2/64")}, {Prefix: netip.MustParsePrefix("10.0.0.2/32")}, {Prefix: netip.MustParsePrefix("10.0.0.1/32")},
	}
	if diff := cmp.Diff(want, got, plainValues); err != nil || diff != "" {
		t.Errorf("Addresses(): %v (-want +got):\n%s", err, diff)
	}
}

func TestAddressesThatAreNone(t *testing.T) {
	for name, n := range map[string]net.IPNet{
		"nothing":             {},
		"a mask with a hole":  {IP: net.IPv4(10, 0, 0, 1), Mask: net.IPv4Mask(255, 0, 255, 0)},
		"five bytes":          {IP: net.IP{1, 2, 3, 4, 5}, Mask: net.CIDRMask(24, 32)},
		"the other's mask":    {IP: net.ParseIP("fd00::1"), Mask: net.CIDRMask(24, 32)},
		"IPv4, mapped prefix": {IP: net.IPv4(10, 0, 0, 1), Mask: net.CIDRMask(120, 128)},
	} {
		_, err := Addresses(&current.Result{IPs: []*current.IPConfig{{Address: n}}})
		want := "address " + n.String() + " of the IPAM plugin's result: is no IP address with a prefix length"
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

// route is to a destination with what Routes always sets.
func route(destination, gateway string) netstate.Route {
	r := netstate.Route{Destination: netip.MustParsePrefix(destination), Table: 254, Protocol: 3, Type: 1}
	if gateway != "" {
		r.Gateway = netip.MustParseAddr(gateway)
	}
	return r
}

func TestRoutes(t *testing.T) {
	const ips = `"ips": [{"address": "10.3.0.4/24"}, {"address": "10.3.0.5/24", "gateway": "10.3.0.1"},
		{"address": "fd00:3::5/64", "gateway": "fd00:3::1"}, {"address": "10.4.0.5/24", "gateway": "10.4.0.1"}]`
	with := func(r netstate.Route, change func(*netstate.Route)) netstate.Route { change(&r); return r }
	for name, test := range map[string]struct {
		route string
		want  netstate.Route
	}{
		"by the first gateway of IPv4":     {`{"dst": "0.0.0.0/0"}`, route("0.0.0.0/0", "10.3.0.1")},
		"by the first gateway of IPv6":     {`{"dst": "::/0"}`, route("::/0", "fd00:3::1")},
		"by its own gateway":               {`{"dst": "10.9.0.0/16", "gw": "10.3.0.9"}`, route("10.9.0.0/16", "10.3.0.9")},
		"by its own gateway, IPv6":         {`{"dst": "fd00:9::/48", "gw": "fd00:3::9"}`, route("fd00:9::/48", "fd00:3::9")},
		"destination without host bits":    {`{"dst": "10.9.8.7/16", "gw": "10.3.0.9"}`, route("10.9.0.0/16", "10.3.0.9")},
		"scope link goes by no gateway":    {`{"dst": "10.9.0.0/16", "scope": 253}`, with(route("10.9.0.0/16", ""), func(r *netstate.Route) { r.Scope = 253 })},
		"scope host goes by no gateway":    {`{"dst": "10.9.0.0/16", "scope": 254}`, with(route("10.9.0.0/16", ""), func(r *netstate.Route) { r.Scope = 254 })},
		"scope site goes by the gateway":   {`{"dst": "10.9.0.0/16", "scope": 200}`, with(route("10.9.0.0/16", "10.3.0.1"), func(r *netstate.Route) { r.Scope = 200 })},
		"scope link and a gateway of it":   {`{"dst": "10.9.0.0/16", "scope": 253, "gw": "10.3.0.9"}`, with(route("10.9.0.0/16", "10.3.0.9"), func(r *netstate.Route) { r.Scope = 253 })},
		"in another table":                 {`{"dst": "0.0.0.0/0", "table": 100}`, with(route("0.0.0.0/0", "10.3.0.1"), func(r *netstate.Route) { r.Table = 100 })},
		"in a table beyond a byte":         {`{"dst": "0.0.0.0/0", "table": 70000}`, with(route("0.0.0.0/0", "10.3.0.1"), func(r *netstate.Route) { r.Table = 70000 })},
		"with metric, MTU, advertised MSS": {`{"dst": "0.0.0.0/0", "priority": 50, "mtu": 1400, "advmss": 1360}`, with(route("0.0.0.0/0", "10.3.0.1"), func(r *netstate.Route) { r.Priority, r.MTU, r.AdvMSS = 50, 1400, 1360 })},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Routes(result(t, `{`+ips+`, "routes": [`+test.route+`]}`))
			if diff := cmp.Diff([]netstate.Route{test.want}, got, plainValues); err != nil || diff != "" {
				t.Errorf("Routes(): %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestRoutesWithoutAnyGatewayGoToTheLink(t *testing.T) {
	got, err := Routes(result(t, `{"ips": [{"address": "fd00:3::5/64", "gateway": "fd00:3::1"}], "routes": [{"dst": "10.9.0.0/16"}]}`))
	if diff := cmp.Diff([]netstate.Route{route("10.9.0.0/16", "")}, got, plainValues); err != nil || diff != "" {
		t.Errorf("Routes(): %v (-want +got):\n%s", err, diff)
	}
}

func TestRoutesThatCannotBe(t *testing.T) {
	any4 := net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	for want, r := range map[string]types.Route{
		`route to 0.0.0.0/0: invalid "gw": "fd00::1": must be of the family of the destination 0.0.0.0/0`:     {Dst: any4, GW: net.ParseIP("fd00::1")},
		`route to fd00::/64: invalid "gw": "10.3.0.1": must be of the family of the destination fd00::/64`:    {Dst: net.IPNet{IP: net.ParseIP("fd00::"), Mask: net.CIDRMask(64, 128)}, GW: net.IPv4(10, 3, 0, 1)},
		"route to <nil> of the IPAM plugin's result: is no IP address with a prefix length":                   {},
		`route to 0.0.0.0/0: invalid "gw": "?0102030405": must be of the family of the destination 0.0.0.0/0`: {Dst: any4, GW: net.IP{1, 2, 3, 4, 5}},
	} {
		if _, err := Routes(&current.Result{Routes: []*types.Route{&r}}); err == nil || err.Error() != want {
			t.Errorf("Routes() = %v, want %s", err, want)
		}
	}
}

func TestHasIPv6Gateway(t *testing.T) {
	for ips, want := range map[string]bool{
		``:                          false,
		`{"address": "fd00::5/64"}`: false,
		`{"address": "10.0.0.5/24", "gateway": "10.0.0.1"}`:                            false,
		`{"address": "10.0.0.5/24", "gateway": "10.0.0.1"}, {"address": "fd00::5/64"}`: false,
		`{"address": "10.0.0.5/24"}, {"address": "fd00::5/64", "gateway": "fd00::1"}`:  true,
		`{"address": "fd00::5/64", "gateway": "::ffff:10.0.0.1"}`:                      false,
	} {
		if got := HasIPv6Gateway(result(t, `{"ips": [`+ips+`]}`)); got != want {
			t.Errorf("HasIPv6Gateway(%s) = %v, want %v", ips, got, want)
		}
	}
}
