package hostaccess

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/kernel"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// own returns an address of the device of that index.
func own(text string, index int) kernel.LocalAddress {
	return kernel.LocalAddress{Addr: addr(text), Index: index}
}

func passing(a kernel.LocalAddress) kernel.LocalAddress {
	a.Transient = true
	return a
}

func unusable(a kernel.LocalAddress) kernel.LocalAddress {
	a.Unusable = true
	return a
}

func within(a kernel.LocalAddress, bits int) kernel.LocalAddress {
	a.Bits = bits
	return a
}

func scoped(a kernel.LocalAddress, scope uint8) kernel.LocalAddress {
	a.Scope = scope
	return a
}

func TestWhichAddressesAreTheNodes(t *testing.T) {
	lan := kernel.DefaultRoute{Index: 3}
	for name, test := range map[string]struct {
		own        []kernel.LocalAddress
		ipv4, ipv6 kernel.DefaultRoute
		addresses  string
		source     string
	}{
		"nothing: the stand-ins": {nil, kernel.DefaultRoute{}, kernel.DefaultRoute{}, "[]", "169.254.114.1 fd72:656c:696e:6b::1"},
		"the device of the default route counts, not the first one": {
			[]kernel.LocalAddress{own("172.17.0.1", 2), own("192.168.7.10", 3), own("fd00:1::1", 2), own("fd00:7::10", 3)}, lan, lan,
			"[172.17.0.1 192.168.7.10 fd00:1::1 fd00:7::10]", "192.168.7.10 fd00:7::10",
		},
		"its first address, not a virtual one that came later": {
			[]kernel.LocalAddress{own("192.168.7.10", 3), own("192.168.7.100", 3)}, lan, lan, "[192.168.7.10 192.168.7.100]", "192.168.7.10 fd72:656c:696e:6b::1",
		},
		"the source that the route names": {
			[]kernel.LocalAddress{own("192.168.7.10", 3), own("192.168.7.11", 3)}, kernel.DefaultRoute{Index: 3, Source: addr("192.168.7.11")}, lan,
			"[192.168.7.10 192.168.7.11]", "192.168.7.11 fd72:656c:696e:6b::1",
		},
		"an address that stays before one that passes": {
			[]kernel.LocalAddress{passing(own("fd00:7::abc", 3)), own("fd00:7::10", 3)}, lan, lan, "[fd00:7::10 fd00:7::abc]", "169.254.114.1 fd00:7::10",
		},
		"one that passes before one of another device": {
			[]kernel.LocalAddress{passing(own("fd00:7::abc", 3))}, lan, lan, "[fd00:7::abc]", "169.254.114.1 fd00:7::abc",
		},
		"the address beside the gateway, as the kernel chooses": {
			[]kernel.LocalAddress{within(own("10.50.0.1", 3), 24), within(own("192.168.7.10", 3), 24)}, kernel.DefaultRoute{Index: 3, Gateway: addr("192.168.7.1")}, lan,
			"[10.50.0.1 192.168.7.10]", "192.168.7.10 fd72:656c:696e:6b::1",
		},
		"an address that somebody else may have is no source yet": {
			[]kernel.LocalAddress{unusable(own("fd00:7::10", 3))}, lan, lan, "[fd00:7::10]", "169.254.114.1 fd72:656c:696e:6b::1",
		},
		"no default route: the first one": {
			[]kernel.LocalAddress{own("10.0.0.1", 2), own("10.1.0.1", 3)}, kernel.DefaultRoute{}, kernel.DefaultRoute{}, "[10.0.0.1 10.1.0.1]", "10.0.0.1 fd72:656c:696e:6b::1",
		},
		"an address of lo that others reach": {
			[]kernel.LocalAddress{own("10.255.0.1", 1)}, lan, lan, "[10.255.0.1]", "10.255.0.1 fd72:656c:696e:6b::1",
		},
		"the address of a node-local DNS counts, but is not the source": {
			[]kernel.LocalAddress{own("169.254.20.10", 2), own("192.168.7.10", 3)}, kernel.DefaultRoute{}, lan,
			"[169.254.20.10 192.168.7.10]", "192.168.7.10 fd72:656c:696e:6b::1",
		},
		"what is not for pods": {
			[]kernel.LocalAddress{
				own("127.0.0.1", 1), own("::1", 1), own("fe80::1", 3), scoped(own("169.254.3.1", 4), 253), scoped(own("10.9.9.9", 4), 254),
				own("169.254.114.1", 1), own("fd72:656c:696e:6b::1", 1),
			}, lan, lan, "[]", "169.254.114.1 fd72:656c:696e:6b::1",
		},
		"an address of two devices": {[]kernel.LocalAddress{own("10.0.0.1", 2), own("10.0.0.1", 3)}, lan, lan, "[10.0.0.1]", "10.0.0.1 fd72:656c:696e:6b::1"},
	} {
		t.Run(name, func(t *testing.T) {
			n := nodeOf(test.own, test.ipv4, test.ipv6)
			got := fmt.Sprintf("%v | %s %s", n.Addresses, n.Source4, n.Source6)
			if want := test.addresses + " | " + test.source; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// A node can have very many addresses. The sources are among those that the pods get routes to.
func TestANodeWithVeryManyAddresses(t *testing.T) {
	var all []kernel.LocalAddress
	for i := range 1000 {
		all = append(all, own(fmt.Sprintf("10.0.%d.%d", i/250, i%250+1), 2))
	}
	all = append(all, own("192.168.7.10", 3))
	all = append(all, own("fd00:7::10", 3))
	n := nodeOf(all, kernel.DefaultRoute{Index: 3}, kernel.DefaultRoute{})
	if len(n.Addresses) != maxAddresses+1 || n.Skipped != 1001-maxAddresses {
		t.Errorf("%d addresses, %d without routes", len(n.Addresses), n.Skipped)
	}
	for _, a := range []string{"192.168.7.10", "fd00:7::10"} {
		if !slices.Contains(n.Addresses, addr(a)) {
			t.Errorf("%s has no route", a)
		}
	}
}

func TestNodesAreEqual(t *testing.T) {
	a := Node{Addresses: []netip.Addr{addr("10.0.0.1")}, Source4: addr("10.0.0.1"), Source6: standIn6}
	b := a
	if !a.Equal(b) {
		t.Error("a node differs from itself")
	}
	b.Source6 = addr("fd00::1")
	if a.Equal(b) {
		t.Error("another source is no difference")
	}
	if diff := cmp.Diff(true, a.standsIn(true)); diff != "" {
		t.Error(diff)
	}
}
