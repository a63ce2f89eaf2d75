package restore

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/netstate"
)

func TestPlanOfAVLANParent(t *testing.T) {
	eth1, eth2 := up(2, nic("eth1", 1), 0), up(3, nic("eth2", 2), 0)
	recorded := oneChain(vlan("eth1.3", 3), nic("eth1", 1))
	planTests{
		"present": {
			there: devices{eth1, up(4, vlan("eth1.3", 3), 2)}, chains: recorded,
			want: planResult{On: list("eth1.3")},
		},
		"missing": {
			there: devices{eth1}, chains: recorded,
			want: planResult{On: list("eth1.3"), Steps: list("create eth1.3, VLAN 3 on eth1: it is missing")},
		},
		"missing on a member of a bond": {
			there: devices{enslaved(2, nic("eth1", 1), 9), up(9, bond("bond4"), 0)}, chains: recorded,
			want: planResult{On: list(""), Broken: list("eth1: it is a member of bond4 and would take the frames of bond4: name bond4, or take eth1 out of it. " +
				"To move to bond4: --parent eth1=bond4")},
		},
		"present on a member of a bond": {
			there: devices{enslaved(2, nic("eth1", 1), 9), up(9, bond("bond4"), 0), up(4, vlan("eth1.3", 3), 2)}, chains: recorded,
			want: planResult{On: list("eth1.3")},
		},
		"missing on a NIC that came back down": {
			there: devices{down(2, nic("eth1", 1), 0)}, chains: recorded,
			want: planResult{On: list("eth1.3"), Steps: list(
				"set eth1 up: it is down",
				"create eth1.3, VLAN 3 on eth1: it is missing",
			)},
		},
		"missing on a renamed NIC keeps its own name": {
			there: devices{up(2, nic("enp1s0", 1), 0)}, chains: recorded,
			want: planResult{
				On: list("eth1.3"), Notes: list("eth1 is now enp1s0 (same permanent MAC 52:54:00:00:00:01)"),
				Steps: list("create eth1.3, VLAN 3 on enp1s0: it is missing"),
			},
		},
		"missing on a renamed NIC, and its own name is taken": {
			there: devices{up(2, nic("enp1s0", 1), 0), eth2, up(4, vlan("eth1.3", 3), 3)}, chains: recorded,
			want: planResult{
				On: list("enp1s0.3"), Steps: list("create enp1s0.3, VLAN 3 on enp1s0: it is missing"),
				Notes: list("eth1 is now enp1s0 (same permanent MAC 52:54:00:00:00:01)", "eth1.3 is made as enp1s0.3: eth1.3 is there but is VLAN 3 on eth2, not VLAN 3 on enp1s0"),
			},
		},
		"its NIC is missing": {
			there: devices{up(4, vlan("eth1.3", 3), 0)}, chains: recorded,
			want: planResult{On: list(""), Broken: list("eth1 (permanent MAC 52:54:00:00:00:01, bus address 0000:00:01.0) is not there ?")},
		},
		"another ID under the name": {
			there: devices{eth1, up(4, vlan("eth1.3", 4), 2)}, chains: recorded,
			want: planResult{On: list(""), Broken: list("eth1.3 is there but is VLAN 4 on eth1, not VLAN 3 on eth1: left alone. Make a device for VLAN 3 under another name, and relink restore uses it")},
		},
		"another parent under the name": {
			there: devices{eth1, eth2, up(4, vlan("eth1.3", 3), 3)}, chains: recorded,
			want: planResult{On: list(""), Broken: list("eth1.3 is there but is VLAN 3 on eth2, not VLAN 3 on eth1: left alone. Make a device for VLAN 3 under another name, and relink restore uses it")},
		},
		"a parent elsewhere under the name": {
			there: devices{eth1, up(4, vlan("eth1.3", 3), 0)}, chains: recorded,
			want: planResult{On: list(""), Broken: list("eth1.3 is there but is VLAN 3, not VLAN 3 on eth1: left alone. Make a device for VLAN 3 under another name, and relink restore uses it")},
		},
		"another protocol under the name": {
			there: devices{eth1, up(4, serviceVLAN("eth1.3", 3), 2)}, chains: recorded,
			want: planResult{On: list(""), Broken: list("eth1.3 is there but is VLAN 3 (802.1ad) on eth1, not VLAN 3 on eth1: left alone. Make a device for VLAN 3 under another name, and relink restore uses it")},
		},
		"no VLAN under the name": {
			there: devices{eth1, up(4, deviceOfKind("bridge", "eth1.3"), 0)}, chains: recorded,
			want: planResult{On: list(""), Broken: list("eth1.3 is there but is a bridge, not VLAN 3 on eth1: left alone. Make a device for VLAN 3 under another name, and relink restore uses it")},
		},
		"the same VLAN under another name": {
			there: devices{eth1, up(4, vlan("vlan3", 3), 2)}, chains: recorded,
			want: planResult{On: list("vlan3"), Notes: list("eth1.3 is now vlan3 (same VLAN 3 on eth1)")},
		},
		"the same ID of another protocol stays beside it": {
			there: devices{eth1, up(4, serviceVLAN("svlan3", 3), 2)}, chains: recorded,
			want: planResult{On: list("eth1.3"), Steps: list("create eth1.3, VLAN 3 on eth1: it is missing")},
		},
		"the same ID on another parent stays beside it": {
			there: devices{eth1, eth2, up(4, vlan("eth2.3", 3), 3)}, chains: recorded,
			want: planResult{On: list("eth1.3"), Steps: list("create eth1.3, VLAN 3 on eth1: it is missing")},
		},
		"broken above a base that is set up all the same": {
			there: devices{down(2, nic("eth1", 1), 0), up(4, vlan("eth1.3", 4), 2)}, chains: recorded,
			want: planResult{
				On: list(""), Steps: list("set eth1 up: it is down"),
				Broken: list("eth1.3 is there but is VLAN 4 on eth1, not VLAN 3 on eth1: left alone. Make a device for VLAN 3 under another name, and relink restore uses it"),
			},
		},
		"something in between that is no VLAN": {
			there: devices{eth1}, chains: oneChain(deviceOfKind(netstate.KindMacvlan, "net1"), nic("eth1", 1)),
			want: planResult{On: list(""), Broken: list("net1 is recorded as a macvlan on eth1, which can't be built")},
		},
	}.run(t)
}

func TestPlanOfAStackOfVLANs(t *testing.T) {
	recorded := oneChain(vlan("c7", 7), serviceVLAN("s100", 100), bond("bond4", 1))
	planTests{
		"all missing, below a bond without member": {
			there: devices{up(2, nic("eth1", 1), 0), down(4, bond("bond4"), 0)}, chains: recorded,
			want: planResult{On: list("c7"), Steps: list(
				"enslave eth1 to bond4: it was a member of bond4 when recorded and is free",
				"set bond4 up: it is down",
				"create s100, VLAN 100 (802.1ad) on bond4: it is missing",
				"create c7, VLAN 7 on s100: it is missing",
			)},
		},
		"all down, set up from the base on": {
			there: devices{
				down(6, vlan("c7", 7), 5), down(5, serviceVLAN("s100", 100), 4),
				enslaved(2, nic("eth1", 1), 4), down(4, bond("bond4"), 0),
			},
			chains: recorded,
			want: planResult{On: list("c7"), Steps: list(
				"set bond4 up: it is down", "set s100 up: it is down", "set c7 up: it is down",
			)},
		},
		"the lower there under another name": {
			there:  devices{up(5, serviceVLAN("outer", 100), 4), enslaved(2, nic("eth1", 1), 4), up(4, bond("bond4"), 0)},
			chains: recorded,
			want: planResult{
				On: list("c7"), Notes: list("s100 is now outer (same VLAN 100 (802.1ad) on bond4)"),
				Steps: list("create c7, VLAN 7 on outer: it is missing"),
			},
		},
	}.run(t)
}

func TestPlanRaisesAnMTUAndNeverLowersIt(t *testing.T) {
	planTests{
		"raised from the base on": {
			there:  devices{up(2, nic("eth1", 1), 0), up(3, vlan("eth1.3", 3), 2)},
			chains: oneChain(mtu(vlan("eth1.3", 3), 8000), mtu(nic("eth1", 1), 9000)),
			want: planResult{On: list("eth1.3"), Steps: list(
				"set MTU of eth1 to 9000: its MTU is 1500, recorded 9000",
				"set MTU of eth1.3 to 8000: its MTU is 1500, recorded 8000",
			)},
		},
		"raised before it is set up": {
			there: devices{down(2, nic("eth1", 1), 0)}, chains: oneChain(mtu(nic("eth1", 1), 9000)),
			want: planResult{On: list("eth1"), Steps: list(
				"set MTU of eth1 to 9000: its MTU is 1500, recorded 9000", "set eth1 up: it is down",
			)},
		},
		"left above what was recorded": {
			there:  devices{up(2, mtu(nic("eth1", 1), 9000), 0), up(3, mtu(vlan("eth1.3", 3), 9000), 2)},
			chains: oneChain(vlan("eth1.3", 3), nic("eth1", 1)),
			want:   planResult{On: list("eth1.3")},
		},
		"of two records, to the larger": {
			there: devices{up(2, nic("eth1", 1), 0)}, chains: []stack{{mtu(nic("eth1", 1), 9000)}, {mtu(nic("eth1", 1), 4000)}},
			want: planResult{On: list("eth1", "eth1"), Steps: list("set MTU of eth1 to 9000: its MTU is 1500, recorded 9000")},
		},
		"of a VLAN that is missing, with its creation": {
			there: devices{up(2, mtu(nic("eth1", 1), 9000), 0)}, chains: []stack{
				{vlan("eth1.3", 3), nic("eth1", 1)}, {mtu(vlan("eth1.3", 3), 4000), nic("eth1", 1)},
			},
			want: planResult{On: list("eth1.3", "eth1.3"), Steps: list(
				"create eth1.3, VLAN 3 on eth1: it is missing",
				"set MTU of eth1.3 to 4000: its MTU is 1500, recorded 4000",
			)},
		},
	}.run(t)
}

func TestPlanCreatesAVLANAsRecorded(t *testing.T) {
	p := NewParentPlan(devices{up(2, mtu(nic("eth1", 1), 9000), 0)}, nil, ParentOptions{})
	recorded := mtu(serviceVLAN("s100", 100), 4000)
	p.chain(stack{recorded, nic("eth1", 1)})
	want := []Step{{
		Action: CreateVLAN, Device: "s100", Parent: "eth1", Reason: "it is missing", VLAN: recorded.VLAN, MTU: 4000,
		planned: up(-2, recorded, 2), related: up(2, mtu(nic("eth1", 1), 9000), 0),
	}}
	if diff := cmp.Diff(want, p.steps, cmp.AllowUnexported(Step{})); diff != "" {
		t.Errorf("Steps() (-want +got):\n%s", diff)
	}
}

func TestPlanOfManyRecordsHasEachStepOnce(t *testing.T) {
	there := devices{up(2, nic("eth1", 1), 0), up(3, nic("eth2", 2), 0), down(4, bond("bond4"), 0)}
	var chains []stack
	want := planResult{Steps: list(
		"enslave eth1 to bond4: it was a member of bond4 when recorded and is free",
		"enslave eth2 to bond4: it was a member of bond4 when recorded and is free",
		"set bond4 up: it is down",
		"create bond4.1, VLAN 1 on bond4: it is missing",
		"create bond4.2, VLAN 2 on bond4: it is missing",
	)}
	for n := range 200 {
		name := fmt.Sprintf("bond4.%d", n%2+1)
		chains, want.On = append(chains, stack{vlan(name, n%2+1), bond("bond4", 1, 2)}), append(want.On, name)
	}
	if diff := cmp.Diff(want, planChains(NewParentPlan(there, nil, ParentOptions{}), chains...)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

// The records of one node were captured at different times. Their chains describe the same devices differently.
func TestPlanOfRecordsThatDisagreeHasEachStepOnce(t *testing.T) {
	planTests{
		"on the members of a bond": {
			there:  devices{up(2, nic("eth1", 1), 0), up(3, nic("eth2", 2), 0), up(4, bond("bond4"), 0)},
			chains: []stack{{bond("bond4", 1)}, {bond("bond4", 1, 2)}, {bond("bond4", 2)}},
			want: planResult{On: list("bond4", "bond4", "bond4"), Steps: list(
				"enslave eth1 to bond4: it was a member of bond4 when recorded and is free",
				"enslave eth2 to bond4: it was a member of bond4 when recorded and is free",
			)},
		},
		"on the name of a VLAN": {
			there:  devices{up(2, nic("eth1", 1), 0)},
			chains: []stack{{vlan("eth1.3", 3), nic("eth1", 1)}, {vlan("vlan3", 3), nic("eth1", 1)}},
			want: planResult{
				On: list("eth1.3", "eth1.3"), Notes: list("vlan3 is now eth1.3 (same VLAN 3 on eth1)"),
				Steps: list("create eth1.3, VLAN 3 on eth1: it is missing"),
			},
		},
		"on what a VLAN's name means": {
			there:  devices{up(2, nic("eth1", 1), 0)},
			chains: []stack{{vlan("pods", 3), nic("eth1", 1)}, {vlan("pods", 4), nic("eth1", 1)}},
			want: planResult{
				On: list("pods", ""), Steps: list("create pods, VLAN 3 on eth1: it is missing"),
				Broken: list("pods is there but is VLAN 3 on eth1, not VLAN 4 on eth1: left alone. Make a device for VLAN 4 under another name, and relink restore uses it"),
			},
		},
		"on the master of one ID, which is two VLANs": {
			there: devices{up(2, nic("eth1", 1), 0), up(3, nic("eth2", 2), 0)},
			chains: []stack{
				{vlan("eth1.3", 3), nic("eth1", 1)}, {vlan("eth2.3", 3), nic("eth2", 2)}, {vlan("eth1.3", 3), nic("eth1", 1)},
			},
			want: planResult{On: list("eth1.3", "eth2.3", "eth1.3"), Steps: list(
				"create eth1.3, VLAN 3 on eth1: it is missing", "create eth2.3, VLAN 3 on eth2: it is missing",
			)},
		},
	}.run(t)
}

func TestPlanGoesOnBehindABrokenChain(t *testing.T) {
	planTests{"the second of three": {
		there: devices{up(2, nic("eth1", 1), 0)},
		chains: []stack{
			{vlan("eth1.3", 3), nic("eth1", 1)}, {vlan("eth9.3", 3), nic("eth9", 9)}, {vlan("eth1.4", 4), nic("eth1", 1)},
		},
		want: planResult{
			On:     list("eth1.3", "", "eth1.4"),
			Broken: list("eth9 (permanent MAC 52:54:00:00:00:09, bus address 0000:00:09.0) is not there ?"),
			Steps:  list("create eth1.3, VLAN 3 on eth1: it is missing", "create eth1.4, VLAN 4 on eth1: it is missing"),
		},
	}}.run(t)
}

func TestPlanLeavesTheDevicesItWasGivenAlone(t *testing.T) {
	fresh := func() devices {
		return devices{up(2, nic("eth1", 1), 0), down(4, bond("bond4"), 0), down(5, vlan("bond4.3", 3), 4)}
	}
	there := fresh()
	p := NewParentPlan(there, nil, ParentOptions{})
	p.chain(stack{mtu(vlan("bond4.3", 3), 4000), mtu(bond("bond4", 1), 9000)})
	if len(p.steps) != 5 {
		t.Errorf("%d steps: %q, want 5", len(p.steps), withReasons(p.steps))
	}
	if diff := cmp.Diff(fresh(), there); diff != "" {
		t.Errorf("the plan changed its input:\n%s", diff)
	}
}

func TestStepsBelowAreThoseOfTheOwnChain(t *testing.T) {
	there := devices{up(2, nic("eth1", 1), 0), down(3, nic("eth2", 2), 0), up(4, bond("bond4"), 0)}
	onBond, onNIC := stack{vlan("bond4.3", 3), bond("bond4", 1)}, stack{vlan("eth2.3", 3), nic("eth2", 2)}
	broken := stack{vlan("eth9.3", 3), nic("eth9", 9)}
	p := NewParentPlan(there, nil, ParentOptions{})
	planChains(p, onBond, onNIC, broken)
	for name, test := range map[string]struct {
		parents stack
		want    []string
	}{
		"on the bond, its member's too": {onBond, list(
			"enslave eth1 to bond4: it was a member of bond4 when recorded and is free",
			"create bond4.3, VLAN 3 on bond4: it is missing",
		)},
		"on the NIC":       {onNIC, list("set eth2 up: it is down", "create eth2.3, VLAN 3 on eth2: it is missing")},
		"on nothing":       {broken, nil},
		"nothing, no less": {nil, nil},
	} {
		if diff := cmp.Diff(test.want, withReasons(p.stepsConcerning(p.chain(test.parents).Parent.Index, p.steps))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
