package status

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// inPod assigns the outcome to interface ifName of pod number n.
func inPod(n int, ifName string, o restore.Outcome) restore.Outcome {
	o.Attachment = attachment.Key{Network: "lan", ContainerID: fmt.Sprintf("c%d", n), IfName: ifName}
	o.Pod = attachment.Pod{Namespace: "shop", Name: fmt.Sprintf("web-%d", n)}
	o.Interface.Link.Name = ifName
	return o
}

// causeLines returns a line for each cause: its kind, device and reason, the number of its attachments, and the number
// of their pods.
func causeLines(causes []Cause) (all []string) {
	for _, c := range causes {
		all = append(all, fmt.Sprintf("%s %q: %s: %d of %d", c.Kind, c.Device, c.Reason, len(c.Attachments), c.Pods))
	}
	return all
}

func TestCauses(t *testing.T) {
	make3 := restore.Step{Action: restore.CreateVLAN, Device: "eth1.3", Reason: "it is missing", VLAN: &netstate.VLAN{ID: 3}}
	make4 := restore.Step{Action: restore.CreateVLAN, Device: "eth1.4", Reason: "it is missing", VLAN: &netstate.VLAN{ID: 4}}
	member := restore.Step{Action: restore.Enslave, Device: "eth1", Parent: "bond4", Reason: "it was a member of bond4 when recorded and is free"}
	build := restore.Step{Action: restore.Create, Device: "eth0", Reason: "it is gone from the sandbox", Parent: "eth1.3"}
	mtu := func(have int) restore.Step {
		return restore.Step{Action: restore.SetMTU, Device: "eth0", Reason: fmt.Sprintf("MTU is %d, not 1500", have), MTU: 1500}
	}
	unreadable := restore.Problem{Cause: "the checkpoint cannot be read"}
	kept := restore.Problem{Cause: "something keeps the sandboxes"}
	on := func(device string) restore.Problem { return restore.Problem{Device: device} }
	noAddress := restore.Step{Action: restore.AddAddress, Device: "eth0", Reason: "address 10.3.0.5/24 is missing"}
	lostOn := func(base string, below ...restore.Step) restore.Outcome {
		return restore.Outcome{Outcome: change.Outcome{State: restore.ToRestore}, Base: base, HostSteps: below, Steps: []restore.Step{build}}
	}
	for name, test := range map[string]struct {
		outcomes []restore.Outcome
		want     []string
	}{
		"as it should be":       {[]restore.Outcome{inPod(1, "eth0", restore.Outcome{Outcome: change.Outcome{State: restore.AsRecorded}}), inPod(2, "eth0", restore.Outcome{Outcome: change.Outcome{State: restore.Restored, Reason: "it was gone"}})}, nil},
		"gone with its sandbox": {[]restore.Outcome{inPod(1, "eth0", restore.Outcome{Outcome: change.Outcome{State: restore.SandboxGone, Reason: "the sandbox is gone"}})}, nil},
		"one base, whatever the names and VLANs": {
			[]restore.Outcome{
				inPod(1, "eth0", lostOn("eth1", make3)), inPod(1, "net1", lostOn("eth1", make4)), inPod(2, "net7", lostOn("eth1")),
				inPod(3, "eth0", lostOn("bond4")),
			},
			[]string{`lost "eth1": the interfaces on eth1 are gone, with eth1.3, eth1.4: 3 of 2`, `lost "bond4": the interfaces on bond4 are gone: 1 of 1`},
		},
		"one VLAN": {
			[]restore.Outcome{inPod(1, "eth0", lostOn("eth1", make3)), inPod(2, "eth0", lostOn("eth1", make3))},
			[]string{`lost "eth1": the interfaces on eth1 are gone, with eth1.3: 2 of 2`},
		},
		"a device that is missing": {
			[]restore.Outcome{
				inPod(1, "eth0", restore.Outcome{Outcome: change.Outcome{State: change.Failed, Reason: "eth1 (permanent MAC 1) is not there"}, Problem: on("eth1")}),
				inPod(2, "net1", restore.Outcome{Outcome: change.Outcome{State: change.Failed, Reason: "eth1 (permanent MAC 1, port 0) is not there"}, Problem: on("eth1")}),
				inPod(2, "net2", restore.Outcome{Outcome: change.Outcome{State: change.Failed, Reason: "eth2 is not there"}, Problem: on("eth2")}),
			},
			[]string{`device "eth1": eth1 (permanent MAC 1) is not there: 2 of 2`, `device "eth2": eth2 is not there: 1 of 1`},
		},
		"a member that came back free": {
			[]restore.Outcome{inPod(1, "eth0", restore.Outcome{Outcome: change.Outcome{State: restore.ToRepair}, Base: "bond4", HostSteps: []restore.Step{member}}), inPod(2, "eth0", restore.Outcome{Outcome: change.Outcome{State: restore.ToRepair}, Base: "bond4", HostSteps: []restore.Step{member}})},
			[]string{`host "bond4": eth1: it was a member of bond4 when recorded and is free: 2 of 2`},
		},
		"a device that is waited for": {
			[]restore.Outcome{
				inPod(1, "eth0", restore.Outcome{Outcome: change.Outcome{State: restore.Waiting, Reason: "eth1 is not there"}, Problem: on("eth1")}),
				inPod(2, "eth0", restore.Outcome{Outcome: change.Outcome{State: restore.Blocked, Reason: "eth1 is a bridge now"}, Problem: on("eth1")}),
			},
			[]string{`waiting "eth1": eth1 is not there: 1 of 1`, `device "eth1": eth1 is a bridge now: 1 of 1`},
		},
		"torn ones, each with its path, beside a readable one of a sandbox": {
			[]restore.Outcome{
				inPod(1, "eth0", restore.Outcome{Outcome: change.Outcome{State: restore.ToRestore}}), inPod(1, "net2", restore.Outcome{Outcome: change.Outcome{State: restore.AsRecorded}}),
				{Outcome: change.Outcome{Attachment: attachment.Key{ContainerID: "c1", IfName: "net1"}, State: change.Failed, Reason: "/b"}, Problem: unreadable},
				{Outcome: change.Outcome{Attachment: attachment.Key{ContainerID: "c1", IfName: "net3"}, State: change.Failed, Reason: "/d"}, Problem: unreadable}},
			[]string{`unreadable "": /b: 2 of 1`, `lost "": the interfaces on a device of shop/web-1 are gone: 1 of 1`},
		},
		"kept, each by another process": {
			[]restore.Outcome{
				inPod(1, "eth0", restore.Outcome{Outcome: change.Outcome{State: change.Failed, Reason: "/ns/1; but process 7 keeps it"}, Problem: kept}),
				inPod(2, "eth0", restore.Outcome{Outcome: change.Outcome{State: change.Failed, Reason: "/ns/2; but process 8 keeps it"}, Problem: kept}),
			},
			[]string{`failure "": something keeps the sandboxes: 2 of 2`},
		},
		"the same drift": {
			[]restore.Outcome{inPod(1, "eth0", restore.Outcome{Outcome: change.Outcome{State: restore.ToRepair}, Steps: []restore.Step{mtu(68)}}), inPod(2, "net1", restore.Outcome{Outcome: change.Outcome{State: restore.ToRepair}, Steps: []restore.Step{mtu(68)}})},
			[]string{`change "": MTU is 68, not 1500: 2 of 2`},
		},
		"drift of the same things": {
			[]restore.Outcome{
				inPod(1, "eth0", restore.Outcome{Outcome: change.Outcome{State: restore.ToRepair}, Steps: []restore.Step{mtu(68), noAddress, noAddress}}),
				inPod(2, "net1", restore.Outcome{Outcome: change.Outcome{State: restore.ToRepair}, Steps: []restore.Step{mtu(70), noAddress}}),
				inPod(3, "net1", restore.Outcome{Outcome: change.Outcome{State: restore.ToRepair}, Steps: []restore.Step{mtu(70)}}),
			},
			[]string{`change "": such as: MTU is 68, not 1500; address 10.3.0.5/24 is missing; address 10.3.0.5/24 is missing: 2 of 2`, `change "": MTU is 70, not 1500: 1 of 1`},
		},
		"no carrier": {
			[]restore.Outcome{
				inPod(1, "eth0", restore.Outcome{Outcome: change.Outcome{State: restore.AsRecorded}, NoCarrier: "eth1"}), inPod(2, "eth0", restore.Outcome{Outcome: change.Outcome{State: restore.Restored}, NoCarrier: "eth1", AnnouncementOwed: true}),
				inPod(3, "net1", restore.Outcome{Outcome: change.Outcome{State: restore.AsRecorded}, NoCarrier: "net1", OwnLink: true}),
			},
			[]string{`carrier "eth1": eth1 has no carrier: 2 of 2`, `carrier "": net1 of shop/web-3 has no carrier: 1 of 1`},
		},
		"not announced": {
			[]restore.Outcome{inPod(1, "eth0", restore.Outcome{Outcome: change.Outcome{State: restore.AsRecorded}, Parent: "eth1", AnnouncementOwed: true}), inPod(2, "net1", restore.Outcome{Outcome: change.Outcome{State: restore.AsRecorded}, AnnouncementOwed: true})},
			[]string{`unannounced "eth1": eth1 has carrier, but the neighbours do not know yet: 1 of 1`, `unannounced "": net1 of shop/web-2 has carrier, but the neighbours do not know yet: 1 of 1`},
		},
		"interrupted": {
			[]restore.Outcome{
				inPod(1, "eth0", restore.Outcome{Outcome: change.Outcome{State: change.NotTried, Reason: "interrupted before it was restored"}}),
				inPod(2, "eth0", restore.Outcome{Outcome: change.Outcome{State: change.NotTried, Reason: "interrupted before it was restored"}}),
			},
			[]string{`failure "": interrupted before it was restored: 2 of 2`},
		},
		"on a device of its own sandbox": {
			[]restore.Outcome{inPod(1, "eth0", lostOn("")), inPod(1, "net1", lostOn("")), inPod(2, "eth0", lostOn(""))},
			[]string{`lost "": the interfaces on a device of shop/web-1 are gone: 2 of 1`, `lost "": the interfaces on a device of shop/web-2 are gone: 1 of 1`},
		},
		"failures of the attachment's own": {
			[]restore.Outcome{inPod(1, "eth0", restore.Outcome{Outcome: change.Outcome{State: change.Failed, Reason: "no"}}), inPod(2, "eth0", restore.Outcome{Outcome: change.Outcome{State: change.Failed, Reason: "no"}}), inPod(3, "eth0", restore.Outcome{Outcome: change.Outcome{State: change.Failed, Reason: "never"}})},
			[]string{`failure "": no: 2 of 2`, `failure "": never: 1 of 1`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := causeLines(Causes(restore.Report{Report: change.Report[restore.Outcome]{Outcomes: test.outcomes}}))
			slices.Sort(got)
			slices.Sort(test.want)
			if diff := gocmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Each attachment that differs or is cut off has exactly one cause, and no other attachment has one. The cause of most
// attachments comes first.
func TestEachAttachmentThatDiffersHasOneCause(t *testing.T) {
	name := func(t *rapid.T, what string, names ...string) string { return rapid.SampledFrom(names).Draw(t, what) }
	rapid.Check(t, func(t *rapid.T) {
		var report restore.Report
		want := map[attachment.Key]bool{}
		for n := range rapid.IntRange(0, 30).Draw(t, "attachments") {
			o := inPod(n/2, fmt.Sprintf("net%d", n%2), restore.Outcome{Outcome: change.Outcome{State: rapid.SampledFrom([]change.State{restore.AsRecorded, restore.Restored, restore.Repaired, restore.ToRestore, restore.ToRepair, restore.SandboxGone, change.Failed}).Draw(t, "state"), Reason: name(t, "reason", "no", "never")}, Base: name(t, "base", "", "eth1", "bond4"), Problem: restore.Problem{Device: name(t, "device", "", "eth1", "eth2")}, NoCarrier: name(t, "no carrier", "", "", "eth1"), AnnouncementOwed: rapid.Bool().Draw(t, "owed"), Parent: name(t, "parent", "", "eth1"), HostSteps: []restore.Step{{Action: restore.SetUp, Device: "eth1", Reason: "it is down"}}})
			for range rapid.IntRange(0, 2).Draw(t, "steps") {
				o.Steps = append(o.Steps, restore.Step{Action: rapid.SampledFrom([]restore.Action{restore.SetMTU, restore.SetUp}).Draw(t, "action"), Device: "eth0", Reason: name(t, "why", "a", "b")})
			}
			report.Outcomes = append(report.Outcomes, o)
			if o.Differs() || o.IsAsRecorded() && (o.NoCarrier != "" || o.AnnouncementOwed) {
				want[o.Attachment] = true
			}
		}
		causes := Causes(report)
		got := map[attachment.Key]bool{}
		for _, c := range causes {
			if c.Reason == "" || c.Pods < 1 || c.Pods > len(c.Attachments) {
				t.Fatalf("a cause that says nothing, or of no pod: %+v", c)
			}
			for _, key := range c.Attachments {
				if got[key] {
					t.Fatalf("%s has two causes: %+v", key, causes)
				}
				got[key] = true
			}
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatalf("what has a cause (-want +got):\n%s", diff)
		}
		if !slices.IsSortedFunc(causes, func(a, b Cause) int {
			return cmp.Or(len(b.Attachments)-len(a.Attachments), cmp.Compare(a.Reason, b.Reason))
		}) {
			t.Fatalf("the order is %q", causeLines(causes))
		}
		again := report
		again.Outcomes = slices.Clone(report.Outcomes)
		if diff := gocmp.Diff(causes, Causes(again)); diff != "" {
			t.Fatalf("a second look tells otherwise:\n%s", diff)
		}
	})
}
