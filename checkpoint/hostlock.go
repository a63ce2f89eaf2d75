package checkpoint

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/statefile"
)

// NodeLock is a lock of the whole node, on a file beside the sandboxes' directories. subject names it in errors and notices.
type NodeLock struct {
	file, subject string
	// patience is how long it is waited for.
	patience time.Duration
}

// The locks of the node.
var (
	// HostLock is for changes to the host's devices: one restore after the other makes such changes. The holder waits for nothing
	// meanwhile: no device, no carrier, no sandbox's lock.
	HostLock = NodeLock{reserve(".host.lock"), "the host's devices", flock.DefaultTimeout}
	// GCLock keeps other passes of gc away.
	GCLock = NodeLock{agentDir + "/gc.lock", "gc", flock.DefaultTimeout}
	// AccessLock is for what the host has for all pods with host access: the policy rules and the stand-in address. ADDs share it, and
	// whoever takes that away has it alone. The holder waits for nothing: no other lock, and no other program.
	AccessLock = NodeLock{reserve(".hostaccess.lock"), "host access", flock.RequestTimeout}
	// MasqueradeLock is for the chains of iptables in the host, whose programs take time. Most pods need no change there, and no lock.
	MasqueradeLock = NodeLock{reserve(".masquerade.lock"), "the rules of iptables for host access", flock.RequestTimeout}

	guardLock   = NodeLock{reserve(".guard"), "the guard", flock.DefaultTimeout}
	movesLock   = NodeLock{movingDir + "/.lock", "the moves", flock.DefaultTimeout}
	parentsLock = NodeLock{reserve(".parents.lock"), "the VLAN parents", flock.DefaultTimeout}
	// restoringLock is for the notes of restores: what the last one did, and the parents' new indices.
	restoringLock = NodeLock{reserve(".restoring.lock"), "the notes of restores", flock.DefaultTimeout}
	// savesLock is that of each Save.
	savesLock = NodeLock{reserve(".saves.lock"), "the saves of checkpoints", flock.DefaultTimeout}
)

// LockNode takes the lock. It waits as Lock does.
func (s *Store) LockNode(ctx context.Context, l NodeLock) (unlock func(), err error) {
	f, err := s.lockNodeFile(ctx, l, flock.Exclusive)
	if err != nil {
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// WithNodeLock calls f under the lock, which others can share in the mode flock.Shared.
func (s *Store) WithNodeLock(ctx context.Context, l NodeLock, mode int, f func() error) error {
	file, err := s.lockNodeFile(ctx, l, mode)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return f()
}

func (s *Store) lockNodeFile(ctx context.Context, l NodeLock, mode int) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	f, err := s.openNodeFile(l)
	if err != nil {
		return nil, err
	}
	if err := flock.LockWithNotice(ctx, f, mode, s.onWait, func() string { return l.subject }); err != nil {
		return nil, fmt.Errorf("lock %s (%s): %w", l.subject, f.Name(), err)
	}
	return f, nil
}

func (s *Store) nodeFile(l NodeLock) string { return filepath.Join(s.dir, l.file) }

func (s *Store) openNodeFile(l NodeLock) (f *os.File, err error) {
	path := s.nodeFile(l)
	if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|statefile.OpenFlags, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", l.subject, err)
	}
	return f, nil
}
