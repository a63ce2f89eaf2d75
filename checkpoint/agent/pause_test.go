package agent

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/statefile"
	"github.com/relink-cni/relink/test/fresh"
)

// A pause that an earlier agent noted keeps its end, whatever the date was and is. It does not outlive a boot.
func TestNotedPause(t *testing.T) {
	const length = 10 * time.Minute
	limited := must(control.NewPause(length, "firmware"))(t)
	past, otherBoot, back, forth := limited, limited, limited, limited
	past.Ends -= length
	otherBoot.BootID = "0ddba115-0000-4000-8000-000000000000"
	back.Since, back.Until = back.Since.Add(-time.Hour), back.Until.Add(-time.Hour)
	forth.Since, forth.Until = forth.Since.Add(time.Hour), forth.Until.Add(time.Hour)
	for name, test := range map[string]struct {
		noted         control.Pause
		lasts, limits bool
	}{
		"some time later":                   {limited, true, true},
		"it is over":                        {past, false, false},
		"of an earlier boot":                {otherBoot, false, false},
		"the date was an hour behind":       {back, true, true},
		"the date was an hour in advance":   {forth, true, true},
		"without an end":                    {must(control.NewPause(0, ""))(t), true, false},
		"without an end, of an earlier one": {control.Pause{Since: time.Unix(1, 0), BootID: otherBoot.BootID}, true, false},
	} {
		path := filepath.Join(t.TempDir(), "pause.json")
		if err := statefile.Save(path, test.noted); err != nil {
			t.Fatal(err)
		}
		p, err := loadPause(path)
		if err != nil || (p != nil) != test.lasts {
			t.Errorf("%s: %+v, %v", name, p, err)
			continue
		}
		if p == nil {
			continue
		}
		if left, limits := p.Remaining(); limits != test.limits || limits && (left > length || left < length-time.Minute) {
			t.Errorf("%s: %s are left (%v)", name, left, limits)
		}
	}
}

// When Pause has returned, the agent finishes no killed move, as it restores nothing. So whoever has paused it can count on that.
func TestAPausedAgentFinishesNoMove(t *testing.T) {
	n := newNode(t, "lan0")
	p := n.attach(t, "lan0", 1)
	n.start(t, nil)
	unlock := must(n.store.Lock(t.Context(), p.key.ContainerID))(t)
	defer unlock()
	r := must(n.store.Load(p.key.ContainerID, "eth0"))(t)
	note := checkpoint.Move{
		Attachment: r.Attachment, Namespace: r.Namespace, State: checkpoint.MoveBegun, Name: "eth0",
		OldParents: r.Interface.Parents, NewParents: []netstate.Device{{Kind: "veth", Name: "lan2"}}, Index: r.Interface.Link.Index,
	}
	if err := n.store.SaveMove(note); err != nil {
		t.Fatal(err)
	}
	fresh.IP(t, p.netns, "link set eth0 name rlnk40000001")
	within(t, patience, "the agent waits for the sandbox, to finish the move", func() (finishing bool) {
		must(0, n.agent.runInLoop(t.Context(), func() { finishing = n.agent.finishingMoves }))(t)
		return finishing
	})
	paused := make(chan struct{})
	go func() {
		defer close(paused)
		if _, err := n.agent.Pause(t.Context(), 0, ""); err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-paused:
		t.Error("the agent says that it is paused, and is at work")
	case <-time.After(200 * time.Millisecond):
	}
	unlock()
	<-paused
	if p.state(t) == "" {
		t.Error("the agent has not finished what it had begun")
	}
}

// A kill can come when the new interface has its name and the old one is still there. The agent deletes that one, too.
func TestTheAgentDeletesWhatAMoveHasReplaced(t *testing.T) {
	n := newNode(t, "lan0")
	p := n.attach(t, "lan0", 1)
	n.start(t, nil)
	r := must(n.store.Load(p.key.ContainerID, "eth0"))(t)
	fresh.IP(t, p.netns, "link add link eth0 name rlnk40000001 type macvlan")
	sandbox := must(kernel.Open(p.netns))(t)
	defer sandbox.Close()
	note := checkpoint.Move{
		Attachment: r.Attachment, Namespace: r.Namespace, State: checkpoint.MoveSwitched, Name: "eth0",
		OldParents: r.Interface.Parents, NewParents: r.Interface.Parents, Index: must(sandbox.Index("rlnk40000001"))(t),
	}
	if err := n.store.SaveMove(note); err != nil {
		t.Fatal(err)
	}
	within(t, patience, "nothing is left of the move", func() bool {
		there, err := sandbox.Exists("rlnk40000001")
		m, noteErr := n.store.LoadMove(p.key)
		return err == nil && !there && noteErr == nil && m.State == checkpoint.MoveDone
	})
}

// Who asks for a pause may be gone before the agent has heard it. A note without a pause would come into force at the agent's next start.
func TestAPauseAndItsNoteAreOne(t *testing.T) {
	n := newNode(t, "lan0")
	n.start(t, nil)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 {
		_, _ = n.agent.Pause(gone, 0, "")
		must(0, n.agent.runInLoop(t.Context(), func() {
			if noted := must(loadPause(n.agent.pauseFile()))(t); (noted == nil) != (n.agent.paused == nil) {
				t.Errorf("paused: %v, noted: %v", n.agent.paused, noted)
			}
		}))(t)
		must(0, n.agent.Resume(t.Context()))(t)
	}
}
