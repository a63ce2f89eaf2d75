package kernel

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

// The settings that the kernel reports with the link are the same as in the files.
func TestSettingsAreToldWithTheLink(t *testing.T) {
	w := newFixture(t)
	w.build(t, everything(), true)
	for _, values := range []string{"0", "1"} {
		for key := range devconf {
			if err := w.sandbox.writeSettings("eth0", map[string]string{key: values}); err != nil {
				t.Fatal(err)
			}
			link := must(w.sandbox.link("eth0"))(t)
			if told, ok := link.setting(key); !ok || told != values {
				t.Errorf("%s is %s: the kernel tells %q, %v", key, values, told, ok)
			}
			family, file, _ := strings.Cut(key, "/")
			if got := fresh.Run(t, w.path, "cat /proc/sys/net/"+family+"/conf/eth0/"+file); got != values {
				t.Errorf("%s is %s, want %s", key, got, values)
			}
		}
	}
	if _, ok := must(w.sandbox.link("eth0"))(t).setting("ipv4/rp_filter"); ok {
		t.Error("a setting is told that no ADD makes")
	}
}

// In a container /proc/sys is read-only. An ADD with IPv4 alone needs none of it, as with the reference plugins.
func TestIPv4NeedsNoWritableSysctls(t *testing.T) {
	w := newFixture(t)
	dir := t.TempDir()
	fresh.Run(t, "", "mount --bind /proc/sys "+dir+" && mount -o remount,bind,ro "+dir)
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	t.Setenv(settingsEnv, dir)
	w.build(t, netstate.Interface{
		Link: bridge("eth0"), Addresses: []netstate.Address{{Prefix: prefix("10.3.0.2/24")}}, Settings: map[string]string{"ipv4/arp_notify": "1"},
	}, false)
	if got := fresh.Run(t, w.path, "cat /proc/sys/net/ipv4/conf/eth0/arp_notify"); got != "1" {
		t.Errorf("arp_notify is %s", got)
	}
	if err := w.sandbox.writeSettings("eth0", map[string]string{"ipv4/rp_filter": "2"}); !errors.Is(err, unix.EROFS) {
		t.Errorf("rp_filter: %v", err)
	}
}

// Whatever sysctl of an interface changes, its mark changes. The kernel tells of some newer ones of IPv6 in no message.
func TestSettingsMark(t *testing.T) {
	w := newFixture(t)
	w.build(t, everything(), true)
	index := must(w.sandbox.Index("eth0"))(t)
	first, changed := must(w.sandbox.SettingsMark(index))(t), 0
	untold := []string{"stable_secret", "ra_honor_pio_life", "ra_honor_pio_pflag", "regen_min_advance"}
	for _, prefix := range []string{"ipv4/", "ipv6/"} {
		dir := settingDirs[prefix]
		for _, file := range strings.Fields(fresh.Run(t, w.path, "ls /proc/sys/net/"+dir+"/eth0")) {
			sysctls := &settingFiles{ifName: "eth0"}
			var before string
			err := w.sandbox.Inside(func() (err error) {
				before, err = sysctls.read(prefix + file)
				return err
			})
			if err != nil || slices.Contains(untold, file) {
				continue
			}
			written := false
			for _, value := range []string{"2", "1", "0", "1400", "3000"} {
				if value == before || w.sandbox.writeSettings("eth0", map[string]string{prefix + file: value}) != nil {
					continue
				}
				written = fresh.Run(t, w.path, "cat /proc/sys/net/"+dir+"/eth0/"+file) != before
				break
			}
			if !written {
				continue
			}
			changed++
			if must(w.sandbox.SettingsMark(index))(t) == first {
				t.Errorf("%s%s: the mark is as before", prefix, file)
			}
			if err := w.sandbox.writeSettings("eth0", map[string]string{prefix + file: before}); err != nil {
				t.Fatal(err)
			}
			if mark := must(w.sandbox.SettingsMark(index))(t); mark != first {
				t.Errorf("%s%s: another mark after the way back", prefix, file)
			}
		}
	}
	if changed < 60 {
		t.Errorf("only %d sysctls were changed", changed)
	}
}
