package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/cniplugin"
)

// What --help and the manual page say.
const (
	about = `Watch the devices of this node. When a NIC comes back, rebuild the interfaces of running pods that
went with it. One agent runs on each node, as root; systemd or Kubernetes starts it.`
	statuses = `Exit status 0: it was asked to end; 1: it failed; 64: usage or environment;
77: a capability is missing, and the output names it.`
)

// commandLine has the values of the flags.
type commandLine struct {
	options
	dir, kubeconfig string
	level           slog.Level
	version         bool
}

// flags returns the flags, which set the values.
func (l *commandLine) flags() *pflag.FlagSet {
	flags := pflag.NewFlagSet("relink-agent", pflag.ContinueOnError)
	flags.StringVar(&l.dir, "checkpoint-dir", "", "`directory` of the checkpoints (default $"+checkpoint.DirEnv+", else "+checkpoint.DefaultDir+")")
	flags.DurationVar(&l.HostGrace, "host-grace", 2*time.Second, "how long the host's network manager has for a NIC that is back")
	flags.BoolVar(&l.RebuildBond, "rebuild-bond", false, "build a bond that is missing from its record, after --host-grace")
	flags.StringVar(&l.record, "record", recordAll, "`which` interfaces of pods get a checkpoint: all that are on devices of this node, whoever attached them, or own for those that relink attached")
	flags.StringVar(&l.runtimeEndpoint, "runtime-endpoint", "", "`endpoint` of the container runtime, such as unix:///run/containerd/containerd.sock (default as crictl finds it)")
	flags.DurationVar(&l.auditEvery, "audit-every", 5*time.Minute, "`time` between two audits of pods, checkpoints and addresses; 0 for none")
	flags.BoolVar(&l.gc, "gc", true, "free what two audits have proven dead, as relink gc does; --gc=false only audits")
	flags.StringVar(&l.metricsListen, "metrics-listen", "", "`address` that answers to /metrics, /healthz and /readyz, such as 127.0.0.1:9477 (default none)")
	flags.StringVar(&l.kubeconfig, "kubeconfig", "", "`file` that names the Kubernetes API, for the owners, events and conditions of pods, such as /etc/kubernetes/kubelet.conf (default that of the pod in which the agent runs, else none)")
	flags.BoolVar(&l.controller, "controller", false, "do not watch a node: keep what is true of address pools as a whole. Of several such processes one works")
	flags.TextVar(&l.level, "log-level", slog.LevelInfo, "least `level` of what is logged: debug, info, warn or error")
	flags.BoolVar(&l.version, "version", false, "print the version")
	flags.Usage = func() {
		fmt.Fprintf(os.Stdout, "Usage: relink-agent [flags]\n\n%s\n\nFlags:\n%s\n%s\n", about, flags.FlagUsages(), statuses)
	}
	return flags
}

// parse reads the command line. It returns nil if the command line only asks for the version.
func parse(args []string) (*options, error) {
	var line commandLine
	flags := line.flags()
	if err := flags.Parse(args); err != nil {
		return nil, fmt.Errorf("%w; see relink-agent --help", err)
	}
	opts := &line.options
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unknown argument %q; see relink-agent --help", flags.Arg(0))
	case opts.HostGrace < 0:
		return nil, fmt.Errorf("invalid --host-grace %s: must not be negative", opts.HostGrace)
	case opts.record != recordAll && opts.record != recordOwn:
		return nil, fmt.Errorf("invalid --record %q: must be %s or %s", opts.record, recordAll, recordOwn)
	case opts.auditEvery != 0 && opts.auditEvery < minAuditInterval:
		return nil, fmt.Errorf("invalid --audit-every %s: must be 0 for none, or at least %s", opts.auditEvery, minAuditInterval)
	case opts.metricsListen != "" && !isListenAddress(opts.metricsListen):
		return nil, fmt.Errorf("invalid --metrics-listen %q: must be IP:PORT such as 127.0.0.1:9477, or :PORT for all addresses of the node", opts.metricsListen)
	case line.version:
		return nil, nil
	}
	opts.Store = checkpoint.OpenStore(line.dir)
	opts.Log = newLogger(os.Stderr, line.level)
	var err error
	if opts.api, err = connect(line.kubeconfig, opts.Log); err != nil {
		return nil, err
	}
	if opts.controller && opts.api == nil {
		return nil, errors.New("invalid --controller: it needs the Kubernetes API: run it in a pod with a service account, or name a file by --kubeconfig")
	}
	opts.Version = cniplugin.Version
	watchdog, err := newSupervisor()
	if err != nil {
		return nil, err
	}
	opts.Alive, opts.LoopInterval = watchdog.notifyWatchdog, watchdog.interval
	return opts, nil
}
