package checkpoint

import (
	"context"
	"time"
)

// BeginGuard notes that somebody takes the parents away on purpose, and brings them back. Until end is called, Guarded
// says so. It returns flock.ErrBusy if somebody has noted that already. The lock on the note is what counts: after a kill
// the file says nothing.
func (s *Store) BeginGuard() (end func(), err error) {
	// Whoever looks holds the lock for a moment.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return s.LockNode(ctx, guardLock)
}

// Guarded says whether a note of BeginGuard counts: a parent that is missing is then no fault of the node.
func (s *Store) Guarded() bool {
	locked, err := isLocked(s.nodeFile(guardLock))
	return locked && err == nil
}
