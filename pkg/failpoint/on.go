//go:build failpoint

package failpoint

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
)

const (
	// KillEnv names the step to be killed at, as "step#2" for its second passing.
	KillEnv = "RELINK_FAILPOINT"
	// TraceEnv names a file that gets the name of each step, a line each.
	TraceEnv = "RELINK_FAILPOINT_TRACE"
	// OlderEnv has the kernel taken for an older one, if it is not empty.
	OlderEnv = "RELINK_FAILPOINT_OLDER"
)

// passed counts the passings of each step.
var passed = struct {
	sync.Mutex
	count map[string]int
}{count: map[string]int{}}

// Here marks a step, named by the words, and kills the process if it is the one that
// KillEnv names. Several goroutines may pass at once.
func Here(words ...string) {
	passed.Lock()
	defer passed.Unlock()
	step := strings.Join(words, " ")
	passed.count[step]++
	trace(step)
	if os.Getenv(KillEnv) == fmt.Sprintf("%s#%d", step, passed.count[step]) {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // The signal is under way.
	}
}

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
