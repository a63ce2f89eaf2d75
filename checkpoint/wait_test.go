package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/flock"
)

// A long wait names the lock and its holder.
func TestALongWaitNamesTheLock(t *testing.T) {
	s := newStore(t)
	save(t, s, podRecord("c1", "eth0", "shop", "web-0"), record("c2", "eth0"))
	for _, take := range []func() (func(), error){
		func() (func(), error) { return s.TryLock("c1") },
		func() (func(), error) { return s.TryLock("c2") },
		func() (func(), error) { return s.LockNode(t.Context(), HostLock) },
	} {
		unlock, err := take()
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
	}
	alone := lockParents(t, s)
	if !alone.TryExclusive() {
		t.Fatal("somebody else has the parents")
	}

	ctx, cancel := context.WithTimeout(t.Context(), flock.NoticeAfter*30)
	defer cancel()
	told := make(chan string, 4)
	s.OnWait(func(line string) {
		if told <- line; len(told) == cap(told) {
			cancel() // All have told: nobody needs to wait any longer.
		}
	})
	waits := map[string]func() error{
		"shop/web-0":         func() error { _, err := s.Lock(ctx, "c1"); return err },
		"c2":                 func() error { _, err := s.Lock(ctx, "c2"); return err },
		"the host's devices": func() error { _, err := s.LockNode(ctx, HostLock); return err },
		"the VLAN parents":   func() error { _, err := s.LockParents(ctx); return err },
	}
	busy := make(chan error, len(waits))
	for _, wait := range waits {
		go func() { busy <- wait() }()
	}
	for range waits {
		if err := <-busy; !errors.Is(err, ErrBusy) {
			t.Errorf("%v, want ErrBusy", err)
		}
	}
	close(told)
	got, want := map[string]bool{}, map[string]bool{}
	for line := range told {
		lock, holder, _ := strings.Cut(line, " (held by ")
		got[lock] = strings.HasSuffix(holder, fmt.Sprintf(", process %d)", os.Getpid()))
	}
	for lock := range waits {
		want["waiting for the lock of "+lock] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("told, and whether with the holder (-want +got):\n%s", diff)
	}
}

// A short wait is not reported. On a busy machine a wait can last longer than it should: that one shows nothing.
func TestAShortWaitIsNotTold(t *testing.T) {
	s := newStore(t)
	told := ""
	s.OnWait(func(line string) { told = line })
	for took := flock.NoticeAfter; took >= flock.NoticeAfter; {
		told = ""
		unlock := lock(t, s, "c1")
		time.AfterFunc(flock.NoticeAfter/10, unlock)
		begun := time.Now()
		again := lock(t, s, "c1")
		took = time.Since(begun)
		again()
	}
	if told != "" {
		t.Errorf("told: %s", told)
	}
}
