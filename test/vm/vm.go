package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"
)

// How a machine can fail. Each comes wrapped, with the last lines of the guest's console.
var (
	// ErrPanic: the guest's kernel panicked.
	ErrPanic = errors.New("the guest's kernel panicked")
	// ErrTimeLimit: the machine was ended at Config.TimeLimit.
	ErrTimeLimit = errors.New("the machine ran into its time limit")
	// ErrNoResult: the machine ended by itself and the command's exit status did not come back.
	ErrNoResult = errors.New("the machine ended without a result")
)

const (
	defaultTimeLimit  = 10 * time.Minute
	defaultMemoryMiB  = 2048
	defaultProcessors = 2
)

// Config says what a machine is to run. Only Command is required.
type Config struct {
	// Command is the argv run in the guest. A name without a slash is looked up in the guest's PATH.
	Command []string
	// Env holds "KEY=value" pairs added to the guest's environment.
	Env []string
	// Dir is the command's working directory in the guest; "/" if empty.
	Dir string
	// Share is a host directory that the guest mounts read-write at /mnt/share, its path is in the guest's
	// RELINK_VM_SHARE. If empty, a temporary one is used and deleted afterwards.
	Share string
	// Writable lists host directories, as absolute paths, that the guest writes through to at the same path. Everything
	// else of the host is read-only: what the guest writes there is gone with the machine.
	Writable []string
	// Output gets the command's stdout and stderr, in the order and at the time they were written. nil: os.Stdout. Run
	// returns only after its last Write did.
	Output io.Writer
	// TimeLimit is for the whole machine, boot included, downloads excluded. 0: ten minutes.
	TimeLimit time.Duration
	// MemoryMiB is the guest's memory in MiB; 0: 2048. What the guest writes outside Share and Writable is kept there.
	MemoryMiB int
	// Processors is how many the guest has; 0: two.
	Processors int
	// SRIOV gives the machine a third NIC, an igb with 7 VFs. The guest has it when it loads igb. It needs qemu 8 or newer.
	SRIOV bool
}

// Run boots a machine, runs the command in it and returns the command's exit status: 128+n if signal n ended it, 126 or
// 127 if it could not be started. An error says that the machine failed, not the command; errors.Is then tells ErrPanic,
// ErrTimeLimit and ErrNoResult apart, anything else is a failure to set the machine up, or ctx's error. No process is
// left when Run returns.
func Run(ctx context.Context, cfg Config) (exitCode int, err error) {
	m, err := newMachine(ctx, cfg)
	if err != nil {
		return 0, err
	}
	defer m.remove()
	return m.run(ctx)
}

// InGuest tells whether this process runs in the test machine.
func InGuest() bool {
	return os.Getenv("RELINK_VM") == "1"
}

var environmentPair = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

func (c Config) withDefaults() (Config, error) {
	if len(c.Command) == 0 || c.Command[0] == "" {
		return c, errors.New("no command to run in the guest")
	}
	for _, pair := range c.Env {
		if !environmentPair.MatchString(pair) {
			return c, fmt.Errorf("%q is not KEY=value", pair)
		}
	}
	if c.Dir == "" {
		c.Dir = "/"
	}
	if c.Output == nil {
		c.Output = os.Stdout
	}
	if c.TimeLimit <= 0 {
		c.TimeLimit = defaultTimeLimit
	}
	if c.MemoryMiB <= 0 {
		c.MemoryMiB = defaultMemoryMiB
	}
	if c.Processors <= 0 {
		c.Processors = defaultProcessors
	}
	return c, nil
}
