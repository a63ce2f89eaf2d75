package restore

import (
	"testing"

	"github.com/relink-cni/relink/pkg/netstate"
)

func TestPlanOfABase(t *testing.T) {
	noMAC := func(d netstate.Device) netstate.Device { d.PermanentMAC = ""; return d }
	noBus := func(d netstate.Device) netstate.Device { d.BusAddress = ""; return d }
	planTests{
		"as recorded": {
			there: devices{up(2, nic("eth1", 1), 0)}, chains: oneChain(nic("eth1", 1)),
			want: planResult{On: list("eth1")},
		},
		"missing NIC": {
			there: devices{up(2, nic("eth2", 2), 0)}, chains: oneChain(nic("eth1", 1)),
			want: planResult{On: list(""), Broken: list("eth1 (permanent MAC 52:54:00:00:00:01, bus address 0000:00:01.0) is not there ?")},
		},
		"missing device of another kind": {
			there: nil, chains: oneChain(deviceOfKind("team", "team0")),
			want: planResult{On: list(""), Broken: list("team0 (team) is not there ?")},
		},
		"missing NIC that told nothing of itself": {
			there: nil, chains: oneChain(deviceOfKind(netstate.KindNIC, "dummy0")),
			want: planResult{On: list(""), Broken: list("dummy0 (nic) is not there ?")},
		},
		"renamed bond, known by its index": {
			there:  devices{up(7, deviceOfKind("bridge", "bond4"), 0), up(9, bond("uplink"), 0), up(11, vlan("vlan3", 3), 9)},
			chains: []stack{{indexed(9, bond("bond4"))}, {vlan("bond4.3", 3), indexed(9, bond("bond4"))}},
			want: planResult{On: list("uplink", "vlan3"), Notes: list("bond4 is now uplink (the same index 9)", "bond4 is now uplink (the same index 9)",
				"bond4.3 is now vlan3 (same VLAN 3 on uplink)")},
		},
		"another device with the index": {
			there: devices{up(9, deviceOfKind("bridge", "br0"), 0), up(10, bond("bond4"), 0)}, chains: oneChain(indexed(9, bond("bond4"))),
			want: planResult{On: list("bond4")},
		},
		"device of another kind under the name": {
			there: devices{up(2, deviceOfKind("bridge", "team0"), 0)}, chains: oneChain(deviceOfKind("team", "team0")),
			want: planResult{On: list(""), Broken: list("team0 is a bridge now, recorded as a team: left alone")},
		},
		"renamed, known by its permanent MAC": {
			there:  devices{up(2, nic("eth1", 2), 0), up(3, noBus(nic("enp1s0", 1)), 0)},
			chains: oneChain(nic("eth1", 1)),
			want:   planResult{On: list("enp1s0"), Notes: list("eth1 is now enp1s0 (same permanent MAC 52:54:00:00:00:01)")},
		},
		"renamed, known by its bus address": {
			there:  devices{up(3, noMAC(nic("enp1s0", 1)), 0)},
			chains: oneChain(noMAC(nic("eth1", 1))),
			want:   planResult{On: list("enp1s0"), Notes: list("eth1 is now enp1s0 (same bus address 0000:00:01.0)")},
		},
		"the permanent MAC goes before the bus address": {
			there:  devices{up(2, noMAC(nic("eth2", 1)), 0), up(3, noBus(nic("eth3", 1)), 0)},
			chains: oneChain(nic("eth1", 1)),
			want:   planResult{On: list("eth3"), Notes: list("eth1 is now eth3 (same permanent MAC 52:54:00:00:00:01)")},
		},
		"another NIC under the old name": {
			there: devices{up(2, nic("eth1", 2), 0)}, chains: oneChain(nic("eth1", 1)),
			want: planResult{On: list(""), Broken: list("eth1 is another NIC now (permanent MAC 52:54:00:00:00:02, bus address 0000:00:02.0; " +
				"recorded permanent MAC 52:54:00:00:00:01, bus address 0000:00:01.0): use it by --parent eth1=eth1 ?")},
		},
		"another recorded NIC under the old name": {
			there: devices{up(2, nic("eth1", 2), 0)}, chains: []stack{{nic("eth1", 1)}, {nic("eth2", 2)}},
			want: planResult{On: list("", "eth1"), Notes: list("eth2 is now eth1 (same permanent MAC 52:54:00:00:00:02)"),
				Broken: list("the recorded eth1 (permanent MAC 52:54:00:00:00:01, bus address 0000:00:01.0) is not there; what is eth1 now is the recorded eth2 " +
					"(permanent MAC 52:54:00:00:00:02, bus address 0000:00:02.0): to use it for eth1 as well, say --parent eth1=eth1 ?")},
		},
		"two NICs with the MAC, one has the old name": {
			there:  devices{up(2, noBus(nic("eth5", 1)), 0), up(3, noBus(nic("eth1", 1)), 0)},
			chains: oneChain(nic("eth1", 1)),
			want:   planResult{On: list("eth1")},
		},
		"three NICs with the MAC, the last has the old name": {
			there:  devices{up(2, nic("eth5", 1), 0), up(3, nic("eth6", 1), 0), up(4, nic("eth1", 1), 0)},
			chains: oneChain(nic("eth1", 1)),
			want:   planResult{On: list("eth1")},
		},
		"two NICs with the MAC, the bus tells them apart": {
			there:  devices{up(2, noBus(nic("eth5", 1)), 0), up(3, nic("eth6", 1), 0)},
			chains: oneChain(nic("eth1", 1)),
			want:   planResult{On: list("eth6"), Notes: list("eth1 is now eth6 (same permanent MAC 52:54:00:00:00:01)")},
		},
		"a bridge that has the MAC is no NIC": {
			there: devices{up(2, netstate.Device{Kind: "bridge", Name: "br0", NIC: hardware(1)}, 0)}, chains: oneChain(nic("eth1", 1)),
			want: planResult{On: list(""), Broken: list("eth1 (permanent MAC 52:54:00:00:00:01, bus address 0000:00:01.0) is not there ?")},
		},
		"a NIC that told nothing is known by its name": {
			there: devices{up(2, nic("dummy0", 7), 0)}, chains: oneChain(deviceOfKind(netstate.KindNIC, "dummy0")),
			want: planResult{On: list("dummy0")},
		},
	}.run(t)
}

func TestPlanOfABaseThatTheOperatorMapped(t *testing.T) {
	planTests{
		"a member's pods move to its bond": {
			there:  devices{up(9, bond("bond4"), 0), enslaved(2, nic("eth1", 1), 9)},
			chains: []stack{{bond("bond4", 1)}, {nic("eth1", 1)}},
			mapped: map[string]string{"eth1": "bond4"},
			want:   planResult{On: list("bond4", "bond4"), Notes: list("eth1 is bond4, as told by --parent")},
		},
		"to another NIC": {
			there: devices{up(2, nic("eth1", 1), 0), up(3, nic("eth9", 9), 0)}, chains: oneChain(nic("eth1", 1)),
			mapped: map[string]string{"eth1": "eth9"},
			want:   planResult{On: list("eth9"), Notes: list("eth1 is eth9, as told by --parent")},
		},
		"to the other NIC under the old name": {
			there: devices{up(2, nic("eth1", 2), 0)}, chains: oneChain(nic("eth1", 1)),
			mapped: map[string]string{"eth1": "eth1"},
			want:   planResult{On: list("eth1"), Notes: list("eth1 is eth1, as told by --parent")},
		},
		"to a device of another kind": {
			there: devices{up(2, deviceOfKind("team", "team0"), 0)}, chains: oneChain(bond("bond4", 1)),
			mapped: map[string]string{"bond4": "team0"},
			want:   planResult{On: list("team0"), Notes: list("bond4 is team0, as told by --parent")},
		},
		"to one that is not there": {
			there: devices{up(2, nic("eth1", 1), 0)}, chains: oneChain(nic("eth1", 1)),
			mapped: map[string]string{"eth1": "eth9"},
			want:   planResult{On: list(""), Broken: list("eth9, told by --parent for eth1, is not there ?")},
		},
		"below a VLAN, which is made there": {
			there: devices{up(3, nic("eth9", 9), 0)}, chains: oneChain(vlan("eth1.3", 3), nic("eth1", 1)),
			mapped: map[string]string{"eth1": "eth9"},
			want: planResult{On: list("eth1.3"), Notes: list("eth1 is eth9, as told by --parent"),
				Steps: list("create eth1.3, VLAN 3 on eth9: it is missing")},
		},
	}.run(t)
}

func TestPlanOfABond(t *testing.T) {
	free1, free2 := up(2, nic("eth1", 1), 0), down(3, nic("eth2", 2), 0)
	planTests{
		"with its members": {
			there:  devices{enslaved(2, nic("eth1", 1), 4), enslaved(3, nic("eth2", 2), 4), up(4, bond("bond4"), 0)},
			chains: oneChain(bond("bond4", 1, 2)),
			want:   planResult{On: list("bond4")},
		},
		"with one more than recorded": {
			there:  devices{enslaved(2, nic("eth1", 1), 4), enslaved(3, nic("eth2", 2), 4), up(4, bond("bond4"), 0)},
			chains: oneChain(bond("bond4", 1)),
			want:   planResult{On: list("bond4")},
		},
		"its members came back free": {
			there: devices{free1, free2, up(4, bond("bond4"), 0)}, chains: oneChain(bond("bond4", 1, 2)),
			want: planResult{On: list("bond4"), Steps: list(
				"enslave eth1 to bond4: it was a member of bond4 when recorded and is free",
				"enslave eth2 to bond4: it was a member of bond4 when recorded and is free",
			)},
		},
		"a member came back under another name": {
			there: devices{up(2, nic("enp1s0", 1), 0), up(4, bond("bond4"), 0)}, chains: oneChain(bond("bond4", 1)),
			want: planResult{On: list("bond4"), Steps: list(
				"enslave enp1s0 to bond4: it was a member of bond4 as eth1 when recorded and is free")},
		},
		"a member was exchanged for another": {
			there: devices{up(9, nic("eth9", 9), 0), up(4, bond("bond4"), 0)}, chains: oneChain(bond("bond4", 1)),
			mapped: map[string]string{"eth1": "eth9"},
			want: planResult{On: list("bond4"), Notes: list("eth1 is eth9, as told by --parent"), Steps: list(
				"enslave eth9 to bond4: it was a member of bond4 as eth1 when recorded and is free")},
		},
		"a member is missing, the other free": {
			there: devices{free2, up(4, bond("bond4"), 0)}, chains: oneChain(bond("bond4", 1, 2)),
			want: planResult{
				On:       list("bond4"),
				Steps:    list("enslave eth2 to bond4: it was a member of bond4 when recorded and is free"),
				Problems: list("bond4 lacks its member: eth1 (permanent MAC 52:54:00:00:00:01, bus address 0000:00:01.0) is not there ?"),
			},
		},
		"a member is another NIC now": {
			there: devices{up(2, nic("eth1", 9), 0), up(4, bond("bond4"), 0)}, chains: oneChain(bond("bond4", 1)),
			want: planResult{On: list("bond4"), Problems: list("bond4 lacks its member: eth1 is another NIC now " +
				"(permanent MAC 52:54:00:00:00:09, bus address 0000:00:09.0; recorded permanent MAC 52:54:00:00:00:01, bus address 0000:00:01.0): use it by --parent eth1=eth1 ?")},
		},
		"a member belongs to another bond": {
			there:  devices{enslaved(2, nic("eth1", 1), 5), up(4, bond("bond4"), 0), up(5, bond("bond5"), 0)},
			chains: oneChain(bond("bond4", 1)),
			want:   planResult{On: list("bond4"), Problems: list("bond4 lacks its member: eth1 belongs to bond5 now, left alone")},
		},
		"a member belongs to what can't be seen": {
			there:  devices{enslaved(2, nic("eth1", 1), 77), up(4, bond("bond4"), 0)},
			chains: oneChain(bond("bond4", 1)),
			want:   planResult{On: list("bond4"), Problems: list("bond4 lacks its member: eth1 belongs to the device with index 77 now, left alone")},
		},
		"missing, and its members left alone": {
			there: devices{free1}, chains: oneChain(bond("bond4", 1)),
			want: planResult{On: list(""), Broken: list("bond4 (bond) is not there: --rebuild-bond builds it from its record, where the host's network manager does not ?")},
		},
		"a bridge under its name": {
			there: devices{free1, up(4, deviceOfKind("bridge", "bond4"), 0)}, chains: oneChain(bond("bond4", 1)),
			want: planResult{On: list(""), Broken: list("bond4 is a bridge now, recorded as a bond: left alone")},
		},
		"down, with free members, and too small": {
			there: devices{free1, down(4, bond("bond4"), 0)}, chains: oneChain(mtu(bond("bond4", 1), 9000)),
			want: planResult{On: list("bond4"), Steps: list(
				"enslave eth1 to bond4: it was a member of bond4 when recorded and is free",
				"set MTU of bond4 to 9000: its MTU is 1500, recorded 9000",
				"set bond4 up: it is down",
			)},
		},
	}.run(t)
}

// The operator names a NIC as the stand-in for a bond that is gone. The record that relink then writes has the NIC, so
// the next run finds it without being told.
func TestAStandInOfAnotherKindIsFoundTheNextTime(t *testing.T) {
	there := devices{up(2, nic("eth0", 1), 0)}
	told := NewParentPlan(there, nil, ParentOptions{Mapped: map[string]string{"bond4": "eth0"}})
	result := told.chain([]netstate.Device{bond("bond4", 1, 2)})
	if result.Problem != nil {
		t.Fatal(result.Problem)
	}
	again := NewParentPlan(there, nil, ParentOptions{}).chain(result.Found)
	if again.Problem != nil || again.Parent.Name != "eth0" || len(again.lacking) > 0 {
		t.Errorf("the next time: %+v", again)
	}
	if now := result.Found[0]; now.Kind != netstate.KindNIC || now.Bond != nil || now.Validate() != nil {
		t.Errorf("remembered as %+v", now)
	}
}

func TestPlanSaysThatTwoNICsMatch(t *testing.T) {
	noBus := func(d netstate.Device) netstate.Device { d.BusAddress = ""; return d }
	planTests{
		"two NICs with the MAC": {
			there:  devices{up(2, noBus(nic("eth5", 1)), 0), up(3, noBus(nic("eth6", 1)), 0)},
			chains: oneChain(noBus(nic("eth1", 1))),
			want: planResult{On: list(""), Broken: list("the recorded eth1 (permanent MAC 52:54:00:00:00:01, no bus address) could be what is now " +
				"eth5 (permanent MAC 52:54:00:00:00:01, no bus address) or eth6 (permanent MAC 52:54:00:00:00:01, no bus address): say which by --parent eth1=DEVICE ?")},
		},
		"a bridge under the NIC's name": {
			there: devices{up(2, deviceOfKind("bridge", "eth1"), 0)}, chains: oneChain(nic("eth1", 1)),
			want: planResult{On: list(""), Broken: list("eth1 is a bridge now, recorded as a nic: left alone")},
		},
	}.run(t)
}
