package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/statefile"
	"github.com/relink-cni/relink/pkg/wait"
)

// pauseFile is the path of the file that keeps a pause across a restart of the agent. Operators count on that.
func (a *Agent) pauseFile() string { return filepath.Join(a.Store.AgentDir(), "pause.json") }

// loadPause returns the pause in the file. It returns nil if there is none, or if its time is over.
func loadPause(path string) (*control.Pause, error) {
	var p control.Pause
	err := statefile.Load(path, &p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if remaining, limited := p.Remaining(); limited && remaining == 0 {
		return nil, nil
	}
	return &p, nil
}

// runInLoop makes the loop run f, and waits for the end of f.
func (a *Agent) runInLoop(ctx context.Context, f func()) error {
	finished := make(chan struct{})
	select {
	case a.requests <- func() { f(); close(finished) }:
	case <-ctx.Done():
		return ctx.Err()
	}
	<-finished
	return nil
}

// Status returns the state of the agent. It waits for nothing.
func (a *Agent) Status() control.Status {
	a.mu.Lock()
	s := a.status
	a.mu.Unlock()
	s.Unrecorded = []control.Unrecorded{}
	for _, u := range a.refresher.Unrecorded() {
		s.Unrecorded = append(s.Unrecorded, control.Unrecorded{
			Attachment: u.Attachment, Pod: u.Pod, Netns: u.Namespace.Path, Base: checkpoint.Base(u.Interface.Parents).Name, Obstacle: string(u.Obstacle), Reason: printable.Line(u.Reason),
		})
	}
	slices.SortFunc(s.Unrecorded, func(a, b control.Unrecorded) int {
		return strings.Compare(a.Attachment.String(), b.Attachment.String())
	})
	return s
}

// Pause makes the agent restore nothing for that length of time, and finish no killed move. Length 0 means until Resume.
// Pause returns when nothing of that is under way any more, or with the error of ctx: the agent may be paused then, too. A pause outlasts a
// restart of the agent.
func (a *Agent) Pause(ctx context.Context, length time.Duration, reason string) (control.Pause, error) {
	p, err := control.NewPause(length, reason)
	if err != nil {
		return p, err
	}
	var saveErr error
	err = a.runInLoop(ctx, func() {
		if saveErr = statefile.Save(a.pauseFile(), p); saveErr != nil {
			return
		}
		a.paused = &p
		a.stale = true
		a.Log.Info("the agent is paused", "until", untilText(p), "why", reason)
	})
	if saveErr != nil {
		return p, fmt.Errorf("note the pause: %w", saveErr)
	}
	for err == nil {
		busy := false
		if err = a.runInLoop(ctx, func() { busy = a.running > 0 }); err != nil || !busy {
			break
		}
		wait.Sleep(ctx, 20*time.Millisecond) // If ctx is done, the loop is not asked again.
	}
	return p, err
}

func untilText(p control.Pause) string {
	if p.Until.IsZero() {
		return "a resume"
	}
	return p.Until.Format(time.RFC3339)
}

// Resume ends a pause. It does nothing if there is none.
func (a *Agent) Resume(ctx context.Context) error {
	return a.runInLoop(ctx, func() { a.endPause("somebody resumed it") })
}

// pauseEnds returns when the pause ends by itself. It is zero if there is no pause, or if only a resume ends it.
func (a *Agent) pauseEnds(instant time.Time) time.Time {
	if a.paused == nil {
		return time.Time{}
	}
	remaining, limited := a.paused.Remaining()
	if !limited {
		return time.Time{}
	}
	return instant.Add(remaining)
}

// endPause ends the pause. The loop calls it.
func (a *Agent) endPause(reason string) {
	if a.paused == nil {
		return
	}
	a.paused, a.stale = nil, true
	a.Log.Info("the agent goes on", "why", reason)
	if err := statefile.Remove(a.pauseFile()); err != nil {
		a.Log.Warn("the note of the pause cannot be deleted: after its next start the agent will be paused", "error", err)
	}
}
