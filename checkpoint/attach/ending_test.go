package attach_test

import (
	"os"
	"testing"
	"time"

	"github.com/relink-cni/relink/test/fresh"
)

// The path of the namespace is gone, but the namespace is not: its interface answers. So the address is not free. A DEL that has waited
// for long succeeds all the same.
func TestDelWaitsForTheEndOfTheNamespace(t *testing.T) {
	for name, test := range map[string]struct{ kept, least, most time.Duration }{
		"ends soon": {300 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second},
		"is kept":   {time.Minute, 2 * time.Second, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			n, netns := newNode(t), fresh.Sandbox(t)
			n.mustCall(t, "ADD", "c1", netns)
			keeper, err := os.Open(netns)
			if err != nil {
				t.Fatal(err)
			}
			defer keeper.Close()
			fresh.Remove(t, netns)
			begun := time.Now()
			release := time.AfterFunc(test.kept, func() {
				if len(n.held(t)) != 1 {
					t.Error("the address is free, and the interface has it")
				}
				_ = keeper.Close()
			})
			defer release.Stop()
			n.mustCall(t, "DEL", "c1", netns)
			if took := time.Since(begun); took < test.least || took > test.most {
				t.Errorf("it took %s", took)
			}
			if held := n.held(t); len(held) > 0 {
				t.Errorf("addresses are left: %v", held)
			}
		})
	}
}
