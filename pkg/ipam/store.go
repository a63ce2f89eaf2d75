package ipam

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/cniplugin"
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
	// ErrBusy says that others had the store for as long as the caller waited.
	ErrBusy = flock.ErrBusy
	// ErrDamaged says that the file is no store, or one of a schema that is not known here.
	ErrDamaged = errors.New("not usable")
	// ErrNone says that there is no such lease, or no store of the network: nothing was ever
	// given in it.
	ErrNone = errors.New("nothing is leased")
)

// lockWait bounds the wait for the store. One change takes milliseconds.
const lockWait = 30 * time.Second

const extension = ".db"

// Store is where the leases of a network are: a file that is opened for each change
// and each look, and locked meanwhile.
type Store struct {
	network, path string
	// wait bounds the wait for the lock.
	wait time.Duration
	// bootID is that of this boot, empty until somebody asks.
	bootID string
	now    func() time.Time
}

// OpenStore returns the store of a network in the directory; an empty one is that
// which $RELINK_IPAM_DIR names, else DefaultDir. Nothing is made before the first
// change.
func OpenStore(dir, network string) (*Store, error) {
	if err := attachment.ValidateName(network); err != nil {
		return nil, fmt.Errorf("network %q: %w", network, err)
	}
	dir, err := Dir(dir)
	if err != nil {
		return nil, err
	}
	return &Store{network: network, path: filepath.Join(dir, network+extension), wait: lockWait, now: time.Now}, nil
}

// boot returns the ID of this boot.
func (s *Store) boot() (string, error) {
	if s.bootID != "" {
		return s.bootID, nil
	}
	return boot.ID()
}

// Dir returns the directory that is meant by dir. One that the environment names has to
// be an absolute path: else it would be another one for each caller.
func Dir(dir string) (string, error) {
	if dir != "" {
		return dir, nil
	}
	dir = os.Getenv(DirEnv)
	switch {
	case dir == "":
		return DefaultDir, nil
	case !filepath.IsAbs(dir):
		return "", cniplugin.EnvError(DirEnv, dir, "must be an absolute path")
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
		if name, ok := strings.CutSuffix(f.Name(), extension); ok && f.Type().IsRegular() && attachment.ValidateName(name) == nil {
			names = append(names, name)
		}
	}
	return names, nil
}

// update runs change on the leases. What it changes is on disk when update returns
// nil, and nothing is changed otherwise.
func (s *Store) update(ctx context.Context, change func(*leases) error) error {
	if err := s.create(ctx); err != nil {
		return err
	}
	return s.open(ctx, false, func(db *bolt.DB) error {
		failpoint.Here("store open")
		err := db.Update(func(tx *bolt.Tx) error {
			l, err := s.begin(tx)
			if err != nil {
				return err
			}
			if err := change(l); err != nil {
				return err
			}
			failpoint.Here("before committing")
			return l.meta.Put([]byte(keyClock), timeKey(l.now))
		})
		if err == nil {
			failpoint.Here("committed")
		}
		return err
	})
}

// view runs look on the leases. ErrNone: there are none.
func (s *Store) view(ctx context.Context, look func(*leases) error) error {
	return s.open(ctx, true, func(db *bolt.DB) error {
		return db.View(func(tx *bolt.Tx) error {
			l, err := s.begin(tx)
			if err != nil {
				return err
			}
			return look(l)
		})
	})
}

// open opens the file and locks it: bbolt's own lock would look for it every 50 ms.
// The lock goes with the file.
func (s *Store) open(ctx context.Context, readOnly bool, use func(*bolt.DB) error) (err error) {
	how := flock.Exclusive
	if readOnly {
		how = flock.Shared
	}
	var file *os.File
	options := &bolt.Options{
		ReadOnly: readOnly, NoStatistics: true,
		OpenFile: func(path string, flag int, mode os.FileMode) (*os.File, error) {
			f, err := os.OpenFile(path, flag&^os.O_CREATE, mode)
			if err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, s.wait)
			defer cancel()
			if err := flock.Lock(ctx, f, how); err != nil {
				return nil, err
			}
			file = f
			return f, notTooShort(f)
		},
	}
	// A damaged file makes bbolt panic, one that was cut short makes it touch memory
	// that is not there.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("store %s: %w: %v", s.path, ErrDamaged, r)
			// The next to look would wait for the lock, and what bbolt has mapped of the
			// file keeps it beyond the descriptor.
			_ = errors.Join(flock.Unlock(file), file.Close())
		}
	}()
	db, err := bolt.Open(s.path, 0o600, options)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s.none()
	case errors.Is(err, ErrBusy):
		return fmt.Errorf("store %s: %w for more than %s", s.path, err, s.wait)
	case isDamage(err):
		return fmt.Errorf("store %s: %w: %w", s.path, ErrDamaged, err)
	case err != nil:
		return fmt.Errorf("open store: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return use(db)
}

// smallestPage is of the kernels with the smallest pages: a store may come from another.
const smallestPage = 4096

// notTooShort reports a file that is too short for bbolt's two first pages. Of an empty
// one it would make an empty store.
func notTooShort(f *os.File) error {
	info, err := f.Stat()
	if err == nil && info.Size() < 2*smallestPage {
		err = fmt.Errorf("%w: it was cut short to %d bytes", bolterrors.ErrInvalid, info.Size())
	}
	if err != nil {
		_ = f.Close()
	}
	return err
}

// isDamage says whether bbolt calls the file none of its own.
func isDamage(err error) bool {
	for _, damage := range []error{bolterrors.ErrInvalid, bolterrors.ErrVersionMismatch, bolterrors.ErrChecksum} {
		if errors.Is(err, damage) {
			return true
		}
	}
	return false
}

// create makes the file if it is missing, whole or not at all: a kill while bbolt
// writes its first pages would leave what it can't open again.
func (s *Store) create(ctx context.Context) error {
	if _, err := os.Stat(s.path); !errors.Is(err, fs.ErrNotExist) {
		return nil // open says what is wrong with it.
	}
	dir := filepath.Dir(s.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	failpoint.Here("store directory made")
	lock, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	if err := flock.Lock(ctx, lock, flock.Exclusive); err != nil {
		return fmt.Errorf("create store: %s: %w", dir, err)
	}
	defer func() { _ = lock.Close() }()
	if _, err := os.Stat(s.path); !errors.Is(err, fs.ErrNotExist) {
		return nil // Another has made it meanwhile.
	}
	failpoint.Here("before creating store")
	if err := s.initialize(lock); err != nil {
		return fmt.Errorf("create store: %w", err)
	}
	failpoint.Here("store created")
	return nil
}

// initialize makes the file under another name first. dir is its directory.
func (s *Store) initialize(dir *os.File) (retErr error) {
	temporary := filepath.Join(dir.Name(), "."+s.network+extension+".new")
	if err := removeIfThere(temporary); err != nil {
		return err // What a kill left.
	}
	defer func() {
		if retErr != nil {
			retErr = errors.Join(retErr, removeIfThere(temporary))
		}
	}()
	db, err := bolt.Open(temporary, 0o600, &bolt.Options{NoStatistics: true})
	if err != nil {
		return err
	}
	failpoint.Here("store half made")
	err = db.Update(makeBuckets)
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	failpoint.Here("before renaming store")
	if err := os.Rename(temporary, s.path); err != nil {
		return err
	}
	failpoint.Here("store renamed")
	return dir.Sync()
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// begin checks the file's length and the schema, and returns the leases in tx. What is
// cut off may be what this look does not need, and what the next change overwrites.
func (s *Store) begin(tx *bolt.Tx) (*leases, error) {
	if info, err := os.Stat(s.path); err != nil || info.Size() < tx.Size() {
		return nil, fmt.Errorf("store %s: %w: it was cut short of its %d bytes", s.path, ErrDamaged, tx.Size())
	}
	l := &leases{store: s, now: s.now().UTC().Truncate(time.Millisecond)}
	for name, b := range map[string]**bolt.Bucket{
		bucketMeta: &l.meta, bucketLeases: &l.byAddress, bucketAttachments: &l.byAttachment, bucketOwners: &l.byOwner,
		bucketRuns: &l.runs, bucketEnds: &l.ends, bucketLast: &l.last,
	} {
		if *b = tx.Bucket([]byte(name)); *b == nil {
			return nil, fmt.Errorf("store %s: %w: it has no bucket %q", s.path, ErrDamaged, name)
		}
	}
	// A node without a battery may boot with a clock that is months behind: what ends by
	// that would have ended long ago by the right one.
	if last := l.meta.Get([]byte(keyClock)); len(last) == 8 {
		l.now = latest(l.now, timeOf(last))
	}
	if got := string(l.meta.Get([]byte(keySchema))); got != schema {
		return nil, fmt.Errorf("store %s: %w: it is of schema %q, this relink knows %q: use the relink that wrote it or a newer one", s.path, ErrDamaged, got, schema)
	}
	return l, nil
}

func makeBuckets(tx *bolt.Tx) error {
	for _, name := range []string{bucketMeta, bucketLeases, bucketAttachments, bucketOwners, bucketRuns, bucketEnds, bucketLast} {
		if _, err := tx.CreateBucket([]byte(name)); err != nil {
			return err
		}
	}
	return tx.Bucket([]byte(bucketMeta)).Put([]byte(keySchema), []byte(schema))
}

func decodeLease(b []byte) (Lease, error) {
	var l Lease
	if err := json.Unmarshal(b, &l); err != nil {
		return l, fmt.Errorf("lease: %w: %w", ErrDamaged, err)
	}
	return l, nil
}
