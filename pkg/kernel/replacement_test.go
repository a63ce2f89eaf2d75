package kernel

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

// newUplinks returns a world whose host has a second uplink, lan2. A bridge joins both, and has the addresses 10.9.0.1
// and fd00:9::1. The sandbox has eth0 on lan0.
func newUplinks(t *testing.T) (w *world, want netstate.Interface) {
	t.Helper()
	w = newWorld(t)
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
	must(Build(w.host, w.sandbox, w.index(t, "lan0"), want, ConfigureOptions{Known: true}))(t)
	return w, want
}

func TestReplacementHasEverythingOfTheOldOne(t *testing.T) {
	live := renamesLive
	t.Cleanup(func() { renamesLive = live })
	for name, renames := range map[string]func() bool{"both up for a moment": live, "one after the other": func() bool { return false }} {
		renamesLive = renames
		t.Run(name, func(t *testing.T) { eachWay(t, replacementHasEverything) })
	}
}

func replacementHasEverything(t *testing.T) {
	w, _ := newUplinks(t)
	before := w.capture(t, "eth0")
	fresh.Run(t, w.path, "ping -q -c 1 -W 5 10.9.0.1; ping -q -c 1 -W 5 fd00:9::1")
	r := must(BuildReplacement(w.host, w.sandbox, w.index(t, "lan2"), before.Link.Index, before))(t)
	if now := w.capture(t, "eth0"); len(netstate.Diff(before, now)) > 0 || now.Link.Index != before.Link.Index {
		t.Errorf("before it takes the place, the old one differs: %v", netstate.Diff(before, now))
	}
	switched, err := r.TakePlace()
	if !switched || err != nil {
		t.Fatal(switched, err)
	}
	for _, retire := range []func() error{func() error { return nil }, r.Retire, func() error { _, err := w.sandbox.DeleteRetired(r.Old); return err }} {
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

// The old interface goes on as it was if the new one cannot take its name.
func TestReplacementThatFailsLeavesTheOldOne(t *testing.T) {
	live := renamesLive
	t.Cleanup(func() { renamesLive = live })
	for name, renames := range map[string]func() bool{"both up for a moment": live, "one after the other": func() bool { return false }} {
		renamesLive = renames
		t.Run(name, func(t *testing.T) {
			w, _ := newUplinks(t)
			before := w.capture(t, "eth0")
			r := must(BuildReplacement(w.host, w.sandbox, w.index(t, "lan2"), before.Link.Index, before))(t)
			fresh.IP(t, w.path, "link del "+r.temporary) // As with the new uplink.
			if switched, err := r.TakePlace(); switched || err == nil || !strings.Contains(err.Error(), "to eth0") {
				t.Errorf("switched: %v, %v", switched, err)
			}
			if now := w.capture(t, "eth0"); now.Link.Index != before.Link.Index || !now.Link.Up || now.Parents[0].Name != "lan0" {
				t.Errorf("%+v", now.Link)
			}
			if deleted, err := w.sandbox.DeleteRetired(r.Old); deleted || err != nil {
				t.Error("the old one is deleted under its own name:", err)
			}
		})
	}
}

func TestAskFindsWhoAnswersThere(t *testing.T) {
	w, _ := newUplinks(t)
	gateways := []netip.Addr{addr("10.9.0.1"), addr("10.9.0.77"), addr("fd00:9::1")}
	quick := ProbeOptions{Count: 2, Wait: 200 * time.Millisecond}
	answers := must(w.host.Ask(t.Context(), w.index(t, "lan2"), gateways, quick))(t)
	if len(answers) != 2 || answers[0].Address != gateways[0] || answers[1].Address != gateways[2] {
		t.Errorf("answers: %v", answers)
	}
	if answers[0].MAC != answers[1].MAC || answers[0].MAC == "" {
		t.Errorf("of one host: %v", answers)
	}
}
