package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

func openSandbox(t *testing.T) *Namespace {
	t.Helper()
	n, err := Open(fresh.Sandbox(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// A macvlan and an end of a pair go at once, with the other end in another namespace. What else is there stays.
func TestDeleteTogether(t *testing.T) {
	host, sandbox := openSandbox(t), openSandbox(t)
	fresh.Run(t, host.Path(), "ip link add lan0 type veth peer name lan1; ip link add mac0 link lan0 type macvlan; ip link add rl0 type veth peer name pod0; ip link add stays type veth peer name too")
	if err := host.DeleteTogether("mac0", "gone", "pod0"); err != nil {
		t.Error(err)
	}
	if out := fresh.IP(t, host.Path(), "-br link"); strings.Contains(out, "mac0") || strings.Contains(out, "rl0") || !strings.Contains(out, "stays") || !strings.Contains(out, "lan0") {
		t.Errorf("the namespace has\n%s", out)
	}
	if err := CreatePair(host, sandbox, Pair{HostName: "rl1", Name: "host0", MAC: "02:00:00:00:00:01", MTU: 1500, Alias: "a"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := sandbox.DeleteTogether("host0"); err != nil {
			t.Error(err)
		}
	}
	if exists, err := host.Exists("rl1"); err != nil || exists {
		t.Errorf("the other end is there: %v, %v", exists, err)
	}
}

// The first who claims a destination has it. Whoever comes later gets an error, and the other routes all the same.
func TestClaimRoutes(t *testing.T) {
	n := openSandbox(t)
	fresh.Run(t, n.Path(), "ip link add va type veth peer name vb; ip link set va up; ip link set vb up; ip route add 10.3.0.9 dev va table 1139")
	route := func(device, to string) TableRoute {
		index, err := n.Index(device)
		if err != nil {
			t.Fatal(err)
		}
		return TableRoute{Index: index, Route: netstate.Route{Destination: netip.MustParsePrefix(to), Table: 1140, Protocol: unix.RTPROT_KERNEL, Type: unix.RTN_UNICAST, Scope: unix.RT_SCOPE_LINK}}
	}
	if found, err := n.HasRoutes(1140); err != nil || found {
		t.Errorf("before: %v, %v", found, err)
	}
	if err := n.ClaimRoutes([]TableRoute{route("va", "10.3.0.2/32")}); err != nil {
		t.Error(err)
	}
	err := n.ClaimRoutes([]TableRoute{route("vb", "10.3.0.2/32"), route("vb", "10.3.0.3/32")})
	if !errors.Is(err, ErrExists) || !strings.Contains(fmt.Sprint(err), "10.3.0.2/32") {
		t.Error(err)
	}
	if out := fresh.IP(t, n.Path(), "route show table 1140"); !strings.Contains(out, "10.3.0.2 dev va") || !strings.Contains(out, "10.3.0.3 dev vb") {
		t.Errorf("the table has\n%s", out)
	}
	if found, err := n.HasRoutes(1140); err != nil || !found {
		t.Errorf("after: %v, %v", found, err)
	}
	fresh.Run(t, n.Path(), "ip route flush table 1140; ip -6 route add fd00::/64 dev va table 1140")
	if found, err := n.HasRoutes(1140); err != nil || !found {
		t.Errorf("IPv6 alone: %v, %v", found, err)
	}
}
