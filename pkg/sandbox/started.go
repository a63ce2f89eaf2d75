package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/relink-cni/relink/pkg/boot"
)

// Booted returns when the kernel started, by the present time of day.
func Booted() (time.Time, error) {
	uptime, err := boot.Uptime()
	return time.Now().Add(-uptime), err
}

// ticks is USER_HZ, how many units of time in /proc/<pid>/stat make a second: 100 on every architecture that Go
// knows.
const ticks = 100

// ProcessOf returns the process ID of a path of the form /proc/<pid>/ns/net.
func ProcessOf(path string) (pid int, ok bool) {
	rest, inProc := strings.CutPrefix(filepath.Clean(path), "/proc/")
	id, isNet := strings.CutSuffix(rest, "/ns/net")
	pid, err := strconv.Atoi(id)
	return pid, inProc && isNet && err == nil && pid > 0
}

// Started returns when the process began. booted is when the kernel started.
func Started(pid int, booted time.Time) (time.Time, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	b, err := os.ReadFile(path)
	if err != nil {
		return time.Time{}, fmt.Errorf("when process %d started: %w", pid, err)
	}
	return parseStarted(string(b), booted)
}

// parseStarted reads field 22 of proc_pid_stat(5). Field 2, the command in parentheses, can contain any
// character.
func parseStarted(stat string, booted time.Time) (time.Time, error) {
	const first, starttime = 3, 22
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= starttime-first {
		return time.Time{}, fmt.Errorf("/proc/<pid>/stat has %d fields", len(fields))
	}
	n, err := strconv.ParseInt(fields[starttime-first], 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("/proc/<pid>/stat: %w", err)
	}
	return booted.Add(time.Duration(n) * (time.Second / ticks)), nil
}
