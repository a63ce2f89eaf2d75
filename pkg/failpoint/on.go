//go:build failpoint

package failpoint

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// KillEnv names the step to be killed at, as "step#2" for its second passing.
	KillEnv = "RELINK_FAILPOINT"
	// TraceEnv names a file that gets the name of each step, a line each.
	TraceEnv = "RELINK_FAILPOINT_TRACE"
	// PauseEnv names the step to stop at, alike, and PauseFileEnv a file. The file is made
	// when the step is reached, and the program goes on when somebody has removed it.
	PauseEnv     = "RELINK_FAILPOINT_PAUSE"
	PauseFileEnv = "RELINK_FAILPOINT_PAUSE_FILE"
	// OlderEnv has the kernel taken for an older one, if it is not empty.
	OlderEnv = "RELINK_FAILPOINT_OLDER"
)

// passed counts the passings of each step.
var passed = struct {
	sync.Mutex
	count map[string]int
}{count: map[string]int{}}

// Here marks a step, named by the words, and kills the process if it is the one that
// KillEnv names, or stops there if PauseEnv does. Several goroutines may pass at once.
func Here(words ...string) {
	step := count(strings.Join(words, " "))
	if step == os.Getenv(PauseEnv) {
		pause(os.Getenv(PauseFileEnv))
	}
}

// count returns the step with the number of this passing, and kills the process at the
// one that KillEnv names.
func count(step string) string {
	passed.Lock()
	defer passed.Unlock()
	passed.count[step]++
	trace(step)
	numbered := fmt.Sprintf("%s#%d", step, passed.count[step])
	if os.Getenv(KillEnv) == numbered {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // The signal is under way.
	}
	return numbered
}

// pause makes the file and waits until it is gone. Others may pass meanwhile.
func pause(path string) {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		panic("failpoint pause: " + err.Error())
	}
	for {
		if _, err := os.Stat(path); err != nil {
			return
		}
		time.Sleep(pauseInterval)
	}
}

const pauseInterval = 10 * time.Millisecond

func trace(step string) {
	path := os.Getenv(TraceEnv)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.WriteString(step + "\n")
		_ = f.Close()
	}
	if err != nil {
		panic("failpoint trace: " + err.Error())
	}
}

// OlderKernel says whether to take the ways that older kernels need.
func OlderKernel() bool { return os.Getenv(OlderEnv) != "" }
