package kernel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

// An address belongs to the namespace. Who added it, and to which device, does not matter.
func TestEveryAddress(t *testing.T) {
	w := newFixture(t)
	fresh.Run(t, w.path, `
		ip link set lo up
		ip link add one type veth peer name two
		ip link set one address 02:00:00:00:00:01 addrgenmode eui64 up
		ip addr add 10.3.0.5/24 dev one
		ip addr add 10.3.0.6 peer 10.3.0.7/32 dev one
		ip addr add fd00:3::5/64 dev one nodad valid_lft 3600 preferred_lft 3600
		ip addr add 10.3.0.8/24 dev two`)
	got := must(w.sandbox.AllAddresses())(t)
	for _, want := range []string{"127.0.0.1", "::1", "10.3.0.5", "10.3.0.6", "fd00:3::5", "10.3.0.8"} {
		if !slices.Contains(got, netip.MustParseAddr(want)) {
			t.Errorf("%s is missing: %v", want, got)
		}
	}
	if slices.Contains(got, netip.MustParseAddr("10.3.0.7")) {
		t.Errorf("the other end's address is called the namespace's: %v", got)
	}
	if got := must(w.host.AllAddresses())(t); slices.Contains(got, netip.MustParseAddr("10.3.0.5")) {
		t.Errorf("the host has the sandbox's address: %v", got)
	}
}

// A pod that changes its addresses all the time hides none of them, and it is no error. Here it changes one during each
// reading: the kernel answers in parts, so the change comes between two of them.
func TestEveryAddressOfARestlessPod(t *testing.T) {
	w := newFixture(t)
	var stay strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&stay, "addr add 10.4.%d.%d/32 dev lo\n", i/250, i%250)
	}
	fresh.Run(t, w.path, "ip -batch - <<END\n"+stay.String()+"END")
	restless := must(netns.GetFromPath(w.path))(t)
	defer func() { _ = restless.Close() }()
	pod := must(netlink.NewHandleAt(restless))(t)
	defer pod.Close()
	lo := must(pod.LinkByName("lo"))(t)
	changing := must(netlink.ParseAddr("10.5.0.1/32"))(t)
	read := 0
	var all []netip.Addr
	err := w.sandbox.eachAddress(func(a netip.Addr) {
		if read++; read%100 == 0 {
			change := []func(netlink.Link, *netlink.Addr) error{pod.AddrDel, pod.AddrAdd}[read/100%2]
			if err := change(lo, changing); err != nil {
				t.Errorf("change %d: %v", read/100, err)
			}
		}
		all = append(all, a)
	})
	if err != nil {
		t.Fatal(err)
	}
	if read < 20*1000 {
		t.Errorf("%d addresses were read: the list did not change during each reading", read)
	}
	theirs := slices.DeleteFunc(all, func(a netip.Addr) bool { return a == netip.MustParseAddr("10.5.0.1") })
	if slices.SortFunc(theirs, netip.Addr.Compare); len(slices.Compact(theirs)) != 1000 {
		t.Fatalf("%d addresses, want the 1000 that do not change", len(theirs))
	}
}

// The kernel drops the routes whose source is an address that is removed. One that is right already is not removed, and neither is one
// with a label if nobody asks for another.
func TestAnAddressThatStandsIsNotRemoved(t *testing.T) {
	w := plainPod(t)
	fresh.Run(t, w.path, "ip link set lo up; ip address add 169.254.9.1/32 dev lo scope link; ip route add 10.8.0.0/16 dev eth0 src 169.254.9.1")
	for _, label := range []string{"", "lo"} {
		if err := w.sandbox.AddAddresses(1, []netstate.Address{{Prefix: prefix("169.254.9.1/32"), Scope: unix.RT_SCOPE_LINK, Label: label}}); err != nil {
			t.Fatal(err)
		}
		if out := fresh.IP(t, w.path, "route show 10.8.0.0/16"); !strings.Contains(out, "src 169.254.9.1") {
			t.Fatalf("label %q: the address was removed for a moment: its route is gone: %q", label, out)
		}
	}
}
