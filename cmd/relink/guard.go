package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/guard"
	"github.com/relink-cni/relink/cmd/internal/cli"
)

const guardVerb = "guard"

// guardStatus is the exit status of a guard that did nothing.
func guardStatus(err error) int {
	switch {
	case !errors.Is(err, guard.ErrCannotRun):
		return guard.StatusNotRun
	case errors.Is(err, os.ErrPermission):
		return guard.StatusCannotRun
	}
	return guard.StatusNotFound
}

func newGuard() *cobra.Command {
	plan := guard.Plan{Limit: 4 * time.Minute, KillAfter: 5 * time.Second, Wait: 30 * time.Second}
	var follow, resume bool
	var via []string
	cmd := newVerb("guard", func(cmd *cobra.Command, args []string) (err error) {
		plan.Command = args
		if plan.Via, err = guard.ParseVia(via); err != nil {
			return err
		}
		if err := checkGuard(cmd, plan, follow || resume); err != nil {
			return err
		}
		if follow {
			return followGuard(cmd)
		}
		return runGuard(cmd, plan, resume)
	})
	cmd.Args = cli.Takes(0, -1)
	cmd.DisableFlagsInUseLine = true
	flags := cmd.Flags()
	flags.SetInterspersed(false) // Everything from COMMAND on is its own.
	cli.AddDuration(cmd, &plan.Limit, true, "limit", "end COMMAND after this `time`: Kubernetes evicts pods five minutes after the kubelet's last sign")
	cli.AddDuration(cmd, &plan.KillAfter, true, "kill-after", "how long COMMAND may take to end before it gets the next signal: SIGINT, SIGTERM, SIGKILL")
	cli.AddDuration(cmd, &plan.Wait, false, "wait", "how long to wait for missing devices, and again for their carrier")
	flags.StringArrayVar(&plan.Stop, "stop", nil, "`unit` of systemd to stop meanwhile (repeatable; default the kubelet's, that of k3s or of RKE2; with --via none)")
	flags.StringArrayVar(&via, "via", nil, "move the pods to this `device` before COMMAND, and back afterwards; OLD=NEW (repeatable) if pods are on several devices")
	flags.BoolVar(&plan.Force, "force", false, "go on if not everything is as recorded, a checkpoint cannot be written, the agent cannot be paused, a pod cannot be moved, or COMMAND only takes a device away")
	flags.BoolVar(&plan.RebuildBond, "rebuild-bond", false, "build a missing bond from its record: mode, options, MAC, MTU, members")
	flags.BoolVar(&plan.HostAddresses, "host-addresses", false, "bring back the addresses and routes that VLAN parents and bonds had themselves")
	addCacheDir(cmd, &plan.CacheDir)
	flags.BoolVar(&follow, "follow", false, "show the log of the guard that is under way, and end with its exit status; if none is under way, show the last one")
	flags.BoolVar(&resume, "resume", false, "finish the work of a guard that was killed")
	return cmd
}

// checkGuard reports what is wrong with the command line.
func checkGuard(cmd *cobra.Command, plan guard.Plan, alone bool) error {
	switch {
	case alone && len(plan.Command)+len(plan.Via) > 0:
		return errors.New("--follow and --resume take no COMMAND and no --via: the guard that began knows them")
	case !alone && len(plan.Command) == 0:
		return fmt.Errorf("an argument is missing: %s", cmd.UseLine())
	}
	return nil
}

func followGuard(cmd *cobra.Command) error {
	status, err := guard.Follow(cmd.Context(), cli.StreamOf(cmd.OutOrStdout()).Writer)
	if err == nil && status != 0 {
		err = cli.ExitStatus(status)
	}
	return err
}

func runGuard(cmd *cobra.Command, plan guard.Plan, resume bool) error {
	store, err := openStore(cmd)
	if err != nil {
		return err
	}
	if plan.CheckpointDir, err = filepath.Abs(store.Dir()); err != nil {
		return err
	}
	// Not by way of the streams: nothing may depend on whether somebody reads.
	opts := guard.Options{Store: store, Out: cli.StreamOf(cmd.OutOrStdout()).Writer}
	quiet := cli.FlagText(cmd, "quiet") == "true"
	if quiet {
		opts.Out = io.Discard
	}
	var j guard.Journal
	if resume {
		j, err = guard.Finish(cmd.Context(), opts)
	} else {
		j, err = guard.Run(cmd.Context(), plan, opts)
	}
	if err != nil {
		return err
	}
	if quiet {
		for _, problem := range append(j.Troubles, j.Abandoned) {
			if problem != "" {
				cli.PrintError(cmd.ErrOrStderr(), errors.New(problem))
			}
		}
	}
	logRun(false, fmt.Sprintf("guard ended with exit status %d", j.Status), j.Troubles, nil)
	if j.Status != 0 {
		return cli.ExitStatus(j.Status)
	}
	return nil
}
