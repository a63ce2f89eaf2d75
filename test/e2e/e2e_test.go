package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/relink-cni/relink/test/binaries"
	"github.com/relink-cni/relink/test/kubenode"
	"github.com/relink-cni/relink/test/native"
	"github.com/relink-cni/relink/test/vm"
)

// binEnv is the environment variable that gives the guest the directory of the programs.
const binEnv = "RELINK_E2E_BIN"

// TestMain builds the programs that the stories in the test machines call.
func TestMain(m *testing.M) {
	if vm.InGuest() || native.Inside() {
		testscript.Main(m, map[string]func(){"tcp-echo": tcpEcho, "tcp-talk": tcpTalk, "busy-pods": busyPods, "survey": survey})
		return
	}
	dir, err := filepath.Abs("../../bin/test")
	if err == nil {
		err = binaries.Build(dir)
	}
	for name, of := range map[string]string{"kernel.test": "pkg/kernel", "move.test": "checkpoint/move", "lease.test": "pkg/ipam/lease"} { // The story kernel runs them.
		if err == nil {
			err = binaries.BuildTests(filepath.Join(dir, name), of)
		}
	}
	if err == nil {
		err = binaries.Build(dir+"-failpoint", "failpoint")
	}
	var node string
	if err == nil {
		node, err = kubenode.Prepare(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = os.Setenv(binEnv, dir)
	_ = os.Setenv(kubenode.Env, node)
	os.Exit(m.Run())
}

// TestStories runs every story on a test machine, on a node in a clean state. The stories of one machine share its
// NICs, so they run one after the other.
func TestStories(t *testing.T) {
	if !vm.InGuest() {
		vm.Deal(t, stories(t))
		return
	}
	tell(t, "testdata")
}

// TestNative runs each story that needs no driver, bond or VLAN on a host of its own in namespaces.
func TestNative(t *testing.T) {
	files, err := filepath.Glob("testdata/native/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories in testdata/native: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			if native.Inside() {
				testscript.RunT(sequential{t}, testscript.Params{Files: []string{file}, Setup: setup, Cmds: commands, Condition: condition, RequireExplicitExec: true})
				return
			}
			t.Parallel()
			root, err := binaries.Root()
			if err != nil {
				t.Fatal(err)
			}
			native.Run(t, root, os.Getenv(kubenode.Env))
		})
	}
}

// TestSRIOV runs the story sriov on a machine that has a NIC with VFs.
func TestSRIOV(t *testing.T) {
	if !vm.InGuest() {
		vm.DealOn(t, vm.Config{SRIOV: true}, []string{"sriov"})
		return
	}
	tell(t, "testdata/sriov")
}

// tell runs the stories of a directory.
func tell(t *testing.T, dir string) {
	t.Helper()
	testscript.RunT(sequential{t}, testscript.Params{
		Dir:                 dir,
		Setup:               setup,
		Cmds:                commands,
		RequireExplicitExec: true,
		Condition:           condition,
	})
}

// condition knows [long]. It holds in make test-long and not in make test.
func condition(name string) (bool, error) {
	if name != "long" {
		return false, fmt.Errorf("unknown condition %q", name)
	}
	return os.Getenv("RELINK_LONG") != "", nil
}

// sequential is a testscript.T whose scripts do not run in parallel.
type sequential struct{ *testing.T }

func (s sequential) Parallel() {}

func (s sequential) Verbose() bool { return testing.Verbose() }

func (s sequential) Run(name string, f func(testscript.T)) {
	s.T.Run(name, func(t *testing.T) { f(sequential{t}) })
}

// setup cleans the node and tells the story its paths.
func setup(env *testscript.Env) error {
	if !native.Inside() { // Such a host is new.
		if err := cleanNode(); err != nil {
			return fmt.Errorf("clean the node: %w", err)
		}
	}
	bin := os.Getenv(binEnv)
	if native.Inside() {
		bin += "-failpoint" // There, the host's processes are all that there are.
		env.Setenv("RELINK_FAILPOINT_ALL_PROCESSES", "1")
	}
	configs, err := filepath.Abs("../../docs/examples")
	if err != nil {
		return err
	}
	env.Values[kubeletKey] = &kubelet{}
	env.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	env.Setenv("CNI_PATH", bin)
	env.Setenv("NETCONFPATH", filepath.Join(env.WorkDir, "net.d"))
	env.Setenv("EXAMPLES", configs)
	env.Setenv("KILLABLE", os.Getenv(binEnv)+"-failpoint")
	// This test binary is also some of the stories' programs. They need these variables.
	env.Setenv("RELINK_VM", os.Getenv("RELINK_VM"))
	env.Setenv(native.Env, os.Getenv(native.Env))
	return nil
}
