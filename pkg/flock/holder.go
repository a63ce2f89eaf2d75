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

// Holder is a process that has locked a file.
type Holder struct {
	PID int
	// Command is its command line, without the program's directory. State is its letter in
	// proc_pid_stat(5). Both are empty for a process that has ended: a child has inherited the
	// open file.
	Command, State string
}

// String names the process, so that somebody can end it.
func (h Holder) String() string {
	switch {
	case h.Command == "" && h.State == "":
		return fmt.Sprintf("a child of process %d, which has ended", h.PID)
	case h.State == "T" || h.State == "t":
		return fmt.Sprintf("%s, process %d, which is stopped", h.Command, h.PID)
	}
	return fmt.Sprintf("%s, process %d", h.Command, h.PID)
}

// busyError is ErrBusy with the holders.
type busyError struct{ holders []Holder }

func (e *busyError) Error() string {
	if len(e.holders) == 0 {
		return ErrBusy.Error()
	}
	return "in use by " + holderNames(e.holders)
}

func (e *busyError) Is(target error) bool { return target == ErrBusy }

// HoldersOf returns the processes that hold locks on the file, as far as the kernel tells.
// It does not tell those of another PID namespace.
func HoldersOf(f *os.File) []Holder {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil
	}
	var holders []Holder
	// A lock of others that comes or goes between two reads of the file can hide this one.
	for tries := 3; len(holders) == 0 && tries > 0; tries-- {
		locks, err := readLocks()
		if err != nil {
			return nil
		}
		for _, pid := range holdersIn(locks, unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino) {
			holders = append(holders, readHolder(pid))
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

// readHolder reads the process from /proc.
func readHolder(pid int) Holder {
	h := Holder{PID: pid}
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		// The name in parentheses can contain any character.
		if rest := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); len(rest) > 0 {
			h.State = rest[0]
		}
	}
	if command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil {
		h.Command = commandLine(command)
	}
	return h
}

// commandLine returns the beginning of a command line for people to read. A process can put
// any characters there.
func commandLine(b []byte) string {
	const maxLength = 100
	words := strings.Fields(string(bytes.ReplaceAll(b, []byte{0}, []byte{' '})))
	if len(words) > 0 {
		words[0] = filepath.Base(words[0])
	}
	line := strings.Join(words, " ")
	if len(line) > maxLength {
		line = line[:maxLength] + "..."
	}
	return printable.Line(line)
}
