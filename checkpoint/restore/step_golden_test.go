package restore

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/netstate"
)

var update = flag.Bool("update", false, "write the golden files anew")

// everyStep has a step of each action, with all that the action is done with.
func everyStep() []Step {
	i := pod()
	link := i.Link
	nicLink := netstate.Link{Kind: netstate.KindNIC, Name: "net1", MAC: "52:54:00:00:00:01", MTU: 1500, Up: true, NIC: &netstate.NIC{PermanentMAC: "52:54:00:00:00:01"}}
	tag, over := vlan("eth1.3", 3), bond("bond4", 1, 2)
	route := route("10.9.0.0/16", "10.3.0.1")
	return []Step{
		{Action: CreateBond, Device: "bond4", Bond: over.Bond, MTU: 9000, Reason: "it is missing, and --rebuild-bond was given"},
		{Action: Enslave, Device: "eth1", On: "bond4", Reason: "it was a member of bond4 when recorded and is free"},
		{Action: RaiseMTU, Device: "eth1", MTU: 9000, Reason: "its MTU is 1500, recorded 9000"},
		{Action: SetUp, Device: "eth1", Reason: "it is down"},
		{Action: CreateVLAN, Device: "eth1.3", On: "eth1", VLAN: tag.VLAN, MTU: 1500, Reason: "it is missing"},
		{Action: Create, Device: "eth0", On: "eth1.3", Link: &link, Reason: "it is gone from the sandbox"},
		{Action: MoveNIC, Device: "net1", On: "eth2", Link: &nicLink, Reason: "it is gone from the sandbox, and the host has it"},
		{Action: SetMTU, Device: "eth0", MTU: 1500, Reason: "MTU is 68, not 1500"},
		{Action: SetMAC, Device: "eth0", MAC: link.MAC, Reason: "MAC is another"},
		{Action: SetKind, Device: "eth0", Link: &link, Reason: "mode is vepa, not bridge"},
		{Action: SetAttributes, Device: "eth0", Link: &link, Reason: "alias is missing"},
		{Action: SetMaster, Device: "eth0", Master: &netstate.Master{Name: "k6t-eth0", Kind: netstate.KindBridge}, Reason: "master is missing"},
		{Action: SetSetting, Device: "eth0", Setting: "ipv4/arp_notify", Value: "1", Reason: "ipv4/arp_notify is 0, not 1"},
		{Action: AddAddress, Device: "eth0", Address: &i.Addresses[0], Reason: "address 10.3.0.5/24 is missing"},
		{Action: AddRoute, Device: "eth0", Route: &route, Reason: "route 10.9.0.0/16 is missing"},
		{Action: OrderRoutes, Device: "eth0", Order: &netstate.Order{Slot: route.Slot(), Routes: []netstate.Place{{Gateway: route.Gateway}, {Device: "net1"}}}, Reason: "the order is another"},
		{Action: AddRule, Device: "eth0", Rule: &netstate.Rule{From: netip.MustParsePrefix("10.3.0.5/32"), Table: 100, Priority: 1000}, Reason: "rule is missing"},
		{Action: AddNeighbour, Device: "eth0", Neighbour: &netstate.Neighbour{Address: netip.MustParseAddr("10.3.0.1"), MAC: "02:00:00:00:00:09"}, Reason: "neighbour is missing"},
		{Action: AddQdisc, Device: "eth0", Qdisc: &netstate.Qdisc{Kind: "ingress"}, Reason: "qdisc is missing"},
	}
}

// What -o json has of a step, and how the step says itself, is for others' programs and eyes: as a step of
// an outcome, and as one in the host with and without an error.
func TestWhatIsSaidOfEachAction(t *testing.T) {
	var got bytes.Buffer
	for _, step := range everyStep() {
		fmt.Fprintln(&got, step)
		for _, v := range []any{step, StepResult{Step: step}, StepResult{Step: step, Error: "operation not permitted"}} {
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
