package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

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
		return err
	}
	failpoint.Here("store directory made")
	dir, err := s.lockDir(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if exists, err := s.Exists(); exists || err != nil {
		return nil // Another process has made it meanwhile.
	}
	failpoint.Here("before creating store")
	if err := s.initialize(dir); err != nil {
		return err
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

// minRoom is allocated beyond twice what is in use.
const minRoom = 256 << 10

// requiredLength returns how long a file must be if so much of it is in use. To give up an address, bbolt writes
// some pages anew, with the quarantine and an event. A GC writes nearly all pages anew at once. The disk is full
// just when pods are evicted for that reason.
func requiredLength(used int64) int64 { return 2*used + minRoom }

// makeRoom allocates the space that is needed to give up all addresses. bbolt makes a file longer without
// allocating anything: on a full disk, the first write to such a page fails. On a copy-on-write file system
// nothing helps. used is how much of the file the last transaction left in use.
func (o *opened) makeRoom(used int64) error {
	var st syscall.Stat_t
	if err := syscall.Fstat(int(o.file.Fd()), &st); err != nil {
		return err
	}
	const block = 512 // The unit of st_blocks on every file system: stat(2).
	if st.Blocks*block < st.Size {
		if err := fillHoles(o.file, st.Size); err != nil {
			return err
		}
	}
	if st.Size >= requiredLength(used) {
		return nil
	}
	// It is more than needed, so that not every change has to do this.
	return writeZeros(o.file, max(used, st.Size), requiredLength(used)+minRoom)
}

// fillHoles allocates the holes in a file that bbolt has made longer, or that somebody has copied. If the file
// system cannot do that, the file stays as it is.
func fillHoles(f *os.File, size int64) error {
	err := flock.Uninterrupted(func() error { return syscall.Fallocate(int(f.Fd()), 0, 0, size) })
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// writeZeros makes the file longer by writing. With blocks that are only set aside (fallocate), each change that
// uses new ones would have to wait for the journal.
func writeZeros(f *os.File, start, end int64) error {
	zeros := make([]byte, minRoom)
	for start < end {
		n, err := f.WriteAt(zeros[:min(int64(len(zeros)), end-start)], start)
		if err != nil {
			return err
		}
		start += int64(n)
	}
	return nil
}
