package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/kernel/identity"
	"github.com/relink-cni/relink/test/fresh"
)

// A restore on a terminal that waits for a lock says so on a line of its own. The status line is there by then, unless the machine
// is so busy that the restore has not been at the other sandbox yet: then nothing is shown.
func TestRestoreSaysOnALineOfItsOwnThatItWaits(t *testing.T) {
	store := remembered(t)
	host := filepath.Join(t.TempDir(), "host")
	fresh.At(t, host)
	twoSandboxes(t, store)
	const says = "relink: waiting for the lock of shop/web-0 "
	all := restoreThatWaits(t, store, host)
	for tries := 1; strings.HasPrefix(all, says) && tries < 10; tries++ {
		all = restoreThatWaits(t, store, host)
	}
	if !strings.Contains(all, "1 of 2 sandboxes\r\x1b[K"+says) {
		t.Errorf("the terminal shows %q", all)
	}
}

// restoreThatWaits runs a restore on a terminal, which waits for the lock of a sandbox until it has said so. It returns what the
// terminal shows.
func restoreThatWaits(t *testing.T, store *checkpoint.Store, host string) string {
	t.Helper()
	unlock, err := store.Lock(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	file := filepath.Join(t.TempDir(), "shown")
	cmd := terminalOf(t, "80", []string{"NO_COLOR=1"}, "--checkpoint-dir "+store.Dir()+" restore --wait 0s")
	shown, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer shown.Close()
	cmd.Stdout = shown
	var failed error
	if err := fresh.In(host, func() { failed = cmd.Start() }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	all := func() string {
		b, _ := os.ReadFile(file)
		return string(b)
	}
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(all(), "waiting for the lock"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			break
		}
	}
	unlock()
	_ = cmd.Wait() // It fails, because the parent does not exist.
	return all()
}

// twoSandboxes puts two live sandboxes into the store. Their parent does not exist.
func twoSandboxes(t *testing.T, store *checkpoint.Store) {
	t.Helper()
	records, _, err := store.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"c1", "c2"} {
		path := filepath.Join(t.TempDir(), id)
		fresh.At(t, path)
		r := records[0]
		r.Attachment.ContainerID = id
		if r.Namespace, err = identity.Read(path); err != nil {
			t.Fatal(err)
		}
		if err := store.Save(r); err != nil {
			t.Fatal(err)
		}
	}
}
