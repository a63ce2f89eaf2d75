package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/validate"
	"github.com/relink-cni/relink/pkg/printable"
)

func newValidate() *cobra.Command {
	var opts validate.Options
	cmd := &cobra.Command{
		Use:   "validate FILE|DIR...",
		Short: "Find errors in network configurations, before a pod needs them",
		Long: `Find errors in network configurations: lists of plugins (*.conflist), single plugins (*.conf,
*.json), and NetworkAttachmentDefinitions (*.yaml, *.json). It reads them as the plugins do. It
also says what this node lacks for them: devices, kernel modules, plugins, a directory for
checkpoints, one for leases. Of a directory it says which file the runtimes take.

Exit status 0: there are no errors (warnings do not count); 1: there are errors; 2: nothing
could be read.`,
		Example: `  relink validate /etc/cni/net.d
  relink validate --files-only manifests/*.yaml   # in CI: this is not the node`,
		Args: takes(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Paths = args
			report, err := validate.Run(cmd.Context(), opts)
			if err != nil {
				return err
			}
			s := screenOf(cmd)
			return s.present(report, report.Errors == 0, func() {
				for _, finding := range report.Findings {
					s.printf("%s", finding)
				}
				s.info(fmt.Sprintf("%s in %s: %s, %s",
					printable.Count(report.Networks, "network"), printable.Count(report.Files, "file"), printable.Count(report.Errors, "error"), printable.Count(report.Warnings, "warning")))
			})
		},
	}
	cmd.Flags().StringArrayVar(&opts.PluginDirs, "cni-bin", validate.PluginDirs, "`directory` of the runtime's plugins (repeatable)")
	cmd.Flags().BoolVar(&opts.FilesOnly, "files-only", false, "do not look at this node")
	addOutput(cmd)
	return cmd
}
