package flock

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/printable"
)

// HoldersOf names the processes that hold locks on the file, as far as the kernel tells.
// It does not tell those of another PID namespace.
func HoldersOf(f *os.File) []string {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil
	}
	var holders []string
	// A lock of others that comes or goes between two reads of the file can hide this one.
	for tries := 3; len(holders) == 0 && tries > 0; tries-- {
		locks, err := readLocks()
		if err != nil {
			return nil
		}
		for _, pid := range holdersIn(locks, unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino) {
			holders = append(holders, processName(pid))
		}
	}
	return holders
}

// readLocks returns /proc/locks, by as few reads as the kernel allows: each gives up to a page, and no lock changes meanwhile.
func readLocks() (string, error) {
	f, err := os.Open("/proc/locks")
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // It was only read.
	content, err := io.ReadAll(bufio.NewReaderSize(f, 1<<16))
	return string(content), err
}

// holdersIn returns the PIDs of the processes that hold a flock(2) on the file, from a text like
// /proc/locks (proc_locks(5)). The line of a process that only waits has an arrow.
func holdersIn(locks string, major, minor uint32, inode uint64) []int {
	file := fmt.Sprintf("%02x:%02x:%d", major, minor, inode)
	var pids []int
	for line := range strings.Lines(locks) {
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[1] != "FLOCK" || fields[5] != file {
			continue
		}
		if pid, err := strconv.Atoi(fields[4]); err == nil && pid > 0 && !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// processName names the process by its command line and its number, so that somebody can end it. A process that has ended has no
// command line: a child has inherited the open file.
func processName(pid int) string {
	name := fmt.Sprintf("process %d", pid)
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// The name in parentheses can contain any character. The state follows (proc_pid_stat(5)).
	if end := bytes.LastIndexByte(stat, ')'); end >= 0 && bytes.HasPrefix(stat[end:], []byte(") T ")) {
		name += ", which is stopped"
	}
	command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	words := strings.Fields(strings.ReplaceAll(string(command), "\x00", " "))
	if len(words) == 0 {
		return name
	}
	const maxLength = 100
	words[0] = filepath.Base(words[0])
	line := strings.Join(words, " ")
	if len(line) > maxLength {
		line = line[:maxLength] + "..."
	}
	return printable.Line(line) + ", " + name // A process can put any characters there.
}
