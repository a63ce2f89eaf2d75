package status

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/netstate"
)

// What to do is said with a command that does it: what depends on the agent says so.
func TestToDo(t *testing.T) {
	waiting := inPod(1, "eth0", restore.Outcome{Outcome: change.Outcome{State: restore.Waiting, Reason: "eth1 is not there"}, Problem: restore.Problem{Device: "eth1"}})
	lost := inPod(2, "eth0", restore.Outcome{Outcome: change.Outcome{State: restore.ToRestore}, Base: "eth2"})
	host := inPod(3, "eth0", restore.Outcome{Outcome: change.Outcome{State: restore.ToRepair}, Base: "bond4", HostSteps: []restore.Step{{Action: restore.Enslave, Device: "eth3"}}})
	step := []restore.Step{{Action: restore.SetMTU, Reason: "MTU is 68, not 1500"}}
	agent, paused := &control.Status{}, &control.Status{Paused: &control.Pause{}}
	for name, test := range map[string]struct {
		found Observations
		want  []ToDo
	}{
		"nothing": {Observations{}, []ToDo{}},
		"the NIC is away, and nobody waits for it": {
			outcomes(waiting), []ToDo{{"1 attachment waiting for eth1", "relink restore when it is back"}},
		},
		"another NIC is free": {
			outcomes(waiting).with(func(o *Observations) { o.Free = map[string][]string{"eth1": {"ens9", "ens10"}} }),
			[]ToDo{{"1 attachment waiting for eth1", "relink restore when it is back, or relink restore --parent eth1=ens9 (also free: ens10)"}},
		},
		"the agent waits for it": {
			outcomes(waiting).with(func(o *Observations) { o.Agent = agent }), []ToDo{{"1 attachment waiting for eth1", "relink-agent restores when it is back"}},
		},
		"a bond": {
			outcomes(waiting).with(func(o *Observations) {
				o.Report.Devices = []restore.DeviceState{{Name: "eth1", Kind: netstate.KindBond}}
			}),
			[]ToDo{{"1 attachment waiting for eth1", "relink restore when it is back, or relink restore --rebuild-bond"}},
		},
		"the NIC is back":             {outcomes(lost, host), []ToDo{{"2 attachments to restore", "relink restore"}}},
		"and the agent is at work":    {outcomes(lost).with(func(o *Observations) { o.Agent = agent }), []ToDo{{"1 attachment to restore", "relink-agent restores, or relink restore"}}},
		"and the agent makes a pause": {outcomes(lost).with(func(o *Observations) { o.Agent = paused }), []ToDo{{"1 attachment to restore", "relink resume, or relink restore"}}},
		"the agent leaves it, as its base is whole": {
			outcomes(lost).with(func(o *Observations) {
				o.Agent = &control.Status{Chains: []control.Chain{{Base: lost.Base, State: control.Whole}}}
			}), []ToDo{{"1 attachment that relink-agent does not restore", "relink restore"}},
		},
		"changed, as a capture would record it": {
			outcomes(inPod(1, "eth0", restore.Outcome{Outcome: change.Outcome{State: restore.ToRepair}, Steps: step})),
			[]ToDo{{"1 attachment changed", "relink restore undoes it, relink capture --refresh shop/web-1 records it"}},
		},
		"changed, as no capture would record it": {
			outcomes(inPod(1, "eth0", restore.Outcome{Outcome: change.Outcome{State: restore.ToRepair}, Steps: step, Worse: "eth0 is down"})), []ToDo{{"1 attachment changed", "relink restore undoes it"}},
		},
		"no link": {
			outcomes(inPod(1, "eth0", restore.Outcome{Outcome: change.Outcome{State: restore.AsRecorded}, NoCarrier: "eth1", AnnouncementOwed: true})),
			[]ToDo{{"1 attachment without a link", "see to the cable and the switch port of eth1"}},
		},
		"nobody was told": {
			outcomes(inPod(1, "eth0", restore.Outcome{Outcome: change.Outcome{State: restore.AsRecorded}, Parent: "eth1", AnnouncementOwed: true})),
			[]ToDo{{"1 attachment whose neighbours were not told", "relink restore"}},
		},
		"without a checkpoint": {
			Observations{Unrecorded: []capture.InterfaceOutcome{
				{Outcome: change.Outcome{State: capture.ToCapture}}, {Outcome: change.Outcome{State: change.Refused, Reason: "it is down"}},
				{Outcome: change.Outcome{State: change.Failed, Reason: "/ns/1: no"}},
			}},
			[]ToDo{{"1 interface without a checkpoint", "relink capture"}, {"1 interface without a checkpoint", "relink check says what keeps relink capture from writing one"}},
		},
		"torn": {
			outcomes(restore.Outcome{Outcome: change.Outcome{State: restore.Blocked, Reason: "/a: torn: relink capture --refresh c1 mends it"}}),
			[]ToDo{{"1 checkpoint that cannot be read", "/a: torn: relink capture --refresh c1 mends it"}},
		},
		"restore leaves it as it is": {
			outcomes(inPod(1, "eth0", restore.Outcome{Outcome: change.Outcome{State: restore.Blocked, Reason: "eth0 is there, but its kind is vlan"}})),
			[]ToDo{{"1 attachment that relink restore does not mend", "relink check says why, and what does"}},
		},
		"dead, without an agent": {
			outcomes(inPod(1, "eth0", restore.Outcome{Outcome: change.Outcome{State: restore.SandboxGone}})).with(func(o *Observations) { o.DeadHolders = 2 }),
			[]ToDo{{"1 checkpoint and 2 addresses of sandboxes that are gone", "relink gc --now, unless the runtime still owes a DEL"}},
		},
		"dead, with an agent": {
			outcomes(inPod(1, "eth0", restore.Outcome{Outcome: change.Outcome{State: restore.SandboxGone}})).with(func(o *Observations) { o.Agent = paused }),
			[]ToDo{{"1 checkpoint of sandboxes that are gone", "relink gc, unless the runtime still owes a DEL"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Summarize(test.found).ToDo); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func outcomes(list ...restore.Outcome) Observations {
	return Observations{Report: restore.Report{Report: change.Report[restore.Outcome]{Outcomes: list}}}
}

func (found Observations) with(change func(*Observations)) Observations {
	change(&found)
	return found
}

// A free device is of the kind of the missing one, and nothing uses it.
func TestFreeDevices(t *testing.T) {
	device := func(index int, kind, name string) netstate.LiveDevice {
		return netstate.LiveDevice{Device: netstate.Device{Kind: kind, Name: name}, Index: index}
	}
	devices := netstate.Devices{
		device(1, netstate.KindNIC, "lo"), device(2, netstate.KindNIC, "eth2"), device(3, netstate.KindNIC, "eth3"), device(4, netstate.KindNIC, "eth4"),
		device(5, netstate.KindNIC, "eth5"), device(6, netstate.KindNIC, "eth6"), device(7, netstate.KindBond, "bond7"), device(8, netstate.KindNIC, "vf0"),
		device(9, netstate.KindVLAN, "eth5.3"),
	}
	devices[2].MasterIndex, devices[7].PF, devices[8].ParentIndex = 7, "0000:3b:00.0", 5
	assigned := func(d netstate.LiveDevice) bool { return d.Name == "eth4" }
	parents := []restore.DeviceState{
		{Name: "eth1", Kind: netstate.KindNIC}, {Name: "eth1.3", Kind: netstate.KindVLAN, Below: "eth1"}, {Name: "eth6", Kind: netstate.KindNIC, Present: true},
	}
	if diff := cmp.Diff(map[string][]string{"eth1": {"eth2"}}, freeDevices(parents, devices, assigned)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
