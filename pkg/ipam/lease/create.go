package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/flock"
)

// create makes the file if it is missing, whole or not at all. After a kill during its first pages, bbolt
// could not open the file again.
func (s *Store) create(ctx context.Context) error {
	if exists, err := s.Exists(); exists || err != nil {
		return nil // open says what is wrong with it.
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	failpoint.Here("store directory made")
	dir, err := s.lockDir(ctx)
	if err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	defer func() { _ = dir.Close() }()
	if exists, err := s.Exists(); exists || err != nil {
		return nil // Another process has made it meanwhile.
	}
	failpoint.Here("before creating store")
	if err := s.initialize(dir); err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	failpoint.Here("store created")
	return nil
}

// lockDir locks the directory of the stores: only one process at a time makes or renames files in it. The
// lock ends when the file that is returned is closed.
func (s *Store) lockDir(ctx context.Context) (*os.File, error) {
	path := filepath.Dir(s.path)
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := s.lock(ctx, dir, flock.Exclusive); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return dir, nil
}

// initialize makes the file under another name first. dir is its directory.
func (s *Store) initialize(dir *os.File) error {
	temporary := filepath.Join(dir.Name(), "."+s.network+extension+temporarySuffix)
	defer func() { _ = os.Remove(temporary) }() // In the end it has another name.
	o := opened{}
	var err error
	o.db, err = bolt.Open(temporary, 0o600, &bolt.Options{
		NoStatistics: true,
		OpenFile: func(path string, flag int, mode os.FileMode) (_ *os.File, err error) {
			o.file, err = os.OpenFile(path, flag|os.O_TRUNC, mode) // A kill can have left it.
			return o.file, err
		},
	})
	if err != nil {
		return err
	}
	failpoint.Here("store half made")
	err = o.db.Update(makeBuckets)
	if err == nil {
		err = o.db.View(func(tx *bolt.Tx) error { return o.makeRoom(tx.Size()) })
	}
	if err = errors.Join(err, o.db.Close()); err != nil {
		return err
	}
	failpoint.Here("before renaming store")
	if err := os.Rename(temporary, s.path); err != nil {
		return err
	}
	failpoint.Here("store renamed")
	return dir.Sync()
}
