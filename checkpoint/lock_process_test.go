package checkpoint

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
)

// holdEnv turns the test binary into another relink process. It names a store. The process takes the lock of sandbox c1
// there, says so, and holds the lock until its input ends.
const holdEnv = "RELINK_TEST_HOLD_LOCK"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdEnv); dir != "" {
		hold(OpenStore(dir))
		return
	}
	os.Exit(m.Run())
}

func hold(s *Store) {
	unlock, err := s.Lock(context.Background(), "c1")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("locked")
	_, _ = io.Copy(io.Discard, os.Stdin)
	unlock()
}

// holder is another process that holds the lock.
type holder struct {
	cmd   *exec.Cmd
	input io.Closer
}

func startHolder(t *testing.T, s *Store) holder {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), holdEnv+"="+s.Dir())
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(output).ReadString('\n'); line != "locked\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	return holder{cmd, input}
}

func TestLockExcludesAnotherProcess(t *testing.T) {
	s := newStore(t)
	save(t, s, record("c1", "eth0"))
	other := startHolder(t, s)
	expectBusy(t, s, "c1")
	if err := other.input.Close(); err != nil {
		t.Fatal(err)
	}
	lock(t, s, "c1")()
	if err := other.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestLockOfAKilledProcessIsFree(t *testing.T) {
	s := newStore(t)
	other := startHolder(t, s)
	if err := other.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.cmd.Wait()
	expectFiles(t, s, "c1/", "c1/.lock")
	unlock, err := s.Lock(expiredContext(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	expectFiles(t, s)
}
