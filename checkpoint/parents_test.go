package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/flock"
)

func lockParents(t *testing.T, s *Store) *ParentLock {
	t.Helper()
	p, err := s.LockParents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	return p
}

func TestParentsAreSharedByMany(t *testing.T) {
	s := newStore(t)
	first, second := lockParents(t, s), lockParents(t, s)
	if first.TryExclusive() {
		t.Error("alone beside another")
	}
	if !second.TryExclusive() {
		t.Error("not alone, though the other's hold went when it asked")
	}
}

func TestParentsReleasedAreFree(t *testing.T) {
	s := newStore(t)
	first, second := lockParents(t, s), lockParents(t, s)
	first.Release()
	if !second.TryExclusive() {
		t.Error("not alone after the other's release")
	}
}

func TestParentsAloneKeepsEverybodyOffUntilRelease(t *testing.T) {
	s := newStore(t)
	p := lockParents(t, s)
	if !p.TryExclusive() {
		t.Fatal("not alone")
	}
	f, err := os.Open(filepath.Join(s.Dir(), ".parents.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := flock.Try(f, flock.Shared); !errors.Is(err, flock.ErrBusy) {
		t.Errorf("another's hold: %v, want ErrBusy", err)
	}
	p.Release()
	if err := flock.Try(f, flock.Shared); err != nil {
		t.Errorf("another's hold after the release: %v", err)
	}
}

// The wait for a process that holds the parents' lock alone has an end. The error names that process.
func TestShareParentsWaitsNoLongerThanItMay(t *testing.T) {
	s := newStore(t)
	if !lockParents(t, s).TryExclusive() {
		t.Fatal("not alone")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := s.LockParents(ctx)
	if who := fmt.Sprintf("process %d", os.Getpid()); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), who) {
		t.Errorf("%v, want %v by %s", err, ErrBusy, who)
	}
}

func TestParentsLockIsNoSandbox(t *testing.T) {
	s := newStore(t)
	lockParents(t, s)
	if records, unreadable, err := s.List(); records != nil || unreadable != nil || err != nil {
		t.Errorf("List() = %v, %v, %v", records, unreadable, err)
	}
}
