package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/netstate"
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

// Moving is the note of an attachment that is moved from one parent to another. It is written before anything is
// changed. So after a kill the next run knows what belongs to the move. A note of a finished move stays: it has
// the index that the interface gets again when it is moved back.
type Moving struct {
	Attachment attachment.Key       `json:"attachment"`
	Namespace  attachment.Namespace `json:"namespace"`
	State      MoveState            `json:"state"`
	// Name is the interface's name in the sandbox. While it is moved, it has a temporary name for a moment.
	Name string `json:"name"`
	// From and To are the parents before and after, the nearest first.
	From []netstate.Device `json:"from"`
	To   []netstate.Device `json:"to"`
	// Index is the interface's index on From.
	Index int `json:"index"`
}

// ErrMoving says that the move of an interface of the sandbox was killed or failed, and is not finished. Until it is,
// nobody reads the sandbox into a checkpoint: the name that an interface has, and what it has lost, can be the move's.
var ErrMoving = errors.New("a move did not end: relink restore finishes it")

// IsMoving returns ErrMoving if the note of a move in the sandbox has begun, or cannot be read. The caller holds the
// sandbox's lock: so no such move is under way.
func (s *Store) IsMoving(containerID string) error {
	states, err := s.movesIn(containerID)
	if err != nil || slices.Contains(states, MoveBegun) {
		return fmt.Errorf("sandbox %s: %w", containerID, errors.Join(ErrMoving, err))
	}
	return nil
}

// HasUnfinishedMove says that a move in the sandbox is under way, or was killed before it was done.
func (s *Store) HasUnfinishedMove(containerID string) bool {
	states, err := s.movesIn(containerID)
	return err != nil || slices.ContainsFunc(states, func(state MoveState) bool { return state != MoveDone })
}

// movesIn returns the states of the moves in the sandbox.
func (s *Store) movesIn(containerID string) (states []MoveState, err error) {
	paths, _ := filepath.Glob(filepath.Join(s.moving(), containerID, "[^.]*"+suffix)) // Only a bad pattern is an error.
	for _, path := range paths {
		m, loadErr := s.LoadMoving(containerID, strings.TrimSuffix(filepath.Base(path), suffix))
		switch {
		case loadErr == nil:
			states = append(states, m.State)
		case !errors.Is(loadErr, ErrNone):
			err = errors.Join(err, loadErr)
		}
	}
	return states, err
}

// LockMoves takes the lock that one move of the node holds from its begin to its end. So two moves never write the same
// note, and nobody finishes a move that is under way. It waits until ctx is done, and then returns ErrBusy.
func (s *Store) LockMoves(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(s.moving(), 0o700); err != nil {
		return nil, fmt.Errorf("lock the moves: %w", err)
	}
	dir, err := os.Open(s.moving())
	if err != nil {
		return nil, fmt.Errorf("lock the moves: %w", err)
	}
	if err := flock.Lock(ctx, dir, flock.Exclusive); err != nil {
		return nil, fmt.Errorf("another relink move is at work: %w", err)
	}
	return func() { _ = dir.Close() }, nil
}

// SaveMoving writes the note in place of an earlier one of the attachment, and wakes those who watch the sandbox's
// directory. The caller holds the sandbox's lock.
func (s *Store) SaveMoving(m Moving) error {
	path := s.movingPath(m.Attachment.ContainerID, m.Attachment.IfName)
	b, err := json.MarshalIndent(m, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"*")) // By a kill.
		for _, temporary := range left {
			_ = os.Remove(temporary)
		}
		err = replace(path, append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("note the move of %s: %w", m.Attachment, err)
	}
	now := time.Now()
	_ = os.Chtimes(filepath.Join(s.dir, m.Attachment.ContainerID), now, now) // Nobody can watch what is not there.
	return nil
}

// LoadMoving returns the note of the attachment, ErrNone if there is none, or ErrTorn for a file that this relink
// cannot read.
func (s *Store) LoadMoving(containerID, ifName string) (m Moving, err error) {
	path := s.movingPath(containerID, ifName)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, fmt.Errorf("%s: %w", path, ErrNone)
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(b, &m); err != nil || m.Attachment.ContainerID != containerID || m.Attachment.IfName != ifName {
		return Moving{}, fmt.Errorf("%s: %w: %w", path, ErrTorn, err)
	}
	return m, nil
}

// Movings returns all notes. One that cannot be read is an error, and the others are returned beside it.
func (s *Store) Movings() (all []Moving, err error) {
	paths, _ := filepath.Glob(filepath.Join(s.moving(), "*", "[^.]*"+suffix)) // Only a bad pattern is an error.
	var errs []error
	for _, path := range paths {
		dir, file := filepath.Split(path)
		m, err := s.LoadMoving(filepath.Base(dir), file[:len(file)-len(suffix)])
		switch {
		case errors.Is(err, ErrNone): // Forgotten since the directory was read.
		case err != nil:
			errs = append(errs, err)
		default:
			all = append(all, m)
		}
	}
	return all, errors.Join(errs...)
}

// ForgetMoving removes the note of the attachment. None is no error.
func (s *Store) ForgetMoving(containerID, ifName string) error {
	path := s.movingPath(containerID, ifName)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the move: %w", err)
	}
	_ = os.Remove(filepath.Dir(path)) // It stays while the sandbox has other notes.
	return nil
}

func (s *Store) movingPath(containerID, ifName string) string {
	return filepath.Join(s.moving(), containerID, ifName+suffix)
}

func (s *Store) moving() string { return filepath.Join(s.dir, movingDir) }
