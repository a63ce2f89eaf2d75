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

func share(t *testing.T, s *Store) *Parents {
	t.Helper()
	p, err := s.ShareParents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	return p
}

func TestParentsAreSharedByMany(t *testing.T) {
	s := newStore(t)
	first, second := share(t, s), share(t, s)
	if first.Alone() {
		t.Error("alone beside another")
	}
	if !second.Alone() {
		t.Error("not alone, though the other's hold went when it asked")
	}
}

func TestParentsReleasedAreFree(t *testing.T) {
	s := newStore(t)
	first, second := share(t, s), share(t, s)
	first.Release()
	if !second.Alone() {
		t.Error("not alone after the other's release")
	}
}

func TestParentsAloneKeepsEverybodyOffUntilRelease(t *testing.T) {
	s := newStore(t)
	p := share(t, s)
	if !p.Alone() {
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
	if !share(t, s).Alone() {
		t.Fatal("not alone")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := s.ShareParents(ctx)
	if who := fmt.Sprintf("process %d", os.Getpid()); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), who) {
		t.Errorf("%v, want %v by %s", err, ErrBusy, who)
	}
}

func TestParentsLockIsNoSandbox(t *testing.T) {
	s := newStore(t)
	share(t, s)
	if records, unreadable, err := s.List(); records != nil || unreadable != nil || err != nil {
		t.Errorf("List() = %v, %v, %v", records, unreadable, err)
	}
}
