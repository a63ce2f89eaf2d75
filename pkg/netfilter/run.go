package netfilter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/relink-cni/relink/pkg/printable"
)

const (
	// patience is for the lock of the tables, in seconds. Other programs have it for milliseconds.
	patience = 5
	// limit is for one run of iptables. It is longer than patience, so that iptables can say what it waits for.
	limit = 15 * time.Second
)

// Errors that callers match with errors.Is.
var (
	// ErrNotInstalled: iptables is not installed. The message says what to install.
	ErrNotInstalled = errors.New("not installed")
	// ErrLocked: another program changes the tables. It may work later.
	ErrLocked = errors.New("locked by another program")
)

// IsTransient says that the error may be over at the next try: another program has the tables.
func IsTransient(err error) bool {
	return errors.Is(err, ErrLocked) || errors.Is(err, context.DeadlineExceeded)
}

// exitBusy is the exit status of iptables if it cannot have the lock, among others.
const exitBusy = 4

// output runs a program with the input, and returns what it prints. It takes no exit status for "is not there": status 1 is that of
// missing modules, too, and the messages are different in each version. go-iptables does, and takes no context.
func output(limit time.Duration, input, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C") // Messages are read.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	cmd.WaitDelay = time.Second
	// A script that calls iptables would leave it behind, with the script's output open.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	if err == nil {
		return stdout.String(), nil
	}
	command := filepath.Base(path) + " " + strings.Join(args, " ")
	if ctx.Err() != nil || errors.Is(err, exec.ErrWaitDelay) { // The latter: something that it started has its output.
		return "", fmt.Errorf("%s: no answer: %w", command, context.DeadlineExceeded)
	}
	message := printable.Line(strings.TrimSpace(stderr.String()))
	// The second message is for a program that has another lock file, such as one in a container.
	if cmd.ProcessState.ExitCode() == exitBusy && (strings.Contains(message, "holding the xtables lock") || strings.Contains(message, "Resource temporarily unavailable")) {
		err = ErrLocked
	}
	return "", fmt.Errorf("%s: %w: %s", command, err, message)
}
