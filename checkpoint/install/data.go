package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// CheckUnused returns an error if the sandbox of a checkpoint is not proven gone.
func CheckUnused(ctx context.Context, store *checkpoint.Store) error {
	records, unreadable, err := store.List()
	if err != nil {
		return err
	}
	var namespaces []attachment.Namespace
	for _, r := range records {
		namespaces = append(namespaces, r.Namespace)
	}
	for _, u := range unreadable {
		namespaces = append(namespaces, u.Partial.Namespace)
	}
	proven := sandbox.ProvenGone(ctx, sandbox.SeesAllProcesses(), namespaces...)
	used := slices.DeleteFunc(namespaces, func(namespace attachment.Namespace) bool { return proven[namespace] })
	if len(used) == 0 {
		return nil
	}
	return fmt.Errorf("nothing is taken away: %s of sandboxes that may be alive. Without the plugins their pods cannot end. "+
		"Move the pods away (relink list names them), or use --force", printable.Count(len(used), "checkpoint"))
}

// ErrForeign means that a directory to delete contains files that are not relink's.
var ErrForeign = errors.New("nothing is deleted")

// Purgeable returns the existing directories with the checkpoints and the leases of this node. The error matches
// ErrForeign if one of them contains anything else.
func Purgeable(store *checkpoint.Store) (dirs []string, err error) {
	leases, err := lease.Dir("")
	if err != nil {
		return nil, err
	}
	for dir, foreign := range map[string]func() ([]string, error){
		store.Dir(): store.UnexpectedPaths,
		leases:      func() ([]string, error) { return lease.UnexpectedPaths(leases) },
	} {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			continue
		}
		entries, err := foreign()
		if err != nil {
			return nil, err
		}
		if len(entries) > 0 {
			return nil, fmt.Errorf("%w: %s has other files in it, such as %s: delete relink's files there yourself", ErrForeign, dir, entries[0])
		}
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	return dirs, nil
}

// Purge deletes all checkpoints and all leases of this node. It returns the directories that it has deleted. It has the
// errors of Purgeable, and an error about a directory that cannot be deleted.
func Purge(store *checkpoint.Store) (deleted []string, err error) {
	dirs, err := Purgeable(store)
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		if err := os.RemoveAll(dir); err != nil {
			return deleted, fmt.Errorf("delete %s: %w", dir, err)
		}
		deleted = append(deleted, dir)
		_ = os.Remove(filepath.Dir(dir)) // Remove deletes the directory only if it is empty.
	}
	return deleted, nil
}
