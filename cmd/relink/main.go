// Command relink shows what is remembered of a node's attachments, says whether the kernel agrees, and restores it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/printable"
)

// Exit codes.
const (
	exitOK = iota
	// exitDiffers: something is not as recorded, and relink has said what.
	exitDiffers
	// exitUsage: relink could not look, because of the command line or the environment.
	exitUsage
)

// errDiffers ends a command that found a difference and has reported it.
var errDiffers = errors.New("not everything is as recorded")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		// The first signal lets the work end in order, the second ends it at once.
		<-ctx.Done()
		stop()
	}()
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes the command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	line := &statusLine{}
	defer line.clear()
	out, errs := &stream{writer: stdout, line: line}, &stream{writer: stderr, line: line}
	root.SetOut(&printable.Writer{Output: out})
	root.SetErr(&printable.Writer{Output: errs})
	if len(args) == 0 {
		root.SetArgs([]string{"help"})
	}
	verb, err := root.ExecuteContextC(ctx)
	var status exitStatus
	switch {
	case errors.As(err, &status):
		return int(status)
	case verb.Name() == guardVerb && err != nil:
		printError(errs, err)
		return guardStatus(err)
	case out.writeErr != nil:
		printError(errs, fmt.Errorf("what it has to say cannot be written: %w", out.writeErr))
		return exitDiffers
	case err == nil:
		return exitOK
	case errors.Is(err, errDiffers):
		return exitDiffers
	}
	printError(errs, err)
	return exitUsage
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "relink",
		Short: "Keep pods on their network when the NIC below them goes away",
		Long: `Keep pods on their network when the NIC below them goes away. relink shows how the pods of
this node are, compares them with their checkpoints, and rebuilds what was lost. A checkpoint
is relink's record of one interface of a pod. A sandbox is a pod's network namespace.

Exit status of every verb but guard:
  0  everything is as recorded, or was done
  1  something is not as recorded, or was not done; the output names it
  2  the command line or the environment keeps relink from looking`,
		Example: `  relink status             # one screen: what is wrong, and what to do
  relink check              # is every pod as recorded?
  relink restore --dry-run  # what would be done, and why
  relink restore            # rebuild what was lost`,
		Version:       cniplugin.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().String("checkpoint-dir", "",
		"`directory` of the checkpoints (default $"+checkpoint.DirEnv+", else "+checkpoint.DefaultDir+")")
	must(root.MarkPersistentFlagDirname("checkpoint-dir"))
	addVerbosity(root)
	addGroup(root, "Look:", newStatus(), newCheck(), newAudit(), newList(), newShow())
	addGroup(root, "Repair:", newRestore(), newGuard(), newMove(), newPause(), newResume())
	addGroup(root, "Remember:", newCapture(), newForget(), newGC(), newImport())
	addGroup(root, "Reach:", newHostAccess())
	addGroup(root, "Addresses:", newIPAM())
	addGroup(root, "Other:", newValidate(), newInstall(), newUninstall(), newVersion())
	requireVerb(root)
	strictDefaults(root)
	root.SetFlagErrorFunc(flagError)
	return root
}

// addGroup adds verbs below a title of their own in the help.
func addGroup(root *cobra.Command, title string, verbs ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, verb := range verbs {
		verb.GroupID = title
		root.AddCommand(verb)
	}
}

// openStore opens the store of --checkpoint-dir. A directory that the user named must exist: an empty result from a misspelt one would
// look as if all were well. The first ADD after a boot makes the default directory. A flag's path may be relative, because
// the user knows where it starts. The environment's path may not: the plugins read the same variable, and they refuse a
// relative path.
func openStore(cmd *cobra.Command) (*checkpoint.Store, error) {
	dir := flagText(cmd, "checkpoint-dir")
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
