package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/guard"
	"github.com/relink-cni/relink/checkpoint/hostends"
	"github.com/relink-cni/relink/checkpoint/install"
	"github.com/relink-cni/relink/cmd/internal/cli"
)

func newUninstall() *cobra.Command {
	var opts install.Options
	var dryRun, force, purge bool
	cmd := newVerb("uninstall", func(cmd *cobra.Command, _ []string) error {
		if err := checkInstallDirs(opts.Root, install.DefaultCNIBin); err != nil {
			return err
		}
		if purge && opts.Root != "" {
			return fmt.Errorf("--purge and --root cannot be used together: delete the checkpoints and leases below %s yourself", opts.Root)
		}
		plan, err := opts.PlanUninstall()
		var store *checkpoint.Store
		careful := opts.Root == "" && !force
		if err == nil && (careful || purge) {
			store, err = openStore(cmd)
		}
		if err == nil && careful {
			if err = checkNoGuard(); err == nil {
				err = install.CheckUnused(cmd.Context(), store)
			}
		}
		if err == nil && purge {
			_, err = install.Purgeable(store)
		}
		if err != nil {
			return err
		}
		s := screenOf(cmd)
		if dryRun {
			writeSteps(plan, s)
			return nil
		}
		err = uninstallAll(cmd.Context(), plan, opts, s)
		if err == nil && purge {
			err = purgeAll(cmd.Context(), store, s)
		}
		return err
	})
	flags := cmd.Flags()
	flags.StringVar(&opts.Root, "root", "", "uninstall from the system that is mounted on this `directory`")
	flags.BoolVar(&force, "force", false, "uninstall even while checkpoints of living sandboxes exist, or while a guard has not finished")
	flags.BoolVar(&purge, "purge", false, "delete all checkpoints and leases of this node, too")
	flags.BoolVar(&dryRun, "dry-run", false, "print what it would take away, and change nothing")
	cli.Must(cmd.MarkFlagDirname("root"))
	return cmd
}

// checkNoGuard returns an error while the work of a guard is not finished: relink has to finish it.
func checkNoGuard() error {
	view, ok, err := guard.LoadView()
	switch {
	case err != nil:
		return err
	case !ok || !view.Finished.IsZero():
		return nil
	case view.Alive:
		return errors.New("nothing is taken away: relink guard is under way: relink guard --follow shows it")
	}
	return errors.New("nothing is taken away: relink guard was killed: relink guard --resume finishes its work")
}

// uninstallAll stops the agent and takes the files away.
func uninstallAll(ctx context.Context, plan *install.Plan, opts install.Options, s *cli.Screen) error {
	service := install.Service{Root: opts.Root}
	manageable := service.Unmanageable() == ""
	if manageable {
		if err := service.Stop(ctx); err != nil {
			return fmt.Errorf("nothing is taken away: the agent cannot be stopped: %w", err)
		}
	}
	err := plan.Apply()
	if err == nil {
		writeSteps(plan, s)
	}
	if err == nil && manageable {
		err = service.Reload(ctx)
	}
	return cli.ReportDifference(s, err)
}

// purgeAll deletes the checkpoints and the leases. Before that it takes away what pods that are gone have left in the host: only the
// checkpoints' directory tells of it, and nobody would look for it later.
func purgeAll(ctx context.Context, store *checkpoint.Store, s *cli.Screen) error {
	var swept error
	if _, err := os.Stat(store.Dir()); err == nil {
		if _, err := hostends.Sweep(ctx, store, false); err != nil {
			swept = fmt.Errorf("host access: rules stay in this node: %w", err)
		}
	}
	deleted, err := install.Purge(store)
	for _, dir := range deleted {
		s.Info("delete " + dir)
	}
	return cli.ReportDifference(s, errors.Join(swept, err))
}
