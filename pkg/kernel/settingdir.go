package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	// SettingsEnv is an environment variable that names another directory than SettingsDir. It is for a container: the
	// runtime mounts /proc/sys read-only there, and AppArmor's usual profile forbids to write to it. The node's /proc/sys,
	// mounted elsewhere, can be written. The kernel shows the sysctls of the reader's network namespace in both.
	SettingsEnv = "RELINK_PROC_SYS"
	// SettingsDir is the directory of the sysctls.
	SettingsDir = "/proc/sys"
)

// settingsDir returns a directory below that of the network's sysctls.
func settingsDir(below ...string) string {
	dir := os.Getenv(SettingsEnv)
	if dir == "" {
		dir = SettingsDir
	}
	return filepath.Join(append([]string{dir, "net"}, below...)...)
}

// SettingsWritable returns an error if the sysctls of interfaces cannot be written here. The error says what to do.
func SettingsWritable() error {
	file := settingsDir("ipv4/conf/all/arp_announce")
	err := unix.Access(file, unix.W_OK)
	switch {
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%s is read-only: in a container, mount the node's /proc/sys elsewhere and name it in %s; "+
			"in a systemd unit, set ProtectKernelTunables=no", settingsDir(), SettingsEnv)
	case err != nil && os.Getenv(SettingsEnv) != "":
		return fmt.Errorf("%s=%q: must be the node's /proc/sys, mounted read-write: access %s: %w", SettingsEnv, os.Getenv(SettingsEnv), file, err)
	case err != nil:
		return fmt.Errorf("the settings of interfaces cannot be written: access %s: %w", file, err)
	}
	return nil
}
