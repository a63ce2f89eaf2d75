package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/statefile"
)

const (
	// DefaultDir is on a file system that does not outlive a boot. The namespaces do not either.
	DefaultDir = "/run/relink/checkpoints"
	// DirEnv is the environment variable that names another directory.
	DirEnv = "RELINK_CHECKPOINT_DIR"

	suffix = ".json"
	// maxFile is more than a checkpoint can have.
	maxFile = 64 << 20
)

// ErrNoCheckpoint says that the attachment has no checkpoint.
var ErrNoCheckpoint = errors.New("no checkpoint")

// Store keeps the checkpoints of a node in a directory. The file of an attachment is
// <dir>/<container ID>/<ifname>.json. A file is written whole or not at all. Whoever changes
// something about a sandbox holds its lock (Lock).
type Store struct {
	dir     string
	onWait  flock.OnWait
	indices readIndices
	listed  atomic.Pointer[listing]
}

// OpenStore returns the store in the configured directory, else in the one of the environment, else
// in DefaultDir. It creates nothing yet.
func OpenStore(configured string) *Store {
	return &Store{dir: cmp.Or(configured, os.Getenv(DirEnv), DefaultDir)}
}

// OnWait sets what is called for each long wait for a lock of the store. Call it before the store is
// used.
func (s *Store) OnWait(notify flock.OnWait) { s.onWait = notify }

// Dir is the store's directory.
func (s *Store) Dir() string { return s.dir }

func (s *Store) sandboxDir(containerID string) string { return filepath.Join(s.dir, containerID) }

func (s *Store) path(key attachment.Key) string {
	return filepath.Join(s.sandboxDir(key.ContainerID), key.IfName+suffix)
}

// Save replaces the attachment's checkpoint by the record. If it returns nil, the record is on the
// disk. If it fails, the old checkpoint is still there.
func (s *Store) Save(r Record) error {
	if name := r.Interface.Link.Name; kernel.IsTemporaryName(name) {
		return fmt.Errorf("save the checkpoint of %s: %s is a name for a moment: %w", r.Attachment, name, ErrUnfinishedMove)
	}
	path := s.path(r.Attachment)
	// The lock keeps RenewIndices away, so that the number of steps is right at the moment when the record is in its place.
	lock, err := s.lockNodeFile(context.Background(), savesLock, flock.Shared)
	if err != nil {
		return fmt.Errorf("save checkpoint %s: %w", path, err)
	}
	defer func() { _ = lock.Close() }()
	r.IndexSteps = s.indexSteps().count()
	b, err := Encode(r)
	if err != nil {
		return err
	}
	// By its length, RenewIndices sees that something was saved since a List. Two saves at once may make it one byte longer, because no
	// List looks at it meanwhile (beginListing). A hole takes no room on a full disk.
	info, err := lock.Stat()
	if err == nil {
		err = lock.Truncate(info.Size() + 1)
	}
	if err == nil {
		err = statefile.Write(path, b)
	}
	if err != nil {
		return fmt.Errorf("save checkpoint %s: %w", path, err)
	}
	return nil
}

// Load returns the attachment's record. Its errors are ErrNoCheckpoint, ErrTorn, ErrVersion, or those of
// reading the file.
func (s *Store) Load(containerID, ifName string) (Record, error) {
	key := attachment.Key{ContainerID: containerID, IfName: ifName}
	path := s.path(key)
	b, file, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, fmt.Errorf("%s: %w", path, ErrNoCheckpoint)
	}
	if err != nil {
		return Record{}, err
	}
	r, err := Decode(b)
	if err == nil && !r.Attachment.SameInterface(key) {
		err = fmt.Errorf("%w: it is that of %s", ErrTorn, r.Attachment)
	}
	if errors.Is(err, ErrTorn) {
		err = fmt.Errorf("%w: relink capture --refresh %s mends it", err, containerID)
	}
	if err != nil {
		return Record{}, fmt.Errorf("%s: %w", path, err)
	}
	r.file = file
	s.indexSteps().apply(&r)
	return r, nil
}

// Reload returns the record as it is now. If nothing was written since r was read, that is r itself.
func (s *Store) Reload(r Record) (Record, error) {
	if r.IndexSteps == s.indexSteps().count() {
		if info, err := os.Stat(s.path(r.Attachment)); err == nil && isSame(info, r.file) {
			return r, nil
		}
	}
	return s.Load(r.Attachment.ContainerID, r.Attachment.IfName)
}

func readFile(path string) ([]byte, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|statefile.OpenFlags, 0)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	b := make([]byte, min(info.Size(), maxFile)) // Of a longer one, which relink never writes, the rest is left out.
	n, err := io.ReadFull(f, b)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = nil // Somebody cut it meanwhile, which relink never does: it is torn.
	}
	return b[:n], info, err
}

// Forget removes the attachment's checkpoint, whatever its state is. None is no error.
func (s *Store) Forget(containerID, ifName string) error {
	failpoint.Here("before forgetting")
	err := statefile.Remove(s.path(attachment.Key{ContainerID: containerID, IfName: ifName}))
	failpoint.Here("forgotten")
	if err != nil {
		return fmt.Errorf("forget checkpoint: %w", err)
	}
	return nil
}

// List returns all records, ordered by container ID and interface name, and what it could not read.
// A store that does not exist yet is empty.
func (s *Store) List() ([]Record, []Unreadable, error) {
	l := s.beginListing()
	records, unreadable, err := s.list(nil)
	if l != nil && err == nil && len(unreadable) == 0 {
		l.records = slices.Clone(records)
		s.listed.Store(l)
	}
	return records, unreadable, err
}

// list is List. It reads no file again that is as it was when a record was read from it: read has those by their paths.
func (s *Store) list(read map[string]Record) ([]Record, []Unreadable, error) {
	sandboxes, err := listDir(s.dir)
	if err != nil {
		return nil, nil, err
	}
	sandboxes = slices.DeleteFunc(sandboxes, func(d fs.DirEntry) bool {
		return !d.IsDir() || attachment.ValidateName(d.Name()) != nil
	})
	type listed struct {
		records    []Record
		unreadable []Unreadable
	}
	lists := make([]listed, len(sandboxes))
	inparallel.Do(runtime.GOMAXPROCS(0), len(sandboxes), func(i int) {
		lists[i].records, lists[i].unreadable = s.listSandbox(sandboxes[i].Name(), read)
	})
	records := slices.Grow([]Record(nil), len(lists)) // A record is large to move, and most sandboxes have one.
	var unreadable []Unreadable
	for _, l := range lists {
		records, unreadable = append(records, l.records...), append(unreadable, l.unreadable...)
	}
	return records, unreadable, nil
}

// ListSandbox is List for one sandbox. A sandbox without checkpoints has an empty list. It does not read again what it has read before and
// nobody has changed: previous are such records.
func (s *Store) ListSandbox(containerID string, previous ...Record) (records []Record, unreadable []Unreadable) {
	read := make(map[string]Record, len(previous))
	for _, r := range previous {
		read[s.path(r.Attachment)] = r
	}
	return s.listSandbox(containerID, read)
}

// ListSandboxes is ListSandbox for the container IDs of one sandbox.
func (s *Store) ListSandboxes(containerIDs []string) (records []Record, unreadable []Unreadable) {
	for _, id := range containerIDs {
		readable, torn := s.listSandbox(id, nil)
		records, unreadable = append(records, readable...), append(unreadable, torn...)
	}
	return records, unreadable
}

func (s *Store) listSandbox(containerID string, read map[string]Record) (records []Record, unreadable []Unreadable) {
	files, err := os.ReadDir(s.sandboxDir(containerID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, []Unreadable{{ContainerID: containerID, Err: err}}
	}
	littered := slices.ContainsFunc(files, func(f os.DirEntry) bool { return isTemporary(f.Name()) && f.Name() != lockName })
	for _, f := range files {
		ifName, ok := strings.CutSuffix(f.Name(), suffix)
		if !ok || isTemporary(f.Name()) {
			continue
		}
		key := attachment.Key{ContainerID: containerID, IfName: ifName}
		r, known := read[s.path(key)]
		if !known {
			r.Attachment = key
		}
		r, err := s.Reload(r)
		switch {
		case errors.Is(err, ErrNoCheckpoint): // Forgotten since the directory was read.
		case err != nil:
			unreadable = append(unreadable, s.unreadable(key, err))
		default:
			r.hasLeftovers = littered
			records = append(records, r)
		}
	}
	return records, unreadable
}

// isTemporary says that the file is the lock or a leftover of a killed Save, not a checkpoint.
func isTemporary(name string) bool { return strings.HasPrefix(name, ".") }
