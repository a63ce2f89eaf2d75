package checkpoint

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/selection"
)

func TestTheHostIsChangedByOneAtATime(t *testing.T) {
	s := newStore(t)
	unlock, err := s.LockNode(t.Context(), HostLock)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.LockNode(ctx, HostLock); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), ".host.lock") {
		t.Errorf("a second one: %v", err)
	}
	// An ADD does not wait for the host's lock, and does not delay its holder.
	lockParents(t, s)
	go func() {
		time.Sleep(10 * time.Millisecond)
		unlock()
	}()
	again, err := s.LockNode(t.Context(), HostLock)
	if err != nil {
		t.Fatal(err)
	}
	again()
	if quiet, err := s.NoSandboxLocked(); !quiet || err != nil {
		t.Errorf("quiet: %v, %v", quiet, err)
	}
	if records, unreadable, err := s.Select(selection.Selection{}); len(records)+len(unreadable) > 0 || err != nil {
		t.Errorf("the lock is taken for a checkpoint: %v, %v, %v", records, unreadable, err)
	}
}
