package kernel

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/test/fresh"
)

// The settings that the kernel reports with the link are the same as in the files.
func TestSettingsAreToldWithTheLink(t *testing.T) {
	w := newFixture(t)
	w.build(t, everything(), ConfigureOptions{Rebuild: true})
	for _, values := range []string{"0", "1"} {
		for key := range devconf {
			if err := w.sandbox.WriteSetting("eth0", key, values); err != nil {
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
	w.build(t, everything(), ConfigureOptions{Rebuild: true})
	fresh.Run(t, w.path, "echo 0 >/proc/sys/net/ipv4/conf/eth0/arp_notify")
	dir := t.TempDir()
	fresh.Run(t, "", "mount --bind /proc/sys "+dir+" && mount -o remount,bind,ro "+dir)
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	t.Setenv(settingsEnv, dir)
	if err := w.sandbox.WriteSetting("eth0", "ipv4/arp_notify", "1"); err != nil {
		t.Error(err)
	}
	if got := fresh.Run(t, w.path, "cat /proc/sys/net/ipv4/conf/eth0/arp_notify"); got != "1" {
		t.Errorf("arp_notify is %s", got)
	}
	if err := w.sandbox.WriteSetting("eth0", "ipv4/rp_filter", "2"); !errors.Is(err, unix.EROFS) {
		t.Errorf("rp_filter: %v", err)
	}
}
