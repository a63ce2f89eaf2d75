package udev

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// DirEnv names the directory where udev keeps what it knows. Without it, that is Dir.
const DirEnv = "RELINK_UDEV_DIR"

// Dir is where systemd-udevd and its like keep what they know.
const Dir = "/run/udev"

// Done says whether udev is done with the network device of that index: it is if no udev
// runs, or one that is not to be seen from here.
func Done(index int) (bool, error) {
	dir := os.Getenv(DirEnv)
	if dir == "" {
		dir = Dir
	}
	if _, err := os.Stat(filepath.Join(dir, "control")); err != nil {
		return noFile(err)
	}
	// Written when the rules have been worked through and the device has its name. Before,
	// there is no file, or it lacks the time at which that was (sd_device_get_is_initialized).
	entry, err := os.ReadFile(filepath.Join(dir, "data", fmt.Sprintf("n%d", index)))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return bytes.HasPrefix(entry, []byte("I:")) || bytes.Contains(entry, []byte("\nI:")), err
}

// noFile takes it that udev is done where the error is that there is no such file.
func noFile(err error) (bool, error) {
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}
