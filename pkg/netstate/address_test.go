package netstate

import (
	"fmt"
	"testing"
	"time"
)

// Of a lifetime, whole seconds are left: a restore never gives more than that.
func TestRemaining(t *testing.T) {
	for _, test := range []struct {
		until int64
		now   time.Duration
		want  int64
	}{
		{100, 0, 100}, {100, 90 * time.Second, 10}, {100, 90*time.Second + 1, 9}, {100, 99 * time.Second, 1},
		{100, 99*time.Second + 1, 0}, {100, 100 * time.Second, 0}, {100, time.Hour, 0}, {-5, time.Hour, 0}, {0, 0, 0},
	} {
		if got := Remaining(test.until, test.now); got != test.want {
			t.Errorf("until %d at %s: %d, want %d", test.until, test.now, got, test.want)
		}
	}
}

// A client renews lifetimes all the time, and an address becomes deprecated when its time has come. Neither is a difference.
func TestLifetimesAreNoDifference(t *testing.T) {
	with := func(valid, preferred int64, flags uint32) Address {
		a := address("fd00:3::5/64")
		a.ValidUntil, a.PreferredUntil, a.Flags = valid, preferred, flags
		return a
	}
	for name, test := range map[string]struct {
		a, b Address
		want bool
	}{
		"renewed":                    {with(600, 300, 0), with(1200, 900, 0), true},
		"for ever from now on":       {with(600, 300, 0), with(0, 0, 0), true},
		"for a time from now on":     {with(0, 0, 0), with(600, 300, 0), true},
		"deprecated by time":         {with(0, 300, 0), with(0, 0, flagDeprecated), true},
		"deprecated by somebody":     {with(0, 0, 0), with(0, 0, flagDeprecated), false},
		"another flag besides":       {with(600, 300, 2), with(600, 300, 0), false},
		"deprecated, and its metric": {with(0, 300, 0), Address{Prefix: with(0, 0, 0).Prefix, Flags: flagDeprecated, Metric: 7}, false},
	} {
		if test.a.Same(test.b) != test.want || test.b.Same(test.a) != test.want {
			t.Errorf("%s: the same: %t, want %t", name, test.a.Same(test.b), test.want)
		}
	}
}

// An expired address takes along what the kernel drops with it or would not accept without it, and nothing else.
func TestUnexpired(t *testing.T) {
	onLink := route("10.81.0.0/16", "10.4.0.1")
	onLink.OnLink = true
	from := func(source string) Route {
		r := route("10.82.0.0/16", "")
		r.Source = address(source).Prefix.Addr()
		return r
	}
	elsewhere := from("10.4.0.7/24")
	elsewhere.Device = "net1"
	beside := route("10.83.0.0/16", "10.4.0.1")
	beside.Device = "net1"
	hops := route("10.84.0.0/16", "")
	hops.NextHops = []NextHop{{Gateway: address("10.3.0.1/24").Prefix.Addr()}, {Gateway: address("10.4.0.1/24").Prefix.Addr()}}
	permanent, leased, leased6 := address("10.3.0.5/24"), address("10.4.0.7/24"), address("fd00:4::7/64")
	leased.ValidUntil, leased6.ValidUntil = 600, 600
	within := address("10.4.0.9/24")
	all := []Route{
		route("0.0.0.0/0", "10.3.0.1"), route("10.80.0.0/16", "10.4.0.1"), onLink, from("10.4.0.7/24"), from("10.3.0.5/24"), elsewhere, beside, hops,
		route("192.0.2.0/24", ""), route("::/0", "fe80::1"), route("fd00:5::/64", "fd00:4::1"),
	}
	for name, test := range map[string]struct {
		addresses []Address
		now       time.Duration
		want      string
	}{
		"nothing has expired": {[]Address{permanent, leased, leased6}, 599 * time.Second, fmt.Sprint([]Address{permanent, leased, leased6}, all)},
		"beside a permanent one": {
			[]Address{permanent, leased, leased6}, 600 * time.Second,
			fmt.Sprint([]Address{permanent}, []Route{all[0], onLink, from("10.3.0.5/24"), beside, all[8], all[9]}),
		},
		"beside one of its network": {
			[]Address{leased, within}, 600 * time.Second,
			fmt.Sprint([]Address{within}, []Route{all[0], all[1], onLink, from("10.3.0.5/24"), beside, hops, all[8], all[9], all[10]}),
		},
		"the last IPv4 address": {[]Address{leased}, 600 * time.Second, fmt.Sprint([]Address{}, []Route{beside, all[9], all[10]})},
	} {
		i := Interface{Addresses: test.addresses, Routes: all}.Unexpired(test.now)
		if got := fmt.Sprint(i.Addresses, i.Routes); got != test.want {
			t.Errorf("%s: %s\nwant %s", name, got, test.want)
		}
	}
}
