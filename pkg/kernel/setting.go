package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
)

// settingDirs are the directories of the sysctls of interfaces, by the beginning of their keys.
var settingDirs = map[string]string{"ipv4/": "ipv4/conf", "ipv6/": "ipv6/conf", "ipv4/neigh/": "ipv4/neigh", "ipv6/neigh/": "ipv6/neigh"}

// settingFiles are the files of the settings of an interface in the namespace of the thread. Each
// directory is opened once, because the kernel looks for that of eth0 among those of all
// namespaces.
type settingFiles struct {
	ifName string
	dirs   map[string]*os.File
}

// openDir opens the directory of the settings whose keys have this beginning.
func (s *settingFiles) openDir(prefix string) (*os.File, error) {
	if dir, ok := s.dirs[prefix]; ok {
		return dir, nil
	}
	dir, err := os.Open(filepath.Join(settingsDir(settingDirs[prefix]), s.ifName))
	if err != nil {
		return nil, err
	}
	if s.dirs == nil {
		s.dirs = map[string]*os.File{}
	}
	s.dirs[prefix] = dir
	return dir, nil
}

// locate returns the directory of the setting and the name of its file.
func (s *settingFiles) locate(key string) (dir *os.File, file string, err error) {
	end := strings.LastIndex(key, "/") + 1
	dir, err = s.openDir(key[:end])
	return dir, key[end:], err
}

func (s *settingFiles) close() {
	for _, dir := range s.dirs {
		_ = dir.Close()
	}
}

func (s *settingFiles) read(key string) (string, error) {
	dir, file, err := s.locate(key)
	if err != nil {
		return "", err
	}
	return readAt(dir, file)
}

func (s *settingFiles) write(key, value string) error {
	dir, file, err := s.locate(key)
	if err != nil {
		return err
	}
	f, err := openAt(dir, file, unix.O_WRONLY)
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
	err := n.Inside(func() error {
		sysctls := &settingFiles{ifName: link.Name}
		defer sysctls.close()
		for _, key := range files {
			value, err := sysctls.read(key)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return fmt.Errorf("read %s of %s: %w", key, link.Name, err)
			}
			values[key] = value
		}
		return nil
	})
	return values, err
}

// SettingNote begins each note about a sysctl, of an interface or of what is below it.
const SettingNote = "setting "

// changedSettings returns the interface's sysctls that differ from the namespace's defaults. A new
// interface has the defaults. The notes name those that a restore cannot bring back.
func (n *Namespace) changedSettings(link *link) (changed map[string]string, notes []string, err error) {
	changed = map[string]string{}
	err = n.Inside(func() error {
		sysctls, defaults, lo := &settingFiles{ifName: link.Name}, &settingFiles{ifName: "default"}, &settingFiles{ifName: "lo"}
		for _, s := range []*settingFiles{sysctls, defaults, lo} {
			defer s.close()
		}
		for _, prefix := range sortedKeys(settingDirs) {
			files, err := sysctls.list(prefix)
			usual := defaults
			if _, missing := usual.openDir(prefix); errors.Is(missing, fs.ErrNotExist) {
				usual = lo // Only the first namespace shows the defaults of neighbour tables. In the others, lo has them.
			} else {
				err = errors.Join(err, missing)
			}
			if err != nil {
				return err
			}
			for _, file := range files {
				key := prefix + file
				value, err := sysctls.read(key)
				if err != nil || isReadOnly(key) {
					continue // It cannot be read now, such as stable_secret without a secret.
				}
				if usualValue, err := usual.read(key); err == nil && usualValue == value {
					continue
				}
				if key != ipv6MTU {
					changed[key] = value
				} else if value != strconv.Itoa(link.MTU) {
					notes = append(notes, fmt.Sprintf(SettingNote+"%s=%s: the kernel sets it anew when the carrier comes", key, value))
				}
			}
		}
		return nil
	})
	return changed, notes, err
}

// list returns the names of the files whose keys have this beginning. There are none on a kernel without IPv6, and for an interface without
// IPv6.
func (s *settingFiles) list(prefix string) ([]string, error) {
	dir, err := s.openDir(prefix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return dir.Readdirnames(0)
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
	return n.Inside(func() error {
		var errs []error
		sysctls := &settingFiles{ifName: ifName}
		defer sysctls.close()
		for _, key := range slices.Sorted(maps.Keys(settings)) {
			failpoint.Here("before setting")
			if err := sysctls.write(key, settings[key]); err != nil {
				errs = append(errs, fmt.Errorf("set %s of %s to %s: %w", key, ifName, settings[key], err))
			}
			failpoint.Here("after setting")
		}
		return errors.Join(errs...)
	})
}

const (
	// settingsEnv is an environment variable that names another directory than defaultSettingsDir. It is for a container: the
	// runtime mounts /proc/sys read-only there, and AppArmor's usual profile forbids to write to it. The node's /proc/sys,
	// mounted elsewhere, can be written. The kernel shows the sysctls of the reader's network namespace in both.
	settingsEnv = "RELINK_PROC_SYS"
	// defaultSettingsDir is the directory of the sysctls.
	defaultSettingsDir = "/proc/sys"
)

// settingsDir returns a directory below that of the network's sysctls.
func settingsDir(below ...string) string {
	return filepath.Join(append([]string{cmp.Or(os.Getenv(settingsEnv), defaultSettingsDir), "net"}, below...)...)
}

// SettingsWritable returns an error if the sysctls of interfaces cannot be written here. The error says what to do.
func SettingsWritable() error {
	file := settingsDir("ipv4/conf/all/arp_announce")
	err := unix.Access(file, unix.W_OK)
	switch {
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%s is read-only: in a container, mount the node's /proc/sys elsewhere and name it in %s; "+
			"in a systemd unit, set ProtectKernelTunables=no", settingsDir(), settingsEnv)
	case err != nil && os.Getenv(settingsEnv) != "":
		return fmt.Errorf("%s=%q: must be the node's /proc/sys, mounted read-write: access %s: %w", settingsEnv, os.Getenv(settingsEnv), file, err)
	case err != nil:
		return fmt.Errorf("the settings of interfaces cannot be written: access %s: %w", file, err)
	}
	return nil
}

// arpNotify is the setting by which the kernel announces IPv4 addresses.
const arpNotify = "ipv4/arp_notify"

// devconf are the settings that each ADD makes, by their places in what the kernel tells with a
// link: IPV4_DEVCONF_* of linux/ip.h less 1, and DEVCONF_* of linux/ipv6.h. They are not read from
// their files. If a thousand interfaces have the same name in a thousand namespaces, the kernel
// looks at all of them to find the file of one. That took a quarter of the time of a restore of
// 1,000 on one parent.
var devconf = map[string]struct{ family, place int }{
	arpNotify:                {unix.AF_INET, 21},
	"ipv6/disable_ipv6":      {unix.AF_INET6, 26},
	"ipv6/ndisc_notify":      {unix.AF_INET6, 29},
	"ipv6/keep_addr_on_down": {unix.AF_INET6, 42},
}

// setting returns the setting of that key, if the kernel has told it with the link.
func (l *link) setting(key string) (string, bool) {
	const size = 4
	entry, ok := devconf[key]
	conf := l.conf4
	if entry.family == unix.AF_INET6 {
		conf = l.conf6
	}
	if !ok || len(conf) < size*(entry.place+1) {
		return "", false
	}
	return strconv.Itoa(int(int32(nl.NativeEndian().Uint32(conf[size*entry.place:])))), true
}

// divideSettings returns the settings that are written to files, and the request that sets arpNotify. An IPv4 ADD has no other
// setting: so it needs no /proc/sys, which is read-only in a container. For IPv6 there is no such request.
func divideSettings(index int, settings map[string]string) (files map[string]string, notify []rtnl.Message) {
	number, err := strconv.Atoi(settings[arpNotify])
	if err != nil {
		return settings, nil
	}
	files = maps.Clone(settings)
	delete(files, arpNotify)
	m := setLink("set "+arpNotify+" to "+settings[arpNotify], index)
	conf := m.AddRtAttr(unix.IFLA_AF_SPEC, nil).AddRtAttr(unix.AF_INET, nil).AddRtAttr(unix.IFLA_INET_CONF, nil)
	conf.AddRtAttr(devconf[arpNotify].place+1, nl.Uint32Attr(uint32(number)))
	return files, []rtnl.Message{m}
}
