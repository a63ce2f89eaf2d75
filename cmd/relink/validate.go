package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/validate"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/printable"
)

func newValidate() *cobra.Command {
	var opts validate.Options
	cmd := newVerb("validate", func(cmd *cobra.Command, args []string) error {
		opts.Paths = args
		report, err := validate.Run(cmd.Context(), opts)
		return cli.Show(screenOf(cmd), report, err, report.Errors == 0, func(report validate.ConfigReport, s *cli.Screen) {
			s.PrintLines(cli.Strings(report.Findings))
			s.Info(fmt.Sprintf("%s in %s: %s, %s",
				printable.Count(report.Networks, "network"), printable.Count(report.Files, "file"), printable.Count(report.Errors, "error"), printable.Count(report.Warnings, "warning")))
		})
	})
	cmd.Args = cli.Takes(1, -1)
	cmd.Flags().StringArrayVar(&opts.PluginDirs, "cni-bin", validate.PluginDirs, "`directory` of the runtime's plugins (repeatable)")
	cmd.Flags().BoolVar(&opts.FilesOnly, "files-only", false, "do not look at this node")
	cli.AddOutput(cmd)
	return cmd
}
