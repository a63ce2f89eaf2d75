package restore

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

// inPod assigns the outcome to interface ifName of pod number n.
func inPod(n int, ifName string, o Outcome) Outcome {
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
	make3 := Step{Action: CreateVLAN, Device: "eth1.3", Reason: "it is missing", VLAN: vlan("eth1.3", 3).VLAN}
	make4 := Step{Action: CreateVLAN, Device: "eth1.4", Reason: "it is missing", VLAN: vlan("eth1.4", 4).VLAN}
	member := Step{Action: Enslave, Device: "eth1", Parent: "bond4", Reason: "it was a member of bond4 when recorded and is free"}
	link := pod().Link
	build := Step{Action: Create, Device: "eth0", Reason: "it is gone from the sandbox", Link: &link, Parent: "eth1.3"}
	mtu := func(have int) Step {
		return Step{Action: SetMTU, Device: "eth0", Reason: fmt.Sprintf("MTU is %d, not 1500", have), MTU: 1500}
	}
	unreadable := func(err error) causeKey { return causeKey{kind: CauseUnreadable, detail: unreadableReason(err)} }
	const mends = " (relink capture --refresh CONTAINER-ID mends torn ones)"
	lost := address("10.3.0.5/24")
	noAddress := Step{Action: AddAddress, Device: "eth0", Reason: "address 10.3.0.5/24 is missing", Address: &lost}
	lostOn := func(base string, below ...Step) Outcome {
		return Outcome{State: ToRestore, base: base, hostSteps: below, Steps: []Step{build}}
	}
	for name, test := range map[string]struct {
		outcomes []Outcome
		want     []string
	}{
		"as it should be":       {[]Outcome{inPod(1, "eth0", Outcome{State: AsRecorded}), inPod(2, "eth0", Outcome{State: Restored, Reason: "it was gone"})}, nil},
		"gone with its sandbox": {[]Outcome{inPod(1, "eth0", Outcome{State: SandboxGone, Reason: "the sandbox is gone"})}, nil},
		"one base, whatever the names and VLANs": {
			[]Outcome{
				inPod(1, "eth0", lostOn("eth1", make3)), inPod(1, "net1", lostOn("eth1", make4)), inPod(2, "net7", lostOn("eth1")),
				inPod(3, "eth0", lostOn("bond4")),
			},
			list(`lost "eth1": the interfaces on eth1 are gone, with eth1.3, eth1.4: 3 of 2`, `lost "bond4": the interfaces on bond4 are gone: 1 of 1`),
		},
		"one VLAN": {
			[]Outcome{inPod(1, "eth0", lostOn("eth1", make3)), inPod(2, "eth0", lostOn("eth1", make3))},
			list(`lost "eth1": the interfaces on eth1 are gone, with eth1.3: 2 of 2`),
		},
		"a device that is missing": {
			[]Outcome{
				inPod(1, "eth0", Outcome{State: Failed, failure: causeKey{kind: CauseDevice, device: "eth1"}, Reason: "eth1 (permanent MAC 1) is not there"}),
				inPod(2, "net1", Outcome{State: Failed, failure: causeKey{kind: CauseDevice, device: "eth1"}, Reason: "eth1 (permanent MAC 1, port 0) is not there"}),
				inPod(2, "net2", Outcome{State: Failed, failure: causeKey{kind: CauseDevice, device: "eth2"}, Reason: "eth2 is not there"}),
			},
			list(`device "eth1": eth1 (permanent MAC 1) is not there: 2 of 2`, `device "eth2": eth2 is not there: 1 of 1`),
		},
		"a member that came back free": {
			[]Outcome{inPod(1, "eth0", Outcome{State: ToRepair, base: "bond4", hostSteps: []Step{member}}), inPod(2, "eth0", Outcome{State: ToRepair, base: "bond4", hostSteps: []Step{member}})},
			list(`host "bond4": eth1: it was a member of bond4 when recorded and is free: 2 of 2`),
		},
		"torn ones, each with its path": {
			[]Outcome{
				inPod(1, "eth0", Outcome{State: Failed, Reason: "/a: torn", failure: unreadable(fmt.Errorf("/a: %w", checkpoint.ErrTorn))}),
				{Attachment: attachment.Key{ContainerID: "c1", IfName: "net1"}, State: Failed, Reason: "/b: torn", failure: unreadable(fmt.Errorf("/b: %w", checkpoint.ErrTorn))},
				inPod(2, "eth0", Outcome{State: Failed, Reason: "/c: newer", failure: unreadable(fmt.Errorf("/c: %w", checkpoint.ErrVersion))}),
			},
			list(`unreadable "": checkpoints cannot be read: torn or no checkpoint`+mends+`: 2 of 1`, `unreadable "": checkpoints cannot be read: unknown checkpoint version`+mends+`: 1 of 1`),
		},
		"a torn one beside a readable one of its sandbox": {
			[]Outcome{
				inPod(1, "eth0", Outcome{State: ToRestore}), inPod(1, "net2", Outcome{State: AsRecorded}),
				{Attachment: attachment.Key{ContainerID: "c1", IfName: "net1"}, State: Failed, Reason: "/b", failure: unreadable(fs.ErrPermission)},
				{Attachment: attachment.Key{ContainerID: "c1", IfName: "net3"}, State: Failed, Reason: "/d", failure: unreadable(&fs.PathError{Path: "/d", Err: fs.ErrPermission})},
			},
			list(`unreadable "": checkpoints cannot be read: permission denied`+mends+`: 2 of 1`, `lost "": the interfaces on a device of shop/web-1 are gone: 1 of 1`),
		},
		"kept, each by another process": {
			[]Outcome{
				inPod(1, "eth0", Outcome{State: Failed, failure: namespaceKept, Reason: "/ns/1; but process 7 keeps it"}),
				inPod(2, "eth0", Outcome{State: Failed, failure: namespaceKept, Reason: "/ns/2; but process 8 keeps it"}),
				inPod(3, "eth0", Outcome{State: Failed, failure: namespaceUnproven, Reason: "/ns/3; not known"}),
			},
			list(`kept "": the sandboxes are not at their paths any more, but something keeps their network namespaces: `+
				`nothing is restored in them. If the pod is gone: relink forget CONTAINER-ID --force: 2 of 2`, `kept "": the sandboxes are not at their paths any more, and nobody knows whether they are gone: 1 of 1`),
		},
		"the same drift": {
			[]Outcome{inPod(1, "eth0", Outcome{State: ToRepair, Steps: []Step{mtu(68)}}), inPod(2, "net1", Outcome{State: ToRepair, Steps: []Step{mtu(68)}})},
			list(`drift "": MTU is 68, not 1500: 2 of 2`),
		},
		"drift of the same things": {
			[]Outcome{
				inPod(1, "eth0", Outcome{State: ToRepair, Steps: []Step{mtu(68), noAddress, noAddress}}),
				inPod(2, "net1", Outcome{State: ToRepair, Steps: []Step{mtu(70), noAddress}}),
				inPod(3, "net1", Outcome{State: ToRepair, Steps: []Step{mtu(70)}}),
			},
			list(`drift "": such as: MTU is 68, not 1500; address 10.3.0.5/24 is missing; address 10.3.0.5/24 is missing: 2 of 2`, `drift "": MTU is 70, not 1500: 1 of 1`),
		},
		"no carrier": {
			[]Outcome{
				inPod(1, "eth0", Outcome{State: AsRecorded, NoCarrier: "eth1"}), inPod(2, "eth0", Outcome{State: Restored, NoCarrier: "eth1", AnnouncementOwed: true}),
				inPod(3, "net1", Outcome{State: AsRecorded, NoCarrier: "net1", ownLink: true}), inPod(4, "net1", Outcome{State: AsRecorded, NoCarrier: "net1", ownLink: true}),
			},
			list(`carrier "eth1": eth1 has no carrier: 2 of 2`, `carrier "": net1 of shop/web-3 has no carrier: 1 of 1`, `carrier "": net1 of shop/web-4 has no carrier: 1 of 1`),
		},
		"not announced": {
			[]Outcome{inPod(1, "eth0", Outcome{State: AsRecorded, Parent: "eth1", AnnouncementOwed: true}), inPod(2, "net1", Outcome{State: AsRecorded, AnnouncementOwed: true})},
			list(`unannounced "eth1": eth1 has carrier, but the neighbours do not know yet: 1 of 1`, `unannounced "": net1 of shop/web-2 has carrier, but the neighbours do not know yet: 1 of 1`),
		},
		"interrupted": {
			[]Outcome{
				inPod(1, "eth0", Outcome{State: NotTried, Reason: "interrupted before it was restored"}),
				inPod(2, "eth0", Outcome{State: NotTried, Reason: "interrupted before it was restored"}),
			},
			list(`failure "": interrupted before it was restored: 2 of 2`),
		},
		"on a device of its own sandbox": {
			[]Outcome{inPod(1, "eth0", lostOn("")), inPod(1, "net1", lostOn("")), inPod(2, "eth0", lostOn(""))},
			list(`lost "": the interfaces on a device of shop/web-1 are gone: 2 of 1`, `lost "": the interfaces on a device of shop/web-2 are gone: 1 of 1`),
		},
		"failures of the attachment's own": {
			[]Outcome{inPod(1, "eth0", Outcome{State: Failed, Reason: "no"}), inPod(2, "eth0", Outcome{State: Failed, Reason: "no"}), inPod(3, "eth0", Outcome{State: Failed, Reason: "never"})},
			list(`failure "": no: 2 of 2`, `failure "": never: 1 of 1`),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := causeLines(Causes(Report{Attachments: test.outcomes}))
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
		var report Report
		want := map[attachment.Key]bool{}
		for n := range rapid.IntRange(0, 30).Draw(t, "attachments") {
			o := inPod(n/2, fmt.Sprintf("net%d", n%2), Outcome{
				State:  rapid.SampledFrom([]State{AsRecorded, Restored, Repaired, ToRestore, ToRepair, SandboxGone, Failed}).Draw(t, "state"),
				Reason: name(t, "reason", "no", "never"), base: name(t, "base", "", "eth1", "bond4"), failure: rapid.SampledFrom([]causeKey{{}, {kind: CauseDevice, device: "eth1"}, {kind: CauseDevice, device: "eth2"}}).Draw(t, "failure"),
				NoCarrier: name(t, "no carrier", "", "", "eth1"), ownLink: rapid.Bool().Draw(t, "own link"),
				AnnouncementOwed: rapid.Bool().Draw(t, "owed"), Parent: name(t, "parent", "", "eth1"),
				hostSteps: []Step{{Action: SetUp, Device: "eth1", Reason: "it is down"}},
			})
			for range rapid.IntRange(0, 2).Draw(t, "steps") {
				o.Steps = append(o.Steps, Step{Action: rapid.SampledFrom([]Action{SetMTU, SetUp}).Draw(t, "action"), Device: "eth0", Reason: name(t, "why", "a", "b")})
			}
			report.Attachments = append(report.Attachments, o)
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
		again.Attachments = slices.Clone(report.Attachments)
		if diff := gocmp.Diff(causes, Causes(again)); diff != "" {
			t.Fatalf("a second look tells otherwise:\n%s", diff)
		}
	})
}

// A lost parent is one cause: while it is gone, when it is back, and while it has no carrier.
func TestTheCauseOfWhatIsLost(t *testing.T) {
	p := newLiveSandbox(t)
	p.attach(t, "net1", 2)
	expect := func(what string, opts Options, want ...string) {
		t.Helper()
		opts.Store = p.store
		report := must(Run(t.Context(), opts))(t)
		if diff := gocmp.Diff(want, causeLines(Causes(report))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	expect("whole", Options{DryRun: true})
	fresh.IP(t, "", "link del lan0")
	const missing = `device "lan0": lan0 (veth) is not there: 2 of 1`
	expect("away", Options{DryRun: true}, missing)
	expect("away, restored", Options{}, missing)
	fresh.Run(t, "", "ip link add lan0 type veth peer name lan1; ip link set lan0 up")
	expect("back", Options{DryRun: true}, `lost "lan0": the interfaces on lan0 are gone: 2 of 1`)
	expect("restored, without carrier", Options{}, `carrier "lan0": lan0 has no carrier: 2 of 1`)
	fresh.IP(t, "", "link set lan1 up")
	expect("with carrier", Options{Wait: time.Minute})
	fresh.Run(t, p.netns, "ip link set eth0 mtu 1400; ip link set net1 mtu 1400")
	expect("changed", Options{DryRun: true}, `drift "": MTU is 1400, not 1500: 2 of 1`)
}

// The report keeps the live interface beside the recorded one, even if no parent is found.
func TestTheLiveInterfaceIsKept(t *testing.T) {
	p := newLiveSandbox(t)
	live := func() *netstate.Interface {
		t.Helper()
		report := must(Run(t.Context(), Options{Store: p.store, DryRun: true}))(t)
		return report.Attachments[0].Live
	}
	fresh.IP(t, p.netns, "link set eth0 mtu 1400")
	if i := live(); i == nil || i.Link.MTU != 1400 || len(i.Addresses) != 2 {
		t.Errorf("changed: %+v", i)
	}
	fresh.IP(t, p.netns, "link del eth0")
	if i := live(); i != nil {
		t.Errorf("gone: %+v", i)
	}
	p.restore(t, false)
	r := must(p.store.Load("c1", "eth0"))(t)
	r.Interface.Parents[0].Name = "lan7"
	save(t, p.store, r)
	if i := live(); i == nil || i.Link.MTU != 1500 {
		t.Errorf("without its recorded parent: %+v", i)
	}
}
