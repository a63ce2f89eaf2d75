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

// armedEnv marks the process that waits, by the guard's ID.
const armedEnv = "RELINK_GUARD_ARMED"

// finisher returns the command line that finishes the work of a guard that was killed. It starts the units in any case:
// also if the guard hangs, and if relink cannot be run.
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

// arm starts a process in a session of its own, which waits. Nothing that ends this process ends it.
func (none) arm(_ context.Context, id string, after time.Duration, environment, command []string) (Armed, error) {
	seconds := strconv.Itoa(int(after / time.Second))
	cmd := exec.Command("/bin/sh", append([]string{"-c", `trap "" HUP; sleep "$0"; exec "$@"`, seconds}, command...)...)
	cmd.Env = append(append(os.Environ(), environment...), armedEnv+"="+id)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return Armed{}, err
	}
	go func() { _ = cmd.Wait() }() // It ends when the guard disarms it.
	return Armed{PID: cmd.Process.Pid}, nil
}

// disarm takes back what arm did. It goes by the guard's ID alone, because a guard can be killed between arming and noting
// it. It is no error if nothing is armed any more, or if the finisher runs already.
func (g *guard) disarm(ctx context.Context) error {
	own := lookAt(os.Getpid()).session
	for _, p := range marked(armedEnv, g.j.ID) {
		if p.session != own { // The finisher must not end itself.
			// The shell leads its process group, and what it has started meanwhile is in that, too.
			_ = syscall.Kill(-p.session, syscall.SIGKILL)
		}
	}
	timer := timerOf(g.j.ID) + ".timer"
	if ok, err := g.units.knows(ctx, timer); err != nil || !ok {
		return err
	}
	return g.units.stop(ctx, timer)
}

// timerOf returns the name of the timer of that guard, without its kind.
func timerOf(id string) string { return "relink-guard-" + id }
