package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/restore"
)

func newCheck(open storeOpener) *cobra.Command {
	var output format
	opts := restore.Options{DryRun: true}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say whether the kernel agrees with every checkpoint",
		Long:  "Say whether the kernel agrees with every checkpoint. Exit status 0 if it does, 1 with a line for each that differs.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if opts.Store, err = open(); err != nil {
				return err
			}
			return check(cmd.Context(), opts, output, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringArrayVar(&opts.Sandboxes, "sandbox", nil, "only this `sandbox`: container ID, prefix of it, or namespace/pod (repeatable)")
	addOutput(cmd, &output)
	return cmd
}

func check(ctx context.Context, opts restore.Options, output format, stdout io.Writer) error {
	report, err := restore.Run(ctx, opts)
	if err != nil {
		return err
	}
	if output == formatJSON {
		if err := writeJSON(stdout, report); err != nil {
			return err
		}
	} else {
		checkLines(report, stdout)
	}
	if !report.AsRecorded() {
		return errDiffers
	}
	return nil
}

func checkLines(report restore.Report, w io.Writer) {
	differ := 0
	for _, o := range report.Attachments {
		if !o.AsItShould() {
			differ++
			fmt.Fprintf(w, "%s %s %s: %s\n", o.Pod, shortID(o.Attachment.ContainerID), o.Attachment.IfName, o.Why())
		}
	}
	for _, p := range report.Problems {
		fmt.Fprintln(w, p)
	}
	fmt.Fprintf(w, "%d attachments as recorded, %d not\n", len(report.Attachments)-differ, differ)
}
