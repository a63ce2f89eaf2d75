package vm

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed guest/systemd.sh
var systemdScript string

// SystemdCommand turns process 1 of the test machine into the systemd of the host's file system, and ends when basic.target is there.
// journald runs, udev does not: "systemctl start systemd-udevd" starts it, and it leaves the NICs their names. The machine cannot be turned
// back.
func SystemdCommand() []string { return []string{"sh", "-ec", systemdScript} }

// StartSystemd runs SystemdCommand. It runs in the guest only, and spends the machine, see Spend.
func StartSystemd(ctx context.Context) error {
	if !InGuest() {
		return errors.New("systemd is started in the test machine only")
	}
	if err := Spend(); err != nil {
		return err
	}
	command := SystemdCommand()
	if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("starting systemd: %w\n%s", errors.Join(err, context.Cause(ctx)), out)
	}
	return nil
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
