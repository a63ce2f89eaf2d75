package netstate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// places reads one place from each letter. "a" is a route of the interface itself through gateway a, "A" one of another
// interface.
func places(s string) []Place {
	var all []Place
	for _, letter := range s {
		p := Place{Gateway: netip.AddrFrom4([4]byte{10, 0, 0, byte(letter | 0x20)})}
		if letter < 'a' {
			p.Device = "net1"
		}
		all = append(all, p)
	}
	return all
}

func letters(there string, indices []int) string {
	var b strings.Builder
	for _, i := range indices {
		b.WriteByte(there[i])
	}
	return b.String()
}

func TestMovesPutRoutesInOrder(t *testing.T) {
	for name, test := range map[string]struct {
		order, there string
		frontToo     bool
		front, back  string
	}{
		"in order":                                  {"abc", "abc", true, "", ""},
		"one is missing":                            {"abc", "ac", true, "", ""},
		"one that nobody knows stands anywhere":     {"ab", "xaXb", true, "", ""},
		"its own to the end":                        {"Ab", "bA", true, "", "b"},
		"its own to the front":                      {"bA", "Ab", true, "b", ""},
		"to the front there is no way":              {"bA", "Ab", false, "", "A"},
		"of two others, only one has to go":         {"AbC", "ACb", true, "", "C"},
		"between others":                            {"bAc", "Acb", true, "b", ""},
		"others keep their own order":               {"aBC", "aCB", true, "", ""},
		"others keep it, its own goes between them": {"aBC", "CBa", true, "a", ""},
		"turned round":                              {"abc", "cba", true, "", "bc"},
		"two that look the same":                    {"aba", "aab", true, "", "a"},
		"of two that look the same, one is gone":    {"aba", "ba", true, "", ""},
		"one looks like one that is known":          {"ba", "aab", true, "", ""},
		"nothing is there":                          {"ab", "", true, "", ""},
	} {
		front, back := Order{Routes: places(test.order)}.Moves(places(test.there), test.frontToo)
		if f, b := letters(test.there, front), letters(test.there, back); f != test.front || b != test.back {
			t.Errorf("%s: front %q, back %q, want %q and %q", name, f, b, test.front, test.back)
		}
	}
}

// The moves put the routes in order. A route that need not move stays where it was.
func TestMovesLeadToTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letter := rapid.SampledFrom([]rune("abcdABCD"))
		order := Order{Routes: places(string(rapid.SliceOfN(letter, 0, 6).Draw(t, "order")))}
		there := places(string(rapid.SliceOfN(letter, 0, 8).Draw(t, "there")))
		frontToo := rapid.Bool().Draw(t, "front too")
		front, back := order.Moves(there, frontToo)
		if len(front) > 0 && !frontToo {
			t.Fatalf("to the front: %v", front)
		}
		var after []Place
		for _, i := range front {
			after = append(after, there[i])
		}
		for i, p := range there {
			if !slices.Contains(front, i) && !slices.Contains(back, i) {
				after = append(after, p)
			}
		}
		for _, i := range back {
			after = append(after, there[i])
		}
		if len(after) != len(there) {
			t.Fatalf("%d of %d are left", len(after), len(there))
		}
		if f, b := order.Moves(after, frontToo); len(f)+len(b) > 0 {
			t.Fatalf("after the moves %v and %v of %v, %v is not in order %v", front, back, there, after, order)
		}
	})
}

func TestOrdersDifferWithTheReason(t *testing.T) {
	slot := route("0.0.0.0/0", "").Slot()
	want, have := pod(), pod()
	want.RouteOrder = []Order{{Slot: slot, Routes: places("aB")}}
	if diffs := Diff(want, have); len(diffs) > 0 {
		t.Errorf("alone in its slot: %v", diffs)
	}
	have.RouteOrder = []Order{{Slot: slot, Routes: places("Ba")}}
	diffs := Diff(want, have)
	says := "route order is 0.0.0.0/0: via 10.0.0.98 dev net1, then via 10.0.0.97 its own, not 0.0.0.0/0: via 10.0.0.97 its own, then via 10.0.0.98 dev net1"
	if len(diffs) != 1 || diffs[0].Field != FieldRouteOrder || diffs[0].Order == nil || diffs[0].String() != says {
		t.Errorf("differs: %v", diffs)
	}
	if diffs := Diff(pod(), have); len(diffs) > 0 {
		t.Errorf("no order is recorded: %v", diffs)
	}
}

func TestLegsOfAnIPv6Route(t *testing.T) {
	r := route("::/0", "")
	hop := func(gateway, device string, weight int) NextHop {
		return NextHop{Gateway: netip.MustParseAddr(gateway), Device: device, Weight: weight}
	}
	r.NextHops = []NextHop{hop("fe80::1", "", 2), hop("fe80::2", "net1", 1), hop("fe80::3", "", 1)}
	if got := fmt.Sprint(r.Legs()); got != "[::/0 nexthop via fe80::1 weight 2 ::/0 nexthop via fe80::3 weight 1]" {
		t.Errorf("legs %s", got)
	}
	bgp, v4 := r, route("10.0.0.0/8", "")
	bgp.Protocol, v4.NextHops = 186, r.NextHops
	if kept := RecordedRoutes([]Route{bgp, v4, r}); len(kept) != 3 || len(kept[0].NextHops) != 3 {
		t.Errorf("kept %v", kept)
	}
}

func TestRoutesAreTheSameAsFarAsTheKernelTells(t *testing.T) {
	leg := func(weight int) Route {
		r := route("::/0", "")
		r.NextHops = []NextHop{{Gateway: netip.MustParseAddr("fe80::1"), Weight: weight}}
		return r
	}
	hops := func(order ...string) Route {
		r := route("10.0.0.0/8", "")
		for _, gateway := range order {
			r.NextHops = append(r.NextHops, NextHop{Gateway: netip.MustParseAddr(gateway), Weight: 1})
		}
		return r
	}
	other := route("::/0", "fe80::1")
	other.MTU = 1400
	unsure := other
	unsure.Unsure = true
	elsewhere := route("::/0", "fe80::1")
	elsewhere.Device = "net1"
	for name, test := range map[string]struct {
		a, b Route
		want bool
	}{
		"a leg and another weight":              {leg(1), leg(2), false},
		"a leg and a weight that is not told":   {leg(5), route("::/0", "fe80::1"), true},
		"another MTU":                           {route("::/0", "fe80::1"), other, false},
		"another MTU, told of another leg":      {route("::/0", "fe80::1"), unsure, true},
		"another gateway":                       {leg(1), route("::/0", "fe80::2"), false},
		"through another device":                {route("::/0", "fe80::1"), elsewhere, false},
		"next hops in another order":            {hops("10.0.0.1", "10.0.0.2"), hops("10.0.0.2", "10.0.0.1"), true},
		"one next hop less":                     {hops("10.0.0.1", "10.0.0.2"), hops("10.0.0.1"), false},
		"one IPv4 next hop is not one of IPv6":  {hops("10.0.0.1"), route("10.0.0.0/8", "10.0.0.1"), false},
		"a leg is what the result asks for too": {leg(3), leg(3), true},
	} {
		if got := test.a.Equal(test.b); got != test.want || test.b.Equal(test.a) != got {
			t.Errorf("%s: %t", name, got)
		}
		if got := RoutesOf([]Route{test.a}).Has(test.b); got != test.want {
			t.Errorf("%s: looked up: %t", name, got)
		}
	}
}

func TestWhoseRoutesAreADaemons(t *testing.T) {
	for protocol, want := range map[uint8]string{2: "", 3: "", 4: "", 9: "", 16: "", 18: "keepalived", 186: "bgp", 12: "bird"} {
		if got := DaemonOf(protocol); got != want {
			t.Errorf("protocol %d: %q", protocol, got)
		}
	}
}

// manyOf returns an interface with count routes, addresses, neighbours and rules.
func manyOf(count int, third byte) Interface {
	i := pod()
	for n := range count {
		a := netip.AddrFrom4([4]byte{byte(11 + n>>16), byte(n >> 8), byte(n), third})
		p := netip.PrefixFrom(a, 32)
		r := route("0.0.0.0/0", "10.3.0.1")
		r.Destination = p
		i.Routes, i.Addresses = append(i.Routes, r), append(i.Addresses, Address{Prefix: p})
		i.Neighbours, i.Rules = append(i.Neighbours, Neighbour{Address: a}), append(i.Rules, Rule{From: p, Table: 7})
	}
	return i
}

// If Diff compared each with each, this would take many minutes.
func TestVeryMuchIsCompared(t *testing.T) {
	const count = 50_000
	want, have := manyOf(count, 1), manyOf(count, 2)
	if diffs := Diff(want, want); len(diffs) > 0 {
		t.Errorf("%d differences, the first is %s", len(diffs), diffs[0])
	}
	if diffs := Diff(want, have); len(diffs) != 4*count {
		t.Errorf("%d differences", len(diffs))
	}
	if concerning := Concerning(want, want.Rules); len(concerning) != count {
		t.Errorf("%d rules", len(concerning))
	}
}

func BenchmarkDiff(b *testing.B) {
	for _, count := range []int{1_000, 100_000} {
		want, have := manyOf(count, 1), manyOf(count, 2)
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			for b.Loop() {
				Diff(want, have)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*count), "ns/route")
		})
	}
}
