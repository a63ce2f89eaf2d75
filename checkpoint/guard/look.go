package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/relink-cni/relink/checkpoint"
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
	j, err := load(Dir())
	if errors.Is(err, errNoJournal) {
		return View{}, false, nil
	} else if err != nil {
		return View{}, false, err
	}
	alive := checkpoint.OpenStore(j.Plan.CheckpointDir).Guarded()
	if !alive { // It may have finished meanwhile.
		if j, err = load(Dir()); err != nil {
			return View{}, false, err
		}
	}
	current := j.current()
	return View{Alive: alive, Step: current.Step, Since: current.Begun, Command: j.Plan.Command, Finished: j.Finished, Status: j.Status}, true, nil
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
		view, ok, err := LoadView()
		if err != nil {
			return 0, err
		}
		position, _ := log.Seek(0, io.SeekCurrent)                         // No seek in a file fails.
		if info, err := log.Stat(); err == nil && info.Size() < position { // It was emptied.
			_, _ = log.Seek(0, io.SeekStart)
		}
		if _, err := io.Copy(out, log); err != nil {
			return 0, fmt.Errorf("follow: %w", err)
		}
		switch {
		case !ok:
			return 0, errNoJournal
		case view.Alive: // This may be the next guard, which has no journal yet.
		case !view.Finished.IsZero():
			return view.Status, nil
		default:
			return 0, fmt.Errorf("the guard was killed at the step %q: relink guard --resume finishes its work", view.Step)
		}
		if !wait.Sleep(ctx, followInterval) {
			return 0, fmt.Errorf("interrupted: the guard itself goes on")
		}
	}
}
