package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/statefile"
	"github.com/relink-cni/relink/pkg/wait"
)

// ErrBusy says that another process holds the sandbox's lock.
var ErrBusy = flock.ErrBusy

const lockName = ".lock"

// Lock takes the lock of a sandbox. ADD, DEL, GC and restore hold it while they change something
// about the sandbox. It waits until ctx is done, and no longer than flock.DefaultTimeout. Then it returns
// ErrBusy, with the names of the holders. unlock also removes the sandbox's directory if it is empty.
func (s *Store) Lock(ctx context.Context, containerID string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, flock.DefaultTimeout)
	defer cancel()
	f, err := s.lockFile(containerID, func(f *os.File) error {
		return flock.LockWithNotice(ctx, f, flock.Exclusive, s.onWait, func() string { return s.sandboxName(containerID) })
	})
	if err != nil {
		return nil, err
	}
	return func() { s.unlock(f) }, nil
}

// WithLock calls f under the sandbox's lock.
func (s *Store) WithLock(ctx context.Context, containerID string, f func() error) error {
	unlock, err := s.Lock(ctx, containerID)
	if err != nil {
		return err
	}
	defer unlock()
	return f()
}

// Sandbox is a sandbox whose lock is held: the record of one of its attachments as it is now, and the namespace, which is
// proven to be the recorded one.
type Sandbox struct {
	Record    Record
	Namespace *kernel.Namespace
}

// OpenSandbox calls f with the sandbox of the listed record. The caller holds its lock. It returns ErrNoCheckpoint if the
// attachment was detached meanwhile, and the errors of kernel.OpenSame.
func (s *Store) OpenSandbox(listed Record, f func(*Sandbox) error) error {
	record, err := s.Reload(listed)
	if err != nil {
		return err
	}
	namespace, err := kernel.OpenSame(record.Namespace)
	if err != nil {
		return err
	}
	defer namespace.Close()
	return f(&Sandbox{Record: record, Namespace: namespace})
}

// sandboxName returns the pod's name, or the container ID where no checkpoint tells the pod.
func (s *Store) sandboxName(containerID string) string {
	records, _ := s.ListSandbox(containerID)
	for _, r := range records {
		if r.Pod.Name != "" {
			return r.Pod.String()
		}
	}
	return containerID
}

// TryLock is a Lock that waits for nobody.
func (s *Store) TryLock(containerID string) (unlock func(), err error) {
	return s.TryLockRecord(Record{Attachment: attachment.Key{ContainerID: containerID}})
}

// TryLockRecord is TryLock for the sandbox of a listed record. If the record's file still exists at
// unlock, and the listing found no leftovers of a kill, unlock does not look for anything to remove. r can be a record that was not listed.
func (s *Store) TryLockRecord(r Record) (unlock func(), err error) {
	f, err := s.lockFile(r.Attachment.ContainerID, func(f *os.File) error { return flock.Try(f, flock.Exclusive) })
	if err != nil {
		return nil, err
	}
	return func() {
		_, statErr := os.Stat(s.path(r.Attachment))
		if statErr != nil || r.hasLeftovers || r.file == nil {
			s.unlock(f)
			return
		}
		failpoint.Here("before unlocking")
		_ = f.Close()
		failpoint.Here("unlocked")
	}, nil
}

// lockFile returns the file of the sandbox, locked by take.
func (s *Store) lockFile(containerID string, take func(*os.File) error) (*os.File, error) {
	dir := s.sandboxDir(containerID)
	for {
		f, err := openLock(dir)
		if err != nil {
			return nil, err
		}
		if err := take(f); err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("lock sandbox %s: %w", containerID, err)
		}
		// The previous holder may have removed the directory. Then nobody else looks at this lock.
		if isNamed(f) {
			failpoint.Here("locked")
			return f, nil
		}
		_ = f.Close()
	}
}

// ParentLock is a hold on the host's VLAN parents, which attachments share. An ADD takes it before it
// looks for the parent. It keeps it until the checkpoint that names the parent is saved.
type ParentLock struct {
	file *os.File
}

// LockParents takes a hold on the parents, which others can have too. While somebody has them
// alone (TryExclusive), it waits as Lock does.
func (s *Store) LockParents(ctx context.Context) (*ParentLock, error) {
	f, err := s.lockNodeFile(ctx, parentsLock, flock.Shared)
	if err != nil {
		return nil, err
	}
	failpoint.Here("parents shared")
	return &ParentLock{file: f}, nil
}

// TryExclusive says whether nobody else has a hold. If so, it keeps everybody else off until Release: every
// ADD of the node waits, so the caller must wait for nobody. If not, the caller has lost its own
// hold.
func (p *ParentLock) TryExclusive() bool {
	return flock.Try(p.file, flock.Exclusive) == nil
}

// Release ends the hold.
func (p *ParentLock) Release() { _ = p.file.Close() }

// maxOpens is how often the directory of a sandbox is made for its lock: somebody can remove it each time. Behind a link to nowhere none is.
const maxOpens = 1000

func openLock(dir string) (f *os.File, err error) {
	for range maxOpens {
		f, err = os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE|statefile.OpenFlags, 0o600)
		if err == nil {
			failpoint.Here("lock made")
			return f, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		if mkdirErr := makeSandboxDir(dir); mkdirErr != nil {
			return nil, fmt.Errorf("lock sandbox: %w", mkdirErr)
		}
	}
	return nil, fmt.Errorf("lock sandbox: %w", err)
}

func makeSandboxDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	// Not MkdirAll: that fails if the directory is removed while it looks.
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	failpoint.Here("directory made")
	return nil
}

// isNamed is flock.IsNamed, and false on an error.
func isNamed(f *os.File) bool {
	named, err := flock.IsNamed(f)
	return err == nil && named
}

// unlock releases the lock. It first removes what a kill left of a Save. Without a checkpoint it
// removes the directory too. The lock's file goes last, while the lock is still held.
func (s *Store) unlock(f *os.File) {
	dir := filepath.Dir(f.Name())
	defer failpoint.Here("unlocked")
	defer func() { _ = f.Close() }()
	failpoint.Here("before unlocking")
	files, err := os.ReadDir(dir)
	if err != nil || !isNamed(f) {
		return // Somebody removed the directory. What is there now belongs to others.
	}
	checkpoints := false
	for _, file := range files {
		switch {
		case !isTemporary(file.Name()):
			checkpoints = true
		case file.Name() != lockName:
			_ = os.Remove(filepath.Join(dir, file.Name()))
		}
	}
	if checkpoints {
		return
	}
	failpoint.Here("before removing lock")
	_ = os.Remove(filepath.Join(dir, lockName))
	failpoint.Here("lock removed")
	_ = os.Remove(dir) // Fails if somebody else has begun to use it again.
}

// InUse says whether the sandbox has a checkpoint, or a lock that somebody holds. The lock's holder
// created the directory first.
func (s *Store) InUse(containerID string) bool {
	_, err := os.Stat(s.sandboxDir(containerID))
	return !errors.Is(err, fs.ErrNotExist)
}

// NoSandboxLocked says whether nobody holds a sandbox's lock: no operation on a sandbox of this store is under
// way. One can begin at any moment. Only an ADD cannot, if the caller is TryExclusive with the parents.
func (s *Store) NoSandboxLocked() (bool, error) {
	paths, _ := filepath.Glob(filepath.Join(s.dir, "*", lockName)) // Only a bad pattern is an error.
	for _, path := range paths {
		if locked, err := isLocked(path); locked || err != nil {
			return false, err
		}
	}
	return true, nil
}

// isLocked says whether somebody holds the lock on the file alone. Nobody does if there is no file.
func isLocked(path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|statefile.OpenFlags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = flock.Try(f, flock.Shared) // So that two who look do not count each other.
		_ = f.Close()
	}
	if err != nil && !errors.Is(err, ErrBusy) {
		return false, fmt.Errorf("look at locks: %w", err)
	}
	return err != nil, nil
}

// settleDelay is the time in which an ADD or a DEL that is under way finishes its next steps. Its interface has no checkpoint for a moment:
// an ADD saves the checkpoint last, a DEL forgets it first.
const settleDelay = 300 * time.Millisecond

// AwaitSettled waits between two looks of one who holds no lock: what is seen only once was an ADD or a DEL under way. It returns false if
// ctx is done before.
func AwaitSettled(ctx context.Context) bool { return wait.Sleep(ctx, settleDelay) }
