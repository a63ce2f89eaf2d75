// Command relink shows what is remembered of a node's attachments, says whether the kernel agrees, and restores it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/cniplugin"
)

func main() { cli.Main(run) }

// run executes the command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Run(ctx, newRoot(), map[string]func(error) int{guardVerb: guardStatus}, args, stdout, stderr)
}

func newRoot() *cobra.Command {
	root := newVerb("relink", nil)
	root.Version = cniplugin.Version
	root.PersistentFlags().String("checkpoint-dir", "",
		"`directory` of the checkpoints (default $"+checkpoint.DirEnv+", else "+checkpoint.DefaultDir+")")
	cli.Must(root.MarkPersistentFlagDirname("checkpoint-dir"))
	cli.AddGroup(root, "Look:", newStatus(), newCheck(), newAudit(), newList(), newShow())
	cli.AddGroup(root, "Repair:", newRestore(), newGuard(), newMove(), newPause(), newResume())
	cli.AddGroup(root, "Remember:", newCapture(), newForget(), newGC(), newImport())
	cli.AddGroup(root, "Reach:", newHostAccess())
	cli.AddGroup(root, "Addresses:", newIPAM())
	cli.AddGroup(root, "Other:", newValidate(), newInstall(), newUninstall(), newVersion())
	cli.CompleteRoot(root)
	return root
}

// openStore opens the store of --checkpoint-dir. A directory that the user named must exist: an empty result from a misspelt one would
// look as if all were well. The first ADD after a boot makes the default directory. A flag's path may be relative, because
// the user knows where it starts. The environment's path may not: the plugins read the same variable, and they refuse a
// relative path.
func openStore(cmd *cobra.Command) (*checkpoint.Store, error) {
	dir := cli.FlagText(cmd, "checkpoint-dir")
	store := checkpoint.OpenStore(dir)
	store.OnWait(printLockWait(cmd.ErrOrStderr()))
	if store.Dir() == checkpoint.DefaultDir {
		return store, nil
	}
	if dir == "" && !filepath.IsAbs(store.Dir()) {
		return nil, cniplugin.EnvError(checkpoint.DirEnv, store.Dir(), "must be an absolute path")
	}
	if err := checkDirectory(store.Dir()); err != nil {
		return nil, fmt.Errorf("checkpoint directory: %w", err)
	}
	return store, nil
}

// checkDirectory reports a directory that does not exist.
func checkDirectory(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s: not a directory", dir)
	}
	return err
}
