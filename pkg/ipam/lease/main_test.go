package lease

import (
	"flag"
	"testing"

	"github.com/relink-cni/relink/test/fresh"
)

// TestMain gives the tests mounts of their own, because some of them fill a small disk.
// With the race detector, the model draws slowly. make test-long draws more, and a flag on the command line goes first.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "50"); err != nil {
		panic(err)
	}
	fresh.Main(m)
}
