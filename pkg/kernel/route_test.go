package kernel

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

// plainPod returns a world whose sandbox has eth0 with an address of each family and no routes.
func plainPod(t *testing.T) *fixture {
	t.Helper()
	w := newFixture(t)
	w.build(t, netstate.Interface{Link: bridge("eth0"), Addresses: []netstate.Address{
		{Prefix: prefix("10.3.0.2/24"), Label: "eth0"}, {Prefix: prefix("fd00:3::2/64")},
	}}, ConfigureOptions{Rebuild: true})
	return w
}

func anyDevice(string) bool { return true }

// If a route cannot be made again, OrderRoutes deletes neither this route nor the others that would move with it.
func TestOrderRoutesLosesNothingWhenARouteIsRefused(t *testing.T) {
	w := plainPod(t)
	fresh.Run(t, w.path, `set -e
		ip route append default via 10.3.0.7
		ip route append default via 10.3.0.8
		ip route append default via 10.3.0.9`)
	order := w.capture(t, "eth0").RouteOrder[0]
	// The kernel would no longer accept the gateway, but it keeps the route.
	fresh.Run(t, w.path, `set -e
		ip route flush exact default
		ip route add 198.18.0.0/24 dev eth0
		ip route append default via 198.18.0.1
		ip route append default via 10.3.0.8
		ip route append default via 10.3.0.7
		ip route append default via 10.3.0.9
		ip route del 198.18.0.0/24`)
	order.Routes = append(order.Routes, netstate.Place{Gateway: addr("198.18.0.1")})
	before := fresh.IP(t, w.path, "route show")
	err := w.sandbox.OrderRoutes("eth0", []netstate.Order{order}, anyDevice)
	if err == nil || !strings.Contains(err.Error(), "add route 0.0.0.0/0 via 198.18.0.1 metric 1: network is unreachable") {
		t.Errorf("error %v", err)
	}
	if after := fresh.IP(t, w.path, "route show"); after != before {
		t.Errorf("after:\n%s\nbefore:\n%s", after, before)
	}
}

// OrderRoutes does not move a route that no checkpoint has, nor one that cannot be made again.
func TestOrderRoutesRefuses(t *testing.T) {
	for name, test := range map[string]struct{ lines, says string }{
		"another's": {`ip link add other0 type veth peer other1; ip link set other0 up
			ip addr add 10.4.0.2/24 dev other0
			ip route append 10.9.0.0/16 via 10.4.0.7
			ip route append 10.9.0.0/16 dev other0
			ip route append 10.9.0.0/16 dev eth0`, "route 10.9.0.0/16 scope 253 of other0 is in no checkpoint"},
		"a realm": {`ip route append 10.9.0.0/16 via 10.3.0.7
			ip route append 10.9.0.0/16 via 10.3.0.8 realms 3
			ip route append 10.9.0.0/16 via 10.3.0.9`, "route 10.9.0.0/16 via 10.3.0.8 cannot be made again: its realm cannot be described"},
		"beside a gateway": {`ip -6 route append fd00:9::/64 dev eth0
			ip -6 route append fd00:9::/64 via fd00:3::9`, "route fd00:9::/64 metric 1024 cannot be told apart from another route of the device"},
		"legs with more": {`ip link add other0 type veth peer other1; ip link set other0 up
			ip -6 route append fd00:9::/64 mtu 1400 nexthop via fd00:3::8 nexthop via fd00:3::9
			ip -6 route append fd00:9::/64 dev other0`,
			"route fd00:9::/64 metric 1024 mtu 1400 nexthop via fd00:3::8 weight 1 nexthop via fd00:3::9 weight 1 cannot be made again: the kernel tells"},
	} {
		t.Run(name, func(t *testing.T) {
			w := plainPod(t)
			fresh.Run(t, w.path, test.lines)
			orders := w.capture(t, "eth0").RouteOrder
			if len(orders) != 1 {
				t.Fatalf("orders %v", orders)
			}
			order, before := orders[0], fresh.IP(t, w.path, "-6 route show")+fresh.IP(t, w.path, "route show")
			last := len(order.Routes) - 1
			order.Routes[last], order.Routes[last-1] = order.Routes[last-1], order.Routes[last]
			if err := w.sandbox.OrderRoutes("eth0", []netstate.Order{order}, func(string) bool { return false }); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v", err)
			}
			if after := fresh.IP(t, w.path, "-6 route show") + fresh.IP(t, w.path, "route show"); after != before {
				t.Errorf("after:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
}

// OrderRoutes handles the slots of several tables at once. Their routes do not fit into one datagram. A route that the
// kernel refuses in one slot does not stop the others.
func TestOrderRoutesOfManySlots(t *testing.T) {
	w := plainPod(t)
	lines := func(first, second string) string {
		return `set -e
		ip route add 198.18.0.0/24 dev eth0
		for gateway in ` + first + " " + second + `; do
			for i in $(seq 1 70); do
				echo "route append 10.9.$i.0/24 via 10.3.0.$gateway"
				echo "route append 10.9.$i.0/24 via 10.3.0.$gateway table 7"
			done
			echo "route append 10.8.0.0/16 via 198.18.0.$gateway"
		done | ip -batch -
		ip route del 198.18.0.0/24`
	}
	fresh.Run(t, w.path, lines("7", "8"))
	orders := w.capture(t, "eth0").RouteOrder
	if len(orders) != 141 {
		t.Fatalf("%d orders", len(orders))
	}
	show := func() (good, refused string) {
		return fresh.IP(t, w.path, "route show root 10.9.0.0/16 table all"), fresh.IP(t, w.path, "route show exact 10.8.0.0/16")
	}
	want, _ := show()
	fresh.Run(t, w.path, `ip route flush root 10.9.0.0/16 table main; ip route flush table 7; ip route flush exact 10.8.0.0/16
		`+lines("8", "7"))
	_, left := show()
	err := w.sandbox.OrderRoutes("eth0", orders, anyDevice)
	if err == nil || strings.Count(err.Error(), "\n") > 0 || !strings.Contains(err.Error(), "add route 10.8.0.0/16 via 198.18.0.") {
		t.Errorf("error %v", err)
	}
	if got, refused := show(); got != want || refused != left {
		t.Errorf("after:\n%s\n%s\nwant:\n%s\n%s", got, refused, want, left)
	}
	if all := fresh.IP(t, w.path, "route show table all"); strings.Contains(all, "metric 1 ") {
		t.Errorf("something still stands in:\n%s", all)
	}
}

// Somebody else's route stays, even if it is in the place where a stand-in would go.
func TestAStandInTakesNoRouteOfSomebodyElse(t *testing.T) {
	w := plainPod(t)
	fresh.Run(t, w.path, `set -e
		ip route append default via 10.3.0.7
		ip route append default via 10.3.0.8
		ip route append default via 10.3.0.8 metric 1
		ip route append default via 10.3.0.7 metric 1
		ip -6 route append fd00:9::/64 dev eth0
		ip link add other0 type veth peer other1; ip link set other0 up
		ip -6 route append fd00:9::/64 dev other0
		ip -6 route append fd00:9::/64 dev eth0 metric 1025`)
	orders := w.capture(t, "eth0").RouteOrder
	show := func() string { return fresh.IP(t, w.path, "route show") + fresh.IP(t, w.path, "-6 route show") }
	want := show()
	fresh.Run(t, w.path, `set -e
		ip route del default via 10.3.0.7 metric 0; ip route append default via 10.3.0.7
		ip -6 route del fd00:9::/64 dev eth0 metric 1024; ip -6 route append fd00:9::/64 dev eth0`)
	if show() == want {
		t.Fatal("nothing is out of order")
	}
	if err := w.sandbox.OrderRoutes("eth0", orders, anyDevice); err != nil {
		t.Error(err)
	}
	if got := show(); got != want {
		t.Errorf("after:\n%s\nwant:\n%s", got, want)
	}
}

// The kernel returns only the routes of the interface, however many other routes the pod has. Only the order needs the
// others.
func TestRoutesOfOthersAreNotRead(t *testing.T) {
	w := plainPod(t)
	fresh.Run(t, w.path, "ip link add other0 type veth peer other1; ip link set other0 up; "+
		many("ip route add 10.9.%d.%d/32 dev other0", 3000)+"; ip route add default via 10.3.0.1")
	told := 0
	list := rtnl.Message{Request: getRoutes(unix.AF_INET, must(w.sandbox.Index("eth0"))(t)), Action: "list routes"}
	if err := w.sandbox.socket.Dump(list, func() { told = 0 }, func([]byte) error { told++; return nil }); err != nil {
		t.Fatal(err)
	}
	if told > 10 {
		t.Errorf("the kernel told %d routes", told)
	}
	if extent := ExtentOf(w.capture(t, "eth0")); extent.Order {
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
			if got := fmt.Sprint(captured.Routes, captured.RouteOrder, captured.NotCaptured); got != fmt.Sprintf("[] [] [%s]", note) {
				t.Errorf("captured %s, want the note %q alone", got, note)
			}
			if diffs := append(netstate.Diff(bare, captured), netstate.Diff(captured, bare)...); len(diffs) > 0 {
				t.Errorf("differs: %v", diffs)
			}
		})
	}
}
