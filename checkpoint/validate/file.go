package validate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"
)

// maxFile is the greatest length of a file in bytes. Kubernetes takes no object of more than 1.5 MiB.
const maxFile = 10 << 20

// add reads a file, or those of a directory. It stops when ctx is done.
func (c *collected) add(ctx context.Context, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		_, err := c.addFile(path)
		return err
	}
	paths, err := libcni.ConfFiles(path, slices.Concat(runtimeExtensions, manifestExtensions)) // In order by name.
	if err != nil {
		return err
	}
	var files []string
	var refused error // Why libcni does not load the first of files.
	var unknown bool  // Runtimes may read it, and this user may not.
	for _, file := range paths {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := c.addFile(file)
		rootOnly := errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0
		switch {
		case rootOnly:
			c.addFinding(Network{File: file}, Warning, "not looked at: permission denied: run as root")
		case err != nil:
			c.addFinding(Network{File: file}, Error, "cannot be read: "+withoutPath(err).Error())
		default:
			err = loadError(filepath.Ext(file) == ".conflist", b)
		}
		if slices.Contains(runtimeExtensions, filepath.Ext(file)) {
			if len(files) == 0 {
				refused, unknown = err, rootOnly
			}
			files = append(files, filepath.Base(file))
		}
	}
	if !unknown {
		c.judgeDirectory(path, files, refused)
	}
	return nil
}

func (c *collected) addFile(path string) ([]byte, error) {
	b, err := readRegular(path)
	if err == nil {
		c.files++
		c.read(path, b)
	}
	return b, err
}

// readRegular reads a regular file. A FIFO and a device could give no end of bytes, or none at all. It does not even open
// them: a device such as /dev/watchdog acts when it is opened.
func readRegular(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s has more than %d MiB", path, maxFile>>20)
	}
	return os.ReadFile(path)
}

// withoutPath is the error without the path of the file, which the message has already.
func withoutPath(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
