package install

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/relink-cni/relink/pkg/systemd"
)

// Service is the agent's unit in systemd.
type Service struct {
	// Root is as in Options. With another root, the unit is enabled but not started.
	Root string
}

// Unmanageable says why systemd cannot handle the unit. It is empty if systemd can.
func (s Service) Unmanageable() string {
	switch {
	case !systemd.Installed():
		return "there is no systemctl here"
	case s.Root == "" && !systemd.Running():
		return "systemd does not run here"
	}
	return ""
}

// Start enables the unit and starts it. It restarts a running agent if files have changed.
func (s Service) Start(ctx context.Context, changed bool) error {
	if s.Root != "" {
		return systemd.Control(ctx, "--root="+s.Root, "enable", Unit)
	}
	verb := "start"
	if changed {
		verb = "restart"
	}
	err := s.Reload(ctx)
	if err == nil {
		err = systemd.Control(ctx, "enable", Unit)
	}
	if err == nil {
		err = systemd.Control(ctx, verb, Unit)
	}
	return err
}

// Stop stops the unit and disables it. A killed installation may have left none.
func (s Service) Stop(ctx context.Context) error {
	if _, err := os.Stat(inRoot(s.Root, filepath.Join(unitDir, Unit))); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if s.Root != "" {
		return systemd.Control(ctx, "--root="+s.Root, "disable", Unit)
	}
	return systemd.Control(ctx, "disable", "--now", Unit)
}

// Reload tells systemd that unit files have changed.
func (s Service) Reload(ctx context.Context) error {
	if s.Root != "" {
		return nil
	}
	return systemd.Control(ctx, "daemon-reload")
}
