package restore

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

// After an interrupt during the wait for devices, the report is complete, and nothing is called failed that nobody has tried.
// Those on other devices did not wait.
func TestInterruptedWhileWaitingForADevice(t *testing.T) {
	p := newLiveSandbox(t)
	p.attach(t, "net1", 2)
	other := fresh.Sandbox(t)
	fresh.Run(t, "", "ip link add wan0 up type veth peer name wan1; ip link add pod0 link wan0 type macvlan; ip link set pod0 netns "+other+" name eth0")
	t.Cleanup(func() { fresh.IP(t, "", "link del wan0") })
	saveCheckpoint(t, p.store, other, attachment.Key{Network: "wan", ContainerID: "c2", IfName: "eth0"}, "eth0")
	fresh.IP(t, "", "link del lan0")
	t.Cleanup(func() { parent(t) })

	ctx, interrupt := context.WithCancel(t.Context())
	start := time.Now()
	var done atomic.Bool
	report := must(Run(ctx, Options{
		Store: p.store, Wait: time.Minute,
		Progress: func(int, int) { done.Store(true) },
		Waiting: func([]string) {
			if done.Load() {
				interrupt()
			}
		},
	}))(t)
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("it went on for %s", took)
	}
	var got []string
	for _, o := range report.Outcomes {
		got = append(got, o.Attachment.ContainerID+" "+o.Attachment.IfName+" "+string(o.State)+": "+o.FullReason())
	}
	want := list("c1 eth0 not tried: interrupted before its turn", "c1 net1 not tried: interrupted before its turn",
		"c2 eth0 as recorded: ")
	if diff := cmp.Diff(want, got); diff != "" || !report.Interrupted || report.Complete() {
		t.Errorf("interrupted %v, as recorded %v, (-want +got):\n%s", report.Interrupted, report.Complete(), diff)
	}
	if !slices.ContainsFunc(report.Devices, func(d DeviceState) bool { return d.Name == "lan0" && !d.Present && d.Attachments == 2 }) {
		t.Errorf("devices %+v", report.Devices)
	}
}

// If an attachment is a NIC itself, it waits for that NIC in the host.
func TestInterruptedWhileWaitingForANIC(t *testing.T) {
	p := newLiveSandbox(t)
	r := must(p.store.Load("c1", "eth0"))(t)
	own := hardware(1)
	r.Interface.Link = netstate.Link{Kind: netstate.KindNIC, Name: "net1", Alias: "ens1", MAC: "02:00:00:00:00:09", MTU: 1500, Up: true, NIC: &own}
	r.Interface.Parents, r.Attachment.IfName = nil, "net1"
	save(t, p.store, r)
	ctx, interrupt := context.WithCancel(t.Context())
	report := must(Run(ctx, Options{Store: p.store, Wait: time.Minute, Waiting: func([]string) { interrupt() }}))(t)
	for _, o := range report.Outcomes {
		if o.Attachment.IfName == "net1" {
			p.expectOutcome(t, o, change.NotTried, "interrupted before its turn")
		}
	}
	if len(report.Outcomes) != 2 {
		t.Errorf("%+v", report.Outcomes)
	}
}

// After an interrupt during the wait for carrier, each attachment says what it lacks.
func TestInterruptedWhileWaitingForCarrier(t *testing.T) {
	l := newLAN(t)
	l.deleteParent(t)
	for _, test := range []struct {
		state  change.State
		reason string
	}{
		{Restored, "eth0: it is gone from the sandbox; interrupted: lan0 has no carrier"},
		{AsRecorded, "interrupted: lan0 has no carrier"},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		report := must(Run(ctx, Options{Store: l.store, Wait: time.Minute, Waiting: func([]string) { interrupt() }}))(t)
		o := report.Outcomes[0]
		if o.State != test.state || o.Reason != test.reason || !report.Interrupted || report.Complete() {
			t.Errorf("%s: %q, interrupted %v, as recorded %v", o.State, o.Reason, report.Interrupted, report.Complete())
		}
	}
	l.connect(t)
	if report, o := l.run(t, Options{}); o.Reason != "" || !report.Complete() || report.Interrupted {
		t.Errorf("not interrupted: %+v, problems %q", o, report.Problems)
	}
}
