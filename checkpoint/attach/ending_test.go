package attach_test

import (
	"os"
	"testing"
	"time"

	"github.com/relink-cni/relink/test/fresh"
)

// The path of the namespace is gone, but the namespace is not: its interface answers. So the address is not free. A DEL that has waited
// for long succeeds all the same. The kernel of a busy machine can take longer than a DEL waits for the end, but not each time.
func TestDelWaitsForTheEndOfTheNamespace(t *testing.T) {
	for name, test := range map[string]struct{ kept, least, most time.Duration }{
		"ends soon": {300 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second},
		"is kept":   {time.Minute, 2 * time.Second, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			took := n.delOfKept(t, test.kept)
			for tries := 1; took > test.most && tries < 5; tries++ {
				took = n.delOfKept(t, test.kept)
			}
			if took < test.least || took > test.most {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// delOfKept attaches and removes a sandbox whose namespace is kept for that long, and returns how long the DEL took.
func (n *node) delOfKept(t *testing.T, kept time.Duration) time.Duration {
	t.Helper()
	netns := fresh.Sandbox(t)
	n.mustCall(t, "ADD", "c1", netns)
	keeper, err := os.Open(netns)
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close()
	fresh.Remove(t, netns)
	begun := time.Now()
	release := time.AfterFunc(kept, func() {
		if len(n.leasedAddresses(t)) != 1 {
			t.Error("the address is free, and the interface has it")
		}
		_ = keeper.Close()
	})
	defer release.Stop()
	n.mustCall(t, "DEL", "c1", netns)
	took := time.Since(begun)
	if held := n.leasedAddresses(t); len(held) > 0 {
		t.Errorf("addresses are left: %v", held)
	}
	return took
}
