package install

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
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
	// sum is the checksum of the content, once it is known.
	sum string
}

// content returns the content of the file.
func (f File) content() ([]byte, error) {
	if f.Source == "" {
		return f.Content, nil
	}
	return os.ReadFile(f.Source)
}

func checksum(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
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
	content, err := os.ReadFile(path)
	return fileState{true, checksum(content), info.Mode().Perm()}, err
}

// write writes the file to the path: whole or not at all. The file is on the disk when write returns. A running program
// keeps the file that it was started from.
func (f File) write(path string) error {
	if err := makeDir(filepath.Dir(path)); err != nil {
		return err
	}
	content, err := f.content()
	if err != nil {
		return err
	}
	// The temporary name starts with a dot, so that a runtime does not take the file for a plugin.
	return statefile.Write(path, content, renameio.WithStaticPermissions(f.Mode))
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
