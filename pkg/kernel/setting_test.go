package kernel

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/test/fresh"
)

// The settings that the kernel tells with the link are as in the files, whatever somebody writes there.
func TestSettingsAreToldWithTheLink(t *testing.T) {
	w := newFixture(t)
	w.build(t, everything(), true)
	total := 0
	for prefix, names := range devconf {
		for _, name := range names {
			key := prefix + name
			if _, told := must(w.sandbox.link("eth0"))(t).setting(key); !told || name == "-" { // An older kernel has fewer.
				continue
			}
			compared := 0
			for _, value := range []string{"", "0", "1", "2", "255", "1400", "3000000", "4000000000", "-1"} {
				if value != "" && w.sandbox.writeSettings("eth0", map[string]string{key: value}) != nil {
					continue
				}
				want := fresh.Run(t, w.path, "cat /proc/sys/net/"+settingDirs[prefix]+"/eth0/"+name)
				if told, ok := must(w.sandbox.link("eth0"))(t).setting(key); !ok || told != want {
					t.Errorf("%s is %s: the kernel tells %q, %v", key, want, told, ok)
				}
				compared++
			}
			if compared < 2 && !isReadOnly(key) {
				t.Errorf("%s takes no value", key)
			}
			total += compared
		}
	}
	if total < 300 {
		t.Errorf("only %d values were compared", total)
	}
	if _, ok := must(w.sandbox.link("eth0"))(t).setting("ipv6/stable_secret"); ok {
		t.Error("a secret is told")
	}
}

// Of each directory, those sysctls are found that somebody changed. So are those whose default somebody changed.
func TestChangedSettings(t *testing.T) {
	w := newFixture(t)
	w.build(t, netstate.Interface{Link: bridge("eth0"), Addresses: []netstate.Address{{Prefix: prefix("10.3.0.2/24")}}}, false)
	find := func() map[string]string {
		changed, _, err := w.sandbox.changedSettings(must(w.sandbox.link("eth0"))(t))
		if err != nil {
			t.Fatal(err)
		}
		return changed
	}
	before := find()
	want := maps.Clone(before)
	for _, key := range []string{
		"ipv4/rp_filter", "ipv4/arp_announce", "ipv6/router_solicitation_interval", "ipv6/hop_limit", "ipv6/max_addresses",
		"ipv4/neigh/gc_stale_time", "ipv4/neigh/unres_qlen", "ipv6/neigh/app_solicit", "ipv6/neigh/mcast_solicit",
	} {
		if err := w.sandbox.writeSettings("eth0", map[string]string{key: "2"}); err != nil {
			t.Fatal(err)
		}
		want[key] = "2"
		got := find()
		delete(got, "ipv4/neigh/unres_qlen_bytes") // It is unres_qlen in another unit.
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", key, diff)
		}
	}
	fresh.Run(t, w.path, "echo 3 >/proc/sys/net/ipv4/conf/default/arp_ignore")
	if got := find()["ipv4/arp_ignore"]; got != "0" {
		t.Errorf("the default is another: arp_ignore is %q", got)
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
