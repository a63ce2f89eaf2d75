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

	"github.com/relink-cni/relink/pkg/netstate"
)

var update = flag.Bool("update", false, "write the golden files anew")

// everyStep returns a step of each action, with all that its action needs.
func everyStep() []Step {
	i := pod()
	link := i.Link
	nicLink := netstate.Link{Kind: netstate.KindNIC, Name: "net1", MAC: "52:54:00:00:00:01", MTU: 1500, Up: true, NIC: &netstate.NIC{PermanentMAC: "52:54:00:00:00:01"}}
	tag, over := vlan("eth1.3", 3), bond("bond4", 1, 2)
	route := route("10.9.0.0/16", "10.3.0.1")
	step := func(device, reason string, c change) Step { return Step{Device: device, Reason: reason, change: c} }
	on := func(name string) netstate.LiveDevice { return up(2, deviceOfKind("", name), 0) }
	return []Step{
		step("bond4", "it is missing, and --rebuild-bond was given", createBond{recorded: mtu(over, 9000)}),
		step("eth1", "it was a member of bond4 when recorded and is free", enslave{on("bond4")}),
		step("eth1", "its MTU is 1500, recorded 9000", raiseMTU{setMTU{9000}}),
		step("eth1", "it is down", setUp{}),
		step("eth1.3", "it is missing", createVLAN{recorded: tag, parent: on("eth1")}),
		step("eth0", "it is gone from the sandbox", create{recorded: i, parent: "eth1.3"}),
		step("net1", "it is gone from the sandbox, and the host has it", moveNIC{recorded: netstate.Interface{Link: nicLink}, hostName: "eth2"}),
		step("eth0", "MTU is 68, not 1500", setMTU{1500}),
		step("eth0", "MAC is another", setMAC{link.MAC}),
		step("eth0", "mode is vepa, not bridge", setKind{link}),
		step("eth0", "alias is missing", setAttributes{link}),
		step("eth0", "master is missing", setMaster{netstate.Master{Name: "k6t-eth0", Kind: netstate.KindBridge}}),
		step("eth0", "ipv4/arp_notify is 0, not 1", setSetting{"ipv4/arp_notify", "1"}),
		step("eth0", "address 10.3.0.5/24 is missing", addAddress{i.Addresses[0]}),
		step("eth0", "route 10.9.0.0/16 is missing", addRoute{route}),
		step("eth0", "rule is missing", addRule{netstate.Rule{From: netip.MustParsePrefix("10.3.0.5/32"), Table: 100, Priority: 1000}}),
		step("eth0", "neighbour is missing", addNeighbour{netstate.Neighbour{Address: netip.MustParseAddr("10.3.0.1"), MAC: "02:00:00:00:00:09"}}),
		step("eth0", "qdisc is missing", addQdisc{netstate.Qdisc{Kind: "ingress"}}),
	}
}

// Programs read a step in the output of -o json, and people read its text. The file has both: for a step of an outcome,
// and for a step in the host with and without an error.
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

func TestWhatIsDoneInOneGo(t *testing.T) {
	var steps []Step
	for _, c := range []change{
		setMTU{}, setSetting{}, setSetting{}, addAddress{}, addAddress{}, addRoute{}, addRoute{}, addRule{}, addRule{},
	} {
		steps = append(steps, Step{change: c})
	}
	var got []string
	for _, group := range batchSteps(steps) {
		got = append(got, fmt.Sprint(group[0].Action(), " ", len(group)))
	}
	want := list("set-mtu 1", "set-setting 1", "set-setting 1", "add-address 2", "add-route 2", "add-rule 1", "add-rule 1")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Each change can be carried out, and there are as many actions as changes.
func TestEveryActionCanBeCarriedOut(t *testing.T) {
	actions := map[Action]bool{}
	for _, step := range everyStep() {
		actions[step.Action()] = true
		_, onDevice := step.change.(deviceChange)
		_, inSandbox := step.change.(sandboxChange)
		_, inBatch := step.change.(batchChange)
		if !onDevice && !inSandbox && !inBatch {
			t.Errorf("nothing carries out: %s", step)
		}
		if !onDevice {
			if err := newStepRunner(nil).run(step); err == nil || !strings.HasSuffix(err.Error(), ": not a step on a device") {
				t.Errorf("on a device: %v", err)
			}
		}
		if !inSandbox && !inBatch {
			if err := (&attachmentRestore{}).applySteps([]Step{step}); err == nil || !strings.HasSuffix(err.Error(), ": not a step in a sandbox") {
				t.Errorf("in a sandbox: %v", err)
			}
		}
	}
	const known = 18
	if len(actions) != known {
		t.Errorf("%d actions, want %d", len(actions), known)
	}
}
