package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/ipam/importer"
)

// The files in host-local's directory of a network (plugins/ipam/host-local/backend/disk): one for each
// given address, one that its processes lock, and one for each range set.
const (
	lockName = "lock"
	lastName = "last_reserved_ip."
)

// maxFile is more than the size in bytes of any file of host-local: it has a container ID, a line break and
// the name of an interface.
const maxFile = 1024

// readers is how many files are read at once. Most of the time each reader waits for the disk.
const readers = 16

// lock keeps host-local from changing the directory until unlock is called. It waits for a host-local that is
// at work, but no longer than wait. A directory without a lock file has never been used by host-local.
func lock(ctx context.Context, dir string, wait time.Duration) (unlock func(), err error) {
	path := filepath.Join(dir, lockName)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return func() {}, nil
	}
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, fmt.Errorf("%s is a file, not a directory of host-local: if it has the IPPools of Whereabouts, give --from whereabouts", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("lock host-local's directory: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lock host-local's directory: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err := flock.Lock(ctx, f, flock.Shared); err != nil {
		return nil, fmt.Errorf("lock host-local's directory: %s: %w for more than %s; wait for host-local, or end it", path, err, wait)
	}
	return func() { _ = f.Close() }, nil
}

// readDirectory returns what the directory says. A directory without any file of host-local's is an error.
func readDirectory(ctx context.Context, dir string) (importer.Source, error) {
	s := importer.Source{Plugin: "host-local", Path: dir, Noun: "file", Last: map[int]netip.Addr{}}
	files, err := os.ReadDir(dir)
	if err != nil {
		return s, fmt.Errorf("read host-local's directory: %w", err)
	}
	// The network of host-local may have had another name: that of its directory.
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		s.Alias = filepath.Base(real)
	}
	found := false
	for _, f := range files {
		found = addFile(&s, f) || found
	}
	if !found {
		return s, fmt.Errorf("%s is not a directory of host-local: its files must have IP addresses as names, as in /var/lib/cni/networks/<network>", dir)
	}
	err = readEntries(ctx, &s)
	slices.SortFunc(s.Entries, func(a, b importer.Entry) int { return a.Address.Compare(b.Address) })
	return s, err
}

// addFile puts the file where it belongs by its name. It returns whether host-local has files of that name.
func addFile(s *importer.Source, f fs.DirEntry) bool {
	name := f.Name()
	if a, ok := parseFileName(name); ok {
		e := importer.Entry{Address: a, Name: name}
		if !f.Type().IsRegular() {
			e.Torn = "it is not a regular file"
		}
		s.Entries = append(s.Entries, e)
		return true
	}
	if name == lockName && f.Type().IsRegular() {
		return true
	}
	number, isLast := strings.CutPrefix(name, lastName)
	ignore := func(reason string) {
		s.Unknown = append(s.Unknown, importer.EntryOutcome{File: name, State: importer.Ignored, Reason: reason})
	}
	if !isLast || !f.Type().IsRegular() {
		ignore("host-local has no files of this name")
		return false
	}
	set, a, err := readLast(number, filepath.Join(s.Path, name))
	if err != nil {
		ignore(err.Error())
		return true
	}
	s.Last[set] = a
	return true
}

// parseFileName reads an address that is written as host-local writes it. host-local looks for no other
// form.
func parseFileName(name string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(name)
	return a, err == nil && a.Zone() == "" && !a.Is4In6() && a.String() == name
}

// readLast reads the last address that was given of a range set.
func readLast(number, path string) (int, netip.Addr, error) {
	set, err := strconv.Atoi(number)
	if err != nil || set < 0 || strconv.Itoa(set) != number {
		return 0, netip.Addr{}, fmt.Errorf("%q is not the number of a range set", number)
	}
	b, _, err := readBounded(path)
	if err != nil {
		return 0, netip.Addr{}, err
	}
	a, err := netip.ParseAddr(strings.TrimSpace(string(b)))
	if err != nil || a.Zone() != "" {
		return 0, netip.Addr{}, errors.New("it has no IP address")
	}
	return set, a.Unmap(), nil
}

// readEntries reads the files that are named by addresses.
func readEntries(ctx context.Context, s *importer.Source) error {
	deleted := make([]bool, len(s.Entries))
	var group errgroup.Group
	group.SetLimit(readers)
	for i := range s.Entries {
		group.Go(func() error {
			if ctx.Err() == nil {
				deleted[i] = readEntry(s.Path, &s.Entries[i])
			}
			return ctx.Err()
		})
	}
	err := group.Wait()
	var rest []importer.Entry
	for i, e := range s.Entries {
		if !deleted[i] {
			rest = append(rest, e)
		}
	}
	s.Entries = rest
	return err
}

// readEntry reads the file. deleted says that it was deleted meanwhile, which can happen if there is no lock file.
func readEntry(dir string, e *importer.Entry) (deleted bool) {
	if e.Torn != "" {
		return false
	}
	b, written, err := readBounded(filepath.Join(dir, e.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err == nil {
		e.Written = written
		e.ContainerID, e.IfName, err = parseFile(b)
	}
	if err != nil {
		e.Torn = err.Error()
	}
	return false
}

// readBounded reads a file, but not more than host-local can have written. It returns when the file was
// written, too.
func readBounded(path string) ([]byte, time.Time, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("it cannot be read: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("it cannot be read: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("it cannot be read: %w", err)
	}
	return b, info.ModTime(), nil
}

// defaultIfName is the name that the runtimes of Kubernetes give to the interface of a pod's first network. Most
// pods have no other.
const defaultIfName = "eth0"

// parseFile reads whose an address is: the container ID, a line break and the name of the interface. Old
// host-locals, of 2018 and before, wrote only the container ID. The error says why no host-local can have
// written the file.
func parseFile(b []byte) (containerID, ifName string, err error) {
	if len(b) == 0 {
		return "", "", errors.New("it is empty")
	}
	if len(b) > maxFile {
		return "", "", fmt.Errorf("it has more than %d bytes", maxFile)
	}
	containerID, ifName, _ = strings.Cut(string(b), "\n")
	// The line break is "\r\n", and host-local ignores white space at both ends.
	containerID, ifName = strings.TrimSpace(containerID), strings.TrimSpace(ifName)
	if containerID == "" {
		return "", "", errors.New("it has no container ID")
	}
	if ifName == "" {
		ifName = defaultIfName
	}
	key := attachment.Key{Network: "any", ContainerID: containerID, IfName: ifName}
	if err := key.Validate(); err != nil {
		return "", "", err
	}
	return containerID, ifName, nil
}
