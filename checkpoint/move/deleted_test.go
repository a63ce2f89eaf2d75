package move

import (
	"slices"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/selection"
	"github.com/relink-cni/relink/test/fresh"
)

// A pod that is deleted during the move is left out, and the others are verified. One whose checkpoint alone vanishes is
// a failure.
func TestPodsDeletedDuringTheMove(t *testing.T) {
	n := newNode(t, 3)
	opts := n.options("lan0", "lan2")
	finished := 0
	opts.Progress = func(_, _ int) {
		if finished++; finished < 3 { // All have switched when the last one has.
			return
		}
		fresh.Run(t, n.pods[0], "ip link del eth0")
		for _, id := range []string{"c0", "c1"} {
			if err := n.store.Forget(id, "eth0"); err != nil {
				t.Error(err)
			}
		}
	}
	want := []string{
		"web-0 eth0 deleted it was deleted during the move",
		"web-1 eth0 failed its checkpoint has vanished, and it is not proven gone: relink capture writes one", "web-2 eth0 moved",
	}
	if r := must(Run(t.Context(), opts))(t); r.Complete() || !slices.Equal(states(r), want) {
		t.Errorf("%q", states(r))
	}
	opts = n.options("lan2", "lan0")
	opts.Select = selection.Selection{Names: []string{"web-2"}}
	opts.Progress = func(_, _ int) {
		fresh.Run(t, n.pods[2], "ip link del eth0")
		if err := n.store.Forget("c2", "eth0"); err != nil {
			t.Error(err)
		}
	}
	if r := must(Run(t.Context(), opts))(t); !r.Complete() || !slices.Equal(states(r), []string{"web-2 eth0 deleted it was deleted during the move"}) {
		t.Errorf("%q", states(r))
	}
}

// An attachment that cannot be moved stays refused when its checkpoint alone vanishes.
func TestRefusedWithoutCheckpoint(t *testing.T) {
	n := newNode(t, 1)
	records, _, err := n.store.List()
	if err != nil || len(records) != 1 {
		t.Fatal(records, err)
	}
	if err := n.store.Forget("c0", "eth0"); err != nil {
		t.Fatal(err)
	}
	r := &moveRun{Options: n.options("lan0", "lan2"), moves: []*job{newJob(records[0], nil, 0, "it has no way")}}
	r.markDeleted(t.Context())
	if o := r.moves[0].outcome; o.State != change.Refused || o.Reason != "it has no way" || r.canProceed() {
		t.Errorf("%s %q, may proceed: %v", o.State, o.Reason, r.canProceed())
	}
}

// A DEL forgets the checkpoint, and takes a while until the interface is gone. Its attachment is deleted, not lost.
func TestADELThatIsUnderWay(t *testing.T) {
	n := newNode(t, 1)
	records, _, err := n.store.List()
	if err != nil || len(records) != 1 {
		t.Fatal(records, err)
	}
	unlock := must(n.store.Lock(t.Context(), "c0"))(t)
	if err := n.store.Forget("c0", "eth0"); err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(200 * time.Millisecond)
		fresh.Run(t, n.pods[0], "ip link del eth0")
		unlock()
	}()
	r := &moveRun{Options: n.options("lan0", "lan2"), moves: []*job{newJob(records[0], nil, 0, "")}}
	r.markDeleted(t.Context())
	if o := r.moves[0].outcome; o.State != Deleted {
		t.Errorf("%s: %s", o.State, o.Reason)
	}
}
