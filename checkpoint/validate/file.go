package validate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// maxFile is the greatest length of a file in bytes. Kubernetes takes no object of more than 1.5 MiB.
const maxFile = 10 << 20

// collected has the networks that were read, and what was wrong.
type collected struct {
	files    int
	networks []Network
	findings []ConfigFinding
}

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
	entries, err := os.ReadDir(path) // In order by name.
	if err != nil {
		return err
	}
	var files []configFile
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if entry.IsDir() || !IsConfig(entry.Name()) {
			continue
		}
		file := configFile{path: filepath.Join(path, entry.Name())}
		b, err := c.addFile(file.path)
		switch {
		case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
			file.unknown = true
			c.findings = append(c.findings, ConfigFinding{File: file.path, Severity: Warning, Message: "not looked at: permission denied: run as root"})
		case err != nil:
			file.refused = err
			c.findings = append(c.findings, ConfigFinding{File: file.path, Severity: Error, Message: "cannot be read: " + fileError(err)})
		default:
			file.refused = loadError(filepath.Ext(file.path) == ".conflist", b)
		}
		if slices.Contains(runtimeExtensions, filepath.Ext(file.path)) {
			files = append(files, file)
		}
	}
	c.findings = append(c.findings, judgeDirectory(path, files)...)
	return nil
}

func (c *collected) addFile(path string) ([]byte, error) {
	b, err := readRegular(path)
	if err != nil {
		return nil, err
	}
	c.files++
	networks, findings := Read(path, b)
	c.networks, c.findings = append(c.networks, networks...), append(c.findings, findings...)
	return b, nil
}

// readRegular reads a regular file. A FIFO and a device could give no end of bytes, or none at all. It does not even open
// them: a device such as /dev/watchdog acts when it is opened.
func readRegular(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	// Another file can have its name by now. Without O_NONBLOCK it would wait for the writer of a FIFO.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // It was only read.
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		return nil, fmt.Errorf("%s has more than %d MiB", path, maxFile>>20)
	}
	return b, err
}

// fileError is the error without the path of the file, which the message has already.
func fileError(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}
