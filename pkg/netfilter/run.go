package netfilter

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
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
