package crash

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/relink-cni/relink/test/binaries"
	"github.com/relink-cni/relink/test/fresh"
)

// bin is where the programs are that can be killed at a step, released those as they
// are released.
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
	fmt.Printf("%d kills, each at another step; %d rounds of everything at once, %d operations\n", total.kills, total.rounds, total.operations)
	os.Exit(status)
}

// total counts what all tests have tried.
var total struct{ kills, rounds, operations int }

// What can kill a program at a step is in no program that is released.
func TestReleasedProgramsHaveNoFailpoints(t *testing.T) {
	for _, name := range []string{"relink", "relink-macvlan", "relink-vlan", "relink-checkpoint"} {
		for dir, want := range map[string]bool{released: false, bin: true} {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			for _, mark := range []string{killEnv, "temporary file made"} {
				if has := bytes.Contains(b, []byte(mark)); has != want {
					t.Errorf("%s in %s has %q: %v, want %v", name, dir, mark, has, want)
				}
			}
		}
	}
}
