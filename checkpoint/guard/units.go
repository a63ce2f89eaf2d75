package guard

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/relink-cni/relink/pkg/systemd"
)

// Kubelets are the units that can contain the kubelet: its own, and those of k3s and RKE2.
var Kubelets = []string{"kubelet.service", "k3s-agent.service", "k3s.service", "rke2-agent.service", "rke2-server.service"}

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

// property returns one property of the unit, empty without systemd.
func property(ctx context.Context, unit, name string) (string, error) {
	if !systemd.Running() {
		return "", nil
	}
	out, err := systemd.Call(ctx, "systemctl", "show", "--property="+name, unit)
	if err != nil {
		return "", err
	}
	value, ok := strings.CutPrefix(out, name+"=")
	if !ok {
		return "", fmt.Errorf("systemctl show %s has no %s: %q", unit, name, out)
	}
	return value, nil
}

// isLoaded says whether there is such a unit.
func isLoaded(ctx context.Context, unit string) (bool, error) {
	state, err := property(ctx, unit, "LoadState")
	return state == "loaded", err
}

// isActive says whether the unit runs or is starting.
func isActive(ctx context.Context, unit string) (bool, error) {
	state, err := property(ctx, unit, "ActiveState")
	return state == "active" || state == "activating" || state == "reloading", err
}

// arm makes sure that the command line runs after that time, whatever becomes of this process. environment is added to its environment.
func arm(ctx context.Context, id string, after time.Duration, environment, command []string) error {
	args := []string{
		"--unit=" + timerName(id), "--description=finish relink guard", "--on-active=" + strconv.Itoa(int(after/time.Second)),
		"--timer-property=AccuracySec=1s", "--collect",
	}
	for _, variable := range environment {
		args = append(args, "--setenv="+variable)
	}
	if systemd.Running() {
		if _, err := systemd.Call(ctx, "systemd-run", slices.Concat(args, []string{"--"}, command)...); err == nil {
			return nil
		}
	}
	return armProcess(id, after, environment, command)
}
