package restore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// A chain announces an attachment while another chain restores it again: the outcome has both.
func TestAnnouncedWhileRestoredAgain(t *testing.T) {
	store := checkpoint.OpenStore(t.TempDir())
	dir := filepath.Join(store.Dir(), "c0")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "eth0.json"), []byte("torn"), 0o600)); err != nil {
		t.Fatal(err)
	}
	state := &attachmentState{
		listed:  &checkpoint.Record{Attachment: attachment.Key{ContainerID: "c0", IfName: "eth0"}},
		outcome: Outcome{Outcome: change.Outcome{State: change.Failed}, Interface: netstate.Interface{Routes: []netstate.Route{{Device: "eth1"}}}},
	}
	c, o := newTestChain(&Restorer{store: store}, Options{}, state), &state.outcome
	c.attachments.mu.Lock()
	done := make(chan struct{})
	go func() {
		c.restoreListed(state)
		close(done)
	}()
	time.Sleep(200 * time.Millisecond) // It waits for the lock by then.
	o.Announced = true
	c.attachments.mu.Unlock()
	<-done
	if !o.Announced || o.Reason == "" {
		t.Errorf("announced: %v, reason %q", o.Announced, o.Reason)
	}
}
