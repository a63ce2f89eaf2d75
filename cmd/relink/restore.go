package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/printable"
)

func newRestore(open storeOpener) *cobra.Command {
	var output format
	var parents []string
	var opts restore.Options
	cmd := &cobra.Command{
		Use:   "restore " + nameUsage,
		Short: "Rebuild what the kernel lost: VLAN parents, bond members, pod interfaces",
		Long: `Rebuild what the kernel lost: enslave bond members that came back, create VLAN
parents, create or repair interfaces in the surviving sandboxes with their old
MAC, addresses and routes, tell the neighbours, and verify.

Nothing that is present and right is touched: it can be run again at any time.
Exit status 0: everything is as recorded; 1: something is not, each said; 2: usage
or environment.`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.Select.Names = args
			if opts.Select.Parent, opts.Mapped, err = parseParents(parents); err != nil {
				return err
			}
			if opts.Wait < 0 {
				return fmt.Errorf("invalid --wait %s: must not be negative", opts.Wait)
			}
			if opts.Store, err = open(); err != nil {
				return err
			}
			opts.Progress, opts.Waiting = progressOn(cmd.ErrOrStderr()), waitingOn(cmd.ErrOrStderr())
			return restoreAll(cmd.Context(), opts, output, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opts.DryRun, "dry-run", false, "print what would be done and why, and change nothing")
	addSelection(cmd, &opts.Select)
	flags.DurationVar(&opts.Wait, "wait", 30*time.Second, "wait so long for missing devices, and again for their carrier")
	flags.BoolVar(&opts.RebuildBond, "rebuild-bond", false, "build a bond that is missing from its record: mode, options, members")
	flags.BoolVar(&opts.HostAddresses, "host-addresses", false, "bring back the addresses and routes that VLAN parents and bonds carried themselves")
	flags.StringArrayVar(&parents, "parent", nil, "only attachments on this `device`; with OLD=NEW: the device OLD of the checkpoints is NEW now (repeatable)")
	addOutput(cmd, &output)
	return cmd
}

// parseParents reads the values of --parent: a device that selects, and pairs that map one device to another.
func parseParents(values []string) (selected string, mapped map[string]string, err error) {
	mapped = map[string]string{}
	for _, value := range values {
		was, is, pair := strings.Cut(value, "=")
		if !pair {
			if selected != "" && selected != value {
				return "", nil, fmt.Errorf("invalid --parent %q: --parent %s selects already; to say that a device has another name now, write OLD=NEW", value, selected)
			}
			selected = value
			continue
		}
		for _, name := range []string{was, is} {
			if err := attachment.ValidateIfName(name); err != nil {
				return "", nil, fmt.Errorf("invalid --parent %q: device %q %w", value, name, err)
			}
		}
		if other, twice := mapped[was]; twice && other != is {
			return "", nil, fmt.Errorf("invalid --parent %q: %s is %s already", value, was, other)
		}
		mapped[was] = is
	}
	return selected, mapped, nil
}

// heapGrowth lets the heap grow to so many percent of what is live before it is
// collected: a restore is over soon, and 5,000 sandboxes stay below 100 MB.
const heapGrowth = 300

func restoreAll(ctx context.Context, opts restore.Options, output format, stdout io.Writer) error {
	debug.SetGCPercent(heapGrowth)
	kernel.HoldProcessor()
	report, err := restore.Run(ctx, opts)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(stdout)
	if output == formatJSON {
		err = writeJSON(w, report)
	} else {
		err = writeReport(report, opts.Store.Dir(), w)
	}
	if err := errors.Join(err, w.Flush()); err != nil {
		return err
	}
	if !report.AsRecorded() {
		return errDiffers
	}
	return nil
}

func writeReport(report restore.Report, dir string, w io.Writer) error {
	for _, note := range report.Notes {
		say(w, "%s", note)
	}
	for _, step := range report.Parents {
		line := fmt.Sprintf("%s: %s", step, step.Reason)
		if step.Error != "" {
			line += ": FAILED: " + step.Error
		}
		say(w, "%s", line)
	}
	if err := writeAttachments(report, w); err != nil {
		return err
	}
	for _, p := range report.Problems {
		say(w, "%s", p)
	}
	say(w, "%s", summary(report, dir))
	return nil
}

func writeAttachments(report restore.Report, w io.Writer) error {
	if len(report.Attachments) == 0 {
		return nil
	}
	t := newTable(w, "POD", "INTERFACE", "PARENT", "ADDRESS", "MAC", "STATE", "WHY")
	for _, o := range report.Attachments {
		pod := o.Pod.String()
		if o.Pod == (attachment.Pod{}) {
			pod = shortID(o.Attachment.ContainerID)
		}
		t.row(pod, o.Attachment.IfName, o.Parent, addressList(o.Interface.Addresses), o.Interface.Link.MAC, string(o.State), tableReason(o))
		if report.DryRun {
			for _, s := range o.Steps {
				t.row(" ", " ", " ", " ", " ", " ", s.String())
			}
		}
	}
	return t.flush()
}

// tableReason is the reason for a table below which the parents' steps have been
// said already: they concern every row alike.
func tableReason(o restore.Outcome) string {
	if o.Reason != "" {
		return o.Reason
	}
	return o.ParentReason
}

// summary counts the attachments by state; dir is where they are remembered.
func summary(report restore.Report, dir string) string {
	counts := map[restore.State]int{}
	for _, o := range report.Attachments {
		counts[o.State]++
	}
	var parts []string
	for _, s := range []restore.State{
		restore.Restored, restore.Repaired, restore.ToRestore, restore.ToRepair,
		restore.AsRecorded, restore.Skipped, restore.Failed,
	} {
		if counts[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[s], s))
		}
	}
	if len(parts) == 0 {
		parts = []string{"no attachments are remembered in " + dir}
	}
	if n := len(report.Problems); n > 0 {
		parts = append(parts, fmt.Sprintf("%d other problems", n))
	}
	line := strings.Join(parts, ", ") + " in " + report.Took.Round(time.Millisecond).String()
	if report.Waited >= time.Millisecond {
		line += fmt.Sprintf(", %s of it waiting for devices and carrier", report.Waited.Round(time.Millisecond))
	}
	return line
}

// waitingOn returns a function that says once of each thing that it is waited for.
func waitingOn(w io.Writer) func(reasons []string) {
	said := map[string]bool{}
	return func(reasons []string) {
		for _, r := range reasons {
			if !said[r] {
				said[r] = true
				say(w, "waiting: %s", r)
			}
		}
	}
}

// progressOn returns a function that shows progress on a terminal, or nil where
// there is none.
func progressOn(w io.Writer) func(done, total int) {
	if p, ok := w.(*printable.Writer); ok {
		w = p.To // The progress moves the cursor on purpose.
	}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return func(done, total int) {
		fmt.Fprintf(w, "\r%d of %d sandboxes", done, total)
		if done == total {
			fmt.Fprint(w, "\r\x1b[K")
		}
	}
}
