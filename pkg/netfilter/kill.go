package netfilter

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// killChildren kills the processes that the thread has started.
func killChildren(task string) {
	for _, pid := range children(task) {
		process, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		// The process has a descriptor now: as it is still a child, the number is no other's.
		if slices.Contains(children(task), pid) {
			killTree(process)
		}
		_ = process.Release()
	}
}

// killTree kills the process and those below: a script that calls iptables would leave it behind, with the script's output
// open. The process is stopped first, so that it starts nothing more.
func killTree(process *os.Process) {
	_ = process.Signal(syscall.SIGSTOP) // It can have ended.
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(process.Pid) + "/task/*")
	for _, task := range tasks {
		killChildren(task)
	}
	_ = process.Kill()
}

// children returns the processes that the thread has started and that nobody has waited for. A kernel without CONFIG_PROC_CHILDREN
// tells none: then they live on.
func children(task string) []int {
	text, err := os.ReadFile(filepath.Join(task, "children"))
	if err != nil {
		return nil // Or the thread has ended.
	}
	var pids []int
	for field := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
