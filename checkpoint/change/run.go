package change

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/inparallel"
)

// workersPerCPU is how many sandboxes are changed at once for each CPU. Most of them wait for their turn: pkg/kernel lets one at a time
// change something in the kernel.
const workersPerCPU = 4

// Workers is how many sandboxes are changed or looked into at once.
func Workers() int { return workersPerCPU * runtime.GOMAXPROCS(0) }

// ErrNotTried is the error of an action whose turn did not come before an interrupt.
var ErrNotTried = errors.New("interrupted before its turn")

// Action is what a verb has decided to do about one attachment, or about all of a sandbox.
type Action interface {
	// Target returns the attachment's record as it was listed. Of an attachment without a record, it has the container ID only.
	Target() checkpoint.Record
	// Fail notes why it was not done.
	Fail(err error)
}

// RecordAction is an Action of which nothing is reported but its error.
type RecordAction struct {
	Record checkpoint.Record
	Err    error
}

// Target is a part of Action.
func (a *RecordAction) Target() checkpoint.Record { return a.Record }

// Fail is a part of Action.
func (a *RecordAction) Fail(err error) { a.Err = err }

// Runner changes sandboxes. Several calls of Run can share it.
type Runner struct {
	Store *checkpoint.Store
	// Unlocked is for a dry run, which takes no lock.
	Unlocked bool
	// Patience is how long a sandbox is waited for on which somebody else is at work, 0 for flock.DefaultTimeout.
	Patience time.Duration
	// Progress is called after each sandbox with the number of those that are done, and of all that have begun. It may be nil.
	Progress func(finished, total int)

	workers         chan struct{}
	mu              sync.Mutex
	finished, total int
}

// NewRunner returns a Runner for the store.
func NewRunner(store *checkpoint.Store) *Runner {
	return &Runner{Store: store, workers: make(chan struct{}, Workers())}
}

// Run calls apply for each action under the lock of its sandbox, and Fail with its error. Those of one sandbox come one after the other, in their
// order, and different sandboxes at the same time. Only its own actions wait for a sandbox on which somebody else is at work. After an
// interrupt, what has begun ends, and the rest fails with ErrNotTried. Fail can get checkpoint.ErrBusy, too.
func Run[A Action](ctx context.Context, r *Runner, actions []A, apply func(A) error) {
	sandboxes := bySandbox(actions)
	r.begin(len(sandboxes))
	call := func(actions []A, unlock func(), lockErr error) {
		defer r.finish()
		if lockErr == nil {
			defer unlock()
		}
		for _, a := range actions {
			err := lockErr
			if errors.Is(ctx.Err(), context.Canceled) {
				err = ErrNotTried
			}
			if err == nil {
				err = apply(a)
			}
			if err != nil {
				a.Fail(err)
			}
		}
	}
	var waiting sync.WaitGroup
	inparallel.Do(cap(r.workers), len(sandboxes), func(i int) {
		r.workers <- struct{}{}
		defer func() { <-r.workers }()
		target := sandboxes[i][0].Target()
		unlock, err := r.tryLock(target)
		if !errors.Is(err, checkpoint.ErrBusy) {
			call(sandboxes[i], unlock, err)
			return
		}
		waiting.Go(func() {
			unlock, err := r.awaitLock(ctx, target.Attachment.ContainerID)
			call(sandboxes[i], unlock, err)
		})
	})
	waiting.Wait()
}

// bySandbox groups the actions by container ID. Both orders stay.
func bySandbox[A Action](actions []A) (sandboxes [][]A) {
	places := map[string]int{}
	for _, a := range actions {
		id := a.Target().Attachment.ContainerID
		i, found := places[id]
		if !found {
			i, places[id] = len(sandboxes), len(sandboxes)
			sandboxes = append(sandboxes, nil)
		}
		sandboxes[i] = append(sandboxes[i], a)
	}
	return sandboxes
}

func (r *Runner) tryLock(target checkpoint.Record) (unlock func(), err error) {
	if r.Unlocked {
		return func() {}, nil
	}
	return r.Store.TryLockRecord(target)
}

func (r *Runner) awaitLock(ctx context.Context, containerID string) (unlock func(), err error) {
	patience := cmp.Or(r.Patience, flock.DefaultTimeout)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if unlock, err = r.Store.Lock(ctx, containerID); errors.Is(err, checkpoint.ErrBusy) {
		err = fmt.Errorf("%w for more than %s", err, patience)
	}
	return unlock, err
}

// begin counts the sandboxes.
func (r *Runner) begin(sandboxes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total += sandboxes
}

// finish counts one more sandbox as done.
func (r *Runner) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finished++
	if r.Progress != nil {
		r.Progress(r.finished, r.total)
	}
}
