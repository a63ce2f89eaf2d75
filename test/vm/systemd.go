package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// systemdKeeps are the units that the targets of the boot start. All others that Debian has there are left out, because
// some of them take long (systemd-tmpfiles-setup: 40 s), empty /tmp, or rename the NICs. A test starts what it needs.
var systemdKeeps = []string{"systemd-journald.service", "systemd-journald.socket", "systemd-journald-dev-log.socket"}

// StartSystemd turns process 1 of this test machine into the systemd of the host's file system, and returns when it has
// started basic.target. It runs in the guest only. journald runs, udev does not: "systemctl start systemd-udevd" starts
// it, and it leaves the NICs their names. The machine cannot be turned back: StartSystemd spends it, see Spend.
func StartSystemd(ctx context.Context) error {
	if !InGuest() {
		return errors.New("systemd is started in the test machine only")
	}
	if err := Spend(); err != nil {
		return err
	}
	if err := trimSystemd(); err != nil {
		return fmt.Errorf("leaving out units of systemd: %w", err)
	}
	if err := syscall.Kill(1, syscall.SIGUSR1); err != nil {
		return fmt.Errorf("asking process 1 to become systemd: %w", err)
	}
	for {
		if _, err := os.Stat("/run/systemd/private"); err == nil {
			if exec.CommandContext(ctx, "systemctl", "is-active", "--quiet", "basic.target").Run() == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			out, _ := exec.Command("systemctl", "list-jobs", "--no-pager").CombinedOutput()
			return fmt.Errorf("systemd has not started basic.target: %w\n%s", context.Cause(ctx), out)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// trimSystemd leaves out the units that nobody needs here, and the generators, of which each takes 25 ms and finds
// nothing. It writes to the machine's overlay only.
func trimSystemd() error {
	wanted, err := filepath.Glob("/lib/systemd/system/*.wants/*")
	if err != nil {
		return err
	}
	for _, pattern := range []string{"/etc/systemd/system/*.wants/*", "/lib/systemd/system-generators/*"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		wanted = append(wanted, more...)
	}
	for _, path := range wanted {
		if slices.Contains(systemdKeeps, filepath.Base(path)) {
			continue
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	// This rule gives NICs the names of their slots.
	if err := os.MkdirAll("/run/udev/rules.d", 0o755); err != nil {
		return err
	}
	err = os.Symlink("/dev/null", "/run/udev/rules.d/80-net-setup-link.rules")
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

// spent is the file on the share that says that the machine runs no other test.
const spent = "spent"

// Spend says, in the guest, that this machine is not to run another test after the present one: Deal boots a new machine
// for the next. It is for tests that change the machine for good.
func Spend() error {
	if err := os.WriteFile(filepath.Join(os.Getenv("RELINK_VM_SHARE"), spent), nil, 0o600); err != nil {
		return fmt.Errorf("saying that this machine is spent: %w", err)
	}
	return nil
}

// Spent reports whether a command has called Spend in this session's machine.
func (s *Session) Spent() bool {
	_, err := os.Stat(filepath.Join(s.share, spent))
	return err == nil
}
