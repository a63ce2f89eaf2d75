package guard

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/systemd"
)

// armedEnv marks the waiting process. The value is the guard's ID.
const armedEnv = "RELINK_GUARD_ARMED"

// finishCommand returns the command line that finishes the work of a killed guard. It starts the units in any case: even if
// the guard hangs, and even if relink cannot run.
func (g *guard) finishCommand() (environment, command []string, err error) {
	relink, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	script := `units=$1; shift; timeout -k 5 90 "$@"; [ -z "$units" ] || exec systemctl start $units`
	command = []string{"/bin/sh", "-c", script, "relink-guard", joinUnits(g.journal.activeUnits()), relink, "--checkpoint-dir", g.journal.Plan.CheckpointDir, "guard", "--resume=" + g.journal.ID}
	for _, name := range []string{DirEnv, control.SocketEnv, "PATH"} {
		if value := os.Getenv(name); value != "" {
			environment = append(environment, name+"="+value)
		}
	}
	return environment, command, nil
}

// armProcess starts a process that waits. It has a session of its own, so it outlives this process.
func armProcess(id string, after time.Duration, environment, command []string) error {
	seconds := strconv.Itoa(int(after / time.Second))
	cmd := exec.Command("/bin/sh", append([]string{"-c", `trap "" HUP; sleep "$0"; exec "$@"`, seconds}, command...)...)
	cmd.Env = append(append(os.Environ(), environment...), armedEnv+"="+id)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // The process ends when the guard disarms it.
	return nil
}

// disarmRestart undoes arm. It uses only the guard's ID, because a guard can be killed between arming and the note about it.
// It is no error if nothing is armed, or if the finisher already runs.
func (g *guard) disarmRestart(ctx context.Context) error {
	ownSession := readProcess(os.Getpid()).session
	for _, p := range processesWithEnv(armedEnv, g.journal.ID) {
		if p.session != ownSession { // The finisher must not end itself.
			// The shell leads its process group. Everything that the shell has started is in that group, too.
			_ = syscall.Kill(-p.session, syscall.SIGKILL)
		}
	}
	timer := timerName(g.journal.ID) + ".timer"
	if ok, err := isLoaded(ctx, timer); err != nil || !ok {
		return err
	}
	return systemd.Control(ctx, "stop", timer)
}

// timerName returns the name of the guard's timer, without the suffix.
func timerName(id string) string { return "relink-guard-" + id }
