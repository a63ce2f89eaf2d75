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

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/failpoint"
)

// settingDirs are the directories of the sysctls of interfaces, by the beginning of their keys.
var settingDirs = []struct{ prefix, dir string }{
	{"ipv4/", settingsDir("ipv4/conf")},
	{"ipv6/", settingsDir("ipv6/conf")},
	{"ipv4/neigh/", settingsDir("ipv4/neigh")},
	{"ipv6/neigh/", settingsDir("ipv6/neigh")},
}

// settingFile returns the directory of the setting of that key, and the file in it.
func settingFile(ifName, key string) (dir, file string) {
	family, name, _ := strings.Cut(key, "/")
	kind := "conf"
	if neigh, ok := strings.CutPrefix(name, "neigh/"); ok {
		kind, name = "neigh", neigh
	}
	return filepath.Join(settingsDir(family, kind), ifName), name
}

// settingFiles are the files of an interface's settings in the namespace of the thread. Each
// directory is opened once, because the kernel looks for that of eth0 among those of all
// namespaces.
type settingFiles struct {
	ifName string
	dirs   map[string]*os.Root
}

// locate returns the directory of the setting and the name of its file.
func (s *settingFiles) locate(key string) (*os.Root, string, error) {
	dir, file := settingFile(s.ifName, key)
	if root, ok := s.dirs[dir]; ok {
		return root, file, nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, "", err
	}
	if s.dirs == nil {
		s.dirs = map[string]*os.Root{}
	}
	s.dirs[dir] = root
	return root, file, nil
}

func (s *settingFiles) close() {
	for _, root := range s.dirs {
		_ = root.Close()
	}
}

func (s *settingFiles) read(key string) (string, error) {
	root, file, err := s.locate(key)
	if err != nil {
		return "", err
	}
	b, err := root.ReadFile(file)
	return strings.TrimSpace(string(b)), err
}

func (s *settingFiles) write(key, value string) error {
	root, file, err := s.locate(key)
	if err != nil {
		return err
	}
	f, err := root.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// settings returns the interface's sysctls of these keys. It leaves out those that the kernel does
// not have.
func (n *Namespace) settings(link *link, keys []string) (map[string]string, error) {
	values := make(map[string]string, len(keys))
	var files []string
	for _, key := range keys {
		if value, ok := link.setting(key); ok {
			values[key] = value
		} else {
			files = append(files, key)
		}
	}
	if len(files) == 0 {
		return values, nil
	}
	err := n.enter(func() error {
		sysctls := &settingFiles{ifName: link.name}
		defer sysctls.close()
		for _, key := range files {
			value, err := sysctls.read(key)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return fmt.Errorf("read %s of %s: %w", key, link.name, err)
			}
			values[key] = value
		}
		return nil
	})
	return values, err
}

// changedSettings returns the interface's sysctls that differ from the namespace's defaults. A new
// interface has the defaults. The notes name those that a restore cannot bring back.
func (n *Namespace) changedSettings(link *link) (changed map[string]string, notes []string, err error) {
	changed = map[string]string{}
	err = n.enter(func() error {
		for _, d := range settingDirs {
			added, err := changedIn(d.prefix, d.dir, link, changed)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			notes = append(notes, added...)
		}
		return nil
	})
	return changed, notes, err
}

// changedIn adds to changed the settings of one directory that differ from the defaults. The
// directory is missing on a kernel without IPv6, and for an interface without IPv6.
func changedIn(prefix, dir string, link *link, changed map[string]string) (notes []string, err error) {
	ifDir, err := os.Open(filepath.Join(dir, link.name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = ifDir.Close() }()
	usual, err := openDefaults(dir)
	if err != nil {
		return nil, err
	}
	defer usual.close()
	files, err := ifDir.Readdirnames(0)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		value, err := readAt(ifDir, file)
		if err != nil {
			continue // It cannot be read now, such as stable_secret without a secret.
		}
		defaultValue, ok := usual.read(file)
		switch key := prefix + file; {
		case ok && value == defaultValue || isReadOnly(key):
		case key != ipv6MTU:
			changed[key] = value
		case value != strconv.Itoa(link.mtu):
			notes = append(notes, fmt.Sprintf("setting %s=%s: the kernel sets it anew when the carrier comes", key, value))
		}
	}
	return notes, nil
}

// defaultSettings are the directories with the values that a new interface has. Only the first
// namespace shows the defaults of neighbour tables. In the others, lo has them.
type defaultSettings []*os.File

func openDefaults(dir string) (defaultSettings, error) {
	var usual defaultSettings
	for _, name := range []string{"default", "lo"} {
		settings, err := os.Open(filepath.Join(dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			usual.close()
			return nil, err
		default:
			usual = append(usual, settings)
		}
	}
	return usual, nil
}

func (u defaultSettings) close() {
	for _, settings := range u {
		_ = settings.Close()
	}
}

// read returns the usual value of the setting, if there is one.
func (u defaultSettings) read(file string) (string, bool) {
	for _, settings := range u {
		value, err := readAt(settings, file)
		if !errors.Is(err, fs.ErrNotExist) {
			return value, err == nil
		}
	}
	return "", false
}

// ipv6MTU is a setting whose default is the MTU of the link.
const ipv6MTU = "ipv6/mtu"

// isReadOnly says that the setting shows what a routing daemon does, and cannot be written.
func isReadOnly(key string) bool { return key == "ipv4/mc_forwarding" || key == "ipv6/mc_forwarding" }

// writeSettings writes the interface's sysctls in the order of their keys. It goes on after a
// failure, and returns all errors. For a setting that the kernel does not have, errors.Is matches
// os.ErrNotExist.
func (n *Namespace) writeSettings(ifName string, settings map[string]string) error {
	if len(settings) == 0 {
		return nil
	}
	return n.enter(func() error {
		var errs []error
		sysctls := &settingFiles{ifName: ifName}
		defer sysctls.close()
		for _, key := range slices.Sorted(maps.Keys(settings)) {
			failpoint.Here("before setting")
			err := sysctls.write(key, settings[key])
			if isUnwritable(err) {
				err = n.announceByRequest(ifName, key, settings, err)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("set %s of %s to %s: %w", key, ifName, settings[key], err))
			}
			failpoint.Here("after setting")
		}
		return errors.Join(errs...)
	})
}

// isUnwritable says that sysctls cannot be written here, as in a container whose /proc/sys is read-only.
func isUnwritable(err error) bool {
	return errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrPermission)
}

// announceByRequest sets arpNotify by a request: it needs no sysctl, and is the only setting of each IPv4 ADD. For another setting it
// returns the error of its file.
func (n *Namespace) announceByRequest(ifName, key string, settings map[string]string, unwritten error) error {
	if _, err := strconv.Atoi(settings[key]); key != arpNotify || err != nil {
		return unwritten
	}
	link, err := n.link(ifName)
	if err != nil {
		return errors.Join(unwritten, err)
	}
	return n.socket.Run(arpNotifyRequest(link.index, settings)...)
}

// WriteSetting writes the interface's sysctl of that key. Its errors are those of writeSettings.
func (n *Namespace) WriteSetting(ifName, key, value string) error {
	return n.writeSettings(ifName, map[string]string{key: value})
}
