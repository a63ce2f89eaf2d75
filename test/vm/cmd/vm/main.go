// Command vm runs a command in the test machine and exits with its status, with 124 if the machine ran into its time
// limit and with 125 if the machine failed otherwise.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/relink-cni/relink/test/vm"
)

const usage = `usage: vm [flags] -- command [argument]...
       vm -prepare

Runs a command as root in the test machine, in the current directory.

`

// Exit statuses that are not the command's own.
const (
	exitUsage     = 2
	exitTimeLimit = 124
	exitMachine   = 125
)

type options struct {
	timeout time.Duration
	memory  int
	share   string
	env     []string
	prepare bool
}

func main() {
	opts, command := parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, opts, command)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "vm: %v\n", err)
	}
	os.Exit(exitStatus(code, err))
}

// parse reads the command line; it exits if that makes no sense.
func parse() (options, []string) {
	var opts options
	flag.Usage = func() {
		_, _ = fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.DurationVar(&opts.timeout, "timeout", 0, "`limit` for the whole machine, boot included (0: 10m)")
	flag.IntVar(&opts.memory, "memory", 0, "the guest's memory in `MiB` (0: 2048)")
	flag.StringVar(&opts.share, "share", "", "host `directory` mounted read-write at /mnt/share")
	flag.BoolVar(&opts.prepare, "prepare", false, "fetch the kernel, and a qemu that knows igb, into the cache and run nothing")
	flag.Func("env", "`KEY=value` for the command's environment; can be repeated", func(pair string) error {
		opts.env = append(opts.env, pair)
		return nil
	})
	flag.Parse()
	if opts.prepare != (flag.NArg() == 0) {
		flag.Usage()
		os.Exit(exitUsage)
	}
	return opts, flag.Args()
}

func run(ctx context.Context, opts options, command []string) (int, error) {
	if opts.prepare {
		return 0, errors.Join(vm.Prepare(ctx), vm.PrepareSRIOV(ctx))
	}
	dir, err := os.Getwd()
	if err != nil {
		return 0, fmt.Errorf("finding the working directory: %w", err)
	}
	share := opts.share
	if share != "" {
		if share, err = filepath.Abs(share); err != nil {
			return 0, fmt.Errorf("finding the directory to share: %w", err)
		}
	}
	return vm.Run(ctx, vm.Config{
		Command:   command,
		Env:       opts.env,
		Dir:       dir,
		Share:     share,
		TimeLimit: opts.timeout,
		MemoryMiB: opts.memory,
	})
}

func exitStatus(code int, err error) int {
	switch {
	case err == nil:
		return code
	case errors.Is(err, vm.ErrTimeLimit):
		return exitTimeLimit
	default:
		return exitMachine
	}
}
