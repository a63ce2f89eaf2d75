package move

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

const temporary = "rlnk40000001"

// killBetweenRenames leaves the first pod as a kill does that comes when the old interface has lost its name.
func (n *node) killBetweenRenames(t *testing.T) {
	t.Helper()
	r := must(n.store.Load("c0", "eth0"))(t)
	note := checkpoint.Move{
		Attachment: r.Attachment, Namespace: r.Namespace, State: checkpoint.MoveBegun, Name: "eth0",
		OldParents: r.Interface.Parents, NewParents: []netstate.Device{{Kind: "veth", Name: "lan2"}}, Index: r.Interface.Link.Index,
	}
	if err := n.store.SaveMove(note); err != nil {
		t.Fatal(err)
	}
	fresh.Run(t, n.pods[0], "ip link set eth0 name "+temporary)
}

// The interface is on the new device, and its checkpoint has the old one: what is to be done is said, and not that it is left alone.
func TestALookAtAKilledMoveSaysWhatFinishesIt(t *testing.T) {
	n := newNode(t, 1)
	n.killBetweenRenames(t)
	sandbox := must(kernel.Open(n.pods[0]))(t)
	defer sandbox.Close()
	moved := netstate.Interface{Link: netstate.Link{Kind: netstate.KindMacvlan, Name: "eth0", Macvlan: &netstate.Macvlan{Mode: "bridge"}}}
	if _, err := kernel.Build(n.host, sandbox, must(n.host.Index("lan2"))(t), moved); err != nil {
		t.Fatal(err)
	}
	looked := must(capture.Run(t.Context(), capture.Options{Store: n.store, CacheDir: t.TempDir(), DryRun: true}))(t)
	for _, o := range looked.Outcomes {
		if o.State == change.Refused && !strings.Contains(o.Reason, checkpoint.ErrUnfinishedMove.Error()) {
			t.Errorf("capture refuses %s: %s", o.Interface.Link.Name, o.Reason)
		}
	}
	fresh.IP(t, n.pods[0], "link del "+temporary)
	report := must(restore.Run(t.Context(), restore.Options{Store: n.store, DryRun: true}))(t)
	if o := report.Outcomes[0]; o.Reason != checkpoint.ErrUnfinishedMove.Error() {
		t.Errorf("%s: %s", o.State, o.Reason)
	}
}

// Nobody reads an interface into its checkpoint while its move has not ended.
func TestATemporaryNameIsNeverRecorded(t *testing.T) {
	n := newNode(t, 1)
	n.killBetweenRenames(t)
	sandbox := must(kernel.Open(n.pods[0]))(t)
	defer sandbox.Close()
	for _, refresh := range []bool{false, true} {
		report := must(capture.Run(t.Context(), capture.Options{Store: n.store, CacheDir: t.TempDir(), Refresh: refresh}))(t)
		if refresh && report.Complete() {
			t.Errorf("capture is content: %+v", report)
		}
	}
	_, err := capture.Renewal{
		Store: n.store, Host: n.host, Devices: must(n.host.Devices())(t), Namespace: sandbox.Identity(), ContainerIDs: []string{"c0"},
		LinkHistory: func() capture.LinkHistory { return capture.LinkHistory{NeverDown: true} },
	}.Renew(t.Context())
	if !errors.Is(err, checkpoint.ErrUnfinishedMove) {
		t.Errorf("the refresher: %v", err)
	}
	records, _, err := n.store.List()
	if err != nil || len(records) != 1 || records[0].Interface.Link.Name != "eth0" {
		t.Errorf("%v %v", records, err)
	}
	if err := FinishKilled(t.Context(), n.store); err != nil {
		t.Fatal(err)
	}
	n.expectParent(t, "lan0", 2)
}

// A move waits for another one, and nobody finishes a move that is under way.
func TestTwoMovesAtOnce(t *testing.T) {
	n := newNode(t, 1)
	unlock := must(n.store.LockMoves(t.Context()))(t)
	n.killBetweenRenames(t)
	if err := FinishKilled(t.Context(), n.store); err != nil {
		t.Error(err)
	}
	if note := must(n.store.LoadMove(attachment.Key{ContainerID: "c0", IfName: "eth0"}))(t); note.State != checkpoint.MoveBegun || note.Attachment != (attachment.Key{Network: "lan", ContainerID: "c0", IfName: "eth0"}) {
		t.Errorf("the note is %+v", note)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := Run(ctx, n.options("lan0", "lan2")); err == nil || !strings.Contains(err.Error(), "another relink move is at work") {
		t.Error(err)
	}
	unlock()
	if r := must(Run(t.Context(), n.options("lan0", "lan2")))(t); !r.Complete() {
		t.Errorf("%q", states(r))
	}
	n.expectParent(t, "lan2", 0)
}

// A sandbox that has gone without a DEL leaves nothing to finish: the agent would look for it once a second.
func TestNothingIsUnsettledInASandboxThatIsGone(t *testing.T) {
	n := newNode(t, 2)
	n.killBetweenRenames(t)
	if !HasUnfinished(n.store) {
		t.Error("nothing is unsettled")
	}
	fresh.Remove(t, n.pods[0])
	if HasUnfinished(n.store) {
		t.Error("a move is unsettled in a sandbox that is gone")
	}
	if err := n.store.Forget("c0", "eth0"); err != nil {
		t.Fatal(err)
	}
	if err := FinishKilled(t.Context(), n.store); err != nil {
		t.Error(err)
	}
	if notes := must(n.store.Moves())(t); len(notes) > 0 {
		t.Errorf("after the DEL, the notes are %+v", notes)
	}
}
