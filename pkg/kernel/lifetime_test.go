package kernel

import (
	"encoding/json"
	"os/exec"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

// lifetimes returns the lifetimes in seconds of the address in the sandbox, by ip. They are 0 if there is no such address.
func (w *fixture) lifetimes(t *testing.T, ifName, address string) (valid, preferred int64) {
	t.Helper()
	out, err := exec.Command("nsenter", "--net="+w.path, "ip", "-json", "addr", "show", "dev", ifName).Output()
	if err != nil {
		t.Fatal(err)
	}
	var devices []struct {
		Addresses []struct {
			Local     string `json:"local"`
			Valid     int64  `json:"valid_life_time"`
			Preferred int64  `json:"preferred_life_time"`
		} `json:"addr_info"`
	}
	if err := json.Unmarshal(out, &devices); err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		for _, a := range d.Addresses {
			if a.Local == address {
				return a.Valid, a.Preferred
			}
		}
	}
	return 0, 0
}

const forever = 1<<32 - 1 // INFINITY_LIFE_TIME in linux/if_addr.h.

// leased gives eth0 addresses as a DHCP client does.
const leased = `set -e
	ip addr add 10.4.0.7/24 dev eth0 valid_lft 600 preferred_lft 300
	ip addr add 10.4.1.7/24 dev eth0 valid_lft 600 preferred_lft 0
	ip addr add fd00:4::7/128 dev eth0 nodad valid_lft 600 preferred_lft 300
	ip addr add fd00:4:1::7/64 dev eth0 nodad valid_lft forever preferred_lft 300
	ip route add 10.44.0.0/16 via 10.4.0.1 dev eth0`

// leasedFor has the greatest valid and preferred lifetime of each address.
var leasedFor = map[string][2]int64{
	"10.4.0.7": {600, 300}, "10.4.1.7": {600, 0}, "fd00:4::7": {600, 300}, "fd00:4:1::7": {forever, 300},
	"10.3.0.2": {forever, forever}, "fd00:3::2": {forever, forever},
}

// checkLeases checks that the addresses have what was left of their lifetimes after passed.
func (w *fixture) checkLeases(t *testing.T, before map[string][2]int64, passed time.Duration) {
	t.Helper()
	for address, least := range before {
		valid, preferred := w.lifetimes(t, "eth0", address)
		for i, has := range []int64{valid, preferred} {
			slack := int64(passed/time.Second) + 3
			if least[i] == forever || least[i] == 0 {
				slack = 0
			}
			if has > least[i] || has < least[i]-slack {
				t.Errorf("%s has the lifetimes %d and %d, and had %v", address, valid, preferred, least)
			}
		}
	}
}

func TestALifetimeComesBack(t *testing.T) { eachWay(t, aLifetimeComesBack) }

// An address with a lifetime is as much there as any other. It comes back for the rest of its lifetime.
func aLifetimeComesBack(t *testing.T) {
	w := plainPod(t)
	fresh.Run(t, w.path, leased)
	began := time.Now()
	captured := w.capture(t, "eth0")
	if len(captured.NotCaptured) > 0 || len(captured.Addresses) != len(leasedFor) {
		t.Fatalf("addresses %v, not captured %q", captured.Addresses, captured.NotCaptured)
	}
	time.Sleep(2 * time.Second)
	before := map[string][2]int64{}
	for address := range leasedFor {
		valid, preferred := w.lifetimes(t, "eth0", address)
		before[address] = [2]int64{valid, preferred}
	}
	w.checkLeases(t, leasedFor, time.Since(began))
	if err := w.sandbox.Delete("eth0"); err != nil {
		t.Fatal(err)
	}
	w.build(t, captured, true)
	w.checkLeases(t, before, time.Since(began))
	if diffs := netstate.Diff(captured, w.capture(t, "eth0")); len(diffs) > 0 {
		t.Errorf("differs: %v", diffs)
	}
	// A single address comes back in the same way.
	fresh.Run(t, w.path, "ip addr del 10.4.0.7/24 dev eth0; ip addr del fd00:4::7/128 dev eth0")
	diffs := netstate.Diff(captured, w.capture(t, "eth0"))
	var missing []netstate.Address
	for _, d := range diffs {
		if d.Address != nil {
			missing = append(missing, *d.Address)
		}
	}
	if len(missing) != 2 {
		t.Fatalf("missing: %v", diffs)
	}
	if err := w.sandbox.AddAddresses(w.capture(t, "eth0").Link.Index, missing); err != nil {
		t.Error(err)
	}
	w.checkLeases(t, before, time.Since(began))
}

// A client renews its lease, or another one takes an address that had none: none of this is a difference.
func TestARenewalIsNoDifference(t *testing.T) {
	w := plainPod(t)
	fresh.Run(t, w.path, leased)
	captured := w.capture(t, "eth0")
	for _, renewed := range []string{
		"ip addr change 10.4.0.7/24 dev eth0 valid_lft 1200 preferred_lft 900",
		"ip addr change 10.4.0.7/24 dev eth0 valid_lft 20 preferred_lft 0",
		"ip addr change 10.4.0.7/24 dev eth0 valid_lft forever preferred_lft forever",
		"ip addr change fd00:4::7/128 dev eth0 nodad valid_lft 1200 preferred_lft 900",
		"ip addr change fd00:4:1::7/64 dev eth0 nodad valid_lft forever preferred_lft 0",
		"ip addr change 10.3.0.2/24 dev eth0 valid_lft 1200 preferred_lft 900",
	} {
		fresh.Run(t, w.path, renewed)
		if diffs := netstate.Diff(captured, w.capture(t, "eth0")); len(diffs) > 0 {
			t.Errorf("%s: %v", renewed, diffs)
		}
	}
}

// An address that has expired since it was recorded is not made again, and neither are the routes that need it.
func TestAnExpiredAddressDoesNotComeBack(t *testing.T) { eachWay(t, anExpiredAddressDoesNotComeBack) }

func anExpiredAddressDoesNotComeBack(t *testing.T) {
	w := newFixture(t)
	w.build(t, netstate.Interface{Link: bridge("eth0")}, true)
	fresh.Run(t, w.path, `set -e
		ip addr add 10.4.0.7/24 dev eth0 valid_lft 2 preferred_lft 1
		ip addr add fd00:4::7/64 dev eth0 nodad valid_lft 2 preferred_lft 1
		ip route add default via 10.4.0.1
		ip route add 10.45.0.0/16 dev eth0 src 10.4.0.7
		ip -6 route add fd00:45::/64 via fd00:4::1`)
	captured := w.capture(t, "eth0")
	if len(captured.Addresses) != 2 || len(captured.Routes) != 3 {
		t.Fatalf("captured %v and %v", captured.Addresses, captured.Routes)
	}
	time.Sleep(4 * time.Second)
	if valid, _ := w.lifetimes(t, "eth0", "10.4.0.7"); valid > 0 {
		t.Fatalf("the kernel keeps the address for %d s", valid)
	}
	wanted := captured.Unexpired(must(boot.Uptime())(t))
	if diffs := netstate.Diff(wanted, w.capture(t, "eth0")); len(diffs) > 0 {
		t.Errorf("differs: %v", diffs)
	}
	if err := w.sandbox.Delete("eth0"); err != nil {
		t.Fatal(err)
	}
	w.build(t, wanted, true)
	if built := w.capture(t, "eth0"); len(built.Addresses)+len(built.Routes) > 0 {
		t.Errorf("built with %v and %v", built.Addresses, built.Routes)
	}
}

// What the kernel makes of a router's advertisement has a lifetime too. The kernel makes it again by itself.
func TestAnAddressOfAnAdvertisementIsTheKernels(t *testing.T) {
	for name, test := range map[string]struct {
		flags uint32
		proto uint8
		want  bool
	}{
		"of an advertisement": {0, 2, true},
		"of DHCPv6":           {0, 0, !kernelAtLeast(5, 18)},
	} {
		if got := isKernels(netstate.Address{Prefix: prefix("fd00:4::7/64"), ValidUntil: 1000}, test.flags, test.proto); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// A move takes the rest of a lifetime along.
func TestAReplacementHasTheRestOfALifetime(t *testing.T) {
	w, _ := newUplinks(t)
	fresh.Run(t, w.path, "ip addr add 10.4.0.7/24 dev eth0 valid_lft 600 preferred_lft 300; ip addr add fd00:4::7/128 dev eth0 nodad valid_lft 600 preferred_lft 300")
	began, before := time.Now(), w.capture(t, "eth0")
	if len(before.NotCaptured) > 0 {
		t.Fatalf("not captured: %q", before.NotCaptured)
	}
	r := must(BuildReplacement(w.host, w.sandbox, w.index(t, "lan2"), before.Link.Index, before))(t)
	if switched, err := r.Swap(); !switched || err != nil {
		t.Fatal(switched, err)
	}
	if index := w.capture(t, "eth0").Link.Index; index != r.New {
		t.Fatalf("eth0 has index %d, want %d", index, r.New)
	}
	w.checkLeases(t, map[string][2]int64{"10.4.0.7": {600, 300}, "fd00:4::7": {600, 300}, "10.9.0.2": {forever, forever}}, time.Since(began))
}
