package kernel

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

// everything returns an interface with everything that relink can describe.
func everything() netstate.Interface {
	route := func(r netstate.Route) netstate.Route {
		if r.Table == 0 {
			r.Table = 254
		}
		r.Protocol, r.Type = 3, 1
		return r
	}
	return netstate.Interface{
		Link:     bridge("eth0"),
		Settings: map[string]string{"ipv4/arp_notify": "1", "ipv6/keep_addr_on_down": "1"},
		Addresses: []netstate.Address{
			{Prefix: prefix("10.3.0.2/24"), Broadcast: addr("10.3.0.255"), Label: "eth0"},
			{Prefix: prefix("10.3.0.9/24"), Broadcast: addr("10.3.0.255"), Label: "eth0:web"},
			{Prefix: prefix("192.0.2.1/32"), Peer: prefix("192.0.2.2/32"), Label: "eth0"},
			{Prefix: prefix("10.5.0.1/24"), Label: "eth0", Flags: 0x200, Scope: 253},
			{Prefix: prefix("fd00:3::2/64")},
			{Prefix: prefix("fe80::77/64"), Scope: 253},
		},
		Routes: []netstate.Route{
			route(netstate.Route{Destination: prefix("0.0.0.0/0"), Gateway: addr("10.3.0.1")}),
			route(netstate.Route{Destination: prefix("192.168.7.0/24"), Gateway: addr("10.3.0.9"), MTU: 1300, AdvMSS: 1200, Priority: 50}),
			route(netstate.Route{Destination: prefix("172.16.0.0/12"), Gateway: addr("10.3.0.8"), Table: 100}),
			route(netstate.Route{Destination: prefix("198.51.100.0/24"), Gateway: addr("203.0.113.1"), OnLink: true, Table: 70000}),
			route(netstate.Route{Destination: prefix("10.9.9.0/24"), Scope: 253, Source: addr("10.3.0.2")}),
			route(netstate.Route{Destination: prefix("10.9.8.0/24"), Gateway: addr("10.3.0.7"), TOS: 0x10}),
			route(netstate.Route{Destination: prefix("::/0"), Gateway: addr("fd00:3::1"), Priority: 1024}),
			route(netstate.Route{Destination: prefix("fd00:9::/64"), Gateway: addr("fd00:3::9"), MTU: 1300, Table: 100, Priority: 7}),
		},
	}
}

// build makes the interface in the sandbox.
func (w *fixture) build(t *testing.T, want netstate.Interface, rebuild bool) {
	t.Helper()
	if !rebuild {
		index := must(Create(w.host, w.sandbox, w.index(t, "lan0"), want.Link))(t)
		if err := w.sandbox.Configure(index, want, false); err != nil {
			t.Fatal(err)
		}
		return
	}
	built := must(Build(w.host, w.sandbox, w.index(t, "lan0"), want))(t)
	// The kernel told the same during the build as it tells now.
	if built.link == nil {
		return
	}
	told := must(Capture(w.host, w.sandbox, must(w.host.Devices())(t), want.Link.Name, Extent{Built: built}))(t)
	asked := must(Capture(w.host, w.sandbox, must(w.host.Devices())(t), want.Link.Name, Extent{}))(t)
	if diffs := append(netstate.Diff(told, asked), netstate.Diff(asked, told)...); len(diffs) > 0 {
		t.Errorf("told and asked differ: %v", diffs)
	}
}

func TestWhatIsBuiltIsCapturedAsItWasDescribed(t *testing.T) {
	w := newFixture(t)
	want := everything()
	w.build(t, want, true)
	got := w.capture(t, "eth0")
	if diffs := netstate.Diff(want, got); len(diffs) > 0 {
		t.Errorf("differs: %v", diffs)
	}
	sorted := cmpopts.SortSlices(func(a, b any) bool { return strings.Compare(text(a), text(b)) < 0 })
	comparable := cmp.Options{cmp.Comparer(func(a, b netstate.Address) bool { return a == b }), cmp.Comparer(netstate.Route.Equal)}
	if d := cmp.Diff(want.Addresses, got.Addresses, sorted, comparable); d != "" {
		t.Errorf("addresses (-want +got):\n%s", d)
	}
	if d := cmp.Diff(want.Routes, got.Routes, sorted, comparable); d != "" {
		t.Errorf("routes (-want +got):\n%s", d)
	}
	if got := fresh.IP(t, w.path, "-o link show eth0"); !strings.Contains(got, ",UP,") {
		t.Errorf("not up: %s", got)
	}
	for setting, value := range map[string]string{"ipv4/conf/eth0/arp_notify": "1", "ipv6/conf/eth0/keep_addr_on_down": "1"} {
		if got := fresh.Run(t, w.path, "cat /proc/sys/net/"+setting); got != value {
			t.Errorf("%s is %s, want %s", setting, got, value)
		}
	}
}

func text(v any) string {
	switch v := v.(type) {
	case netstate.Address:
		return v.String()
	case netstate.Route:
		return v.String()
	}
	return ""
}

// A captured interface can be built again, and is the same afterwards. Kernels that can do so take one datagram.
func TestWhatIsCapturedCanBeBuilt(t *testing.T) { eachWay(t, whatIsCapturedCanBeBuilt) }

func whatIsCapturedCanBeBuilt(t *testing.T) {
	w := newFixture(t)
	w.build(t, everything(), true)
	first := w.capture(t, "eth0")
	if err := w.sandbox.Delete("eth0"); err != nil {
		t.Fatal(err)
	}
	w.build(t, first, true)
	if diffs := netstate.Diff(first, w.capture(t, "eth0")); len(diffs) > 0 {
		t.Errorf("differs: %v", diffs)
	}
}

func TestKnownIPv6AddressesAreUsableAtOnce(t *testing.T) {
	w := newFixture(t)
	i := netstate.Interface{Link: bridge("eth0"), Addresses: []netstate.Address{{Prefix: prefix("fd00:3::2/64")}}}
	w.build(t, i, true)
	if out := fresh.IP(t, w.path, "-6 addr show dev eth0 scope global tentative"); out != "" {
		t.Errorf("tentative: %s", out)
	}
}

func TestSettleWaitsForAddresses(t *testing.T) {
	w := newFixture(t)
	i := netstate.Interface{Link: bridge("eth0"), Addresses: []netstate.Address{{Prefix: prefix("fd00:3::2/64")}}}
	w.build(t, i, false)
	if err := w.sandbox.WaitForDAD("eth0", 0); err == nil || !strings.Contains(err.Error(), "still tentative") {
		t.Errorf("without time: error %v", err)
	}
	if err := w.sandbox.WaitForDAD("eth0", 10*time.Second); err != nil {
		t.Error(err)
	}
	if out := fresh.IP(t, w.path, "-6 addr show dev eth0 tentative"); out != "" {
		t.Errorf("tentative: %s", out)
	}
}

func TestSettleSeesAnAddressThatAnotherHostHas(t *testing.T) {
	w := newFixture(t)
	fresh.IP(t, "", "addr add fd00:3::2/64 dev lan1 nodad")
	i := netstate.Interface{Link: bridge("eth0"), Addresses: []netstate.Address{{Prefix: prefix("fd00:3::2/64")}}}
	w.build(t, i, false)
	if err := w.sandbox.WaitForDAD("eth0", 10*time.Second); err == nil || !strings.Contains(err.Error(), "another host") {
		t.Errorf("error %v", err)
	}
}

func TestAllFailuresOfAConfigurationAreReported(t *testing.T) {
	w := newFixture(t)
	i := everything()
	i.Routes[1].Gateway, i.Routes[2].Gateway = addr("198.18.0.1"), addr("198.18.0.2")
	index := must(Create(w.host, w.sandbox, w.index(t, "lan0"), i.Link))(t)
	err := w.sandbox.Configure(index, i, true)
	if err == nil || !strings.Contains(err.Error(), "add route 192.168.7.0/24 via 198.18.0.1") ||
		!strings.Contains(err.Error(), "add route 172.16.0.0/12 via 198.18.0.2") {
		t.Errorf("error %v", err)
	}
	if out := fresh.IP(t, w.path, "route show 0.0.0.0/0"); !strings.Contains(out, "via 10.3.0.1") {
		t.Errorf("the other routes are not there: %s", out)
	}
}

func TestAddRouteTakesThePlaceOfAWrongOneOnly(t *testing.T) {
	w := newFixture(t)
	i := everything()
	w.build(t, i, true)
	fresh.IP(t, w.path, "route replace default via 10.3.0.77")
	if err := w.sandbox.AddRoutes(must(w.sandbox.Index("eth0"))(t), i.Routes[:1], i); err != nil {
		t.Fatal(err)
	}
	if out := fresh.IP(t, w.path, "route show default"); !strings.Contains(out, "via 10.3.0.1 ") || strings.Contains(out, "10.3.0.77") {
		t.Errorf("default route: %s", out)
	}
	// If two recorded routes are in one slot, the existing one stays.
	second := i.Routes[0]
	second.Gateway = addr("10.3.0.5")
	i.Routes = append(i.Routes, second)
	if err := w.sandbox.AddRoutes(must(w.sandbox.Index("eth0"))(t), []netstate.Route{second}, i); err != nil {
		t.Fatal(err)
	}
	if out := fresh.IP(t, w.path, "route show default"); !strings.Contains(out, "10.3.0.1 ") || !strings.Contains(out, "10.3.0.5 ") {
		t.Errorf("default routes: %s", out)
	}
	// A third time is no failure either.
	if err := w.sandbox.AddRoutes(must(w.sandbox.Index("eth0"))(t), []netstate.Route{second}, i); err != nil {
		t.Error(err)
	}
}

// The kernel announces no address of an interface that is built again, even if a setting tells it to. The parent can
// have hundreds of macvlans, and each of them would receive it.
func TestKnownAddressesAreNotAnnouncedByTheKernel(t *testing.T) {
	eachWay(t, func(t *testing.T) {
		w := newFixture(t)
		announcer := must(w.host.NewAnnouncer())(t)
		defer announcer.Close()
		sniffer := newSniffer(t, w.index(t, "lan1"))
		i := netstate.Interface{
			Link:      bridge("eth0"),
			Settings:  map[string]string{"ipv4/arp_notify": "1", "ipv4/rp_filter": "2"},
			Addresses: []netstate.Address{{Prefix: prefix("10.3.0.2/24"), Label: "eth0"}},
		}
		w.build(t, i, true)
		if diffs := netstate.Diff(i, must(Capture(w.host, w.sandbox, must(w.host.Devices())(t), "eth0", ExtentOf(i)))(t)); len(diffs) > 0 {
			t.Errorf("differs: %v", diffs)
		}
		last := i
		last.Addresses = []netstate.Address{{Prefix: prefix("10.3.0.99/24")}}
		if err := announcer.Announce(w.index(t, "lan0"), last); err != nil {
			t.Fatal(err)
		}
		sniffer.await(t, "the announcement after it", func(frame []byte) bool { return bytes.Contains(frame, addr("10.3.0.99").AsSlice()) })
		for _, frame := range sniffer.seen {
			if bytes.Contains(frame, []byte{0x08, 0x06}) && bytes.Contains(frame, addr("10.3.0.2").AsSlice()) {
				t.Errorf("the kernel announced: %x", frame)
			}
		}
	})
}

// An invalid MAC is an error. Everything else is still configured.
func TestConfigureWithAMACThatIsNone(t *testing.T) {
	w := newFixture(t)
	i := netstate.Interface{Link: bridge("eth0"), Addresses: []netstate.Address{{Prefix: prefix("10.3.0.2/24")}}}
	i.Link.Macvlan.Mode = "passthru"
	index := must(Create(w.host, w.sandbox, w.index(t, "lan0"), i.Link))(t)
	i.Link.MAC = "none"
	if err := w.sandbox.Configure(index, i, true); err == nil || !strings.Contains(err.Error(), "set eth0 up: ") {
		t.Errorf("error %v", err)
	}
	if out := fresh.IP(t, w.path, "-o addr show dev eth0"); !strings.Contains(out, "10.3.0.2/24") {
		t.Errorf("addresses %s", out)
	}
}
