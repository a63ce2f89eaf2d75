package install

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Service is the agent's unit in systemd.
type Service struct {
	// Root is as in Options. With another root, the unit is enabled but not started.
	Root string
}

// Manageable reports whether systemd can handle the unit. If not, it says why.
func (s Service) Manageable() (bool, string) {
	if _, err := exec.LookPath("systemctl"); err != nil {
		return false, "there is no systemctl here"
	}
	if s.Root != "" {
		return true, ""
	}
	// sd_booted(3) says that systemd runs if this directory is there.
	if info, err := os.Lstat("/run/systemd/system"); err != nil || !info.IsDir() {
		return false, "systemd does not run here"
	}
	return true, ""
}

// Start enables the unit and starts it. It restarts a running agent if files have changed.
func (s Service) Start(ctx context.Context, changed bool) error {
	if s.Root != "" {
		return systemctl(ctx, "--root="+s.Root, "enable", Unit)
	}
	if err := systemctl(ctx, "daemon-reload"); err != nil {
		return err
	}
	if err := systemctl(ctx, "enable", Unit); err != nil {
		return err
	}
	if changed {
		return systemctl(ctx, "restart", Unit)
	}
	return systemctl(ctx, "start", Unit)
}

// Stop stops the unit and disables it.
func (s Service) Stop(ctx context.Context) error {
	if s.Root != "" {
		return systemctl(ctx, "--root="+s.Root, "disable", Unit)
	}
	return systemctl(ctx, "disable", "--now", Unit)
}

// Reload tells systemd that unit files have changed.
func (s Service) Reload(ctx context.Context) error {
	if s.Root != "" {
		return nil
	}
	return systemctl(ctx, "daemon-reload")
}

func systemctl(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
