package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/wait"
)

// View is what other processes see of a guard.
type View struct {
	// Alive says that the guard's process lives. A guard that is not alive and has not finished was killed.
	Alive   bool      `json:"alive"`
	Step    Step      `json:"step"`
	Since   time.Time `json:"since"`
	Command []string  `json:"command"`
	// Finished is zero until the guard has finished. After that, Status is its exit status.
	Finished time.Time `json:"finished,omitzero"`
	Status   int       `json:"status"`
}

// LoadView returns the View of the last guard since the boot. It returns false if there was none.
func LoadView() (View, bool, error) {
	dir := Dir()
	// Look at the lock first: a guard finishes its journal before it gives up the lock.
	alive := isLocked(lockPath(dir))
	j, err := load(dir)
	if errors.Is(err, errNoJournal) {
		return View{}, false, nil
	} else if err != nil {
		return View{}, false, err
	}
	current := j.current()
	return View{Alive: alive, Step: current.Step, Since: current.Begun, Command: j.Plan.Command, Finished: j.Finished, Status: j.Status}, true, nil
}

// isLocked says whether somebody holds the lock. It does not wait.
func isLocked(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // It was only read.
	return errors.Is(flock.Try(f, flock.Shared), flock.ErrBusy)
}

// followInterval is how often a follower looks.
const followInterval = 100 * time.Millisecond

// Follow writes the log of the last guard to out until the guard has finished. It returns the guard's exit status. Its
// error says that no guard ran, or that the guard was killed.
func Follow(ctx context.Context, out io.Writer) (int, error) {
	log, err := os.Open(logPath(Dir()))
	if err != nil {
		return 0, fmt.Errorf("no guard has run since the boot: %w", err)
	}
	defer func() { _ = log.Close() }() // It was only read.
	for {
		view, _, err := LoadView()
		if err != nil {
			return 0, err
		}
		if _, err := io.Copy(out, log); err != nil {
			return 0, fmt.Errorf("follow: %w", err)
		}
		switch {
		case !view.Finished.IsZero() && !view.Alive: // A living guard may be the next one, which has no journal yet.
			return view.Status, nil
		case !view.Alive && view.Finished.IsZero():
			return 0, fmt.Errorf("the guard was killed at the step %q: relink guard --resume finishes its work", view.Step)
		}
		if !wait.Sleep(ctx, followInterval) {
			return 0, fmt.Errorf("interrupted: the guard itself goes on")
		}
	}
}
