package guest_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/test/vm"
)

// TestSystemd is the last test of this machine: process 1 stays systemd.
func TestSystemd(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute) // On a busy machine, a boot alone takes a minute.
	defer stop()
	start := time.Now()
	if err := vm.StartSystemd(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("systemd is up after %v", time.Since(start).Round(time.Millisecond))
	if line := must(t, "tr '\\0' ' ' </proc/1/cmdline"); !strings.HasPrefix(line, "/lib/systemd/systemd") {
		t.Errorf("process 1 is %s", line)
	}
	if scope := must(t, "cat /proc/self/cgroup"); scope != "0::/init.scope" {
		t.Errorf("the test is in %s", scope)
	}
	file := filepath.Join(t.TempDir(), "timed")
	must(t, "systemd-run --on-active=100ms --timer-property=AccuracySec=10ms touch "+file)
	await(t, "a timer's command", func() bool { _, err := os.Stat(file); return err == nil })
	must(t, "systemd-run --unit=talks echo hello")
	await(t, "the journal", func() bool { return strings.Contains(must(t, "journalctl --no-pager -u talks"), "hello") })

	must(t, "systemctl start systemd-udevd && udevadm trigger --subsystem-match=net --action=add && udevadm settle")
	for _, nic := range []string{"eth0", "eth1"} {
		if sysfs(nic, "address") == "" {
			t.Errorf("%s has lost its name to udev", nic)
		}
	}
	if state := must(t, "systemctl is-system-running --wait"); state != "running" {
		t.Errorf("systemd is %s: %s", state, must(t, "systemctl --failed --no-pager"))
	}
}
