package guard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/relink-cni/relink/pkg/printable"
)

// Kubelets are the units that can contain the kubelet: its own, and those of k3s and RKE2.
var Kubelets = []string{"kubelet.service", "k3s-agent.service", "k3s.service", "rke2-agent.service", "rke2-server.service"}

// RestartTimer is the timer of systemd, or the process, that starts the units if the guard does not.
type RestartTimer struct {
	Timer string `json:"timer,omitempty"`
	PID   int    `json:"pid,omitempty"`
}

// systemdDir is a directory that is there if systemd runs this machine (sd_booted(3)).
const systemdDir = "/run/systemd/system"

// systemd asks systemctl(1) and systemd-run(1). On a machine that it does not run there are no units.
type systemd struct{ running bool }

// detectSystemd finds out whether systemd runs this machine.
func detectSystemd() systemd {
	info, err := os.Stat(systemdDir)
	if err == nil && info.IsDir() {
		_, err = exec.LookPath("systemctl")
		return systemd{running: err == nil}
	}
	return systemd{}
}

var errNoSystemd = errors.New("systemd does not run this machine")

// unitName matches the names of units that systemd accepts (systemd.unit(5)).
var unitName = regexp.MustCompile(`^[A-Za-z0-9:_.\\@-]+\.[a-z]+$`)

// fullName adds the suffix .service to a name without one, as systemctl does.
func fullName(unit string) (string, error) {
	full := unit
	if !strings.Contains(full, ".") {
		full += ".service"
	}
	if !unitName.MatchString(full) {
		return "", fmt.Errorf("invalid --stop %q: must be the name of a systemd unit, such as kubelet.service", unit)
	}
	return full, nil
}

// unitPatience is how long systemctl may take. A unit that does not stop gets TERM and then KILL from systemd, usually
// after 90 s.
const unitPatience = 2 * time.Minute

func (s systemd) run(ctx context.Context, name string, args ...string) (string, error) {
	if !s.running {
		return "", errNoSystemd
	}
	ctx, cancel := context.WithTimeout(ctx, unitPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return text, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, printable.Line(text))
	}
	return text, nil
}

// property returns one property of the unit, empty without systemd.
func (s systemd) property(ctx context.Context, unit, name string) (string, error) {
	out, err := s.run(ctx, "systemctl", "show", "--property="+name, unit)
	if errors.Is(err, errNoSystemd) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	value, ok := strings.CutPrefix(out, name+"=")
	if !ok {
		return "", fmt.Errorf("systemctl show %s has no %s: %q", unit, name, out)
	}
	return value, nil
}

// isLoaded says whether there is such a unit.
func (s systemd) isLoaded(ctx context.Context, unit string) (bool, error) {
	state, err := s.property(ctx, unit, "LoadState")
	return state == "loaded", err
}

// isActive says whether the unit runs or is starting.
func (s systemd) isActive(ctx context.Context, unit string) (bool, error) {
	state, err := s.property(ctx, unit, "ActiveState")
	return state == "active" || state == "activating" || state == "reloading", err
}

func (s systemd) stop(ctx context.Context, unit string) error {
	_, err := s.run(ctx, "systemctl", "stop", unit)
	return err
}

func (s systemd) start(ctx context.Context, unit string) error {
	_, err := s.run(ctx, "systemctl", "start", unit)
	return err
}

// arm makes sure that the command line runs after that time, whatever becomes of this process. environment is added to its environment.
func (s systemd) arm(ctx context.Context, id string, after time.Duration, environment, command []string) (RestartTimer, error) {
	unit := timerName(id)
	args := []string{
		"--unit=" + unit, "--description=finish relink guard", "--on-active=" + strconv.Itoa(int(after/time.Second)),
		"--timer-property=AccuracySec=1s", "--collect",
	}
	for _, variable := range environment {
		args = append(args, "--setenv="+variable)
	}
	if _, err := s.run(ctx, "systemd-run", append(append(args, "--"), command...)...); err != nil {
		return armProcess(id, after, environment, command)
	}
	return RestartTimer{Timer: unit + ".timer"}, nil
}
