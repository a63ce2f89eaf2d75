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
	// exitDiffers: something is not as recorded; what is has been said.
	exitDiffers
	// exitUsage: the command line or the environment keeps relink from looking.
	exitUsage
)

// errDiffers ends a command that found something and has said it.
var errDiffers = errors.New("not everything is as recorded")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		// The first signal ends the work in an orderly way, the second at once.
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
	root.SetOut(&printable.Writer{To: stdout})
	root.SetErr(&printable.Writer{To: stderr})
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errDiffers):
		return exitDiffers
	}
	sayError(stderr, err)
	return exitUsage
}

func newRoot() *cobra.Command {
	var dir string
	root := &cobra.Command{
		Use:           "relink",
		Short:         "Keep pods on the wire when the NIC below them goes away",
		Version:       cniplugin.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&dir, "checkpoint-dir", "",
		"`directory` of the checkpoints (default $"+checkpoint.DirEnv+", else "+checkpoint.DefaultDir+")")
	store := func() (*checkpoint.Store, error) { return openStore(dir) }
	root.AddCommand(newList(store), newShow(store), newCheck(store), newCapture(store), newImport(store), newRestore(store), newIPAM(store))
	return root
}

// storeOpener is how a verb gets at the checkpoints, once the flags are read.
type storeOpener func() (*checkpoint.Store, error)

// openStore opens the store. A directory that somebody named has to be there: to
// find nothing in a misspelt one would look as if all were well. The default one is
// made by the first ADD after a boot. A flag's may be relative, as who types it knows to
// what; the environment's is the plugins' too, which refuse that.
func openStore(dir string) (*checkpoint.Store, error) {
	store := checkpoint.OpenStore(dir)
	if store.Dir() == checkpoint.DefaultDir {
		return store, nil
	}
	if dir == "" && !filepath.IsAbs(store.Dir()) {
		return nil, cniplugin.EnvError(checkpoint.DirEnv, store.Dir(), "must be an absolute path")
	}
	info, err := os.Stat(store.Dir())
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s: not a directory", store.Dir())
	}
	if err != nil {
		return nil, fmt.Errorf("checkpoint directory: %w", err)
	}
	return store, nil
}
