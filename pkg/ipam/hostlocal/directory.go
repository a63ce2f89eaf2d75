package hostlocal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

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

// lock keeps host-local from changing the directory until unlock is called. It waits for a host-local that is
// at work, but no longer than wait. A directory without a lock file has never been used by host-local.
func lock(ctx context.Context, dir string, wait time.Duration) (unlock func(), err error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ELOOP):
		return func() {}, nil
	case errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("%s is a file, not a directory of host-local: if it has the IPPools of Whereabouts, give --from whereabouts", dir)
	case err != nil:
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
	s := importer.Source{Plugin: "host-local", Path: dir, Noun: "file"}
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
		if ctx.Err() != nil {
			return s, ctx.Err()
		}
		found = addFile(&s, f) || found
	}
	if !found {
		return s, fmt.Errorf("%s is not a directory of host-local: its files must have IP addresses as names, as in /var/lib/cni/networks/<network>", dir)
	}
	slices.SortFunc(s.Entries, func(a, b importer.Entry) int { return a.Address.Compare(b.Address) })
	return s, nil
}

// addFile puts the file where it belongs by its name. It returns whether host-local has files of that name.
func addFile(s *importer.Source, f fs.DirEntry) bool {
	name := f.Name()
	a, ok := parseFileName(name)
	if !ok {
		expected := f.Type().IsRegular() && (name == lockName || strings.HasPrefix(name, lastName))
		if !expected {
			s.Unknown = append(s.Unknown, importer.EntryOutcome{File: name, State: importer.Ignored, Reason: "host-local has no files of this name"})
		}
		return expected
	}
	e := importer.Entry{Address: a, Name: name}
	err := readEntry(s.Path, f, &e)
	if errors.Is(err, fs.ErrNotExist) { // It was deleted meanwhile, as without a lock file it can be.
		return true
	}
	if err != nil {
		e.Torn = err.Error()
	}
	s.Entries = append(s.Entries, e)
	return true
}

// parseFileName reads an address that is written as host-local writes it. host-local looks for no other
// form.
func parseFileName(name string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(name)
	return a, err == nil && a.Zone() == "" && !a.Is4In6() && a.String() == name
}

// readEntry reads whose the address is. The error says why nobody can tell.
func readEntry(dir string, f fs.DirEntry, e *importer.Entry) error {
	info, err := f.Info()
	switch {
	case err != nil:
		return fmt.Errorf("it cannot be read: %w", err)
	case !info.Mode().IsRegular():
		return errors.New("it is not a regular file")
	case info.Size() > maxFile:
		return fmt.Errorf("it has more than %d bytes", maxFile)
	}
	b, err := os.ReadFile(filepath.Join(dir, e.Name))
	if err != nil {
		return fmt.Errorf("it cannot be read: %w", err)
	}
	e.Written = info.ModTime()
	e.ContainerID, e.IfName, err = parseFile(b)
	return err
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
