package kernel

import (
	"bytes"
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
	differs, err := n.neighbourParametersDiffer(link.Index)
	if err != nil {
		return nil, nil, err
	}
	differs["ipv4/"], differs["ipv6/"] = len(link.conf4) > 0, len(link.conf6) > 0
	err = n.Inside(func() error {
		sysctls, defaults, lo := &settingFiles{ifName: link.Name}, &settingFiles{ifName: "default"}, &settingFiles{ifName: "lo"}
		for _, s := range []*settingFiles{sysctls, defaults, lo} {
			defer s.close()
		}
		for _, prefix := range sortedKeys(differs) {
			if !differs[prefix] {
				continue
			}
			usual := defaults
			if _, missing := usual.openDir(prefix); errors.Is(missing, fs.ErrNotExist) {
				usual = lo // Only the first namespace shows the defaults of neighbour tables. In the others, lo has them.
			}
			files, err := usual.list(prefix)
			if err != nil {
				return err
			}
			for _, file := range files {
				key := prefix + file
				value, told := link.setting(key)
				var unreadable error
				if !told {
					value, unreadable = sysctls.read(key)
				}
				if unreadable != nil || isReadOnly(key) {
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

// neighbourParametersDiffer says, by the beginning of their keys, which sysctls of the device below neigh are not all as a new device gets them.
// It needs one request, and no file: see devconf.
func (n *Namespace) neighbourParametersDiffer(index int) (differs map[string]bool, err error) {
	families := map[uint8]string{unix.AF_INET: "ipv4/neigh/", unix.AF_INET6: "ipv6/neigh/"}
	list := newMessage(unix.RTM_GETNEIGHTBL, 0, "list neighbour tables", nl.NewRtGenMsg())
	parameters, err := listOf(n, list, func(payload []byte) (neighbourParameters, bool, error) {
		p, err := parseNeighbourParameters(payload)
		return p, (p.ifIndex == 0 || p.ifIndex == index) && families[p.family] != "", err
	})
	usual, differs := map[uint8][]byte{}, map[string]bool{}
	for _, p := range parameters {
		if p.ifIndex == 0 { // The table's own come first. A new device gets a copy, in whatever namespace (neigh_parms_alloc in net/core/neighbour.c).
			usual[p.family] = p.values
		} else {
			differs[families[p.family]] = !bytes.Equal(p.values, usual[p.family])
		}
	}
	return differs, err
}

// neighbourParameters are the values of a device in a neighbour table, or of the table itself, whose ifIndex is 0.
type neighbourParameters struct {
	family  uint8
	ifIndex int
	values  []byte
}

// parseNeighbourParameters returns the parameters in a message about a neighbour table, without those that nobody can set.
func parseNeighbourParameters(payload []byte) (p neighbourParameters, err error) {
	const parms, ifIndex, refCount, reachableTime = 6, 1, 2, 3 // NDTA_PARMS and NDTPA_* of linux/neighbour.h. The last is drawn at random.
	header := nl.NewRtGenMsg().Len()
	if err := rtnl.CheckHeader(payload, header); err != nil {
		return p, err
	}
	p.family = payload[0]
	return p, rtnl.EachAttribute(payload, header, func(a *rtnl.Attribute) {
		if a.Type() != parms {
			return
		}
		a.Each(func(v *rtnl.Attribute) {
			switch v.Type() {
			case ifIndex:
				p.ifIndex = v.Int32()
			case refCount, reachableTime:
			default:
				p.values = append(append(p.values, byte(v.Type())), v.Value()...)
			}
		})
	})
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

// devconf are the settings below conf that the kernel tells with a link, in its order: IPV4_DEVCONF_* of linux/ip.h and DEVCONF_* of linux/ipv6.h.
// They are not read from their files: if a thousand interfaces have the same name in a thousand namespaces, the kernel looks at all of them to
// find the file of one. That took a quarter of the time of a restore of 1,000 on one parent. A dash stands for a setting that its file shows in
// another way, such as in seconds, and that is read there.
//
//nolint:misspell // The kernel has the word "prefered".
var devconf = map[string][]string{
	"ipv4/": strings.Fields(`forwarding mc_forwarding proxy_arp accept_redirects secure_redirects send_redirects shared_media rp_filter
		accept_source_route bootp_relay log_martians tag arp_filter medium_id disable_xfrm disable_policy force_igmp_version arp_announce
		arp_ignore promote_secondaries arp_accept arp_notify accept_local src_valid_mark proxy_arp_pvlan route_localnet
		igmpv2_unsolicited_report_interval igmpv3_unsolicited_report_interval ignore_routes_with_linkdown drop_unicast_in_l2_multicast
		drop_gratuitous_arp bc_forwarding arp_evict_nocarrier`),
	"ipv6/": strings.Fields(`forwarding hop_limit mtu accept_ra accept_redirects autoconf dad_transmits router_solicitations - - use_tempaddr
		temp_valid_lft temp_prefered_lft regen_max_retry max_desync_factor max_addresses force_mld_version accept_ra_defrtr accept_ra_pinfo
		accept_ra_rtr_pref - accept_ra_rt_info_max_plen proxy_ndp optimistic_dad accept_source_route mc_forwarding disable_ipv6 accept_dad
		force_tllao ndisc_notify mldv1_unsolicited_report_interval mldv2_unsolicited_report_interval suppress_frag_ndisc accept_ra_from_local
		use_optimistic accept_ra_mtu - use_oif_addrs_only accept_ra_min_hop_limit ignore_routes_with_linkdown drop_unicast_in_l2_multicast
		drop_unsolicited_na keep_addr_on_down - seg6_enabled seg6_require_hmac enhanced_dad addr_gen_mode disable_policy
		accept_ra_rt_info_min_plen ndisc_tclass rpl_seg_enabled - ioam6_enabled - - ndisc_evict_nocarrier accept_untracked_na accept_ra_min_lft
		force_forwarding`),
}

// setting returns the setting of that key, if the kernel has told it with the link.
func (l *link) setting(key string) (string, bool) {
	const size = 4
	end := strings.LastIndex(key, "/") + 1
	conf, place := l.conf4, slices.Index(devconf[key[:end]], key[end:])
	if key[:end] == "ipv6/" {
		conf = l.conf6
	}
	if place < 0 || len(conf) < size*(place+1) {
		return "", false
	}
	return strconv.Itoa(int(int32(nl.NativeEndian().Uint32(conf[size*place:])))), true
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
	conf.AddRtAttr(slices.Index(devconf["ipv4/"], "arp_notify")+1, nl.Uint32Attr(uint32(number)))
	return files, []rtnl.Message{m}
}
