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

// ErrNotTried is the error of a target whose turn did not come before an interrupt.
var ErrNotTried = errors.New("interrupted before its turn")

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

// Run calls apply with the number of each target, under the lock of its sandbox, and returns the errors in the order of the targets. A target is
// the record of an attachment as it was listed. Of an attachment without a record, or of a whole sandbox, it has the container ID only. Targets of
// one sandbox come one after the other, in their order, and different sandboxes at the same time. Only its own targets wait for a sandbox on
// which somebody else is at work. After an interrupt, what has begun ends, and the error of the rest is ErrNotTried. An error can be
// checkpoint.ErrBusy, too.
func (r *Runner) Run(ctx context.Context, targets []checkpoint.Record, apply func(i int) error) []error {
	errs, sandboxes := make([]error, len(targets)), bySandbox(targets)
	r.begin(len(sandboxes))
	call := func(numbers []int, unlock func(), lockErr error) {
		defer r.finish()
		if lockErr == nil {
			defer unlock()
		}
		for _, i := range numbers {
			switch {
			case errors.Is(ctx.Err(), context.Canceled):
				errs[i] = ErrNotTried
			case lockErr != nil:
				errs[i] = lockErr
			default:
				errs[i] = apply(i)
			}
		}
	}
	var waiting sync.WaitGroup
	inparallel.Do(cap(r.workers), len(sandboxes), func(k int) {
		r.workers <- struct{}{}
		defer func() { <-r.workers }()
		target := targets[sandboxes[k][0]]
		unlock, err := r.tryLock(target)
		if !errors.Is(err, checkpoint.ErrBusy) {
			call(sandboxes[k], unlock, err)
			return
		}
		waiting.Go(func() {
			unlock, err := r.awaitLock(ctx, target.Attachment.ContainerID)
			call(sandboxes[k], unlock, err)
		})
	})
	waiting.Wait()
	return errs
}

// bySandbox groups the numbers of the targets by container ID. Both orders stay.
func bySandbox(targets []checkpoint.Record) (sandboxes [][]int) {
	places := map[string]int{}
	for i, target := range targets {
		place, found := places[target.Attachment.ContainerID]
		if !found {
			place = len(sandboxes)
			places[target.Attachment.ContainerID] = place
			sandboxes = append(sandboxes, nil)
		}
		sandboxes[place] = append(sandboxes[place], i)
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
