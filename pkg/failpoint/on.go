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
	// KillEnv names the step at which to be killed. "step#2" stands for the second time that it is reached.
	KillEnv = "RELINK_FAILPOINT"
	// TraceEnv names a file that gets the name of each step, one a line.
	TraceEnv = "RELINK_FAILPOINT_TRACE"
	// PauseEnv names the step at which to stop, in the same way, and PauseFileEnv a file. The file is created
	// when the step is reached. The program goes on when somebody has removed it.
	PauseEnv     = "RELINK_FAILPOINT_PAUSE"
	PauseFileEnv = "RELINK_FAILPOINT_PAUSE_FILE"
	// OlderEnv makes the program take the kernel for an older one, if it is not empty.
	OlderEnv = "RELINK_FAILPOINT_OLDER"
	// AllProcessesEnv makes the program take its PID namespace for the node's, if it is not empty.
	AllProcessesEnv = "RELINK_FAILPOINT_ALL_PROCESSES"
)

// passed counts how often each step was reached.
var passed = struct {
	sync.Mutex
	count map[string]int
}{count: map[string]int{}}

// Here marks a step with a name. It kills the process if KillEnv names the step, and stops if PauseEnv does.
// Several goroutines may call it at once.
func Here(words ...string) {
	step := count(strings.Join(words, " "))
	if step == os.Getenv(PauseEnv) {
		pause(os.Getenv(PauseFileEnv))
	}
}

// count returns the step with the number of times that it was reached, and kills the process if KillEnv names
// that.
func count(step string) string {
	passed.Lock()
	defer passed.Unlock()
	passed.count[step]++
	trace(step)
	numbered := fmt.Sprintf("%s#%d", step, passed.count[step])
	if os.Getenv(KillEnv) == numbered {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // The signal comes at any moment.
	}
	return numbered
}

// pause creates the file and waits until it is gone. Other goroutines may go on meanwhile.
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

// OlderKernel says whether to work as older kernels need it.
func OlderKernel() bool { return os.Getenv(OlderEnv) != "" }

// AllProcesses says whether to take the processes of this PID namespace for all of the node's. Tests that work in a PID
// namespace of their own are the node.
func AllProcesses() bool { return os.Getenv(AllProcessesEnv) != "" }
