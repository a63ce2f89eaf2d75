package flock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// open opens the same file anew: flock(2) tells open files apart, not processes.
func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestTry(t *testing.T) {
	for _, test := range []struct {
		name         string
		first, other int
		want         error
	}{
		{"two readers", Shared, Shared, nil},
		{"a writer beside a reader", Shared, Exclusive, ErrBusy},
		{"a reader beside a writer", Exclusive, Shared, ErrBusy},
		{"two writers", Exclusive, Exclusive, ErrBusy},
	} {
		path := filepath.Join(t.TempDir(), "lock")
		first, other := open(t, path), open(t, path)
		if err := Try(first, test.first); err != nil {
			t.Fatal(err)
		}
		if err := Try(other, test.other); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
		_ = first.Close()
		if err := Try(other, test.other); err != nil {
			t.Errorf("%s, after the first is closed: %v", test.name, err)
		}
	}
}

func TestLockWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, other := open(t, path), open(t, path)
	if err := Try(first, Exclusive); err != nil {
		t.Fatal(err)
	}
	got := make(chan error)
	go func() { got <- Lock(t.Context(), other, Exclusive) }()
	select {
	case err := <-got:
		t.Fatalf("got the lock beside another: %v", err)
	case <-time.After(20 * time.Millisecond): // Nothing depends on how long this is.
	}
	_ = first.Close()
	if err := <-got; err != nil {
		t.Errorf("after the first is closed: %v", err)
	}
	if err := Try(open(t, path), Shared); !errors.Is(err, ErrBusy) {
		t.Errorf("another: %v, want %v", err, ErrBusy)
	}
}

// A lock that nobody waits for any more goes as soon as it comes.
func TestLockEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first := open(t, path)
	late, err := os.OpenFile(path, os.O_RDWR, 0) // Lock closes it.
	if err != nil {
		t.Fatal(err)
	}
	if err := Try(first, Exclusive); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Lock(ctx, late, Exclusive); !errors.Is(err, ErrBusy) {
		t.Fatalf("%v, want %v", err, ErrBusy)
	}
	_ = first.Close()
	if err := Lock(t.Context(), open(t, path), Exclusive); err != nil {
		t.Errorf("after the first is closed: %v", err)
	}
}

func TestLockOfWhatCantBeLocked(t *testing.T) {
	f := open(t, filepath.Join(t.TempDir(), "lock"))
	_ = f.Close()
	if err := Lock(t.Context(), f, Exclusive); err == nil || errors.Is(err, ErrBusy) {
		t.Errorf("a closed file: %v", err)
	}
}
