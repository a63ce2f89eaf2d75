package guard

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/relink-cni/relink/checkpoint/control"
)

// armedEnv marks the waiting process. The value is the guard's ID.
const armedEnv = "RELINK_GUARD_ARMED"

// finisher returns the command line that finishes the work of a killed guard. It starts the units in any case: even if
// the guard hangs, and even if relink cannot run.
func (g *guard) finisher() (environment, command []string, err error) {
	relink, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	script := `units=$1; shift; timeout -k 5 90 "$@"; [ -z "$units" ] || exec systemctl start $units`
	command = []string{"/bin/sh", "-c", script, "relink-guard", unitsOf(g.j.ran()), relink, "--checkpoint-dir", g.j.Plan.CheckpointDir, "guard", "--resume=" + g.j.ID}
	for _, name := range []string{DirEnv, control.SocketEnv, "PATH"} {
		if value := os.Getenv(name); value != "" {
			environment = append(environment, name+"="+value)
		}
	}
	return environment, command, nil
}

// arm starts a process that waits. It has a session of its own, so it outlives this process.
func (none) arm(_ context.Context, id string, after time.Duration, environment, command []string) (Armed, error) {
	seconds := strconv.Itoa(int(after / time.Second))
	cmd := exec.Command("/bin/sh", append([]string{"-c", `trap "" HUP; sleep "$0"; exec "$@"`, seconds}, command...)...)
	cmd.Env = append(append(os.Environ(), environment...), armedEnv+"="+id)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return Armed{}, err
	}
	go func() { _ = cmd.Wait() }() // The process ends when the guard disarms it.
	return Armed{PID: cmd.Process.Pid}, nil
}

// disarm undoes arm. It uses only the guard's ID, because a guard can be killed between arming and the note about it.
// It is no error if nothing is armed, or if the finisher already runs.
func (g *guard) disarm(ctx context.Context) error {
	own := lookAt(os.Getpid()).session
	for _, p := range marked(armedEnv, g.j.ID) {
		if p.session != own { // The finisher must not end itself.
			// The shell leads its process group. Everything that the shell has started is in that group, too.
			_ = syscall.Kill(-p.session, syscall.SIGKILL)
		}
	}
	timer := timerOf(g.j.ID) + ".timer"
	if ok, err := g.units.knows(ctx, timer); err != nil || !ok {
		return err
	}
	return g.units.stop(ctx, timer)
}

// timerOf returns the name of the guard's timer, without the suffix.
func timerOf(id string) string { return "relink-guard-" + id }
