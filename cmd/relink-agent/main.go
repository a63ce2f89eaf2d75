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

	"github.com/spf13/pflag"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/kube"
)

// Exit statuses. The unit does not start the agent again after exitUsage and exitNotAllowed: it would end in the same way.
// Both are those of sysexits.h. They must not be 2: a Go program ends with 2 when it panics, and when the watchdog aborts
// it, and then a new start does help.
const (
	exitOK = 0
	// exitFailed: the working loop ended with an error.
	exitFailed = 1
	// exitUsage: the command line or the environment is wrong.
	exitUsage = 64
	// exitNotAllowed: a capability is missing, or another right.
	exitNotAllowed = 77
)

// options are what the command line and systemd say of the working loop.
type options struct {
	store *checkpoint.Store
	// hostGrace is how long the host's own network manager has for a NIC that is back, before the agent begins.
	hostGrace time.Duration
	// rebuildBond says that the agent builds a bond that is missing after that time.
	rebuildBond bool
	// runtimeEndpoint is that of the container runtime. If it is empty, the runtime is found as crictl finds it.
	runtimeEndpoint string
	// metricsListen is a TCP address for metrics and health, as host:port. It is empty if there is to be none.
	metricsListen string
	// api is the Kubernetes API. It is nil if there is none.
	api *kube.Client
	log *slog.Logger
	// supervisor takes the loop's signs of life.
	supervisor *supervisor
}

func main() { os.Exit(start(os.Args[1:])) }

// start runs the agent until a signal comes, and returns the exit status.
func start(args []string) int {
	opts, err := parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(os.Stderr, "relink-agent: %v\n", err)
		if errors.Is(err, errMayCome) {
			return exitFailed
		}
		return exitUsage
	case opts == nil:
		fmt.Println(cniplugin.Version)
		return exitOK
	}
	lacks, err := checkRights()
	if err != nil {
		opts.log.Error(err.Error())
		return exitFailed
	}
	for _, what := range lacks {
		opts.log.Error(what)
	}
	if len(lacks) > 0 {
		return exitNotAllowed
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() {
		// The first signal lets the work end in order, the second ends it at once.
		<-ctx.Done()
		opts.supervisor.stopping()
		stop()
	}()
	opts.log.Info("relink-agent starts", "version", cniplugin.Version, "checkpoints", opts.store.Dir())
	if err := run(ctx, *opts); err != nil && ctx.Err() == nil {
		opts.log.Error("relink-agent ends", "error", err)
		return exitFailed
	}
	opts.log.Info("relink-agent ends in order")
	return exitOK
}
