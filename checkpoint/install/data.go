package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/forget"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// InUse returns how many checkpoints are of sandboxes that are not proven gone.
func InUse(ctx context.Context, store *checkpoint.Store) (int, error) {
	plan, err := forget.Look(ctx, forget.Options{Store: store, Stale: true, AllProcesses: sandbox.SeesAllProcesses()})
	if err != nil {
		return 0, err
	}
	report := plan.Report()
	return report.Alive + report.Count(forget.Kept), nil
}

// Purge deletes all checkpoints and all leases of this node. It returns the directories that it has deleted.
func Purge(store *checkpoint.Store) ([]string, error) {
	leases, err := lease.Dir("")
	if err != nil {
		return nil, err
	}
	var deleted []string
	for _, dir := range []string{store.Dir(), leases} {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return deleted, fmt.Errorf("delete %s: %w", dir, err)
		}
		deleted = append(deleted, dir)
		_ = os.Remove(filepath.Dir(dir)) // It goes only if it is empty.
	}
	return deleted, nil
}
