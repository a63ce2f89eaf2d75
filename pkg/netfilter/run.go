package netfilter

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/coreos/go-iptables/iptables"
)

const (
	// patience is for the lock of the tables, in seconds. Other programs have it for milliseconds.
	patience = 5
	// lockWait is patience as an argument.
	lockWait = "5"
	// limit is for one run of iptables. It is longer than patience, so that iptables can say what it waits for.
	limit = 15 * time.Second
)

// output runs a program and returns what it prints, even if it fails. go-iptables lists one chain only, and says
// of any failure with status 1 that the chain is not there.
func output(limit time.Duration, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C") // Messages are read.
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	cmd.Cancel = func() error {
		killTree(cmd.Process)
		return nil
	}
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

// editor makes changes by go-iptables. It asks for the program's version once, when there is something to change.
type editor struct {
	family Family
	path   string
	// wait and limit are patience and limit but for tests.
	wait   int
	limit  time.Duration
	client *iptables.IPTables
}

// apply makes the steps, until one fails.
func (e *editor) apply(table string, steps []step) error {
	for _, s := range steps {
		if err := e.applyStep(table, s); err != nil {
			return err
		}
	}
	return nil
}

func (e *editor) applyStep(table string, s step) error {
	command := strings.Join(append([]string{filepath.Base(e.path), "-t", table}, s.arguments()...), " ")
	return explainChange(command, withDeadline(e.limit, func() error {
		program, err := e.program()
		if err != nil {
			return err
		}
		return s.apply(program, table)
	}))
}

func (e *editor) program() (*iptables.IPTables, error) {
	if e.client != nil {
		return e.client, nil
	}
	protocol := iptables.ProtocolIPv4
	if e.family == IPv6 {
		protocol = iptables.ProtocolIPv6
	}
	client, err := iptables.New(iptables.Path(e.path), iptables.IPFamily(protocol), iptables.Timeout(e.wait))
	if err == nil {
		e.client = client
	}
	return client, err
}

// apply makes the step. It asks for nothing before: go-iptables takes any failure with status 1 for "is not there".
func (s step) apply(program *iptables.IPTables, table string) error {
	switch s.kind {
	case newChain:
		return program.NewChain(table, s.chain)
	case appendRule:
		return program.Append(table, s.chain, s.rule...)
	case insertRule:
		return program.Insert(table, s.chain, s.position, s.rule...)
	case deleteRule:
		return program.Delete(table, s.chain, s.rule...)
	case deleteAt:
		return program.DeleteById(table, s.chain, s.position)
	case flush:
		return program.ClearChain(table, s.chain)
	}
	return program.DeleteChain(table, s.chain)
}
