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

// unitManager controls the units of the node.
type unitManager interface {
	// isLoaded says whether there is such a unit.
	isLoaded(ctx context.Context, unit string) (bool, error)
	// isActive says whether the unit runs or is starting.
	isActive(ctx context.Context, unit string) (bool, error)
	stop(ctx context.Context, unit string) error
	start(ctx context.Context, unit string) error
	// arm makes sure that the command line runs after that time, whatever becomes of this process. environment is added
	// to its environment.
	arm(ctx context.Context, id string, after time.Duration, environment, command []string) (RestartTimer, error)
}

// RestartTimer is the timer of systemd, or the process, that starts the units if the guard does not.
type RestartTimer struct {
	Timer string `json:"timer,omitempty"`
	PID   int    `json:"pid,omitempty"`
}

// systemdDir is a directory that is there if systemd runs this machine (sd_booted(3)).
const systemdDir = "/run/systemd/system"

// detectManager returns the manager of this node.
func detectManager() unitManager {
	if info, err := os.Stat(systemdDir); err == nil && info.IsDir() {
		if _, err := exec.LookPath("systemctl"); err == nil {
			return systemd{}
		}
	}
	return noSystemd{}
}

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

// systemd asks systemctl(1) and systemd-run(1).
type systemd struct{}

// unitPatience is how long systemctl may take. A unit that does not stop gets TERM and then KILL from systemd, usually
// after 90 s.
const unitPatience = 2 * time.Minute

func (systemd) run(ctx context.Context, name string, args ...string) (string, error) {
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

// property returns one property of the unit.
func (s systemd) property(ctx context.Context, unit, name string) (string, error) {
	out, err := s.run(ctx, "systemctl", "show", "--property="+name, unit)
	if err != nil {
		return "", err
	}
	value, ok := strings.CutPrefix(out, name+"=")
	if !ok {
		return "", fmt.Errorf("systemctl show %s has no %s: %q", unit, name, out)
	}
	return value, nil
}

func (s systemd) isLoaded(ctx context.Context, unit string) (bool, error) {
	state, err := s.property(ctx, unit, "LoadState")
	return state == "loaded", err
}

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
		return noSystemd{}.arm(ctx, id, after, environment, command)
	}
	return RestartTimer{Timer: unit + ".timer"}, nil
}

// noSystemd is for a machine without systemd. It has no units.
type noSystemd struct{}

var errNoSystemd = errors.New("systemd does not run this machine")

func (noSystemd) isLoaded(context.Context, string) (bool, error) { return false, nil }
func (noSystemd) isActive(context.Context, string) (bool, error) { return false, nil }
func (noSystemd) stop(context.Context, string) error             { return errNoSystemd }
func (noSystemd) start(context.Context, string) error            { return errNoSystemd }
