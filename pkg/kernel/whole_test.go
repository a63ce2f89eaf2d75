package kernel

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

// incidental matches the output of ip and tc that is no property of the interface: counters, values that the kernel chooses, and an error of
// ip when another test takes its namespace away meanwhile.
var incidental = regexp.MustCompile(`bc_queue_len_used \d+|promiscuity \d+|qdisc no\w+|refcnt \d+|0: root|state [A-Z]+|(valid|preferred)_lft \w+|hello_timer.*|` +
	`(Sent|backlog|rate|index|designated_\w+|port_id|port_no|message_age_timer|forward_delay_timer|root_id|bridge_id) .*|installed .*|` +
	`Error: Peer netns reference is invalid\.`)

// everythingOf returns everything that iproute2 and /proc/sys report of the interface. It first waits until no IPv6
// address is tentative. The kernel ends that state from a queue, and only then makes the routes of these addresses.
func everythingOf(t *testing.T, path, name string) string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); fresh.IP(t, path, "-6 addr show tentative dev "+name) != ""; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s is tentative still", name)
		}
	}
	// A program starts slowly in the test machine, so few are started. After "link show", "addr show" in a batch shows no
	// addresses.
	all := fresh.Run(t, path, strings.ReplaceAll(`
		printf '%s\n' 'addr show dev NAME' 'link show dev NAME' 'neigh show nud permanent dev NAME' 'neigh show proxy dev NAME' | ip -d -batch -
		# A route with several next hops is shown only if all devices are.
		echo '# IPv4'; printf '%s\n' 'route show table all' rule | ip -d -4 -batch -
		echo '# IPv6'; printf '%s\n' 'route show table all dev NAME' rule | ip -d -6 -batch -
		echo '# shaping'; printf '%s\n' 'qdisc show dev NAME' 'filter show dev NAME ingress' | tc -d -batch -
		echo '# settings'; cd /proc/sys/net
		grep . ipv4/conf/NAME/* ipv6/conf/NAME/* ipv4/neigh/NAME/* ipv6/neigh/NAME/* 2>/dev/null || true`, "NAME", name))
	return strings.Join(strings.Fields(incidental.ReplaceAllString(all, "")), "\n")
}

// extras are shell lines, run in the sandbox. Each gives eth0 something that it does not have by default.
var extras = map[string]string{
	"link attributes": `ip link set eth0 txqueuelen 77 alias "the pod's" group 5
		ip link set eth0 promisc on allmulticast on
		ip link set eth0 multicast off`,
	"arp off":         "ip link set eth0 arp off",
	"broadcast queue": "ip link set eth0 type macvlan bcqueuelen 2222",
	"IPv4 addresses": `ip addr add 10.3.0.9/24 broadcast 10.3.0.200 label eth0:web dev eth0
		ip addr add 192.0.2.1 peer 192.0.2.2 dev eth0
		ip addr add 192.0.2.9 peer 0.0.0.0/0 dev eth0
		ip addr add 10.5.0.1/24 noprefixroute scope link dev eth0
		ip addr add 10.6.0.1/24 metric 77 dev eth0`,
	"IPv6 addresses": `ip addr add fd00:3::2/64 dev eth0
		ip addr add fd00:4::2/64 nodad home dev eth0
		ip addr add fd00:5::1 peer fd00:5::2 dev eth0
		ip addr add fe80::77/64 scope link dev eth0`,
	// keepalived's IPv6 addresses are such: the pod answers on them, and sends from another one.
	"deprecated addresses": `ip addr add fd00:3::2/64 dev eth0
		ip addr add fd00:3::9/128 preferred_lft 0 dev eth0
		ip addr add 10.3.0.9/32 preferred_lft 0 dev eth0`,
	"routes with metrics": `ip route add 192.168.7.0/24 via 10.3.0.9 dev eth0 metric 50 mtu lock 1300 advmss 1200 initcwnd 30 congctl reno
		ip route add 172.16.0.0/12 via 10.3.0.8 table 100
		ip route add 10.9.9.0/24 dev eth0 scope link src 10.3.0.2
		ip route add 10.9.8.0/24 via 10.3.0.7 tos 0x10
		ip -6 route add fd00:9::/64 via fe80::9 dev eth0 metric 7 mtu 1300 pref high table 100`,
	"a gateway that needs a route": `ip route add 203.0.113.1 dev eth0
		ip route add default via 203.0.113.1 dev eth0
		ip route add 198.51.100.0/24 via 198.18.0.1 dev eth0 onlink
		ip -6 route add fd00:77::1 dev eth0
		ip -6 route add default via fd00:77::1 dev eth0`,
	"several next hops": `ip route add 10.20.0.0/16 nexthop via 10.3.0.7 dev eth0 weight 3 nexthop via 10.3.0.8 dev eth0 onlink
		ip -6 route add fd00:20::/64 nexthop via fe80::7 dev eth0 weight 2 nexthop via fe80::8 dev eth0`,
	"an IPv6 gateway of an IPv4 route": "ip route add 10.21.0.0/16 via inet6 fe80::7 dev eth0",
	"rules": `ip rule add from 10.3.0.2 lookup 100 priority 1000
		ip rule add iif eth0 fwmark 0x7/0xff lookup 200 priority 1001
		ip rule add not to 10.3.0.2 oif eth0 ipproto tcp dport 80-90 lookup 100 suppress_prefixlength 0 priority 1002
		ip rule add from 10.3.0.2 uidrange 5-10 prohibit priority 1003
		ip -6 rule add iif eth0 lookup 100 priority 1000`,
	"neighbours": `ip neigh add 10.3.0.50 lladdr 02:00:00:00:00:50 nud permanent dev eth0
		ip neigh add fe80::50 lladdr 02:00:00:00:00:51 nud permanent router dev eth0
		ip neigh add proxy 10.3.0.60 dev eth0`,
	"settings": `cd /proc/sys/net
		echo 1 > ipv4/conf/eth0/arp_notify; echo 2 > ipv4/conf/eth0/rp_filter; echo 1 > ipv4/conf/eth0/proxy_arp
		echo 2 > ipv6/conf/eth0/accept_ra; echo 1 > ipv6/conf/eth0/keep_addr_on_down
		echo 33 > ipv4/neigh/eth0/gc_stale_time; echo 12345 > ipv6/neigh/eth0/base_reachable_time_ms`,
	"IPv6 off": "echo 1 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6",
	"shaping": `ip link add ifb7 type ifb && ip link set ifb7 up
		tc qdisc add dev eth0 root handle 1: tbf rate 1mbit burst 32kbit latency 25ms
		tc qdisc add dev eth0 handle ffff: ingress
		tc filter add dev eth0 parent ffff: protocol all prio 1 u32 match u32 0 0 flowid 1:1 action mirred egress redirect dev ifb7`,
	"a bridge": `ip link add k6t-eth0 type bridge && ip link set k6t-eth0 up
		ip link set eth0 master k6t-eth0
		ip link set eth0 type bridge_slave learning off cost 7 isolated on`,
	"routes moved to another table, as sbr does": `ip addr add fd00:3::2/64 dev eth0
		ip route add 10.3.0.0/24 dev eth0 src 10.3.0.2 table 100 proto kernel scope link
		ip route del 10.3.0.0/24 dev eth0 table main
		ip -6 route add fd00:3::/64 dev eth0 table 100 proto kernel metric 256
		ip -6 route del fd00:3::/64 dev eth0 table main
		ip rule add from 10.3.0.2 lookup 100 priority 77`,
	"down": "ip link set eth0 down",
	"rules and routes in one table": `ip route add default via 10.3.0.1 dev eth0 table 300
		ip rule add lookup 300 priority 5`,
}

// Everything that somebody gives an interface is captured and built again.
func TestTheWholeStateComesBack(t *testing.T) { eachWay(t, theWholeStateComesBack) }

func theWholeStateComesBack(t *testing.T) {
	for name, change := range extras {
		t.Run(name, func(t *testing.T) {
			comesBack(t, netstate.Interface{
				Link:      bridge("eth0"),
				Addresses: []netstate.Address{{Prefix: prefix("10.3.0.2/24"), Broadcast: addr("10.3.0.255"), Label: "eth0"}},
			}, change)
		})
	}
}

// Links of every kind come back, with the properties that only their kind has.
func TestEveryKindComesBack(t *testing.T) { eachWay(t, everyKindComesBack) }

func everyKindComesBack(t *testing.T) {
	kind := func(kind string, m netstate.Macvlan) netstate.Interface {
		l := bridge("eth0")
		l.Kind, l.Macvlan = kind, &m
		return netstate.Interface{Link: l}
	}
	for name, i := range map[string]netstate.Interface{
		"private":     kind(netstate.KindMacvlan, netstate.Macvlan{Mode: "private"}),
		"vepa":        kind(netstate.KindMacvlan, netstate.Macvlan{Mode: "vepa", BCQueueLen: 1234}),
		"passthru":    kind(netstate.KindMacvlan, netstate.Macvlan{Mode: "passthru"}),
		"nopromisc":   kind(netstate.KindMacvlan, netstate.Macvlan{Mode: "passthru", NoPromiscuous: true}),
		"source":      kind(netstate.KindMacvlan, netstate.Macvlan{Mode: "source", Sources: []string{"02:00:00:00:00:11", "02:00:00:00:00:12"}}),
		"nodst":       kind(netstate.KindMacvlan, netstate.Macvlan{Mode: "source", NoDestination: true}),
		"no sources":  kind(netstate.KindMacvlan, netstate.Macvlan{Mode: "source"}),
		"macvtap":     kind(netstate.KindMacvtap, netstate.Macvlan{Mode: "bridge"}),
		"macvtap too": kind(netstate.KindMacvtap, netstate.Macvlan{Mode: "vepa"}),
	} {
		t.Run(name, func(t *testing.T) { comesBack(t, i, "true") })
	}
}

// SetKind takes back the flags that somebody has set.
func TestSetKindTakesFlagsBack(t *testing.T) {
	w := newFixture(t)
	link := bridge("eth0")
	link.Macvlan = &netstate.Macvlan{Mode: "source", NoDestination: true}
	w.build(t, netstate.Interface{Link: link}, true)
	link.Macvlan = &netstate.Macvlan{Mode: "source"}
	if err := w.sandbox.SetKind(must(w.sandbox.Index("eth0"))(t), link); err != nil {
		t.Fatal(err)
	}
	if m := w.capture(t, "eth0").Link.Macvlan; m.NoDestination {
		t.Errorf("it has %v", m.Words())
	}
}

// comesBack makes the interface, changes it, captures it, deletes it, builds it again,
// and compares.
func comesBack(t *testing.T, i netstate.Interface, change string) {
	t.Helper()
	w := newFixture(t)
	// Otherwise duplicate address detection would still be running.
	fresh.Run(t, w.path, "for of in all default; do echo 0 > /proc/sys/net/ipv6/conf/$of/accept_dad; done")
	w.build(t, i, true)
	fresh.Run(t, w.path, "ip link set eth0 up; "+change)
	before := everythingOf(t, w.path, "eth0")
	captured := w.capture(t, "eth0")
	if len(captured.NotCaptured) > 0 {
		t.Errorf("not captured: %v", captured.NotCaptured)
	}
	if err := captured.Validate(); err != nil {
		t.Error(err)
	}
	if err := w.sandbox.Delete("eth0"); err != nil {
		t.Fatal(err)
	}
	w.build(t, captured, true)
	if diff := cmp.Diff(before, everythingOf(t, w.path, "eth0")); diff != "" {
		t.Errorf("before and after (-before +after):\n%s\ncaptured: %+v", diff, captured)
	}
	if diffs := netstate.Diff(captured, w.capture(t, "eth0")); len(diffs) > 0 {
		t.Errorf("differs: %v", diffs)
	}
}

// The address by which a route was made has gone, and the kernel has kept the route. It would not make it again as it is.
func TestARouteWhoseAddressHasGoneComesBack(t *testing.T) {
	w := newFixture(t)
	w.build(t, netstate.Interface{Link: bridge("eth0"), Addresses: []netstate.Address{{Prefix: prefix("10.3.0.2/24")}}}, false)
	fresh.Run(t, w.path, `ip link set eth0 up
		ip addr add fd00:3::2/64 dev eth0 nodad
		ip -6 route add default via fd00:3::1 dev eth0
		ip addr del fd00:3::2/64 dev eth0
		ip addr add 10.8.0.2/24 dev eth0
		ip route add 10.80.0.0/16 via 10.8.0.1 dev eth0
		ip addr del 10.8.0.2/24 dev eth0`)
	captured := w.capture(t, "eth0")
	if err := w.sandbox.Delete("eth0"); err != nil {
		t.Fatal(err)
	}
	w.build(t, captured, true)
	rebuilt := w.capture(t, "eth0")
	if diffs := netstate.Diff(captured, rebuilt); len(diffs) > 0 || len(rebuilt.Routes) != 2 {
		t.Errorf("differs: %v; routes %v", diffs, rebuilt.Routes)
	}
	// With its address, the route is what it was.
	fresh.Run(t, w.path, "ip addr add fd00:3::2/64 dev eth0 nodad")
	if diffs := netstate.Diff(captured, w.capture(t, "eth0")); len(diffs) > 0 {
		t.Errorf("differs with the address: %v", diffs)
	}
}

// The capture notes what it cannot describe.
func TestWhatIsNotCapturedIsNamed(t *testing.T) {
	for change, want := range map[string]string{
		"echo 1400 > /proc/sys/net/ipv6/conf/eth0/mtu":                               "setting ipv6/mtu=1400: the kernel sets it anew when the carrier comes",
		"ip route add 10.9.0.0/16 via 10.3.0.1 dev eth0 realms 3":                    "route 10.9.0.0/16 via 10.3.0.1: its realm",
		"ip nexthop add id 5 via 10.3.0.1 dev eth0; ip route add 10.9.0.0/16 nhid 5": "route 10.9.0.0/16 via 10.3.0.1: its nexthop object",
		"ip link property add dev eth0 altname other":                                `its alternative names: 1, such as "other"`,
		"for i in $(seq 22); do ip link property add dev eth0 altname other$i; done": `its alternative names: 22, such as "other1"`,
		"ip -6 route add fd00:9::/64 dev eth0 expires 1000":                          "route fd00:9::/64 metric 1024: it has a lifetime",
		"ip route add 10.9.0.0/16 via 10.3.0.1 proto bgp; ip route add 10.8.0.0/16 via 10.3.0.1 proto babel; ip route add 10.7.0.0/16 via 10.3.0.1 proto bgp": "routes of babel, which makes them itself: 1\nroutes of bgp, which makes them itself: 2",
		"ip -6 route add fd00:9::/64 dev eth0 proto keepalived":                                    "routes of keepalived, which makes them itself: 1",
		many("ip route add 10.9.%d.%d/32 via 10.3.0.1 dev eth0 realms 3", 23):                      realms(maxNotes) + "\nmore routes like these: 3",
		many("ip route add 10.9.%d.%d/32 via 10.3.0.1 dev eth0", maxKept+5):                        "IPv4 routes beyond the 4096 that are kept of an interface: 5",
		many("ip route add 10.9.%d.%d/32 via 10.3.0.1 dev eth0 table 7", maxKept+5):                "IPv4 routes beyond the 4096 that are kept of an interface: 5",
		many("ip addr add 10.9.%d.%d/32 dev eth0", maxKept):                                        "IPv4 addresses beyond the 4096 that are kept of an interface: 1",
		many("ip addr add fd00:9::10.9.%d.%d/128 dev eth0 nodad", maxKept+5):                       "IPv6 addresses beyond the 4096 that are kept of an interface: 5",
		many("ip rule add from 10.9.%d.%d/32 iif eth0 lookup 7", maxKept+5):                        "rules beyond the 4096 that are kept of an interface: 5",
		many("ip neigh add 10.9.%d.%d lladdr 02:00:00:00:00:50 nud permanent dev eth0", maxKept+5): "neighbours beyond the 4096 that are kept of an interface: 5",
	} {
		t.Run(change, func(t *testing.T) {
			w := newFixture(t)
			w.build(t, netstate.Interface{Link: bridge("eth0"), Addresses: []netstate.Address{{Prefix: prefix("10.3.0.2/24")}}}, false)
			fresh.Run(t, w.path, "ip link set eth0 up; "+change)
			got := strings.Join(w.capture(t, "eth0").NotCaptured, "\n")
			if got != want {
				t.Errorf("not captured: %q, want %q", got, want)
			}
		})
	}
}

// many returns shell lines that run the ip command for count addresses.
func many(command string, count int) string {
	return fmt.Sprintf("for i in $(seq 0 %d); do echo %s; done | ip -batch -",
		count-1, strings.NewReplacer("ip ", "", "%d.%d", "$((i / 250)).$((i % 250 + 1))").Replace(command))
}

// realms returns the notes on count routes with a realm.
func realms(count int) string {
	var notes []string
	for i := range count {
		notes = append(notes, fmt.Sprintf("route 10.9.0.%d/32 via 10.3.0.1: its realm", i+1))
	}
	return strings.Join(notes, "\n")
}

// A qdisc cannot be made if the device of its filter is gone. Then it replaces nothing.
func TestAddQdiscKeepsWhatIsThereWhenItFails(t *testing.T) {
	w := newFixture(t)
	w.build(t, netstate.Interface{Link: bridge("eth0")}, false)
	fresh.Run(t, w.path, "ip link set eth0 up; tc qdisc add dev eth0 root handle 1: tbf rate 1mbit burst 32kbit latency 25ms")
	q := w.capture(t, "eth0").Qdiscs[0]
	q.Filters = []netstate.Filter{{Kind: "u32", Redirects: []netstate.Redirect{{Device: "gone"}}}}
	if err := w.sandbox.AddQdisc(must(w.sandbox.Index("eth0"))(t), q); !errors.Is(err, ErrNoDevice) {
		t.Errorf("error %v, want ErrNoDevice", err)
	}
	if there := w.capture(t, "eth0").Qdiscs; len(there) != 1 || there[0].Kind != "tbf" {
		t.Errorf("left: %v", there)
	}
}

// A pod can give its devices names that no checkpoint may contain. relink leaves out what refers to such a device, and
// keeps the rest.
func TestWhatNamesADeviceThatCannotBeNamedIsNoted(t *testing.T) {
	w := plainPod(t)
	fresh.Run(t, w.path, `set -e
		odd="v$(printf '\033')[2J"
		ip link add "$odd" type bridge; ip link set "$odd" up; ip addr add 10.60.0.1/24 dev "$odd"
		ip route add default via 10.3.0.1
		ip route append default via 10.60.0.9 dev "$odd"
		ip route add 10.61.0.0/16 via 10.3.0.1
		ip route add 10.62.0.0/16 nexthop via 10.3.0.1 nexthop via 10.60.0.9 dev "$odd"
		ip route add 10.63.0.0/16 dev "$odd" src 10.3.0.2
		ip rule add from 10.3.0.2 iif "$odd" lookup 7
		tc qdisc add dev eth0 ingress
		tc filter add dev eth0 parent ffff: protocol all prio 1 u32 match u32 0 0 action mirred egress redirect dev "$odd"
		ip link set eth0 master "$odd"`)
	captured := w.capture(t, "eth0")
	if err := captured.Validate(); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(captured.Routes); got != "[0.0.0.0/0 via 10.3.0.1 10.61.0.0/16 via 10.3.0.1]" {
		t.Errorf("routes %s", got)
	}
	if len(captured.Rules) > 0 || captured.Master != nil {
		t.Errorf("rules %v, master %v", captured.Rules, captured.Master)
	}
	notes := strings.Join(captured.NotCaptured, "\n")
	if strings.Contains(notes, "\033") {
		t.Errorf("notes %q", notes)
	}
	const name = `device "v\x1b[2J", whose name contains '/', ':', white space or a control character`
	for _, note := range []string{
		"route 10.62.0.0/16 nexthop via 10.3.0.1 weight 1 nexthop via 10.60.0.9 weight 1: it goes through " + name,
		"route 10.63.0.0/16 src 10.3.0.2 scope 253: it goes through " + name,
		"rule 32765: from 10.3.0.2/32 lookup 7: it names " + name, "its master, " + name, "filter u32 of priority 1",
	} {
		if !slices.Contains(captured.NotCaptured, note) {
			t.Errorf("no note %q in\n%s", note, notes)
		}
	}
}
