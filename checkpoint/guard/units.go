package guard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/relink-cni/relink/pkg/systemd"
)

// Kubelets are the units that can contain the kubelet: its own, and those of k3s and RKE2.
var Kubelets = []string{"kubelet.service", "k3s-agent.service", "k3s.service", "rke2-agent.service", "rke2-server.service"}

// unitName matches the names of units that systemd accepts (systemd.unit(5)).
var unitName = regexp.MustCompile(`^[A-Za-z0-9:_.\\@-]+\.[a-z]+$`)

// chooseUnits returns the full names of the units to stop: those that the operator named, or the kubelet's. RKE2 installs the units
// of both of its roles, of which one runs. If all pods are on another uplink during the command, no unit has to stop: the kubelet
// sees no pod without its network. Then an upgrade can also take longer than Kubernetes waits for a kubelet.
func chooseUnits(ctx context.Context, plan Plan) (units []string, err error) {
	candidates := plan.Stop
	if len(candidates) == 0 && (len(plan.Via) == 0 || plan.Force) {
		candidates = Kubelets
	}
	for _, unit := range candidates {
		if !strings.Contains(unit, ".") {
			unit += ".service" // As systemctl does.
		}
		if !unitName.MatchString(unit) {
			return nil, fmt.Errorf("invalid --stop %q: must be the name of a systemd unit, such as kubelet.service", unit)
		}
		state, err := showUnit(ctx, unit)
		if err != nil {
			return nil, err
		}
		if state.isLoaded() {
			units = append(units, unit)
		} else if len(plan.Stop) > 0 {
			return nil, fmt.Errorf("invalid --stop %q: systemd knows no such unit: systemctl list-units shows those that run", unit)
		}
	}
	return units, nil
}

// unitState has properties of a unit (org.freedesktop.systemd1(5)).
type unitState map[string]string

// showUnit asks systemd for the state of the unit.
func showUnit(ctx context.Context, unit string) (unitState, error) {
	out, err := systemd.Call(ctx, "systemctl", "show", "--property=LoadState,ActiveState,SubState,Result,MainPID,ExecMainCode,ExecMainStatus", unit)
	if err != nil {
		return nil, err
	}
	state := unitState{}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		state[name] = value
	}
	return state, nil
}

// isLoaded says whether there is such a unit.
func (u unitState) isLoaded() bool { return u["LoadState"] == "loaded" }

// hasEnded says whether the unit's main process has ended, or was given up.
func (u unitState) hasEnded() bool {
	return slices.Contains([]string{"exited", "failed", "dead"}, u["SubState"])
}

// exitStatus returns the exit status of the unit's main process, as a shell tells it. Of a process that is not known to have ended, it is
// that of SIGKILL.
func (u unitState) exitStatus() int {
	status, _ := strconv.Atoi(u["ExecMainStatus"])
	switch u["ExecMainCode"] { // CLD_EXITED, CLD_KILLED and CLD_DUMPED of waitid(2).
	case "1":
		return status
	case "2", "3":
		return 128 + status
	}
	return 128 + int(syscall.SIGKILL)
}

// timerUnit and commandUnit are the names of the guard's own units, without the suffix of the timer.
func (g *guard) timerUnit() string   { return "relink-guard-" + g.journal.ID }
func (g *guard) commandUnit() string { return "relink-guard-" + g.journal.ID + "-command.service" }

func (g *guard) environmentPath() string { return filepath.Join(g.dir, "environment") }

// saveEnvironment writes the guard's environment for its units (EnvironmentFile= of systemd.exec(5)). Everybody can read the settings
// of a unit, but not this file.
func (g *guard) saveEnvironment() error {
	quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`", "$", `\$`)
	var text strings.Builder
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		fmt.Fprintf(&text, "%s=\"%s\"\n", name, quoted.Replace(value))
	}
	return os.WriteFile(g.environmentPath(), []byte(strings.ToValidUTF8(text.String(), "?")), 0o600)
}

// runUnit starts the command line as a unit with the guard's environment. If the file is gone, the unit goes on without it.
func (g *guard) runUnit(ctx context.Context, settings []string, command ...string) error {
	for i := range command {
		command[i] = strings.ReplaceAll(command[i], "$", "$$") // systemd would replace variables.
	}
	settings = append(settings, "--property=EnvironmentFile=-"+g.environmentPath(), "--")
	_, err := systemd.Call(ctx, "systemd-run", append(settings, command...)...)
	return err
}

// finishLimit is how long the timer's process may take before the units start in any case.
const finishLimit = 90 * time.Second

// armRestart notes which units run, and arms a timer that finishes the work of the guard if it is killed. The timer starts the units in
// any case: even if the guard hangs, and even if relink cannot run.
func (g *guard) armRestart(ctx context.Context) error {
	g.journal.Units = nil
	for _, unit := range g.journal.Plan.Stop {
		state, err := showUnit(ctx, unit)
		if err != nil {
			return err
		}
		if slices.Contains([]string{"active", "activating", "reloading"}, state["ActiveState"]) {
			g.journal.Units = append(g.journal.Units, unit)
		} else {
			g.logf("%s does not run, and stays so", unit)
		}
	}
	relink, err := os.Executable()
	if err != nil {
		return err
	}
	systemctl, err := exec.LookPath("systemctl") // An older systemd takes only the whole path.
	if err != nil {
		return err
	}
	settings := []string{
		"--unit=" + g.timerUnit(), "--collect", "--on-active=" + strconv.Itoa(int(g.journal.Plan.maxDowntime()/time.Second)), "--timer-property=AccuracySec=1s",
		"--property=RuntimeMaxSec=" + finishLimit.String(), "--property=TimeoutStopSec=5",
	}
	if len(g.journal.Units) > 0 {
		settings = append(settings, "--property=ExecStopPost="+systemctl+" start "+strings.ReplaceAll(strings.Join(g.journal.Units, " "), `\`, `\\`))
	}
	if err := g.runUnit(ctx, settings, relink, "guard", "--resume"); err != nil {
		return fmt.Errorf("nothing would start the units again if the guard were killed: %w", err)
	}
	return nil
}

// disarmRestart takes the guard's units away: the timer, and the command's unit unless processes go on in it. It uses only the guard's ID,
// because a guard can be killed between arming and the note about it. It is no error if nothing is armed, or if the timer's process
// already runs.
func (g *guard) disarmRestart(ctx context.Context) error {
	if len(g.journal.Run.Remaining) == 0 {
		_ = systemd.Control(ctx, "stop", g.commandUnit())         // It may not be there.
		_ = systemd.Control(ctx, "reset-failed", g.commandUnit()) // It has failed only if systemd has ended the command.
	}
	timer := g.timerUnit() + ".timer"
	if state, err := showUnit(ctx, timer); err != nil || !state.isLoaded() {
		return err
	}
	return systemd.Control(ctx, "stop", timer)
}

// stopUnits stops the units that run.
func (g *guard) stopUnits(ctx context.Context) error {
	for _, unit := range g.journal.Units {
		start := time.Now()
		if err := systemd.Control(ctx, "stop", unit); err != nil {
			return err
		}
		g.logf("%s is stopped, in %s", unit, time.Since(start).Round(time.Millisecond))
	}
	return nil
}

// isOverdue says that units are still stopped, but should run by now.
func (g *guard) isOverdue() bool {
	return g.journal.isBegun(StopUnits) && len(g.journal.Units) > 0 && g.journal.sinceBegun(StopUnits) > g.journal.Plan.maxDowntime()
}

// startUnits starts the units that ran. If one fails, it still tries the others.
func (g *guard) startUnits(ctx context.Context) error {
	var failed []error
	for _, unit := range g.journal.Units {
		if err := systemd.Control(ctx, "start", unit); err != nil {
			failed = append(failed, fmt.Errorf("%s is not started: %w: start it yourself", unit, err))
			continue
		}
		g.logf("%s is started, %s after it was stopped", unit, g.journal.sinceBegun(StopUnits).Round(time.Millisecond))
	}
	return errors.Join(failed...)
}
