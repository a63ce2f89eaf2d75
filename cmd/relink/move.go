package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/move"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/selection"
)

func newMove() *cobra.Command {
	opts := move.Options{Wait: 5 * time.Second}
	cmd := newVerb("move", func(cmd *cobra.Command, args []string) (err error) {
		if len(args) == 0 {
			return errors.New("relink move needs OLD=NEW: the device that the pods are on, and the one to move them to")
		}
		if opts.Source, opts.Target, err = parseMove(args[0]); err != nil {
			return err
		}
		opts.Select.Names = args[1:]
		s := screenOf(cmd)
		opts.Progress = s.Progress("sandbox")
		report, err := move.Run(cmd.Context(), opts)
		return movedOutcomes(opts, report).present(s, err)
	})
	flags := cmd.Flags()
	flags.BoolVar(&opts.DryRun, "dry-run", false, "print what a move would do, and change nothing")
	flags.BoolVar(&opts.Force, "force", false, "leave out what cannot be moved, and move the rest")
	flags.BoolVar(&opts.NoProbe, "no-probe", false, "do not ask whether the gateways answer on the new device")
	cli.AddDuration(cmd, &opts.Wait, false, "wait", "how long to wait until the new device has carrier and the gateways answer on it")
	addSelection(cmd, &opts.Select, &opts.Store)
	cli.AddOutput(cmd)
	return cmd
}

// parseMove reads OLD=NEW.
func parseMove(pair string) (source, target string, err error) {
	source, target, ok := strings.Cut(pair, "=")
	if !ok {
		return "", "", fmt.Errorf("invalid argument %q: give OLD=NEW first, such as eth0=eth2", pair)
	}
	for _, name := range []string{source, target} {
		if err := attachment.ValidateIfName(name); err != nil {
			return "", "", fmt.Errorf("invalid argument %q: device %q %w", pair, name, err)
		}
	}
	return source, target, nil
}

func movedOutcomes(opts move.Options, report move.UplinkReport) outcomes {
	slowest := time.Duration(0)
	moved := newOutcomes(report.Report, "nothing to move", "POD | INTERFACE:1 | FROM:3 | TO:2", func(o move.AttachmentOutcome) outcome {
		slowest = max(slowest, o.SwitchDuration)
		return newOutcome(o.Outcome, selection.ShortID(o.Attachment.ContainerID), podCell(o.Pod, o.Attachment.ContainerID), o.Attachment.IfName, o.OldParent, o.NewParent)
	}, move.Moved, move.ToMove, move.Deleted, change.Refused, change.NotTried, change.Failed)
	moved.report, moved.steps = report, report.Steps
	if n := len(report.Problems); n > 0 {
		moved.summary += ", " + printable.Count(n, "other problem")
	}
	moved.summary = fmt.Sprintf("%s=%s: %s in %s", opts.Source, opts.Target, moved.summary, report.Duration.Round(time.Millisecond))
	switch {
	case slowest > 0:
		moved.summary += fmt.Sprintf("; a pod took %s at most to switch", slowest.Round(10*time.Microsecond))
	case report.Unchanged() && !report.DryRun && report.Count(change.Refused) > 0:
		moved.summary += "; nothing was moved"
		if report.Count(move.ToMove) > 0 {
			moved.summary += ": --force moves what can be moved"
		}
	}
	return moved
}
