// Package systemd calls systemctl(1) and systemd-run(1).
package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/relink-cni/relink/pkg/printable"
)

// ErrNotRunning says that systemd does not run this machine: there are no units.
var ErrNotRunning = errors.New("systemd does not run this machine")

// Running says whether systemd runs this machine (sd_booted(3)), and can be asked.
func Running() bool {
	info, err := os.Stat("/run/systemd/system")
	return err == nil && info.IsDir() && Installed()
}

// Installed says whether there is a systemctl. With --root=DIR it works for a file system that is mounted there.
func Installed() bool {
	_, err := exec.LookPath("systemctl")
	return err == nil
}

// patience is how long a call may take. A unit that does not stop gets TERM and then KILL from systemd, usually after 90 s.
const patience = 2 * time.Minute

// Call runs the program with the arguments. It returns the output.
func Call(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // A ^C on the terminal is not for it.
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return text, fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, printable.Line(text))
	}
	return text, nil
}

// Control runs systemctl with the arguments.
func Control(ctx context.Context, args ...string) error {
	_, err := Call(ctx, "systemctl", args...)
	return err
}
