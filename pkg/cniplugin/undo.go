package cniplugin

import (
	"errors"
	"fmt"
	"slices"
)

// Undo remembers how to take back what was done. It is for one goroutine.
type Undo struct {
	steps []undoStep
}

type undoStep struct {
	action string
	undo   func() error
}

// Push remembers that back takes back what was done.
func (u *Undo) Push(action string, back func() error) {
	u.steps = append(u.steps, undoStep{action, back})
}

// Run takes everything back, the last thing first. It goes on after a failure and
// returns all failures.
func (u *Undo) Run() error {
	var errs []error
	for _, step := range slices.Backward(u.steps) {
		if err := step.undo(); err != nil {
			errs = append(errs, fmt.Errorf("undo %s: %w", step.action, err))
		}
	}
	u.steps = nil
	return errors.Join(errs...)
}
