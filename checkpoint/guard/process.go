package guard

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// markEnv marks the command and everything that it starts. The value is the guard's ID.
const markEnv = "RELINK_GUARD"

// process is a process as /proc shows it.
type process struct {
	pid, session   int
	state, command string
}

func (p process) String() string { return fmt.Sprintf("%s (process %d)", p.command, p.pid) }

// readProcess reads /proc/PID/stat (proc_pid_stat(5)). It returns a zero process if there is no such process.
func readProcess(pid int) (p process) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p
	}
	// The name is in parentheses. It may contain any characters, even parentheses.
	open, closed := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || closed < open {
		return p
	}
	fields := strings.Fields(string(b[closed+1:]))
	if len(fields) < 4 {
		return p
	}
	p = process{pid: pid, state: fields[0], command: string(b[open+1 : closed])}
	p.session, _ = strconv.Atoi(fields[3])
	return p
}

// processesWithEnv returns the living processes whose environment had the variable with this value at their last execve(2).
func processesWithEnv(variable, value string) []process {
	want := []byte(variable + "=" + value)
	return processes(func(p process) bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
		return err == nil && slices.ContainsFunc(bytes.Split(b, []byte{0}), func(v []byte) bool { return bytes.Equal(v, want) })
	})
}

// processesOfCommand returns the living processes of the command: those with its mark, and those of its session. The session
// counts only for the guard that started the command. For another process, the number may belong to another session by
// now.
func processesOfCommand(id string, session int) []process {
	found := processesWithEnv(markEnv, id)
	if session == 0 {
		return found
	}
	for _, p := range processes(func(p process) bool { return p.session == session }) {
		if !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	return found
}

// processes returns the living processes for which fits returns true.
func processes(match func(process) bool) (found []process) {
	paths, _ := filepath.Glob("/proc/[0-9]*") // Only a bad pattern is an error.
	for _, path := range paths {
		pid, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			continue
		}
		if p := readProcess(pid); p.pid != 0 && p.state != "Z" && p.state != "X" && match(p) {
			found = append(found, p)
		}
	}
	return found
}
