package restore

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/relink-cni/relink/pkg/netstate"
)

func address(prefix string) netstate.Address {
	return netstate.Address{Prefix: netip.MustParsePrefix(prefix)}
}

func route(destination, gateway string) netstate.Route {
	r := netstate.Route{Destination: netip.MustParsePrefix(destination), Table: 254}
	if gateway != "" {
		r.Gateway = netip.MustParseAddr(gateway)
	}
	return r
}

// pod returns a macvlan on VLAN 3 of a NIC, with addresses and routes.
func pod() netstate.Interface {
	return netstate.Interface{
		Link: netstate.Link{
			Kind: netstate.KindMacvlan, Name: "eth0", Index: 2, MAC: "02:00:00:00:00:01", MTU: 1500, Up: true,
			Macvlan: &netstate.Macvlan{Mode: "bridge", BCQueueLen: 1000},
		},
		Parents:   stack{vlan("eth1.3", 3), nic("eth1", 1)},
		Addresses: []netstate.Address{address("10.3.0.5/24"), address("fd00:3::5/64")},
		Routes:    []netstate.Route{route("0.0.0.0/0", "10.3.0.1"), route("::/0", "fd00:3::1")},
		Settings:  map[string]string{"ipv4/arp_notify": "1"},
	}
}

// vlanPod returns VLAN 3 of a NIC itself.
func vlanPod() netstate.Interface {
	i := pod()
	i.Link.Kind, i.Link.Macvlan, i.Link.VLAN = netstate.KindVLAN, nil, &netstate.VLAN{ID: 3, Protocol: netstate.Protocol8021Q}
	i.Parents = stack{nic("eth1", 1)}
	return i
}

func TestPlanOfAnInterfaceThatIsGone(t *testing.T) {
	for kind, recorded := range map[string]netstate.Interface{"macvlan on vlan7": pod(), "vlan on vlan7": vlanPod()} {
		steps, problem := planInterface(recorded, nil, "vlan7", stack{vlan("vlan7", 7)})
		if problem != nil {
			t.Fatal(problem)
		}
		want := list("create eth0, " + kind + ": it is gone from the sandbox")
		if diff := cmp.Diff(want, withReasons(steps)); diff != "" {
			t.Errorf("steps (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(recorded.Link, *steps[0].Link); diff != "" {
			t.Errorf("what is created (-recorded +step):\n%s", diff)
		}
	}
}

func TestPlanOfAnInterfaceThatIsThere(t *testing.T) {
	for name, test := range map[string]struct {
		// record changes what is recorded, and live changes the live interface.
		record, live func(*netstate.Interface)
		want         []string
		problem      string
	}{
		"as recorded": {},
		"with more than recorded": {live: func(i *netstate.Interface) {
			i.Addresses, i.Routes = append(i.Addresses, address("10.3.0.9/24")), append(i.Routes, route("10.9.0.0/16", ""))
		}},
		"another index": {live: func(i *netstate.Interface) { i.Link.Index = 9 }},
		"mode": {
			live: func(i *netstate.Interface) { i.Link.Macvlan.Mode = "vepa" },
			want: list("set the macvlan attributes of eth0: mode is vepa, not bridge"),
		},
		"queue length": {
			live: func(i *netstate.Interface) { i.Link.Macvlan.BCQueueLen = 5 },
			want: list("set the macvlan attributes of eth0: options is bcqueuelen 5, not bcqueuelen 1000"),
		},
		"mode and queue length in one step": {
			live: func(i *netstate.Interface) { i.Link.Macvlan.Mode, i.Link.Macvlan.BCQueueLen = "vepa", 5 },
			want: list("set the macvlan attributes of eth0: mode is vepa, not bridge, options is bcqueuelen 5, not bcqueuelen 1000"),
		},
		"MTU": {
			live: func(i *netstate.Interface) { i.Link.MTU = 9000 },
			want: list("set MTU of eth0 to 1500: MTU is 9000, not 1500"),
		},
		"MAC": {
			live: func(i *netstate.Interface) { i.Link.MAC = "02:00:00:00:00:02" },
			want: list("set MAC of eth0 to 02:00:00:00:00:01: MAC is 02:00:00:00:00:02, not 02:00:00:00:00:01"),
		},
		"down":              {live: func(i *netstate.Interface) { i.Link.Up = false }, want: list("set eth0 up: state is down, not up")},
		"up, recorded down": {record: func(i *netstate.Interface) { i.Link.Up = false }},
		"an address": {
			live: func(i *netstate.Interface) { i.Addresses = i.Addresses[:1] },
			want: list("add address fd00:3::5/64 to eth0: address fd00:3::5/64 is missing"),
		},
		"a route": {
			live: func(i *netstate.Interface) { i.Routes = i.Routes[:1] },
			want: list("add route ::/0 via fd00:3::1 to eth0: route ::/0 via fd00:3::1 is missing"),
		},
		"a route by another gateway": {
			live: func(i *netstate.Interface) { i.Routes[0] = route("0.0.0.0/0", "10.3.0.254") },
			want: list("add route 0.0.0.0/0 via 10.3.0.1 to eth0: route is 0.0.0.0/0 via 10.3.0.254, not 0.0.0.0/0 via 10.3.0.1"),
		},
		"all, the link before it goes up, addresses before routes": {
			live: func(i *netstate.Interface) {
				i.Link.Macvlan.BCQueueLen, i.Link.MAC, i.Link.MTU, i.Link.Up = 1, "02:00:00:00:00:02", 68, false
				i.Addresses, i.Routes = nil, nil
			},
			want: list(
				"set the macvlan attributes of eth0: options is bcqueuelen 1, not bcqueuelen 1000",
				"set MTU of eth0 to 1500: MTU is 68, not 1500",
				"set MAC of eth0 to 02:00:00:00:00:01: MAC is 02:00:00:00:00:02, not 02:00:00:00:00:01",
				"set eth0 up: state is down, not up",
				"add address 10.3.0.5/24 to eth0: address 10.3.0.5/24 is missing",
				"add address fd00:3::5/64 to eth0: address fd00:3::5/64 is missing",
				"add route 0.0.0.0/0 via 10.3.0.1 to eth0: route 0.0.0.0/0 via 10.3.0.1 is missing",
				"add route ::/0 via fd00:3::1 to eth0: route ::/0 via fd00:3::1 is missing",
			),
		},
		"passthru, recorded otherwise": {
			live:    func(i *netstate.Interface) { i.Link.Macvlan.Mode = "passthru"; i.Link.MTU = 68 },
			problem: "eth0: mode is passthru, not bridge, and the kernel does not change passthru",
		},
		"recorded passthru": {
			record:  func(i *netstate.Interface) { i.Link.Macvlan.Mode = "passthru" },
			problem: "eth0: mode is bridge, not passthru, and the kernel does not change passthru",
		},
		"another kind, whatever else": {
			live:    func(i *netstate.Interface) { *i = vlanPod(); i.Link.MTU = 68 },
			problem: "eth0 is there, but its kind is vlan, not macvlan",
		},
		"another parent, whatever else": {
			live:    func(i *netstate.Interface) { i.Parents[0] = vlan("eth1.4", 4); i.Link.MTU = 68 },
			problem: "eth0 is there, but its parent is eth1.4 (VLAN 4), not eth1.3 (VLAN 3)",
		},
		"parents in the sandbox": {
			live:    func(i *netstate.Interface) { i.ParentsInSandbox = true },
			problem: "eth0 is there, but its parent is eth1.3 in the sandbox, not eth1.3 in the host",
		},
	} {
		t.Run(name, func(t *testing.T) {
			recorded, live := pod(), pod()
			if test.record != nil {
				test.record(&recorded)
			}
			if test.live != nil {
				test.live(&live)
			}
			steps, problem := planInterface(recorded, &live, "eth1.3", recorded.Parents)
			expectPlan(t, steps, problem, test.want, test.problem)
		})
	}
}

func expectPlan(t *testing.T, steps []Step, problem error, want []string, wantProblem string) {
	t.Helper()
	got := ""
	if problem != nil {
		got = problem.Error()
	}
	if got != wantProblem {
		t.Errorf("problem %q, want %q", got, wantProblem)
	}
	if diff := cmp.Diff(want, withReasons(steps)); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

func TestPlanOfAVLANInterfaceOfAnotherIDLeavesItAlone(t *testing.T) {
	recorded, live := vlanPod(), vlanPod()
	live.Link.VLAN.ID = 4
	steps, problem := planInterface(recorded, &live, "eth1", recorded.Parents)
	expectPlan(t, steps, problem, nil, "eth0 is there, but its vlan is VLAN 4, not VLAN 3")
}

// The interface is compared with its present parents. The operator or the hardware has told which devices they are.
func TestPlanComparesWithTheParentsAsTheyAreNow(t *testing.T) {
	recorded, live := vlanPod(), vlanPod()
	live.Parents = stack{nic("eth9", 9)}
	steps, problem := planInterface(recorded, &live, "eth9", stack{nic("eth9", 9)})
	expectPlan(t, steps, problem, nil, "")

	steps, problem = planInterface(recorded, &live, "eth1", stack{nic("eth1", 1)})
	expectPlan(t, steps, problem, nil, "eth0 is there, but its parent is eth9 (permanent MAC 52:54:00:00:00:09, bus address 0000:00:09.0), not eth1 (permanent MAC 52:54:00:00:00:01, bus address 0000:00:01.0)")
}

func TestPlanLeavesTheRecordAlone(t *testing.T) {
	recorded, live := pod(), pod()
	live.Addresses, live.Link.MTU = nil, 68
	if _, problem := planInterface(recorded, &live, "vlan3", stack{vlan("vlan3", 3), nic("eth1", 1)}); problem != nil {
		t.Fatal(problem)
	}
	if diff := cmp.Diff(pod(), recorded, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("the plan changed the record:\n%s", diff)
	}
}

func TestReasonsAreJoinedForALine(t *testing.T) {
	recorded, live := pod(), pod()
	live.Link.Up, live.Routes = false, live.Routes[1:]
	steps, _ := planInterface(recorded, &live, "eth1.3", recorded.Parents)
	want := "eth0: state is down, not up; eth0: route 0.0.0.0/0 via 10.3.0.1 is missing"
	if got := stepReasons(steps); got != want {
		t.Errorf("reasons() = %q, want %q", got, want)
	}
	if got := stepReasons(nil); got != "" {
		t.Errorf("reasons(nil) = %q", got)
	}
}

func TestEveryFieldOfADiffHasItsPlaceInTheOrder(t *testing.T) {
	place := func(f netstate.Field) int { return slices.Index(repairOrder, actions[f]) }
	if place(netstate.FieldRoute) < place(netstate.FieldAddress) || place(netstate.FieldAddress) < place(netstate.FieldUp) ||
		place(netstate.FieldUp) < place(netstate.FieldSetting) {
		t.Errorf("settings before up, up before addresses, addresses before routes: %v", repairOrder)
	}
	for _, f := range strings.Fields("mode options MAC MTU txqueuelen alias group flags master" +
		" setting state address route rule neighbour qdisc") {
		if place(netstate.Field(f)) < 0 {
			t.Errorf("%s has no place", f)
		}
	}
	for _, f := range strings.Fields("kind vlan parent") {
		if action, ok := actions[netstate.Field(f)]; ok {
			t.Errorf("%s would be repaired by %s", f, action)
		}
	}
}
