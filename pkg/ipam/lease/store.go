package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/flock"
)

// DefaultDir is where the leases are kept: unlike a checkpoint, a reservation
// outlives a boot.
const DefaultDir = "/var/lib/cni/relink/ipam"

// DirEnv names another directory than DefaultDir.
const DirEnv = "RELINK_IPAM_DIR"

// Errors that callers match with errors.Is.
var (
	// ErrBusy says that others had the store locked for as long as the caller waited.
	ErrBusy = flock.ErrBusy
	// ErrMoved says that somebody moved the store away while the caller waited for it.
	ErrMoved = errors.New("somebody moved it away")
	// ErrDamaged says that the file is no store, or that this relink cannot read it.
	ErrDamaged = errors.New("not usable")
	// ErrNotLeased says that there is no such lease, or that the network has no store: it has never given an
	// address.
	ErrNotLeased = errors.New("nothing is leased")
	// ErrDir says that $RELINK_IPAM_DIR is not an absolute path.
	ErrDir = errors.New("must be an absolute path")
)

const (
	extension = ".db"
	// temporarySuffix ends the name of a store that is not made to its end.
	temporarySuffix = ".new"
	// probePrefix begins the name of a file that Writable tries to make. Without the extension it is no store.
	probePrefix = ".usable-"
)

// maxName is the greatest length of a store's name: NAME_MAX less what the name of the file has besides.
const maxName = 255 - len(".") - len(extension) - len(temporarySuffix)

// CheckName says why no store can have the name.
func CheckName(name string) error {
	if err := attachment.ValidateName(name); err != nil {
		return err
	}
	if len(name) > maxName {
		return fmt.Errorf("has %d characters: a file's name has room for %d", len(name), maxName)
	}
	return nil
}

// Store has the leases of a network, or of several that name one store. Its file is opened and locked for each change and each look.
type Store struct {
	// network is the store's name: the network's, unless its configuration names another store.
	network, path string
	// wait bounds the wait for the lock.
	wait time.Duration
	// bootID is that of this boot, empty until somebody asks.
	bootID string
	// clock is the time of day, uptime the time since the boot.
	clock  func() time.Time
	uptime func() (time.Duration, error)
	// remarks are those of the last Allocate.
	remarks []string
	// poolAddresses says where the last Allocate's addresses of pools are from.
	poolAddresses []PoolAddress
	// onWait is told of long waits for the lock.
	onWait flock.OnWait
	// allowForeign allows what frees no stranger's address in a store of another machine.
	allowForeign bool
	// machine returns the ID of this machine, empty if nobody knows it.
	machine func() string
}

// Open returns the store of a network in the directory. Without one it is $RELINK_IPAM_DIR, else DefaultDir.
// Nothing is created before the first change.
func Open(dir, network string) (*Store, error) {
	if err := CheckName(network); err != nil {
		return nil, fmt.Errorf("network %q: %w", network, err)
	}
	dir, err := Dir(dir)
	if err != nil {
		return nil, err
	}
	return &Store{
		network: network, path: PathIn(dir, network), wait: flock.DefaultTimeout, clock: time.Now, uptime: boot.Uptime, machine: boot.MachineID,
	}, nil
}

// PathIn returns the path of the file that the store of a network has in the directory.
func PathIn(dir, network string) string { return filepath.Join(dir, network+extension) }

// OnWait has tell called for each long wait for a lock of the store. It is not for use beside
// other calls.
func (s *Store) OnWait(tell flock.OnWait) { s.onWait = tell }

// Path returns the path of the store's file. The file need not exist.
func (s *Store) Path() string { return s.path }

// Network returns the name of the network.
func (s *Store) Network() string { return s.network }

// boot returns the ID of this boot.
func (s *Store) boot() (string, error) {
	if s.bootID != "" {
		return s.bootID, nil
	}
	return boot.ID()
}

// Dir returns dir or, if that is empty, $RELINK_IPAM_DIR, else DefaultDir. The path in the environment must
// be absolute: a relative one would be another directory for each caller. ErrDir: it is not.
func Dir(dir string) (string, error) {
	if dir != "" {
		return dir, nil
	}
	dir = os.Getenv(DirEnv)
	switch {
	case dir == "":
		return DefaultDir, nil
	case !filepath.IsAbs(dir):
		return "", fmt.Errorf("invalid %s: %q: %w", DirEnv, dir, ErrDir)
	}
	return dir, nil
}

// Networks names the networks that have a store in the directory, in order.
func Networks(dir string) ([]string, error) {
	dir, err := Dir(dir)
	if err != nil {
		return nil, err
	}
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list networks: %w", err)
	}
	var names []string
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), extension); ok && isFile(dir, f) && attachment.ValidateName(name) == nil {
			names = append(names, name)
		}
	}
	return names, nil
}

// UnexpectedPaths returns the paths in the directory that no store has made. A directory that is missing has none. Whoever deletes
// the whole directory asks first: the configuration may name a directory that others use, too.
func UnexpectedPaths(dir string) (paths []string, err error) {
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list stores: %w", err)
	}
	for _, f := range files {
		name := f.Name()
		expected := strings.HasSuffix(name, extension) || strings.HasPrefix(name, ".") && strings.HasSuffix(name, extension+temporarySuffix) ||
			strings.HasPrefix(name, probePrefix)
		if !expected || !isFile(dir, f) {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return paths, nil
}

// isFile says whether the entry of the directory is a file, or a link to one: a store may be on a disk of its
// own.
func isFile(dir string, f fs.DirEntry) bool {
	if f.Type()&fs.ModeSymlink == 0 {
		return f.Type().IsRegular()
	}
	info, err := os.Stat(filepath.Join(dir, f.Name()))
	return err == nil && info.Mode().IsRegular()
}

// Exists says whether anything was ever given or reserved in the network.
func (s *Store) Exists() (bool, error) {
	_, err := os.Stat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Writable says why nothing can be changed: the file system is read-only, or the caller may not write. A
// full disk is no reason: it may have room for a change. For a store that is missing it makes the directory and a file
// there, and removes the file: access(2) allows root what /proc, for example, refuses.
func (s *Store) Writable() error {
	const write = 2 // W_OK of access(2).
	err := syscall.Access(s.path, write)
	if errors.Is(err, fs.ErrNotExist) {
		err = tryDir(filepath.Dir(s.path))
	}
	if err != nil {
		return fmt.Errorf("store %s cannot be written: %w", s.path, err)
	}
	return nil
}

// tryDir makes the directory if it is missing, and a file in it, which it removes.
func tryDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, probePrefix+"*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// update runs change on the leases, and creates the store if there is none. If update returns nil, the change
// is on disk. Otherwise nothing is changed.
func (s *Store) update(ctx context.Context, change func(*leaseTx) error) error {
	if err := s.create(ctx); err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	return s.grow(ctx, change)
}

// grow is update for a store that must exist.
func (s *Store) grow(ctx context.Context, change func(*leaseTx) error) error {
	return s.commit(ctx, true, change)
}

// change is grow for what needs no more room on the disk than earlier changes have allocated.
func (s *Store) change(ctx context.Context, change func(*leaseTx) error) error {
	return s.commit(ctx, false, change)
}

// errUnchanged says that a change has nothing to do.
var errUnchanged = errors.New("nothing to change")

// commit runs the change in a transaction. roomy says that it first makes room on the disk, for later changes that give addresses up.
func (s *Store) commit(ctx context.Context, roomy bool, change func(*leaseTx) error) error {
	err := s.open(ctx, false, func(o *opened) error {
		failpoint.Here("store open")
		err := o.db.Update(func(tx *bolt.Tx) error {
			l, err := s.begin(o, tx)
			if err != nil {
				return err
			}
			if roomy {
				if err := l.makeRoom(); err != nil {
					return err
				}
			}
			if err = change(l); err == nil {
				err = l.endChange()
			}
			if err != nil {
				return err
			}
			failpoint.Here("before committing")
			return nil
		})
		if err == nil {
			failpoint.Here("committed")
		}
		return err
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// result returns what f returns, which runs as a change or a look.
func result[T any](ctx context.Context, run func(context.Context, func(*leaseTx) error) error, f func(*leaseTx) (T, error)) (value T, err error) {
	err = run(ctx, func(l *leaseTx) (err error) {
		value, err = f(l)
		return err
	})
	if err != nil {
		value = *new(T)
	}
	return value, err
}

// view runs look on the leases. ErrNotLeased: there are none.
func (s *Store) view(ctx context.Context, look func(*leaseTx) error) error {
	return s.open(ctx, true, func(o *opened) error {
		return o.db.View(func(tx *bolt.Tx) error {
			l, err := s.begin(o, tx)
			if err != nil {
				return err
			}
			return look(l)
		})
	})
}
