package netfilter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/relink-cni/relink/pkg/printable"
)

const (
	// patience is for the lock of the tables, in seconds. Other programs have it for milliseconds.
	patience = 5
	// lockWait is patience as an argument.
	lockWait = "5"
	// limit is for one run of iptables. It is longer than patience, so that iptables can say what it waits for.
	limit = 15 * time.Second
)

// output runs a program and returns what it prints, even if it fails. go-iptables takes no context, lists one chain only, and says
// of any failure with status 1 that the chain is not there.
func output(limit time.Duration, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C") // Messages are read.
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	// A script that calls iptables would leave it behind, with the script's output open.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	if err == nil {
		return stdout.String(), nil
	}
	command := strings.Join(append([]string{filepath.Base(path)}, args...), " ")
	if errors.Is(err, exec.ErrWaitDelay) {
		err = context.DeadlineExceeded // It has ended, but something that it started has its output.
	}
	if ctx.Err() != nil {
		return "", explain(command, 0, "", ctx.Err())
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return "", explain(command, 0, "", err)
	}
	return stdout.String(), explain(command, exit.ExitCode(), stderr.String(), err)
}

// editor makes changes.
type editor struct {
	family Family
	path   string
	// wait and limit are patience and limit but for tests.
	wait  int
	limit time.Duration
}

// apply makes the steps, until one fails.
func (e *editor) apply(table string, steps []step) error {
	for _, s := range steps {
		args := append([]string{"-t", table}, s.arguments()...)
		if _, err := output(e.limit, e.path, append(args, "--wait", strconv.Itoa(e.wait))...); err != nil {
			return err
		}
	}
	return nil
}

// Errors that callers match with errors.Is.
var (
	// ErrNotInstalled: iptables is not installed, or not the variant that is in use. The message says what to install.
	ErrNotInstalled = errors.New("not installed")
	// ErrLocked: another program changes the tables. It may work later.
	ErrLocked = errors.New("locked by another program")
)

// exitBusy is the exit status of iptables if it cannot have the lock, among others.
const exitBusy = 4

// explain returns the error of one run of iptables. It takes no exit status for "is not there": status 1 is that of missing
// modules, too, and the messages are different in each version.
func explain(command string, status int, message string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: no answer: %w", command, context.DeadlineExceeded)
	}
	message = printable.Line(strings.TrimSpace(message))
	// The second is for a program that has another lock file, such as one in a container.
	if status == exitBusy && (strings.Contains(message, "holding the xtables lock") || strings.Contains(message, "Resource temporarily unavailable")) {
		return fmt.Errorf("%s: %w: %s", command, ErrLocked, message)
	}
	if message == "" {
		return fmt.Errorf("%s: %w", command, err)
	}
	return fmt.Errorf("%s: exit status %d: %s", command, status, message)
}
