package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/install"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/printable"
)

func newInstall() *cobra.Command {
	var opts install.Options
	var dryRun, noStart bool
	cmd := newVerb("install", func(cmd *cobra.Command, _ []string) (err error) {
		if err := checkInstallDirs(opts.Root, opts.CNIBin); err != nil {
			return err
		}
		if opts.SourceDir == "" {
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find the directory of this program: %w; name it with --from", err)
			}
			opts.SourceDir = filepath.Dir(program)
		}
		if opts.Completions, err = completions(cmd.Root()); err != nil {
			return err
		}
		plan, err := opts.Plan()
		if err != nil {
			return err
		}
		return installAll(cmd.Context(), plan, opts, dryRun, noStart, screenOf(cmd))
	})
	flags := cmd.Flags()
	flags.StringVar(&opts.SourceDir, "from", "", "`directory` of the release's programs (default: where this relink is)")
	flags.StringVar(&opts.CNIBin, "cni-bin", install.DefaultCNIBin, "`directory` in which the container runtime looks for plugins")
	flags.StringVar(&opts.Root, "root", "", "install into the system that is mounted on this `directory`")
	flags.BoolVar(&opts.PluginsOnly, "plugins-only", false, "put the plugins into --cni-bin, and do nothing else")
	flags.BoolVar(&noStart, "no-start", false, "do not enable and start the agent")
	flags.BoolVar(&opts.Force, "force", false, "install beside a package of a distribution")
	flags.BoolVar(&dryRun, "dry-run", false, "print which files go where, and change nothing")
	for _, dir := range []string{"from", "cni-bin", "root"} {
		cli.Must(cmd.MarkFlagDirname(dir))
	}
	return cmd
}

// checkInstallDirs refuses directories that cannot be meant.
func checkInstallDirs(root, cniBin string) error {
	if !filepath.IsAbs(cniBin) {
		return fmt.Errorf("invalid --cni-bin %q: must be an absolute path", cniBin)
	}
	if root == "" {
		return nil
	}
	if err := checkDirectory(root); err != nil {
		return fmt.Errorf("invalid --root: %w", err)
	}
	return nil
}

// completions are the files that relink completion writes.
func completions(root *cobra.Command) (map[string][]byte, error) {
	var bash, zsh, fish bytes.Buffer
	err := errors.Join(root.GenBashCompletionV2(&bash, true), root.GenZshCompletion(&zsh), root.GenFishCompletion(&fish, true))
	return map[string][]byte{"bash": bash.Bytes(), "zsh": zsh.Bytes(), "fish": fish.Bytes()}, err
}

// installAll carries out the plan and starts the agent, or says what it would do.
func installAll(ctx context.Context, plan *install.Plan, opts install.Options, dryRun, noStart bool, s *cli.Screen) error {
	if !dryRun {
		if err := plan.Apply(); err != nil {
			return cli.ReportDifference(s, err)
		}
	}
	writeSteps(plan, s)
	if dryRun || opts.PluginsOnly || noStart {
		return nil
	}
	service := install.Service{Root: opts.Root}
	if reason := service.Unmanageable(); reason != "" {
		s.Info("the agent is not started: " + reason + ". Start /usr/local/sbin/relink-agent at each boot")
		return nil
	}
	err := service.Start(ctx, plan.NeedsRestart())
	if err != nil {
		err = fmt.Errorf("the files are installed, but the agent does not run: %w; journalctl -u %s says why", err, install.Unit)
	} else {
		err = plan.SaveStarted()
	}
	if err != nil {
		return cli.ReportDifference(s, err)
	}
	state := "is enabled and runs"
	if opts.Root != "" {
		state = "is enabled in " + opts.Root
	}
	s.Info(install.Unit + " " + state)
	return nil
}

// writeSteps prints what is done about each file. Files that stay as they are have a line only on a verbose screen.
func writeSteps(plan *install.Plan, s *cli.Screen) {
	for _, step := range plan.Steps {
		if step.Action != install.Keep || s.Verbose {
			s.Info(fmt.Sprintf("%s %s", step.Action, step.Path))
		}
	}
	if !plan.Changes() {
		s.Info(printable.Count(len(plan.Steps), "file") + " to keep, nothing to change")
	}
}
