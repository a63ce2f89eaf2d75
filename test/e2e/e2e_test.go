package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/relink-cni/relink/test/binaries"
	"github.com/relink-cni/relink/test/vm"
)

// binEnv names the directory of the programs to the guest.
const binEnv = "RELINK_E2E_BIN"

// TestMain builds the programs and goes on in the test machine.
func TestMain(m *testing.M) {
	if vm.InGuest() {
		testscript.Main(m, map[string]func(){"tcp-echo": tcpEcho, "tcp-talk": tcpTalk})
		return
	}
	dir, err := filepath.Abs("../../bin/test")
	if err == nil {
		err = binaries.Build(dir)
	}
	if err == nil {
		err = binaries.BuildTests(filepath.Join(dir, "kernel.test"), "pkg/kernel")
	}
	if err == nil {
		err = binaries.Build(dir+"-failpoint", "failpoint")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = os.Setenv(binEnv, dir)
	vm.Main(m)
}

// TestStories runs every story on a node in a clean state. They share the node's
// NICs, so that they run one after the other.
func TestStories(t *testing.T) {
	testscript.RunT(sequential{t}, testscript.Params{
		Dir:                 "testdata",
		Setup:               setup,
		Cmds:                commands,
		RequireExplicitExec: true,
	})
}

// sequential is a testscript.T whose scripts don't run beside each other.
type sequential struct{ *testing.T }

func (s sequential) Parallel() {}

func (s sequential) Verbose() bool { return testing.Verbose() }

func (s sequential) Run(name string, f func(testscript.T)) {
	s.T.Run(name, func(t *testing.T) { f(sequential{t}) })
}

// setup cleans the node and tells the story where things are.
func setup(env *testscript.Env) error {
	if err := cleanNode(); err != nil {
		return fmt.Errorf("clean the node: %w", err)
	}
	bin := os.Getenv(binEnv)
	configs, err := filepath.Abs("../../docs/examples")
	if err != nil {
		return err
	}
	env.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	env.Setenv("CNI_PATH", bin)
	env.Setenv("NETCONFPATH", filepath.Join(env.WorkDir, "net.d"))
	env.Setenv("EXAMPLES", configs)
	env.Setenv("KILLABLE", bin+"-failpoint")
	// For the programs that this test binary also is.
	env.Setenv("RELINK_VM", os.Getenv("RELINK_VM"))
	return nil
}
