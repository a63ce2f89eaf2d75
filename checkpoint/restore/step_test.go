package restore

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

var update = flag.Bool("update", false, "write the golden files anew")

// everyStep returns a step of each action, with all that its action needs.
func everyStep() []Step {
	i := pod()
	link := i.Link
	nicLink := netstate.Link{Kind: netstate.KindNIC, Name: "net1", MAC: "52:54:00:00:00:01", MTU: 1500, Up: true, NIC: &netstate.NIC{PermanentMAC: "52:54:00:00:00:01"}}
	tag, over := vlan("eth1.3", 3), bond("bond4", 1, 2)
	route := route("10.9.0.0/16", "10.3.0.1")
	master, address := netstate.Master{Name: "k6t-eth0", Kind: netstate.KindBridge}, i.Addresses[0]
	return []Step{
		{Action: CreateBond, Device: "bond4", Reason: "it is missing, and --rebuild-bond was given", Bond: over.Bond, MTU: 9000},
		{Action: Enslave, Device: "eth1", Parent: "bond4", Reason: "it was a member of bond4 when recorded and is free"},
		{Action: RaiseMTU, Device: "eth1", Reason: "its MTU is 1500, recorded 9000", MTU: 9000},
		{Action: SetUp, Device: "eth1", Reason: "it is down"},
		{Action: CreateVLAN, Device: "eth1.3", Parent: "eth1", Reason: "it is missing", VLAN: tag.VLAN, MTU: tag.MTU},
		{Action: Create, Device: "eth0", Parent: "eth1.3", Reason: "it is gone from the sandbox", Link: &link},
		{Action: MoveNIC, Device: "net1", Parent: "eth2", Reason: "it is gone from the sandbox, and the host has it", Link: &nicLink},
		{Action: SetMTU, Device: "eth0", Reason: "MTU is 68, not 1500", MTU: 1500},
		{Action: SetMAC, Device: "eth0", Reason: "MAC is another", MAC: link.MAC},
		{Action: SetKind, Device: "eth0", Reason: "mode is vepa, not bridge", Link: &link},
		{Action: SetAttributes, Device: "eth0", Reason: "alias is missing", Link: &link},
		{Action: SetMaster, Device: "eth0", Reason: "master is missing", Master: &master},
		{Action: SetSetting, Device: "eth0", Reason: "ipv4/arp_notify is 0, not 1", Setting: "ipv4/arp_notify", Value: "1"},
		{Action: AddAddress, Device: "eth0", Reason: "address 10.3.0.5/24 is missing", Address: &address},
		{Action: AddRoute, Device: "eth0", Reason: "route 10.9.0.0/16 is missing", Route: &route},
		{Action: AddRule, Device: "eth0", Reason: "rule is missing", Rule: &netstate.Rule{From: netip.MustParsePrefix("10.3.0.5/32"), Table: 100, Priority: 1000}},
		{Action: AddNeighbour, Device: "eth0", Reason: "neighbour is missing", Neighbour: &netstate.Neighbour{Address: netip.MustParseAddr("10.3.0.1"), MAC: "02:00:00:00:00:09"}},
		{Action: AddQdisc, Device: "eth0", Reason: "qdisc is missing", Qdisc: &netstate.Qdisc{Kind: "ingress"}},
	}
}

// Programs read a step in the output of -o json, and people read its text. The file has both, with and
// without an error.
func TestWhatIsSaidOfEachAction(t *testing.T) {
	var got bytes.Buffer
	for _, step := range everyStep() {
		failed := step
		failed.Error = "operation not permitted"
		fmt.Fprintln(&got, step)
		for _, v := range []Step{step, failed} {
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&got, "%s\n", b)
		}
	}
	const golden = "testdata/steps.golden"
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("(-golden +said):\n%s", diff)
	}
}

func TestWhatIsDoneInOneGo(t *testing.T) {
	var steps []Step
	for _, action := range []Action{
		SetMTU, SetSetting, SetSetting, AddAddress, AddAddress, AddRoute, AddRoute, AddRule, AddRule,
	} {
		steps = append(steps, Step{Action: action})
	}
	var got []string
	for _, group := range batchSteps(steps) {
		got = append(got, fmt.Sprint(group[0].Action, " ", len(group)))
	}
	want := list("set-mtu 1", "set-setting 1", "set-setting 1", "add-address 2", "add-route 2", "add-rule 1", "add-rule 1")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// There is no device for the steps, so most of them fail. But none is refused, except one that is on no device.
func TestEveryActionCanBeCarriedOut(t *testing.T) {
	host, sandbox := must(kernel.OpenHost())(t), must(kernel.Open(fresh.Sandbox(t)))(t)
	defer host.Close()
	defer sandbox.Close()
	wanted := pod()
	actions := map[Action]bool{}
	for _, step := range append(everyStep(), Step{Action: RepairHostAccess}) {
		actions[step.Action] = true
		step.planned.Device = netstate.Device{Name: step.Device, Kind: netstate.KindBond, Bond: &netstate.Bond{Mode: "none"}, VLAN: step.VLAN}
		err := (&target{namespace: sandbox, index: 99, parentAt: host, related: 99, recorded: wanted, wanted: &wanted}).apply(step)
		if refused := err != nil && strings.HasSuffix(err.Error(), ": not a step on a device"); refused != (step.Action == RepairHostAccess) {
			t.Errorf("%s: %v", step, err)
		}
	}
	const known = 19
	if len(actions) != known {
		t.Errorf("%d actions, want %d", len(actions), known)
	}
}
