package kernel

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/relink-cni/relink/test/fresh"
)

// An address belongs to the namespace. Who added it, and to which device, does not matter.
func TestEveryAddress(t *testing.T) {
	w := newWorld(t)
	fresh.Run(t, w.path, `
		ip link set lo up
		ip link add one type veth peer name two
		ip link set one address 02:00:00:00:00:01 addrgenmode eui64 up
		ip addr add 10.3.0.5/24 dev one
		ip addr add 10.3.0.6 peer 10.3.0.7/32 dev one
		ip addr add fd00:3::5/64 dev one nodad valid_lft 3600 preferred_lft 3600
		ip addr add 10.3.0.8/24 dev two`)
	got := must(w.sandbox.EveryAddress())(t)
	for _, want := range []string{"127.0.0.1", "::1", "10.3.0.5", "10.3.0.6", "fd00:3::5", "10.3.0.8"} {
		if !slices.Contains(got, netip.MustParseAddr(want)) {
			t.Errorf("%s is missing: %v", want, got)
		}
	}
	if slices.Contains(got, netip.MustParseAddr("10.3.0.7")) {
		t.Errorf("the other end's address is called the namespace's: %v", got)
	}
	if got := must(w.host.EveryAddress())(t); slices.Contains(got, netip.MustParseAddr("10.3.0.5")) {
		t.Errorf("the host has the sandbox's address: %v", got)
	}
}
