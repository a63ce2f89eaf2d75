package install

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/relink-cni/relink/pkg/statefile"
)

// File is a file to install.
type File struct {
	// Path is where it goes on the node, without Options.Root.
	Path string
	Mode fs.FileMode
	// Source is the file to copy. If Source is empty, Content is the content.
	Source  string
	Content []byte
}

// open returns the content. The caller closes it.
func (f File) open() (io.ReadCloser, error) {
	if f.Source == "" {
		return io.NopCloser(bytes.NewReader(f.Content)), nil
	}
	return os.Open(f.Source)
}

// checksum returns the checksum of the content.
func (f File) checksum() (string, error) {
	r, err := f.open()
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Close() }() // It was only read.
	return checksum(r)
}

func checksum(r io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// fileState is what is at a path now.
type fileState struct {
	// exists says that something is at the path. sum is empty if that is not a regular file.
	exists bool
	sum    string
	mode   fs.FileMode
}

// readState returns what is at the path.
func readState(path string) (fileState, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fileState{}, nil
	}
	if err != nil || !info.Mode().IsRegular() {
		return fileState{exists: err == nil}, err
	}
	f, err := os.Open(path)
	if err != nil {
		return fileState{}, err
	}
	defer func() { _ = f.Close() }() // It was only read.
	sum, err := checksum(f)
	if err != nil {
		return fileState{}, fmt.Errorf("read %s: %w", path, err)
	}
	return fileState{true, sum, info.Mode().Perm()}, nil
}

// write writes the file to the path: whole or not at all. The file is on the disk when put returns. A running program
// keeps the file that it was started from.
func (f File) write(path string) error {
	if err := makeDir(filepath.Dir(path)); err != nil {
		return err
	}
	source, err := f.open()
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // It was only read.
	// The temporary name starts with a dot, so that a runtime does not take the file for a plugin. It is beside its
	// target, so that the rename stays on one file system.
	pending, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(f.Mode))
	if err != nil {
		return err
	}
	defer func() { _ = pending.Cleanup() }()
	if _, err := io.Copy(pending, source); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := pending.CloseAtomicallyReplace(); err != nil {
		return err
	}
	return statefile.SyncDir(filepath.Dir(path))
}

// makeDir makes a directory and the missing directories above it. It ignores the umask, because other programs put
// files there too, and all users read them.
func makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if up := filepath.Dir(dir); up != dir {
		if err := makeDir(up); err != nil {
			return err
		}
	}
	err := os.Mkdir(dir, dirMode)
	if errors.Is(err, fs.ErrExist) { // Another process was faster. Or it is not a directory: then making the file fails.
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(dir, dirMode)
}
