package crash

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// callNames are the system calls with which a program changes files or writes its result.
var callNames = map[uint64]string{
	unix.SYS_FLOCK: "flock", unix.SYS_MKDIRAT: "mkdirat", unix.SYS_OPENAT: "openat", unix.SYS_FTRUNCATE: "ftruncate",
	unix.SYS_FALLOCATE: "fallocate", unix.SYS_PWRITE64: "pwrite64", unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync",
	unix.SYS_RENAMEAT: "renameat", unix.SYS_UNLINKAT: "unlinkat", unix.SYS_WRITE: "write",
}

// syscallInfo is struct ptrace_syscall_info of ptrace(2), at the entry of a call.
type syscallInfo struct {
	op   uint8
	_    [3]uint8
	_    uint32
	_, _ uint64
	nr   uint64
	args [6]uint64
	_    [16]byte
}

// changes names the call that the thread is about to make. ok says that it is one of callNames that changes something
// or writes to standard output.
func (i syscallInfo) changes() (string, bool) {
	const entry = 1 // PTRACE_SYSCALL_INFO_ENTRY
	name, ok := callNames[i.nr]
	switch {
	case i.op != entry || !ok:
		return "", false
	case i.nr == unix.SYS_OPENAT:
		return name, i.args[2]&unix.O_CREAT != 0
	case i.nr == unix.SYS_WRITE:
		return name, i.args[0] == uint64(syscall.Stdout) // The Go runtime writes to other files only to wake itself.
	}
	return name, true
}

func callOf(tid int) (info syscallInfo, err error) {
	const getSyscallInfo = 0x420e // PTRACE_GET_SYSCALL_INFO
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, getSyscallInfo, uintptr(tid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return info, errno
	}
	return info, nil
}

// killedBefore runs the program and kills it before its n-th call that changes something. It returns the names of the
// calls up to there. If n is 0, it does not kill the program.
func killedBefore(t *testing.T, cmd *exec.Cmd, n int) []string {
	t.Helper()
	// This thread is the tracer. It may also have other tests' children, so it waits for the process group.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Setpgid: true}
	must(t, cmd.Start())
	pid := cmd.Process.Pid
	defer func() { _ = cmd.Wait() }() // The loop below has waited for it.
	var calls []string
	for traced := false; ; {
		var status unix.WaitStatus
		tid, err := unix.Wait4(-pid, &status, unix.WALL, nil)
		must(t, err)
		if status.Exited() || status.Signaled() {
			if tid == pid {
				if killed := status.Signaled() && status.Signal() == unix.SIGKILL; killed != (n > 0) {
					t.Errorf("killed: %v before call %d of %v", killed, n, calls)
				}
				return calls
			}
			continue
		}
		if !traced {
			must(t, unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL))
			traced = true
		}
		signal := status.StopSignal()
		const call = unix.SIGTRAP | 0x80 // PTRACE_O_TRACESYSGOOD
		switch signal {
		case call:
			info, err := callOf(tid)
			if name, ok := info.changes(); err == nil && ok {
				calls = append(calls, name)
				if len(calls) == n {
					must(t, unix.Kill(pid, unix.SIGKILL))
				}
			}
			signal = 0
		case unix.SIGTRAP, unix.SIGSTOP:
			signal = 0 // It announces a new thread.
		}
		// The thread may have been killed meanwhile.
		if err := unix.PtraceSyscall(tid, int(signal)); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Fatal(err)
		}
	}
}

// The steps inside bbolt have no failpoints. So this test watches from outside what bbolt writes, and in which order.
func TestIPAMKilledBeforeEverySystemCall(t *testing.T) {
	t.Parallel()
	adds, dels, gcs := ipamAdds(), ipamDels(), ipamGCs()
	eachSystemCall(t, map[string]wayOfOperation{
		"first ADD":   {adds["first in the directory"], repeatADD},
		"ADD":         {adds["store is there"], thenDEL},
		"taken over":  {adds["taken over"], lateDEL},
		"after boot":  {adds["after a boot"], repeatADD},
		"DEL":         {dels["quarantine"], repeatDEL},
		"sticky DEL":  {dels["sticky"], repeatDEL},
		"GC":          {gcs["two families"], repeatGC},
		"GC and boot": {gcs["after a boot"], thenDEL},
	})
}

// wayOfOperation is an operation, and the way in which the runtime goes on after the kill.
type wayOfOperation struct {
	ipamOperation
	way string
}

// eachSystemCall kills each operation before every system call that changes something.
func eachSystemCall(t *testing.T, operations map[string]wayOfOperation) {
	for name, d := range operations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			judge := d.judge(t, d.way)
			try := func(t *testing.T, n int) []string {
				p := newPool(t, d.keys) // Its programs make the same calls as those that are released.
				d.before(t, p)
				calls := killedBefore(t, d.act(p), n)
				judge(t, p)
				return calls
			}
			calls := try(t, 0)
			t.Logf("%d kills, one before each of %v", len(calls), calls)
			for i, call := range calls {
				t.Run(fmt.Sprintf("%d %s", i+1, call), func(t *testing.T) {
					if got := try(t, i+1); len(got) == i+1 {
						total.kills.Add(1)
					}
				})
			}
		})
	}
}
