package restore

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

func recordOn(parents ...netstate.Device) checkpoint.Record {
	i := pod()
	i.Parents = parents
	return checkpoint.Record{Interface: i}
}

func TestStatesOfTheDevicesThatRecordsName(t *testing.T) {
	inSandbox, ownNIC := recordOn(deviceOfKind("veth", "up0")), recordOn()
	inSandbox.Interface.ParentsInSandbox, ownNIC.Interface.Link.Kind = true, netstate.KindNIC
	on3, on4, onBond := recordOn(vlan("bond4.3", 3), bond("bond4", 1)), recordOn(vlan("bond4.4", 4), bond("bond4", 1)), recordOn(bond("bond4", 1))
	over, noCarrier := up(9, bond("bond4"), 0), up(10, vlan("bond4.3", 3), 9)
	noCarrier.Carrier = false
	member := enslaved(2, nic("eth1", 1), 9)
	for name, test := range map[string]struct {
		there   devices
		records []checkpoint.Record
		want    []DeviceState
	}{
		"each after what it is on, counted": {
			devices{member, over, noCarrier, down(11, vlan("bond4.4", 4), 9)},
			[]checkpoint.Record{on4, on3, on3, onBond, inSandbox, ownNIC},
			[]DeviceState{
				{Name: "bond4", Kind: "bond", Present: true, Up: true, Carrier: true, Attachments: 1, Through: 3},
				{Name: "bond4.3", Kind: "vlan", Below: "bond4", Present: true, Up: true, Attachments: 2},
				{Name: "bond4.4", Kind: "vlan", Below: "bond4", Present: true, Attachments: 1},
			},
		},
		"a VLAN that is yet to be made": {
			devices{member, over}, []checkpoint.Record{on3},
			[]DeviceState{{Name: "bond4", Kind: "bond", Present: true, Up: true, Carrier: true, Through: 1}, {Name: "bond4.3", Kind: "vlan", Below: "bond4", Attachments: 1}},
		},
		"nothing is there": {
			nil, []checkpoint.Record{on3},
			[]DeviceState{{Name: "bond4", Kind: "bond", Through: 1}, {Name: "bond4.3", Kind: "vlan", Below: "bond4", Attachments: 1}},
		},
		"a NIC under another name": {
			devices{up(2, nic("ens5f0", 1), 0)}, []checkpoint.Record{recordOn(nic("eth1", 1))},
			[]DeviceState{{Name: "ens5f0", Kind: "nic", Present: true, Up: true, Carrier: true, Attachments: 1}},
		},
		"another NIC under its name": {
			devices{up(2, nic("eth1", 7), 0)}, []checkpoint.Record{recordOn(nic("eth1", 1))},
			[]DeviceState{{Name: "eth1", Kind: "nic", Attachments: 1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var chains []stack
			for _, r := range test.records {
				chains = append(chains, r.Interface.Parents)
			}
			plan := NewParentPlan(test.there, recordedMembers(chains...), ParentOptions{})
			if diff := cmp.Diff(test.want, deviceStates(plan, test.there, test.records)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The report of a dry run shows the present state of the devices, not their state after a restore.
func TestTheReportHasTheDevices(t *testing.T) {
	p := newLiveSandbox(t)
	p.attach(t, "net1", 2)
	expect := func(what string, dry bool, want DeviceState) {
		t.Helper()
		report := must(Run(t.Context(), Options{Store: p.store, DryRun: dry}))(t)
		if diff := cmp.Diff([]DeviceState{want}, report.Devices); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	whole := DeviceState{Name: "lan0", Kind: "veth", Present: true, Up: true, Carrier: true, Attachments: 2}
	expect("whole", true, whole)
	fresh.IP(t, "", "link set lan0 down")
	expect("down", true, DeviceState{Name: "lan0", Kind: "veth", Present: true, Attachments: 2})
	must(Run(t.Context(), Options{Store: p.store, Wait: 10 * time.Second}))(t) // The kernel gives a device that was just set up its carrier a moment later.
	expect("restored", true, whole)
	fresh.IP(t, "", "link del lan0")
	expect("gone", true, DeviceState{Name: "lan0", Kind: "veth", Attachments: 2})
	expect("gone, restored", false, DeviceState{Name: "lan0", Kind: "veth", Attachments: 2})
	parent(t)
}
