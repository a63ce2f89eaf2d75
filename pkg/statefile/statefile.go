// Package statefile keeps files whole: after a kill or a power failure a file has its old content or its new one.
package statefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/renameio/v2"

	"github.com/relink-cni/relink/pkg/failpoint"
)

// OpenFlags are for regular files: package os would try to add a file to a poller, which takes four system calls and
// fails. A pipe in the place of a file does not hang.
const OpenFlags = syscall.O_NONBLOCK

// Save replaces the file by the value in JSON. If it returns nil, the value is on the disk. If it fails, the file is as before. It
// makes the directory if that is missing.
func Save(path string, value any) error {
	b, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return Write(path, append(b, '\n'))
}

// Write is Save for content that is encoded already. Without an option, root alone may read the file.
func Write(path string, content []byte, options ...renameio.Option) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	failpoint.Here("before saving")
	// Beside its target, so that the rename never crosses file systems.
	f, err := renameio.NewPendingFile(path, append([]renameio.Option{renameio.WithTempDir(dir), renameio.WithPermissions(0o600)}, options...)...)
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }()
	failpoint.Here("temporary file made")
	if _, err := f.Write(content); err != nil {
		return err
	}
	failpoint.Here("temporary file written")
	if err := f.CloseAtomicallyReplace(); err != nil {
		return err
	}
	failpoint.Here("saved")
	return SyncDir(dir)
}

// Load reads the value from the file. It returns fs.ErrNotExist if there is none.
func Load(path string, value any) error {
	f, err := os.OpenFile(path, os.O_RDONLY|OpenFlags, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // It was only read.
	b, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, value); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Remove removes the file. If it returns nil, there is none after a power failure either. None is no error.
func Remove(path string) error {
	err := os.Remove(path)
	if err == nil {
		err = SyncDir(filepath.Dir(path))
	}
	if errors.Is(err, fs.ErrNotExist) { // There was none, or its directory is gone, too.
		return nil
	}
	return err
}

// SyncDir writes a directory's entries to the disk.
func SyncDir(dir string) error {
	d, err := os.OpenFile(dir, os.O_RDONLY|OpenFlags, 0)
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
