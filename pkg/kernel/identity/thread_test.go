package identity

import (
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/relink-cni/relink/test/fresh"
)

// Whoever reads an identity is where he was before, and so is everybody else.
func TestReadLeavesEverybodyWhereTheyAre(t *testing.T) {
	here := func() string {
		link, err := os.Readlink("/proc/thread-self/ns/net")
		if err != nil {
			t.Error(err)
		}
		return link
	}
	home := here()
	sandboxes := []string{fresh.Sandbox(t), fresh.Sandbox(t)}
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if _, err := Read(sandboxes[i%2]); err != nil {
				t.Error(err)
			}
			if now := here(); now != home {
				t.Errorf("in %s, was in %s", now, home)
			}
		})
	}
	all.Wait()
}
