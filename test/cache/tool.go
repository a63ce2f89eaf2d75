package cache

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Download fetches the newest package of this name that the distribution has into dir, and returns the file's path.
func Download(ctx context.Context, name, dir string) (string, error) {
	// The sandbox user of apt could not write to a directory in somebody's cache.
	if _, err := Tool(ctx, dir, "apt-get", "-o", "APT::Sandbox::User=root", "-q", "download", name); err != nil {
		return "", fmt.Errorf("downloading the package %s, `make setup` refreshes the package lists: %w", name, err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, name+"_*.deb"))
	if len(files) != 1 {
		return "", fmt.Errorf("downloading the package %s left %d files", name, len(files))
	}
	return files[0], nil
}

// Tool runs a program in dir and returns what it wrote to stdout; the error holds what it wrote to stderr.
func Tool(ctx context.Context, dir, name string, args ...string) (string, error) {
	path, err := LookTool(name)
	if err != nil {
		return "", err
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}

// LookTool finds a program, in the administrator's directories too, that a user's PATH often lacks.
func LookTool(name string) (string, error) {
	path, err := exec.LookPath(name)
	for _, directory := range []string{"/usr/sbin", "/sbin"} {
		if err == nil {
			break
		}
		path, err = exec.LookPath(filepath.Join(directory, name))
	}
	if err != nil {
		return "", fmt.Errorf("the test machine needs %s, `make setup` installs it: %w", name, exec.ErrNotFound)
	}
	return path, nil
}
