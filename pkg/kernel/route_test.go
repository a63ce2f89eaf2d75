package kernel

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

// plainPod returns a fixture whose sandbox has eth0 with an address of each family and no routes.
func plainPod(t *testing.T) *fixture {
	t.Helper()
	w := newFixture(t)
	w.build(t, netstate.Interface{Link: bridge("eth0"), Addresses: []netstate.Address{
		{Prefix: prefix("10.3.0.2/24"), Label: "eth0"}, {Prefix: prefix("fd00:3::2/64")},
	}}, true)
	return w
}

// The first route of a slot comes back before those that are there, and the others behind them. A route of IPv6 is not marked: the
// kernel puts each behind its equals.
func TestTheFirstRouteOfASlotBecomesTheFirstAgain(t *testing.T) {
	w := plainPod(t)
	show := func() string { return fresh.IP(t, w.path, "route show") }
	fresh.Run(t, w.path, `set -e
		ip link add other0 type veth peer other1; ip link set other0 up; ip link set other1 up; ip addr add 10.4.0.2/24 dev other0
		for gateway in 10.3.0.7 10.4.0.9 10.3.0.8 10.3.0.9; do ip route append default via $gateway; done
		ip -6 route append fd00:9::/64 dev eth0; ip -6 route append fd00:9::/64 dev other0
		ip route append 10.9.0.0/16 via 10.3.0.1; ip route append 10.8.0.0/16 via 10.4.0.1; ip route append 10.8.0.0/16 via 10.3.0.1`)
	recorded, before := w.capture(t, "eth0"), show()
	var marked []string
	for _, r := range recorded.Routes {
		if r.First {
			marked = append(marked, r.String())
		}
	}
	if got := fmt.Sprint(marked); got != "[0.0.0.0/0 via 10.3.0.7]" {
		t.Errorf("first of their slots: %s", got)
	}
	fresh.Run(t, w.path, "ip route flush dev eth0 proto boot")
	if err := w.sandbox.AddRoutes(must(w.sandbox.Index("eth0"))(t), recorded.Routes, recorded); err != nil {
		t.Error(err)
	}
	after := show()
	if !strings.HasPrefix(after, "default via 10.3.0.7 dev eth0 \ndefault via 10.4.0.9 dev other0 \ndefault via 10.3.0.8 dev eth0 \ndefault via 10.3.0.9 dev eth0 \n") {
		t.Errorf("after:\n%s\nbefore:\n%s", after, before)
	}
}

// A wrong route of the same slot is replaced. If the kernel refuses the recorded one, the wrong one comes back.
func TestAReplacedRouteComesBackIfTheNewOneIsRefused(t *testing.T) {
	w := plainPod(t)
	fresh.Run(t, w.path, "ip route add 198.18.0.0/24 dev eth0; ip route add default via 198.18.0.1")
	recorded := w.capture(t, "eth0")
	fresh.Run(t, w.path, "ip route del default; ip route del 198.18.0.0/24; ip route add default via 10.3.0.7; ip route append default via 10.3.0.8")
	before := fresh.IP(t, w.path, "route show")
	defaults := slices.DeleteFunc(slices.Clone(recorded.Routes), func(r netstate.Route) bool { return r.Destination.Bits() > 0 })
	err := w.sandbox.AddRoutes(must(w.sandbox.Index("eth0"))(t), defaults, recorded)
	if err == nil || !strings.Contains(err.Error(), "add route 0.0.0.0/0 via 198.18.0.1: network is unreachable") {
		t.Errorf("error %v", err)
	}
	if after := fresh.IP(t, w.path, "route show"); len(after) != len(before) {
		t.Errorf("after:\n%s\nbefore:\n%s", after, before)
	}
}

// The kernel returns only the routes of the interface, however many other routes the pod has. Only the order needs the
// others.
func TestRoutesOfOthersAreNotRead(t *testing.T) {
	w := plainPod(t)
	fresh.Run(t, w.path, "ip link add other0 type veth peer other1; ip link set other0 up; "+
		many("ip route add 10.9.%d.%d/32 dev other0", 3000)+"; ip route add default via 10.3.0.1")
	told := 0
	list := getRoutes(unix.AF_INET, must(w.sandbox.Index("eth0"))(t))
	if err := w.sandbox.socket.Dump(list, func() { told = 0 }, func([]byte) error { told++; return nil }); err != nil {
		t.Fatal(err)
	}
	if told > 10 {
		t.Errorf("the kernel told %d routes", told)
	}
	if extent := ExtentOf(w.capture(t, "eth0")); extent.OtherRoutes {
		t.Errorf("the routes of others are read for a comparison: %+v", extent)
	}
}

// A route is replaced if it differs only in something by which the kernel does not tell routes apart.
func TestAddRoutesReplacesWhatTheKernelTakesForTheSame(t *testing.T) {
	w := plainPod(t)
	fresh.Run(t, w.path, `set -e
		ip route add 10.9.0.0/16 via 10.3.0.1 mtu 1400
		ip -6 route add fd00:9::/64 via fd00:3::1 mtu 1400
		ip -6 route add fd00:8::/64 dev eth0 mtu 1400`)
	recorded := w.capture(t, "eth0")
	before := fresh.IP(t, w.path, "route show") + fresh.IP(t, w.path, "-6 route show")
	fresh.Run(t, w.path, `set -e
		ip route change 10.9.0.0/16 via 10.3.0.1 mtu 1300
		ip -6 route change fd00:9::/64 via fd00:3::1
		ip -6 route change fd00:8::/64 dev eth0`)
	var routes []netstate.Route
	for _, d := range netstate.Diff(recorded, w.capture(t, "eth0")) {
		routes = append(routes, *d.Route)
	}
	if len(routes) != 3 {
		t.Errorf("differ: %v", routes)
	}
	if err := w.sandbox.AddRoutes(must(w.sandbox.Index("eth0"))(t), routes, recorded); err != nil {
		t.Error(err)
	}
	if after := fresh.IP(t, w.path, "route show") + fresh.IP(t, w.path, "-6 route show"); after != before {
		t.Errorf("after:\n%s\nbefore:\n%s", after, before)
	}
}

// The kernel does not report the weight of a route's only leg. That is no difference.
func TestTheWeightOfALegThatIsLeftAlone(t *testing.T) {
	w := plainPod(t)
	fresh.Run(t, w.path, `ip link add other0 type veth peer other1; ip link set other0 up
		ip -6 route add fd00:9::/64 nexthop via fd00:3::1 weight 5 nexthop via fe80::1 dev other0 weight 2`)
	recorded := w.capture(t, "eth0")
	if got := fmt.Sprint(recorded.Routes); got != "[fd00:9::/64 metric 1024 nexthop via fd00:3::1 weight 5]" {
		t.Errorf("recorded %s", got)
	}
	fresh.IP(t, w.path, "link del other0")
	alone := w.capture(t, "eth0")
	if got := fmt.Sprint(alone.Routes); got != "[fd00:9::/64 via fd00:3::1 metric 1024]" {
		t.Errorf("alone: %s", got)
	}
	if diffs := append(netstate.Diff(recorded, alone), netstate.Diff(alone, recorded)...); len(diffs) > 0 {
		t.Errorf("differs: %v", diffs)
	}
}

// A route with an encapsulation is named but never captured: without the encapsulation it would send packets another
// way. A comparison skips it.
func TestEncapsulatedRoutesAreNotCaptured(t *testing.T) {
	for add, note := range map[string]string{
		"ip -6 route add fd00:9::/64 encap seg6 mode encap segs fd00::9 dev eth0":                  "route fd00:9::/64 metric 1024: its encapsulation",
		"ip route add 10.9.0.0/16 encap ip id 5 dst 10.3.0.9 dev eth0":                             "route 10.9.0.0/16 scope 253: its encapsulation",
		"ip route add 10.9.0.0/16 encap ip id 5 dst 10.3.0.9 via 10.3.0.1 src 10.3.0.2":            "route 10.9.0.0/16 via 10.3.0.1 src 10.3.0.2: its encapsulation",
		"ip route add 10.9.0.0/16 nexthop via 10.3.0.1 nexthop encap ip dst 10.3.0.9 via 10.3.0.7": "route 10.9.0.0/16 nexthop via 10.3.0.1 weight 1 nexthop via 10.3.0.7 weight 1: its encapsulation",
	} {
		t.Run(add, func(t *testing.T) {
			w := plainPod(t)
			bare := w.capture(t, "eth0")
			fresh.Run(t, w.path, add)
			captured := w.capture(t, "eth0")
			if got := fmt.Sprint(captured.Routes, captured.NotCaptured); got != fmt.Sprintf("[] [%s]", note) {
				t.Errorf("captured %s, want the note %q alone", got, note)
			}
			if diffs := append(netstate.Diff(bare, captured), netstate.Diff(captured, bare)...); len(diffs) > 0 {
				t.Errorf("differs: %v", diffs)
			}
		})
	}
}

// The kernel makes the route to the peer of an IPv6 address when it has looked for duplicates, which takes a second. A route that is
// not there before that was taken away by nobody.
func TestARouteThatComesLaterIsNotMissing(t *testing.T) {
	w := plainPod(t)
	withoutRoute := func() (found []string) {
		for _, a := range w.capture(t, "eth0").Addresses {
			if a.WithoutRoute {
				found = append(found, a.String())
			}
		}
		return found
	}
	fresh.IP(t, w.path, "addr add fd00:5::1 peer fd00:5::2 dev eth0")
	if found := withoutRoute(); len(found) > 0 {
		t.Errorf("without a route, it is said: %v", found)
	}
	if err := w.sandbox.WaitForDAD("eth0", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	fresh.IP(t, w.path, "-6 route del fd00:5::2 dev eth0 proto kernel")
	if found := withoutRoute(); fmt.Sprint(found) != "[fd00:5::1 peer fd00:5::2/128]" {
		t.Errorf("without a route: %v", found)
	}
}
