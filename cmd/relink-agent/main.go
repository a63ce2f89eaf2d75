// Command relink-agent watches the devices of a node, and restores the interfaces of pods as soon as the NIC below them is
// back.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/pflag"

	"github.com/relink-cni/relink/checkpoint/agent"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/kube"
)

// Exit statuses. After exitUsage and exitNotAllowed, the unit does not start the agent again: it would end in the same
// way. Both values are from sysexits.h. Neither may be 2: a Go program ends with 2 when it panics or when the watchdog
// aborts it, and then a new start helps.
const (
	exitOK = 0
	// exitFailed: the agent's loop ended with an error.
	exitFailed = 1
	// exitUsage: the command line or the environment is wrong.
	exitUsage = 64
	// exitNotAllowed: a capability is missing, or another right.
	exitNotAllowed = 77
)

// options are the settings of the agent's loop, from the command line and from systemd.
type options struct {
	agent.Options
	// auditEvery is the time between two audits, 0 for none. gc says that an audit also frees.
	auditEvery time.Duration
	gc         bool
	// runtimeEndpoint is the endpoint of the container runtime. If it is empty, the agent finds the runtime as crictl
	// does.
	runtimeEndpoint string
	// record says which interfaces get a checkpoint: recordAll or recordOwn.
	record string
	// metricsListen is a TCP address for metrics and health, as host:port. Empty means none.
	metricsListen string
	// controller says that the process keeps address pools as a whole, and no node.
	controller bool
	// api is the Kubernetes API. It is nil if there is none.
	api *kube.Client
}

// The values of --record.
const (
	recordAll = "all"
	recordOwn = "own"
)

func main() { os.Exit(start(os.Args[1:])) }

// start runs the agent until a signal comes, and returns the exit status.
func start(args []string) int {
	opts, err := parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(os.Stderr, "relink-agent: %v\n", err)
		if errors.Is(err, errNoKubeconfig) {
			return exitFailed
		}
		return exitUsage
	case opts == nil:
		fmt.Println(cniplugin.Version)
		return exitOK
	}
	loop := run
	if opts.controller {
		loop = runController
	} else if status := logMissing(opts.Log); status != exitOK {
		return status
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() {
		// After the first signal, the work ends in order. The second signal ends the process at once.
		<-ctx.Done()
		notifySystemd(daemon.SdNotifyStopping)
		stop()
	}()
	opts.Log.Info("relink-agent starts", "version", cniplugin.Version, "checkpoints", opts.Store.Dir())
	if err := loop(ctx, *opts); err != nil && ctx.Err() == nil {
		opts.Log.Error("relink-agent ends", "error", err)
		return exitFailed
	}
	opts.Log.Info("relink-agent ends in order")
	return exitOK
}

// logMissing returns exitOK if this process may do what the agent does, and otherwise logs what is missing.
func logMissing(log *slog.Logger) int {
	problems, err := checkPermissions()
	if err != nil {
		log.Error(err.Error())
		return exitFailed
	}
	for _, problem := range problems {
		log.Error(problem)
	}
	if len(problems) > 0 {
		return exitNotAllowed
	}
	return exitOK
}
