package restore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
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
	c := &chainRestore{run: &restoreRun{Options: Options{Store: store}}}
	listed := checkpoint.Record{Attachment: attachment.Key{ContainerID: "c0", IfName: "eth0"}}
	o := &Outcome{State: Failed, listed: &listed, Interface: netstate.Interface{Routes: []netstate.Route{{Device: "eth1"}}}}
	s := sandboxRestore{records: 1, restored: []restoredAttachment{{chain: c, outcome: o}}}
	c.mu.Lock()
	done := make(chan struct{})
	go func() {
		s.restoreDependents(0)
		close(done)
	}()
	time.Sleep(200 * time.Millisecond) // It waits for the lock by then.
	o.Announced = true
	c.mu.Unlock()
	<-done
	if !o.Announced || o.Reason == "" {
		t.Errorf("announced: %v, reason %q", o.Announced, o.Reason)
	}
}
