package vm_test

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/relink-cni/relink/test/vm"
)

func TestSessionRunsOneCommandAfterTheOther(t *testing.T) {
	t.Parallel()
	session, err := vm.Open(t.Context(), vm.Config{Processors: 1, Output: newTimedOutput()})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	for _, test := range []struct {
		script, output string
		code           int
	}{
		{`echo first; echo "$GREETING" >&2; pwd; nproc; exit 7`, "first\nit's \"me\"\n/usr/share\n1\n", 7},
		{"echo kept >/tmp/file; exit 137", "", 137},
		{"cat; cat /tmp/file; seq 20000 | tail -n 1; printf end", "kept\n20000\nend", 0},
	} {
		output, code, err := session.Run(t.Context(), vm.Config{
			Command: []string{"sh", "-c", test.script}, Env: []string{"GREETING=it's \"me\""}, Dir: "/usr/share",
		})
		if output != test.output || code != test.code || err != nil {
			t.Errorf("%s: %q, %d, %v; want %q, %d", test.script, output, code, err, test.output, test.code)
		}
	}
	const panics = "echo before; sysctl -qw kernel.panic=0; echo c >/proc/sysrq-trigger; sleep 100" // It does not reboot.
	output, _, err := session.Run(t.Context(), vm.Config{Command: []string{"sh", "-c", panics}})
	if !errors.Is(err, vm.ErrPanic) || !strings.Contains(err.Error(), "sysrq triggered crash") || output != "before\n" {
		t.Errorf("of a panic: %q, %v", output, err)
	}
	if _, _, err := session.Run(t.Context(), vm.Config{Command: []string{"true"}}); !errors.Is(err, vm.ErrPanic) {
		t.Errorf("after a panic: %v", err)
	}
}

func TestBadSession(t *testing.T) {
	for name, cfg := range map[string]vm.Config{
		"command": {Command: []string{"true"}}, "directory": {Dir: "/"}, "share": {Share: t.TempDir()},
	} {
		if _, err := vm.Open(t.Context(), cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// dealtEnv makes TestDealt deal its subtests out. They are for TestDeal, which looks at what
// comes of them.
const dealtEnv = "RELINK_DEALT"

func TestDealt(t *testing.T) {
	switch {
	case vm.InGuest():
		t.Run("wrong", func(t *testing.T) { t.Error("seen to be wrong") })
		t.Run("crash", func(*testing.T) { _ = os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0) })
		t.Run("good", func(t *testing.T) { t.Log("seen to be good") })
		t.Run("good too", func(*testing.T) {})
	case os.Getenv(dealtEnv) != "":
		// Who fails costs a machine, so good and wrong share one.
		names := []string{"good", "crash", "wrong", "missing", "good_too"}
		vm.Deal(t, names)
	}
}

// A failure is told, and concerns its own subtest only. What -test.run leaves out does not run.
func TestDeal(t *testing.T) {
	t.Parallel()
	expectDealt(t, "TestDealt/(wrong|good)$", 1,
		"--- FAIL: TestDealt/wrong ", "seen to be wrong", "exit status 1 in the test machine", "--- PASS: TestDealt/good ", "seen to be good")
}

// Whatever happens to a machine, the others run all the same.
func TestDealGoesOn(t *testing.T) {
	t.Parallel()
	expectDealt(t, "TestDealt/(wrong|crash|missing|good)$", 2,
		"--- FAIL: TestDealt/wrong ", "seen to be wrong",
		"--- FAIL: TestDealt/crash ", vm.ErrPanic.Error(), "sysrq triggered crash",
		"--- FAIL: TestDealt/missing ", "it did not run in the test machine",
		"--- PASS: TestDealt/good ", "seen to be good")
}

func expectDealt(t *testing.T, pattern string, machines int, told ...string) {
	t.Helper()
	output, err := dealt(pattern, machines)
	if err == nil || strings.Contains(output, "good_too") {
		t.Errorf("it does not fail, or a subtest runs that -test.run leaves out")
	}
	for _, want := range told {
		if !strings.Contains(output, want) {
			t.Errorf("%q is not told", want)
		}
	}
	if t.Failed() {
		t.Log(output)
	}
}

// TestSpends deals its subtests out for TestDealLeavesASpentMachine.
func TestSpends(t *testing.T) {
	const changed = "/etc/changed-for-good"
	switch {
	case vm.InGuest():
		t.Run("first", func(t *testing.T) {
			if err := errors.Join(os.WriteFile(changed, nil, 0o600), vm.Spend()); err != nil {
				t.Error(err)
			}
		})
		t.Run("second", func(t *testing.T) {
			if _, err := os.Stat(changed); err == nil {
				t.Error("runs in the spent machine")
			}
		})
	case os.Getenv(dealtEnv) != "":
		vm.Deal(t, []string{"first", "second"})
	}
}

func TestDealLeavesASpentMachine(t *testing.T) {
	t.Parallel()
	output, err := dealt("TestSpends", 1)
	if err != nil || !strings.Contains(output, "--- PASS: TestSpends/second ") {
		t.Errorf("%v\n%s", err, output)
	}
}

// dealt runs this test binary anew, with as many machines.
func dealt(pattern string, machines int) (string, error) {
	cmd := exec.Command("/proc/self/exe", "-test.run="+pattern, "-test.v", "-test.parallel="+strconv.Itoa(machines))
	cmd.Env = append(os.Environ(), dealtEnv+"=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
