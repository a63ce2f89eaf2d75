package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	kernelid "github.com/relink-cni/relink/pkg/kernel/identity"
)

// Search looks for network namespaces once more, before one is called gone. It finds some that List does not: those that a thread,
// an open file or a socket of a process keeps, a mount in another mount namespace, or a mount that something else was mounted over.
// While processes come and go it looks several times, because each may hand a namespace on to the next one and end. wanted are the inodes to look for, so that the search can end
// early; none stands for all. blind is why there may be more namespaces than were found, empty if all were
// seen. A namespace that only the kernel keeps, for a mounted NFS for example, is not seen. The error says that
// /proc cannot be read at all, or is that of ctx.
func Search(ctx context.Context, wanted ...uint64) (found map[uint64]NamespaceKeeper, blind string, err error) {
	s := search{keepers: newKeepers(), ctx: ctx, wanted: wanted, asked: map[string]bool{}}
	err = s.scan()
	if err == nil && !s.complete() {
		s.sockets = true
		err = s.scan()
	}
	return s.found, s.blind, err
}

// search is a search under way.
type search struct {
	keepers
	ctx    context.Context
	wanted []uint64
	// sockets says that sockets are asked, too.
	sockets bool
	// asked are the sockets that have answered, by their links: many processes can share one.
	asked map[string]bool
	blind string
}

// complete says that there is nothing left to look for.
func (s *search) complete() bool {
	for _, inode := range s.wanted {
		if _, ok := s.found[inode]; !ok {
			return false
		}
	}
	return len(s.wanted) > 0
}

// scan looks at all processes, and again while new ones come, but only a few times. What none of these looks
// has shown is not there.
func (s *search) scan() error {
	const scans = 3
	for range scans {
		newest, err := newestPID()
		if err != nil {
			return err
		}
		pids, err := processes()
		if err != nil {
			return err
		}
		for _, pid := range pids {
			if err := s.ctx.Err(); err != nil {
				return err
			}
			if s.scanProcess(pid); s.complete() {
				return nil
			}
		}
		settled, err := s.scanNewer(newest)
		if err != nil || settled || s.complete() {
			return err
		}
	}
	return nil
}

// scanNewer looks at newer processes until there are no new ones. settled says that it got so far. A process that
// ended before it was looked at has left its namespace to one of these, or to nobody.
func (s *search) scanNewer(newest int) (settled bool, err error) {
	const rounds, atOnce = 500, 500
	for range rounds {
		latest, err := newestPID()
		if err != nil || s.ctx.Err() != nil {
			return false, errors.Join(err, s.ctx.Err())
		}
		if latest == newest {
			return true, nil
		}
		if latest < newest || s.complete() { // The PIDs have wrapped around.
			return false, nil
		}
		for pid := latest; pid > max(newest, latest-atOnce); pid-- { // The newest lives longest.
			s.scanProcess(pid)
		}
		newest = latest
	}
	return false, nil
}

func (s *search) scanProcess(pid int) {
	files := s.addProcess(pid)
	if s.sockets {
		s.socketsOf(pid, files)
	}
}

// tun is the link of an open file that controls a tun or tap device.
const tun = "/dev/net/tun"

// socketsOf notes the namespaces that sockets of the process keep.
func (s *search) socketsOf(pid int, files []file) {
	for _, f := range files {
		link, target := f.link, f.target
		if s.asked[target] || target != tun && !strings.HasPrefix(target, "socket:[") {
			continue
		}
		id, err := kernelid.SocketNamespace(parseFDLink(link))
		switch {
		case errors.Is(err, kernelid.ErrNoNamespace):
			continue // It has gone, or another process has it by now.
		case err != nil:
			if current, readErr := os.Readlink(link); readErr == nil && current == target {
				s.blind = "the sockets of processes cannot be asked for their network namespaces: " + err.Error()
			}
			continue
		}
		s.asked[target] = target != tun // All open files of tun have the same link.
		if _, ok := s.found[id.Inode]; !ok {
			s.found[id.Inode] = NamespaceKeeper{Description: fmt.Sprintf("a socket of process %d", pid), Device: id.Device, Cookie: id.Cookie}
		}
	}
}

// parseFDLink returns the numbers in /proc/<process>/fd/<file> or /proc/<process>/task/<thread>/fd/<file>.
func parseFDLink(link string) (thread, file int) {
	dir, name := filepath.Split(link)
	file, _ = strconv.Atoi(name)
	thread, _ = strconv.Atoi(filepath.Base(filepath.Dir(filepath.Clean(dir))))
	return thread, file
}

// newestPID returns the last PID that was given: the last field of /proc/loadavg (proc_loadavg(5)).
func newestPID() (int, error) {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, fmt.Errorf("the newest process: %w", err)
	}
	fields := bytes.Fields(b)
	if len(fields) == 0 {
		return 0, errors.New("the newest process: /proc/loadavg is empty")
	}
	newest, err := strconv.Atoi(string(fields[len(fields)-1]))
	if err != nil {
		return 0, fmt.Errorf("the newest process: /proc/loadavg: %w", err)
	}
	return newest, nil
}
