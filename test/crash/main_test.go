package crash

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/relink-cni/relink/test/binaries"
	"github.com/relink-cni/relink/test/fresh"
)

// bin is the directory of the programs that can be killed at a step. released has the programs as they are released.
var bin, released string

func TestMain(m *testing.M) {
	dir, err := filepath.Abs("../../bin")
	bin, released = filepath.Join(dir, "test-failpoint"), filepath.Join(dir, "test")
	if err == nil && os.Getenv("RELINK_FRESH") == "" {
		if err = binaries.Build(released); err == nil {
			err = binaries.Build(bin, "failpoint")
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fresh.EnterAlone()
	status := m.Run()
	fmt.Printf("%d kills, each at another step, and %d at any time; %d rounds of everything at once, %d operations\n",
		total.kills.Load(), total.anywhere.Load(), total.rounds, total.operations)
	fmt.Printf("%d interleavings of a StatefulSet's scaling; %s\n", total.interleavings.Load(), total.crowd)
	os.Exit(status)
}

// times is how often a test repeats what comes out differently each time: n times, and thirty times as often in make
// test-long.
func times(n int) int {
	if os.Getenv("RELINK_LONG") != "" {
		return 30 * n
	}
	return n
}

// total counts what all tests have tried. Tests that run at the same time count the kills.
var total struct {
	kills, anywhere, interleavings atomic.Int64
	rounds, operations             int
	// crowd says how long many ADDs at once waited for each other.
	crowd string
}

// No released program has the code that can kill it at a step.
func TestReleasedProgramsHaveNoFailpoints(t *testing.T) {
	const saving = "temporary file made"
	for name, step := range map[string]string{
		"relink": saving, "relink-macvlan": saving, "relink-vlan": saving, "relink-checkpoint": saving, "relink-ipam": "store half made",
	} {
		for dir, want := range map[string]bool{released: false, bin: true} {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			for _, mark := range []string{killEnv, allEnv, step} {
				if has := bytes.Contains(b, []byte(mark)); has != want {
					t.Errorf("%s in %s has %q: %v, want %v", name, dir, mark, has, want)
				}
			}
		}
	}
}
