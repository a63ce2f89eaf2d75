package udev

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// DirEnv is an environment variable that names another directory than Dir.
const DirEnv = "RELINK_UDEV_DIR"

// Dir is the directory in which systemd-udevd and others like it keep what they know.
const Dir = "/run/udev"

// Initialized says whether udev is done with the network device of that index. It is if no udev runs, or if its
// directory cannot be seen from here.
func Initialized(index int) (bool, error) {
	dir := os.Getenv(DirEnv)
	if dir == "" {
		dir = Dir
	}
	if _, err := os.Stat(filepath.Join(dir, "control")); errors.Is(err, fs.ErrNotExist) {
		return true, nil
	} else if err != nil {
		return false, err
	}
	// udev writes the file when it has applied the rules and the device has its name. Before that there is no
	// file, or the file lacks the time of it (sd_device_get_is_initialized).
	entry, err := os.ReadFile(filepath.Join(dir, "data", fmt.Sprintf("n%d", index)))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return bytes.HasPrefix(entry, []byte("I:")) || bytes.Contains(entry, []byte("\nI:")), err
}
