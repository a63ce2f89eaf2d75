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

// parse reads the command line. It returns nil if only the version is asked for.
func parse(args []string) (*options, error) {
	flags := pflag.NewFlagSet("relink-agent", pflag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintf(os.Stdout, `Usage: relink-agent [flags]

Watch the devices of this node. When a NIC comes back, rebuild the interfaces of running pods that
went with it. One agent runs on each node, as root; systemd or Kubernetes starts it.

Flags:
%s
Exit status 0: it was asked to end; 1: it failed; 64: usage or environment;
77: a capability is missing, and the output names it.
`, flags.FlagUsages())
	}
	var opts options
	var dir, kubeconfig string
	var level slog.Level
	flags.StringVar(&dir, "checkpoint-dir", "", "`directory` of the checkpoints (default $"+checkpoint.DirEnv+", else "+checkpoint.DefaultDir+")")
	flags.DurationVar(&opts.hostGrace, "host-grace", 2*time.Second, "how long the host's network manager has for a NIC that is back")
	flags.BoolVar(&opts.rebuildBond, "rebuild-bond", false, "build a bond that is missing from its record, after --host-grace")
	flags.StringVar(&opts.runtimeEndpoint, "runtime-endpoint", "", "`endpoint` of the container runtime, such as unix:///run/containerd/containerd.sock (default as crictl finds it)")
	flags.StringVar(&opts.metricsListen, "metrics-listen", "", "`address` that answers to /metrics, /healthz and /readyz, such as 127.0.0.1:9477 (default none)")
	flags.StringVar(&kubeconfig, "kubeconfig", "", "`file` that names the Kubernetes API for events on pods, such as /etc/kubernetes/kubelet.conf (default that of the pod in which the agent runs, else none)")
	flags.TextVar(&level, "log-level", slog.LevelInfo, "least `level` of what is logged: debug, info, warn or error")
	version := flags.Bool("version", false, "print the version")
	if err := flags.Parse(args); err != nil {
		return nil, fmt.Errorf("%w; see relink-agent --help", err)
	}
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unknown argument %q; see relink-agent --help", flags.Arg(0))
	case opts.hostGrace < 0:
		return nil, fmt.Errorf("invalid --host-grace %s: must not be negative", opts.hostGrace)
	case opts.metricsListen != "" && !isAddress(opts.metricsListen):
		return nil, fmt.Errorf("invalid --metrics-listen %q: must be IP:PORT such as 127.0.0.1:9477, or :PORT for all addresses of the node", opts.metricsListen)
	case *version:
		return nil, nil
	}
	opts.store = checkpoint.OpenStore(dir)
	opts.log = newLogger(os.Stderr, level)
	var err error
	if opts.api, err = connect(kubeconfig, opts.log); err != nil {
		return nil, err
	}
	opts.supervisor, err = newSupervisor()
	return &opts, err
}
