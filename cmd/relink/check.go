package main

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/adopt"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
)

func newCheck(open storeOpener) *cobra.Command {
	var output format
	var cacheDir string
	opts := restore.Options{DryRun: true}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say whether the kernel agrees with every checkpoint, and every sandbox has one",
		Long: `Say whether the kernel agrees with every checkpoint, and whether every running
sandbox with an interface on a device of the host has one. Exit status 0 if so, 1
with a line for each that differs or has none.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := cacheIsThere(cmd, cacheDir); err != nil {
				return err
			}
			if opts.Store, err = open(); err != nil {
				return err
			}
			return check(cmd.Context(), opts, cacheDir, output, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringArrayVar(&opts.Sandboxes, "sandbox", nil, "only this `sandbox`: container ID, prefix of it, or namespace/pod (repeatable)")
	addCacheDir(cmd, &cacheDir)
	addOutput(cmd, &output)
	return cmd
}

// checked is the report of a check as JSON: that of a restore that does nothing, and
// the interfaces that have no checkpoint.
type checked struct {
	restore.Report
	Unremembered []unremembered `json:"unremembered"`
}

// unremembered is an interface of a running sandbox without a checkpoint. Its key is
// the one that relink capture would give it.
type unremembered struct {
	Attachment attachment.Key       `json:"attachment"`
	Pod        attachment.Pod       `json:"pod,omitzero"`
	Namespace  attachment.Namespace `json:"namespace"`
	// Why says what keeps relink capture from writing one, if anything does.
	Why string `json:"why,omitempty"`
}

func check(ctx context.Context, opts restore.Options, cacheDir string, output format, stdout io.Writer) error {
	report, err := restore.Run(ctx, opts)
	if err != nil {
		return err
	}
	without, problems, err := adopt.Missing(adopt.Options{Store: opts.Store, CacheDir: cacheDir, Sandboxes: opts.Sandboxes})
	if err != nil {
		return err
	}
	report.Problems = append(report.Problems, problems...)
	if output == formatJSON {
		if err := writeJSON(stdout, checked{report, unrememberedOf(without)}); err != nil {
			return err
		}
	} else {
		checkLines(report, without, opts.Store.Dir(), stdout)
	}
	if !report.AsRecorded() || len(without) > 0 {
		return errDiffers
	}
	return nil
}

func unrememberedOf(found []adopt.Found) []unremembered {
	all := []unremembered{}
	for _, f := range found {
		all = append(all, unremembered{Attachment: f.Attachment, Pod: f.Pod, Namespace: f.Namespace, Why: f.Why})
	}
	return all
}

func checkLines(report restore.Report, without []adopt.Found, dir string, w io.Writer) {
	differ := 0
	for _, o := range report.Attachments {
		if !o.AsItShould() {
			differ++
			say(w, "%s %s %s: %s", o.Pod, shortID(o.Attachment.ContainerID), o.Attachment.IfName, o.Why())
		}
	}
	for _, p := range report.Problems {
		say(w, "%s", p)
	}
	for _, o := range report.Attachments {
		for _, what := range o.Interface.NotCaptured {
			say(w, "%s %s %s: not captured, would not be restored: %s", o.Pod, shortID(o.Attachment.ContainerID), o.Attachment.IfName, what)
		}
	}
	for _, f := range without {
		say(w, "%s %s %s: it has no checkpoint: %s", f.Pod, f.Namespace.Path, f.Live.Link.Name, cmp.Or(f.Why, "relink capture writes one"))
	}
	line := fmt.Sprintf("%d attachments as recorded, %d not", len(report.Attachments)-differ, differ)
	if n := len(report.Problems) + len(without); n > 0 {
		line += fmt.Sprintf(", %d other problems", n)
	}
	if len(report.Attachments) == 0 {
		line += " (in " + dir + ")"
	}
	say(w, "%s", line)
}
