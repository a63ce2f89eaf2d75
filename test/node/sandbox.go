package node

import (
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/kernel/identity"
	"github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/test/fresh"
)

// EndSandbox removes the network namespace at the path, and returns once it is proven gone. Nothing but processes that the
// test can see may keep it. While another namespace has its inode, the proof can take a while.
func EndSandbox(t testing.TB, path string) {
	t.Helper()
	was, err := identity.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	fresh.Remove(t, path)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		evidence := sandbox.Prove(t.Context(), true, was)[was]
		if evidence.Verdict == sandbox.VerdictGone {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the sandbox at %s is not gone: %s", path, evidence.Reason)
		}
	}
}
