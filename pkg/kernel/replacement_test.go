package kernel

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
	"github.com/relink-cni/relink/test/traffic"
)

// newUplinks returns a fixture whose host has a second uplink, lan2. A bridge joins both, and has the addresses 10.9.0.1
// and fd00:9::1. The sandbox has eth0 on lan0.
func newUplinks(t *testing.T) (w *fixture, want netstate.Interface) {
	t.Helper()
	w = newFixture(t)
	fresh.Run(t, "", `printf '%s\n' 'link add lan2 up type veth peer name lan3' 'link add name wire0 type bridge' \
		'link set lan1 master wire0' 'link set lan3 up master wire0' 'link set wire0 up' \
		'addr add 10.9.0.1/24 dev wire0' 'addr add fd00:9::1/64 dev wire0 nodad' | ip -batch -`)
	t.Cleanup(func() { fresh.Run(t, "", "ip link del lan2; ip link del wire0") })
	want = netstate.Interface{
		Link:      bridge("eth0"),
		Addresses: []netstate.Address{{Prefix: prefix("10.9.0.2/24"), Broadcast: addr("10.9.0.255"), Label: "eth0"}, {Prefix: prefix("fd00:9::2/64")}},
		Routes: []netstate.Route{
			{Destination: prefix("0.0.0.0/0"), Gateway: addr("10.9.0.1"), Table: 254, Protocol: 3, Type: 1},
			{Destination: prefix("10.77.0.0/16"), Gateway: addr("10.9.0.1"), Table: 77, Protocol: 4, Type: 1, MTU: 1300},
			{Destination: prefix("::/0"), Gateway: addr("fd00:9::1"), Table: 254, Protocol: 3, Type: 1, Priority: 1024},
		},
		Rules:      []netstate.Rule{{Priority: 100, From: prefix("10.9.0.2/32"), Action: 1, Table: 77}, {Priority: 101, InputDevice: "eth0", Action: 1, Table: 77}},
		Neighbours: []netstate.Neighbour{{Address: addr("10.9.0.9"), MAC: "02:00:00:00:00:99"}},
		Settings:   map[string]string{"ipv4/arp_notify": "1", "ipv6/keep_addr_on_down": "1", "ipv4/rp_filter": "2"},
	}
	want.Link.Alias = "uplink"
	must(Build(w.host, w.sandbox, w.index(t, "lan0"), want))(t)
	return w, want
}

func TestReplacementHasEverythingOfTheOldOne(t *testing.T) {
	bothWays(t, func(t *testing.T) { eachWay(t, replacementHasEverything) })
}

func replacementHasEverything(t *testing.T) {
	w, _ := newUplinks(t)
	before := w.capture(t, "eth0")
	fresh.Run(t, w.path, "ping -q -c 1 -W 5 10.9.0.1; ping -q -c 1 -W 5 fd00:9::1")
	r := must(BuildReplacement(w.host, w.sandbox, w.index(t, "lan2"), before.Link.Index, before))(t)
	if now := w.capture(t, "eth0"); len(netstate.Diff(before, now)) > 0 || now.Link.Index != before.Link.Index {
		t.Errorf("before it takes the place, the old one differs: %v", netstate.Diff(before, now))
	}
	switched, err := r.Swap()
	if !switched || err != nil {
		t.Fatal(switched, err)
	}
	for _, retire := range []func() error{func() error { return nil }, r.SetOldDown, func() error { _, err := w.sandbox.DeleteRetired(r.Old, "eth0"); return err }} {
		if err := retire(); err != nil {
			t.Error(err)
		}
		now := w.capture(t, "eth0")
		if now.Parents[0].Name != "lan2" || now.Link.Index != r.New || now.Link.MAC != before.Link.MAC {
			t.Errorf("it is on %s, index %d, MAC %s", now.Parents[0].Name, now.Link.Index, now.Link.MAC)
		}
		now.Parents = before.Parents
		if left := netstate.Diff(before, now); len(left) > 0 {
			t.Errorf("not taken over: %v", left)
		}
		// At once: neither the addresses nor the link-local one are tentative.
		fresh.Run(t, w.path, "ping -q -c 1 -W 10 10.9.0.1; ping -q -c 1 -W 10 fd00:9::1; ! ip -6 addr show dev eth0 | grep tentative; ip -6 addr show dev eth0 scope link | grep -q inet6")
	}
	if n := len(must(w.sandbox.Devices())(t)); n != 2 {
		t.Errorf("%d devices, want lo and eth0", n)
	}
}

// The old interface goes on as it was if the new one cannot take its name, or does not go up.
func TestReplacementThatFailsLeavesTheOldOne(t *testing.T) {
	for name, test := range map[string]struct{ cause, says string }{
		"the new uplink goes":     {"nsenter --net=POD ip link del NEW", "no such device"},
		"the MAC is in use on it": {"ip link add other link lan2 address MAC type macvlan mode bridge; ip link set other up", "address already in use"},
	} {
		t.Run(name, func(t *testing.T) { bothWays(t, func(t *testing.T) { replacementThatFails(t, test.cause, test.says) }) })
	}
}

func replacementThatFails(t *testing.T, cause, says string) {
	w, _ := newUplinks(t)
	fresh.Run(t, w.path, "for a in 10.9.0.4/24 10.8.0.4/24 10.8.0.5/24; do ip addr add $a dev eth0; done; for i in 3 2 1; do ip route append 10.74.0.0/16 via 10.9.0.$i; done; "+
		"ip addr add 10.7.0.2/24 dev eth0; ip route del 10.7.0.0/24; ip addr add fd00:7::2/64 dev eth0 nodad; ip -6 route del fd00:7::/64 dev eth0")
	before := w.capture(t, "eth0")
	r := must(BuildReplacement(w.host, w.sandbox, w.index(t, "lan2"), before.Link.Index, before))(t)
	fresh.Run(t, "", strings.NewReplacer("POD", w.path, "NEW", r.temporary, "MAC", before.Link.MAC).Replace(cause))
	if switched, err := r.Swap(); switched || err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("switched: %v, %v", switched, err)
	}
	if now := w.capture(t, "eth0"); now.Link.Index != before.Link.Index || !now.Link.Up || now.Parents[0].Name != "lan0" {
		t.Errorf("%+v", now.Link)
	} else if lost, more := netstate.Diff(before, now), netstate.Diff(now, before); len(lost)+len(more) > 0 {
		t.Errorf("lost: %v; came: %v", lost, more)
	}
	fresh.Run(t, w.path, "! ip route show | grep 10.7.0.0/24; ! ip -6 route show | grep fd00:7::/64")
	if deleted, err := w.sandbox.DeleteRetired(r.Old, "eth0"); deleted || err != nil {
		t.Error("the old one is deleted under its own name:", err)
	}
}

// bothWays runs the test with both interfaces up for a moment, and with one after the other, as older kernels need it.
func bothWays(t *testing.T, test func(*testing.T)) {
	live := renamesLive
	t.Cleanup(func() { renamesLive = live })
	for name, renames := range map[string]func() bool{"both up for a moment": live, "one after the other": func() bool { return false }} {
		renamesLive = renames
		t.Run(name, test)
	}
}

// What the pod changes after the old interface was read is changed on the new one.
func TestReplacementHasWhatThePodChangesMeanwhile(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		w, _ := newUplinks(t)
		fresh.Run(t, w.path, "ip addr add 10.9.0.3/24 dev eth0; ip addr add 10.9.0.4/24 dev eth0; ip link add net1 up type bridge; ip addr add 10.8.0.2/24 dev net1; "+
			"ip route add 10.70.0.0/16 via 10.9.0.1; ip route append 10.70.0.0/16 via 10.8.0.1 dev net1; ip -6 route add fd00:70::/48 dev eth0; "+
			"ip -6 addr add fd00:8::2/64 dev net1 nodad; ip -6 route add fd00:71::/48 nexthop via fd00:9::1 nexthop via fd00:8::1 dev net1; ip route append 10.8.0.0/24 dev eth0; "+
			"ip route add 10.73.0.0/16 nexthop via 10.9.0.1 nexthop via 10.8.0.1 dev net1; "+
			"for i in 3 2 1; do ip route append 10.74.0.0/16 via 10.9.0.$i; done")
		others := fresh.Run(t, w.path, "ip route show dev net1; ip -6 route show dev net1")
		before := w.capture(t, "eth0")
		r := must(BuildReplacement(w.host, w.sandbox, w.index(t, "lan2"), before.Link.Index, before))(t)
		fresh.Run(t, w.path, "ip addr del 10.9.0.4/24 dev eth0; ip addr add 10.9.0.5/24 dev eth0; ip -6 addr add fd00:9::5/64 dev eth0 nodad; "+
			"ip route del 10.77.0.0/16 table 77; ip route add 10.78.0.0/16 via 10.9.0.1 src 10.9.0.5; ip -6 route add fd00:78::/48 via fd00:9::1; ip rule del pref 100; "+
			"ip neigh del 10.9.0.9 dev eth0; ip neigh add 10.9.0.8 lladdr 02:00:00:00:00:88 dev eth0")
		want := w.capture(t, "eth0")
		if switched, err := r.Swap(); !switched || err != nil {
			t.Fatal(switched, err)
		}
		if err := r.SetOldDown(); err != nil {
			t.Error(err)
		}
		now := w.capture(t, "eth0")
		if now.Link.Index != r.New {
			t.Errorf("index %d, want %d", now.Link.Index, r.New)
		}
		now.Parents = want.Parents
		if lost, more := netstate.Diff(want, now), netstate.Diff(now, want); len(lost)+len(more) > 0 {
			t.Errorf("lost: %v; came back: %v", lost, more)
		}
		if now := fresh.Run(t, w.path, "ip route show dev net1; ip -6 route show dev net1"); now != others {
			t.Errorf("the routes of net1 are\n%s, and were\n%s", now, others)
		}
	})
}

// A pod adds and deletes routes all the time, by the name of the interface and without it.
func TestRoutesThatChangeDuringReplacements(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		w, _ := newUplinks(t)
		routes := must(traffic.StartRoutes(w.path, "10.9.0.1", "fd00:9::1"))(t)
		for i := range 10 {
			before := w.capture(t, "eth0")
			r := must(BuildReplacement(w.host, w.sandbox, w.index(t, []string{"lan2", "lan0"}[i%2]), before.Link.Index, before))(t)
			if switched, err := r.Swap(); !switched || err != nil {
				t.Error(switched, err)
			}
			if err := r.SetOldDown(); err != nil {
				t.Error(err)
			}
			if _, err := w.sandbox.DeleteRetired(r.Old, "eth0"); err != nil {
				t.Error(err)
			}
		}
		if wrong := must(routes.Stop())(t); len(wrong) > 0 || routes.Changes < 1000 {
			t.Errorf("%d changes, %d wrong: %.300q", routes.Changes, len(wrong), wrong)
		}
		t.Logf("%d changes, %d refused", routes.Changes, routes.Refused)
	})
}

// The story kernel expects that the VRF passes: this kernel may have none.
func TestReplacementWithAMaster(t *testing.T) {
	w, _ := newUplinks(t)
	if exec.Command("nsenter", "--net="+w.path, "ip", "link", "add", "red", "up", "type", "vrf", "table", "50").Run() == nil {
		t.Run("VRF", func(t *testing.T) { replacementInAVRF(t, w) })
	}
}

// The kernel makes its own routes in the table of a VRF. They are not carried over: the kernel would not delete them with the
// addresses.
func replacementInAVRF(t *testing.T, w *fixture) {
	fresh.Run(t, w.path, "ip link set eth0 master red; ip addr flush dev eth0; ip addr add 10.9.0.2/24 dev eth0; ip addr add fd00:9::2/64 dev eth0 nodad; ip route replace default via 10.9.0.1 vrf red; ip -6 route replace default via fd00:9::1 vrf red")
	before := w.capture(t, "eth0")
	r := must(BuildReplacement(w.host, w.sandbox, w.index(t, "lan2"), before.Link.Index, before))(t)
	if switched, err := r.Swap(); !switched || err != nil {
		t.Fatal(switched, err)
	}
	must(w.sandbox.DeleteRetired(r.Old, "eth0"))(t)
	if lost := netstate.Diff(before, w.capture(t, "eth0")); len(lost) > 1 {
		t.Errorf("lost: %v", lost)
	}
	fresh.Run(t, w.path, "ip addr flush dev eth0 scope global")
	if left := fresh.Run(t, w.path, "ip route show table 50; ip -6 route show table 50 | grep -v -e ^default -e ^fe80 -e ^multicast || true"); left != "" {
		t.Errorf("without its addresses it has the routes\n%s", left)
	}
}

// A pod adds and deletes further addresses of the same network all the time. With the first address of a network the kernel
// deletes the others: the one that the pod had before stays the first, and stays.
func TestAddressesThatChangeDuringReplacements(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		w, _ := newUplinks(t)
		at := must(netns.GetFromPath(w.path))(t)
		handle := must(netlink.NewHandleAt(at, unix.NETLINK_ROUTE))(t)
		defer handle.Close()
		changes := 0
		var ended sync.WaitGroup
		stop := make(chan struct{})
		ended.Go(func() {
			defer at.Close()
			for i, has := 0, map[int]bool{}; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				change := handle.AddrAdd
				if has[i%11] {
					change = handle.AddrDel
				}
				link, err := handle.LinkByName("eth0")
				if err == nil && change(link, must(netlink.ParseAddr(fmt.Sprintf("10.9.0.%d/24", 100+i%11)))(t)) == nil {
					changes, has[i%11] = changes+1, !has[i%11]
				}
			}
		})
		for i := range 20 {
			before := w.capture(t, "eth0")
			r := must(BuildReplacement(w.host, w.sandbox, w.index(t, []string{"lan2", "lan0"}[i%2]), before.Link.Index, before))(t)
			if switched, err := r.Swap(); !switched || err != nil {
				t.Error(switched, err)
			}
			if _, err := w.sandbox.DeleteRetired(r.Old, "eth0"); err != nil {
				t.Error(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		close(stop)
		ended.Wait()
		if now := w.capture(t, "eth0"); len(now.Addresses) == 0 || now.Addresses[0].Prefix != prefix("10.9.0.2/24") || changes < 1000 {
			t.Errorf("after %d changes, the addresses are %v", changes, now.Addresses)
		}
		fresh.Run(t, w.path, "ip route show default | grep -q via")
	})
}

// A DHCP client renews its lease on the old interface after that was read.
func TestALeaseThatIsRenewedDuringAReplacement(t *testing.T) {
	if !renamesLive() {
		t.Skip("the old interface is down by then")
	}
	w, _ := newUplinks(t)
	fresh.Run(t, w.path, "ip addr change 10.9.0.2/24 dev eth0 valid_lft 100 preferred_lft 100; ip addr change fd00:9::2/64 dev eth0 valid_lft 100 preferred_lft 100")
	before := w.capture(t, "eth0")
	r := must(BuildReplacement(w.host, w.sandbox, w.index(t, "lan2"), before.Link.Index, before))(t)
	if err := r.swapUp(); err != nil {
		t.Fatal(err)
	}
	fresh.Run(t, w.path, "for a in 10.9.0.2/24 fd00:9::2/64; do ip addr change $a dev "+r.retired+" valid_lft 9000 preferred_lft 8000; done")
	if err := r.carryAddresses(); err != nil {
		t.Error(err)
	}
	for i, a := range w.capture(t, "eth0").Addresses {
		if valid := a.ValidUntil - before.Addresses[i].ValidUntil; valid < 8800 || a.ValidUntil-a.PreferredUntil != 1000 {
			t.Errorf("%s is valid for %d s more, and deprecated %d s before", a, valid, a.ValidUntil-a.PreferredUntil)
		}
	}
}

// A kill has left both interfaces up. The old one still has routes.
func TestARetiredInterfaceLosesNoRoute(t *testing.T) {
	w, _ := newUplinks(t)
	before := w.capture(t, "eth0")
	r := must(BuildReplacement(w.host, w.sandbox, w.index(t, "lan2"), before.Link.Index, before))(t)
	fresh.Run(t, w.path, "ip link set "+r.temporary+" up; ip addr add 10.9.0.2/24 dev "+r.temporary+"; ip addr add fd00:9::2/64 nodad dev "+r.temporary+"; ip link set eth0 name "+r.retired+"; ip link set "+r.temporary+" name eth0")
	if deleted, err := w.sandbox.DeleteRetired(r.Old, "eth0"); !deleted || err != nil {
		t.Error(deleted, err)
	}
	now := w.capture(t, "eth0")
	if lost := netstate.RoutesOf(now.Routes); now.Link.Index != r.New || !lost.Has(before.Routes[0]) || !lost.Has(before.Routes[1]) {
		t.Errorf("the routes are %v", now.Routes)
	}
}
