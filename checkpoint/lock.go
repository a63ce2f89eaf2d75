package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/flock"
)

// ErrBusy says that another process holds the sandbox's lock.
var ErrBusy = flock.ErrBusy

const lockName = ".lock"

// atOnce opens a file without package os trying whether reads of it can be waited for,
// which takes four system calls more and finds that of a regular file they can't.
const atOnce = syscall.O_NONBLOCK

// Lock takes the lock of a sandbox, which ADD, DEL, GC and restore hold while
// they change something about it. It waits until ctx is done and returns ErrBusy
// then, which says who holds it. unlock also removes the sandbox's directory if nothing
// is left in it.
func (s *Store) Lock(ctx context.Context, containerID string) (unlock func(), err error) {
	return s.lock(ctx, containerID, func(f *os.File) error {
		return flock.LockNoticed(ctx, f, flock.Exclusive, s.onWait.Notice(func() string { return s.nameOf(containerID) }))
	})
}

// nameOf returns the pod's name, or the container ID where no checkpoint tells the pod.
func (s *Store) nameOf(containerID string) string {
	records, _ := s.listSandbox(containerID)
	for _, r := range records {
		if r.Pod.Name != "" {
			return r.Pod.String()
		}
	}
	return containerID
}

// TryLock is a Lock that waits for nobody.
func (s *Store) TryLock(containerID string) (unlock func(), err error) {
	return s.lock(context.Background(), containerID, tryFlock)
}

// TryLockOf is TryLock of the sandbox of a record that was listed. As long as the record's file
// is there, and nothing of a kill was beside it in the listing, unlock looks for nothing that is
// to be removed.
func (s *Store) TryLockOf(r Record) (unlock func(), err error) {
	f, err := s.lockFile(context.Background(), r.Attachment.ContainerID, tryFlock)
	if err != nil {
		return nil, err
	}
	return func() {
		_, gone := os.Stat(s.path(r.Attachment.ContainerID, r.Attachment.IfName))
		if gone != nil || r.littered {
			s.unlock(s.sandboxDir(r.Attachment.ContainerID), f)
			return
		}
		failpoint.Here("before unlocking")
		_ = f.Close()
		failpoint.Here("unlocked")
	}, nil
}

// lock takes the lock by take, which closes the file when it fails.
func (s *Store) lock(ctx context.Context, containerID string, take func(*os.File) error) (unlock func(), err error) {
	f, err := s.lockFile(ctx, containerID, take)
	if err != nil {
		return nil, err
	}
	return func() { s.unlock(s.sandboxDir(containerID), f) }, nil
}

// lockFile returns the locked file of the sandbox.
func (s *Store) lockFile(ctx context.Context, containerID string, take func(*os.File) error) (*os.File, error) {
	dir := s.sandboxDir(containerID)
	for {
		f, err := openLock(ctx, dir)
		if err != nil {
			return nil, err
		}
		if err := take(f); err != nil {
			return nil, fmt.Errorf("lock sandbox %s: %w", containerID, err)
		}
		// Who held the lock before may have removed the directory: then this
		// is a lock that nobody else will look at.
		if stillThere(f) {
			failpoint.Here("locked")
			return f, nil
		}
		_ = f.Close()
	}
}

// Parents is a hold on the VLAN parents of the host, which attachments share.
// Who builds on a parent holds it from before it looks for the parent until the
// checkpoint that names the parent is saved.
type Parents struct {
	file *os.File
}

// ShareParents takes a hold on the parents, together with any number of others. It waits
// until ctx is done while somebody is Alone with them, and returns ErrBusy then.
func (s *Store) ShareParents(ctx context.Context) (*Parents, error) {
	f, err := s.openParents()
	if err != nil {
		return nil, err
	}
	notice := s.onWait.Notice(func() string { return "the VLAN parents" })
	if err := flock.LockNoticed(ctx, f, flock.Shared, notice); err != nil {
		return nil, fmt.Errorf("lock parents (%s): %w", f.Name(), err)
	}
	failpoint.Here("parents shared")
	return &Parents{file: f}, nil
}

func (s *Store) openParents() (*os.File, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("lock parents: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(s.dir, ".parents.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock parents: %w", err)
	}
	return f, nil
}

// Alone says whether nobody else has a hold, and keeps everybody off until
// Release if so. If not, the own hold is gone. Every ADD of the node waits meanwhile:
// who is alone waits for nobody.
func (p *Parents) Alone() bool {
	return flock.Try(p.file, flock.Exclusive) == nil
}

// Release ends the hold.
func (p *Parents) Release() { _ = p.file.Close() }

func openLock(ctx context.Context, dir string) (*os.File, error) {
	for tried := false; ; tried = true {
		f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE|atOnce, 0o600)
		if errors.Is(err, fs.ErrNotExist) && (!tried || ctx.Err() == nil) {
			// There is no directory, or it was removed in between. Behind a link to nowhere,
			// none can be made.
			if err := errors.Join(nowhere(dir), nowhere(filepath.Join(dir, lockName))); err != nil {
				return nil, fmt.Errorf("lock sandbox: %w", err)
			}
			if err := makeSandboxDir(dir); err != nil {
				return nil, fmt.Errorf("lock sandbox: %w", err)
			}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("lock sandbox: %w", err)
		}
		failpoint.Here("lock made")
		return f, nil
	}
}

// nowhere is an error if the path is a symbolic link to nothing.
func nowhere(path string) error {
	link, err := os.Lstat(path)
	if err != nil || link.Mode()&fs.ModeSymlink == 0 {
		return nil //nolint:nilerr // What is not there leads nowhere wrong.
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("%s is a link to nowhere: remove it", path)
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

// tryFlock locks f, which it closes when it fails: ErrBusy if somebody else has it.
func tryFlock(f *os.File) error {
	err := flock.Try(f, flock.Exclusive)
	if err != nil {
		_ = f.Close()
	}
	return err
}

func stillThere(f *os.File) bool {
	locked, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(f.Name())
	return err == nil && os.SameFile(locked, there)
}

// unlock releases the lock. What a kill left of a Save is removed first, and without
// a checkpoint in it the directory, too; the lock itself goes last, while it is still
// held.
func (s *Store) unlock(dir string, f *os.File) {
	defer failpoint.Here("unlocked")
	defer func() { _ = f.Close() }()
	failpoint.Here("before unlocking")
	files, err := os.ReadDir(dir)
	if err != nil || !stillThere(f) {
		return // Somebody removed the directory: what is there now is another's.
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

// InUse says whether there is something of the sandbox: a checkpoint, or a lock that is
// held. Who takes the lock has made it so before.
func (s *Store) InUse(containerID string) bool {
	_, err := os.Stat(s.sandboxDir(containerID))
	return !errors.Is(err, fs.ErrNotExist)
}

// Quiet says whether no sandbox's lock is held, which is to say that no operation
// on a sandbox of this store is under way. One may begin at any moment, unless it is
// an ADD and the caller is Alone with the parents.
func (s *Store) Quiet() (bool, error) {
	locks, err := filepath.Glob(filepath.Join(s.dir, "*", lockName))
	if err != nil {
		return false, fmt.Errorf("look at locks: %w", err)
	}
	for _, path := range locks {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // Its sandbox is forgotten.
		}
		if err != nil {
			return false, fmt.Errorf("look at locks: %w", err)
		}
		// Shared, so that two who look don't take each other for somebody at work.
		err = flock.Try(f, flock.Shared)
		_ = f.Close()
		if errors.Is(err, flock.ErrBusy) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("look at locks: %w", err)
		}
	}
	return true, nil
}
