package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/relink-cni/relink/pkg/failpoint"
)

// settingDirs are where the sysctls of an interface are, by how their keys begin.
var settingDirs = []struct{ prefix, dir string }{
	{"ipv4/", "/proc/sys/net/ipv4/conf"},
	{"ipv6/", "/proc/sys/net/ipv6/conf"},
	{"ipv4/neigh/", "/proc/sys/net/ipv4/neigh"},
	{"ipv6/neigh/", "/proc/sys/net/ipv6/neigh"},
}

// settingPath returns the file of the setting of that key.
func settingPath(ifName, key string) string {
	family, name, _ := strings.Cut(key, "/")
	kind := "conf"
	if neigh, ok := strings.CutPrefix(name, "neigh/"); ok {
		kind, name = "neigh", neigh
	}
	return filepath.Join("/proc/sys/net", family, kind, ifName, name)
}

// settings returns the interface's sysctls of these keys. One that the kernel has not
// is left out.
func (n *Namespace) settings(ifName string, keys []string) (map[string]string, error) {
	values := make(map[string]string, len(keys))
	err := n.do(func() error {
		for _, key := range keys {
			value, err := readSetting(settingPath(ifName, key))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return fmt.Errorf("read %s of %s: %w", key, ifName, err)
			}
			values[key] = value
		}
		return nil
	})
	return values, err
}

func readSetting(path string) (string, error) {
	b, err := os.ReadFile(path)
	return strings.TrimSpace(string(b)), err
}

// changedSettings returns the interface's sysctls that differ from the namespace's
// defaults, which are what an interface has that is made anew, and says which of them are
// of no use to restore.
func (n *Namespace) changedSettings(link *link) (changed map[string]string, notes []string, err error) {
	changed = map[string]string{}
	err = n.do(func() error {
		for _, d := range settingDirs {
			files, err := os.ReadDir(filepath.Join(d.dir, link.name))
			if errors.Is(err, fs.ErrNotExist) {
				continue // A kernel without IPv6, or an interface without.
			}
			if err != nil {
				return err
			}
			for _, f := range files {
				value, err := readSetting(filepath.Join(d.dir, link.name, f.Name()))
				if err != nil {
					continue // One that can't be read now, as stable_secret without a secret.
				}
				usual, err := usualSetting(d.dir, f.Name())
				switch key := d.prefix + f.Name(); {
				case err == nil && value == usual || derived(key):
				case key != ipv6MTU:
					changed[key] = value
				case value != strconv.Itoa(link.mtu):
					notes = append(notes, fmt.Sprintf("setting %s=%s: the kernel sets it anew when the carrier comes", key, value))
				}
			}
		}
		return nil
	})
	return changed, notes, err
}

// usualSetting returns the value that an interface has that is made anew. The defaults
// of neighbour tables are to be seen in the first namespace alone; in others, lo has them.
func usualSetting(dir, name string) (string, error) {
	value, err := readSetting(filepath.Join(dir, "default", name))
	if errors.Is(err, fs.ErrNotExist) {
		return readSetting(filepath.Join(dir, "lo", name))
	}
	return value, err
}

// ipv6MTU is the link's MTU by default.
const ipv6MTU = "ipv6/mtu"

// derived says that the setting tells what a routing daemon does, and can't be written.
func derived(key string) bool { return key == "ipv4/mc_forwarding" || key == "ipv6/mc_forwarding" }

// writeSettings writes the interface's sysctls in n, in the order of their keys, and
// returns the errors of all that failed.
func (n *Namespace) writeSettings(ifName string, settings map[string]string) error {
	if len(settings) == 0 {
		return nil
	}
	return n.do(func() error {
		var errs []error
		for _, key := range slices.Sorted(maps.Keys(settings)) {
			failpoint.Here("before setting")
			if err := os.WriteFile(settingPath(ifName, key), []byte(settings[key]), 0); err != nil {
				errs = append(errs, fmt.Errorf("set %s of %s to %s: %w", key, ifName, settings[key], err))
			}
			failpoint.Here("after setting")
		}
		return errors.Join(errs...)
	})
}

// Set writes the interface's sysctl of that key.
func (n *Namespace) Set(ifName, key, value string) error {
	return n.writeSettings(ifName, map[string]string{key: value})
}
