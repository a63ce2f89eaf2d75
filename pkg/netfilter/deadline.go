package netfilter

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// killInterval is the time between two looks for programs that run although the time is up.
const killInterval = 100 * time.Millisecond

// withDeadline calls f, which starts programs on the calling thread, one after the other. When the time is up it kills
// the program that runs, and those that start after it, and returns context.DeadlineExceeded if f fails.
//
// go-iptables takes no context. f cannot run in a goroutine that is left behind: it would run on another thread, and
// so in another network namespace.
func withDeadline(limit time.Duration, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread, err := os.Readlink("/proc/thread-self")
	if err != nil {
		return err
	}
	task := filepath.Join("/proc", thread)
	// The thread can have children of others, which had it before.
	foreign := children(task)
	var guard sync.Mutex
	over, late := false, false
	var timer *time.Timer
	guard.Lock()
	timer = time.AfterFunc(limit, func() {
		guard.Lock()
		defer guard.Unlock()
		if !over {
			late = true
			killChildren(task, foreign)
			timer.Reset(killInterval) // One program can have ended and the next one not have begun.
		}
	})
	guard.Unlock()
	defer timer.Stop()
	err = f()
	guard.Lock()
	defer guard.Unlock()
	over = true
	if late && err != nil {
		return errors.Join(context.DeadlineExceeded, err)
	}
	return err
}

// killChildren kills the processes that the thread has started, but not the foreign ones.
func killChildren(task string, foreign []int) {
	for _, pid := range children(task) {
		if slices.Contains(foreign, pid) {
			continue
		}
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
		killChildren(task, nil)
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
