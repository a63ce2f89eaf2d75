package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/statefile"
)

// MoveState says how far the move of an attachment is.
type MoveState string

const (
	// MoveBegun says that the interface may be on either of the two parents.
	MoveBegun MoveState = "begun"
	// MoveSwitched says that the interface is on the new parent, and its checkpoint says so. What it was before may be
	// left in the sandbox, down and under a temporary name.
	MoveSwitched MoveState = "switched"
	// MoveDone says that nothing is left of what it was before.
	MoveDone MoveState = "done"
)

// Move is the note of an attachment that is moved from one parent to another. It is written before anything is
// changed. So after a kill the next run knows what belongs to the move. A note of a finished move stays: it has
// the index that the interface gets again when it is moved back.
type Move struct {
	Attachment attachment.Key       `json:"attachment"`
	Namespace  attachment.Namespace `json:"namespace"`
	State      MoveState            `json:"state"`
	// Name is the interface's name in the sandbox. While it is moved, it has a temporary name for a moment.
	Name string `json:"name"`
	// OldParents and NewParents are the parents before and after, the nearest first.
	OldParents []netstate.Device `json:"from"`
	NewParents []netstate.Device `json:"to"`
	// Index is the interface's index on OldParents.
	Index int `json:"index"`
}

// ErrUnfinishedMove says that the move of an interface of the sandbox was killed or failed, and is not finished. Until it is,
// nobody reads the sandbox into a checkpoint: the name that an interface has, and what it has lost, can be the move's.
var ErrUnfinishedMove = errors.New("a move is under way, or did not end: relink restore finishes it")

// CheckNoMove returns ErrUnfinishedMove if the note of a move in the sandbox has begun, or cannot be read. The caller holds the
// sandbox's lock: so no such move is under way.
func (s *Store) CheckNoMove(containerID string) error {
	if moves, err := s.moves(containerID); err != nil || slices.ContainsFunc(moves, func(m Move) bool { return m.State == MoveBegun }) {
		return fmt.Errorf("sandbox %s: %w", containerID, errors.Join(ErrUnfinishedMove, err))
	}
	return nil
}

// HasUnfinishedMove says that a move in the sandbox is under way, or was killed before it was done.
func (s *Store) HasUnfinishedMove(containerID string) bool {
	moves, err := s.moves(containerID)
	return err != nil || slices.ContainsFunc(moves, func(m Move) bool { return m.State != MoveDone })
}

// LockMoves takes the lock that one move of the node holds from its begin to its end. So two moves never write the same
// note, and nobody finishes a move that is under way. It waits as Lock does.
func (s *Store) LockMoves(ctx context.Context) (unlock func(), err error) {
	unlock, err = s.LockNode(ctx, movesLock)
	if errors.Is(err, ErrBusy) {
		err = fmt.Errorf("another relink move is at work: %w: wait until it ends, and try again", err)
	}
	return unlock, err
}

// SaveMove writes the note in place of an earlier one of the attachment. The caller holds the sandbox's lock.
func (s *Store) SaveMove(m Move) error {
	path := s.movePath(m.Attachment)
	removeLeftovers(path)
	if err := statefile.Save(path, m); err != nil {
		return fmt.Errorf("note the move of %s: %w", m.Attachment, err)
	}
	return nil
}

// LoadMove returns the note of the attachment, ErrNoCheckpoint if there is none, or ErrTorn for a file that this relink
// cannot read.
func (s *Store) LoadMove(key attachment.Key) (m Move, err error) {
	path := s.movePath(key)
	if err = loadNote(path, &m); err == nil && !m.Attachment.SameInterface(key) {
		err = fmt.Errorf("%s: %w: it is that of %s", path, ErrTorn, m.Attachment)
	}
	if errors.Is(err, ErrTorn) {
		err = fmt.Errorf("%w: remove the file, as nobody can finish this move", err)
	}
	return m, err
}

// Moves returns all notes. One that cannot be read is an error, and the others are returned beside it.
func (s *Store) Moves() ([]Move, error) { return s.moves("*") }

// moves is Moves for the sandboxes of the pattern.
func (s *Store) moves(containerIDs string) (moves []Move, err error) {
	paths, _ := filepath.Glob(filepath.Join(s.dir, movingDir, containerIDs, "[^.]*"+suffix)) // Only a bad pattern is an error.
	var errs []error
	for _, path := range paths {
		dir, file := filepath.Split(path)
		m, err := s.LoadMove(attachment.Key{ContainerID: filepath.Base(dir), IfName: strings.TrimSuffix(file, suffix)})
		switch {
		case errors.Is(err, ErrNoCheckpoint): // Forgotten since the directory was read.
		case err != nil:
			errs = append(errs, err)
		default:
			moves = append(moves, m)
		}
	}
	return moves, errors.Join(errs...)
}

// ForgetMove removes the note of the attachment. None is no error.
func (s *Store) ForgetMove(key attachment.Key) error {
	path := s.movePath(key)
	if err := statefile.Remove(path); err != nil {
		return fmt.Errorf("forget the move: %w", err)
	}
	_ = os.Remove(filepath.Dir(path)) // It stays while the sandbox has other notes.
	return nil
}

// MovesPath is the path of the directory that has the notes of the sandbox. MovesPath("") is that of all.
func (s *Store) MovesPath(containerID string) string {
	return filepath.Join(s.dir, movingDir, containerID)
}

func (s *Store) movePath(key attachment.Key) string {
	return filepath.Join(s.MovesPath(key.ContainerID), key.IfName+suffix)
}
