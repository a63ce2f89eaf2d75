package kernel

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/test/fresh"
)

// ownSysfs mounts a sysfs at /sys that shows the tests' own network namespace, as on a node.
func ownSysfs(t *testing.T) {
	t.Helper()
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount("/sys", unix.MNT_DETACH) })
}

func TestThePortIsReadHereAndInASandbox(t *testing.T) {
	ownSysfs(t)
	w := newFixture(t)
	// A device with the same name but another index is not taken.
	fresh.IP(t, "", "link add inside type veth peer name outside")
	fresh.IP(t, "", "link set inside netns "+w.path)
	for name, test := range map[string]struct {
		at     *Namespace
		device string
	}{"host": {w.host, "lan0"}, "sandbox": {w.sandbox, "inside"}} {
		l := must(test.at.link(test.device))(t)
		if port, pf, err := test.at.fromSysfs(l); err != nil || port != "0" || pf != "" {
			t.Errorf("%s: port %q, PF %q, %v", name, port, pf, err)
		}
		l.Name = "lo" // As if the device were renamed meanwhile, and another device had its name.
		if port, _, err := test.at.fromSysfs(l); err != nil || port != "0" {
			t.Errorf("%s, renamed: port %q, %v", name, port, err)
		}
	}
	gone := must(w.host.link("lan0"))(t)
	gone.Index = 1 << 20
	if port, _, err := w.host.fromSysfs(gone); err == nil {
		t.Errorf("of a device that is gone: port %q", port)
	}
}

func TestADeviceIsReadByItsIndex(t *testing.T) {
	w := newFixture(t)
	d := must(w.host.Device(w.index(t, "lan0")))(t)
	if d.Name != "lan0" || d.Kind != "veth" || !d.Up {
		t.Errorf("%+v", d)
	}
	if _, err := w.host.Device(1 << 20); err == nil || !strings.Contains(err.Error(), "the device with index 1048576: no such device") {
		t.Errorf("no device: %v", err)
	}
	if _, err := w.host.Device(0); err == nil {
		t.Error("index 0 is a device")
	}
}
