package watch

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/wait"
)

// Options of a Refresher.
type Options struct {
	Store *checkpoint.Store
	// Host is the host's namespace. It stays open until Run has returned.
	Host *kernel.Namespace
	// OnError is called with each failure to read or write. The Refresher tries again by itself.
	OnError func(namespace attachment.Namespace, err error)
	// OnRefusals is called when the refusals have changed, or what HasRead and HasLookedAtAll say. It must not call the Refresher.
	OnRefusals func()
	// OnRead is called after each reading with the sandbox's container IDs. It must not call the Refresher.
	OnRead func(containerIDs ...string)
	// Identities tell whose the sandboxes are. Without a cache the Refresher looks for no interface without a checkpoint.
	Identities capture.IdentitySources
	// OnlyOwn writes no first checkpoint.
	OnlyOwn bool
	// OnEmpty is called with the pod of each sandbox that has nothing to record, once. It must not call the Refresher, and may be nil.
	OnEmpty func(attachment.Pod)
	// OnForgotten is called with the attachments whose checkpoints were dropped, and why. It must not call the Refresher.
	OnForgotten func(keys []attachment.Key, reason string)
}

// Refusal is why a checkpoint is not renewed. WentAlone says that the interface is gone, and that its parents were there after that.
type Refusal struct {
	control.Drift
	WentAlone bool
}

// Counters count from the start of the Refresher.
type Counters struct {
	// Readings are looks into one sandbox. Refreshes are written checkpoints. Refusals are new findings. Failures are
	// readings that did not finish. Overruns is how often the kernel's messages were lost because nobody read them in
	// time. Recordings are first checkpoints. Forgotten are checkpoints of what other programs have detached.
	Readings, Refreshes, Refusals, Failures, Overruns, Recordings, Forgotten uint64
}

// Refresher keeps the checkpoints of a store fresh. Its methods can be called at any time, from several goroutines.
type Refresher struct {
	Options
	watch     *kernel.SandboxWatch
	hostWatch *kernel.Watch
	wake      chan struct{}
	holds     chan holdRequest
	// listening is closed when the watch hears all sandboxes.
	listening chan struct{}

	// Only the goroutine of Run uses these. devices are the host's devices, and present their indices. devices are nil if they are out of
	// date.
	devices netstate.Devices
	present map[int]bool
	// sandboxes are all. containers are those with checkpoints of the container.
	sandboxes  map[attachment.Namespace]*sandbox
	containers map[string][]*sandbox
	// dirty are those that have changed since their last reading. settling are others that are read once more. settlingFirst says whose turn it is.
	dirty, settling queue
	settlingFirst   bool
	survey          survey
	// unseen are those of the first checkpoints that nobody has looked at yet.
	unseen map[*sandbox]bool

	mu        sync.Mutex
	requested map[string]request
	held      map[string]int
	// muted says that the watch hears nothing, because most sandboxes are held.
	muted bool
	// refusals say why checkpoints are not renewed. changedRefusals are those that have changed since TakeRefusals.
	refusals        map[attachment.Key]Refusal
	changedRefusals map[attachment.Key]*Refusal
	unrecorded      map[*sandbox][]capture.Unrecorded
	// readContainers are those of HasRead. seenAll is that of HasLookedAtAll.
	readContainers map[string]bool
	seenAll        bool
	counters       Counters
}

// request is what Run has not heard yet of a container: its checkpoints were written, or its sandbox was released.
type request struct {
	records           []checkpoint.Record
	written, released bool
}

// New returns a Refresher that already listens to the kernel. The caller calls Run. New needs CAP_NET_BROADCAST.
func New(opts Options) (*Refresher, error) {
	r := &Refresher{
		Options: opts, wake: make(chan struct{}, 1), holds: make(chan holdRequest), listening: make(chan struct{}),
		sandboxes: map[attachment.Namespace]*sandbox{}, containers: map[string][]*sandbox{},
		requested: map[string]request{}, held: map[string]int{}, refusals: map[attachment.Key]Refusal{}, changedRefusals: map[attachment.Key]*Refusal{},
		unrecorded: map[*sandbox][]capture.Unrecorded{}, readContainers: map[string]bool{}, unseen: map[*sandbox]bool{}, survey: newSurvey(),
	}
	var err error
	if r.hostWatch, err = opts.Host.Watch(); err != nil {
		return nil, err
	}
	if r.watch, err = opts.Host.WatchSandboxes(); err != nil {
		r.hostWatch.Close()
		return nil, err
	}
	return r, nil
}

// Run renews checkpoints until ctx is done, and then ends the watches. It first looks at all checkpoints that it was told of. Call it once.
func (r *Refresher) Run(ctx context.Context) {
	defer r.hostWatch.Close()
	defer r.watch.Close()
	r.loadRequested()
	sandboxes := slices.Collect(maps.Values(r.sandboxes))
	for _, s := range sandboxes {
		r.unseen[s] = true
		r.readOnce(s)
	}
	r.noteSeen(nil)
	inparallel.Do(runtime.GOMAXPROCS(0), len(sandboxes), func(i int) { _ = r.hear(sandboxes[i]) }) // The reading says why not.
	close(r.listening)
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer r.startSurvey(ctx)()
	for ctx.Err() == nil {
		r.loadRequested()
		r.lookForSandboxes()
		next, due := r.readNext(ctx) // One only: pods that go on changing must not keep the others from being heard of.
		if s := r.survey.due; !s.IsZero() && (!due || s.Before(next)) {
			next, due = s, true
		}
		if due {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
		case <-r.survey.hints:
			r.survey.hint(time.Now())
		case ids := <-r.survey.identified:
			r.takeIdentities(ctx, ids)
		case <-r.watch.Changed():
		case <-r.wake:
		case h := <-r.holds:
			r.readForHold(ctx, h)
		case <-timer.C:
		}
	}
}

// Listening returns a channel that is closed when Run hears of each change in the sandboxes of the checkpoints that it was told of before. Run
// reads them after that.
func (r *Refresher) Listening() <-chan struct{} { return r.listening }

// CheckpointsChanged says which checkpoints the container has now, or that what a lost one is on is there again with its old index.
func (r *Refresher) CheckpointsChanged(containerID string, records []checkpoint.Record) {
	r.request(containerID, func(q *request) { q.records, q.written = records, true })
}

// holdRequest is a request of Hold.
type holdRequest struct {
	containerIDs []string
	// finished gets whether these are most of all sandboxes.
	finished chan bool
}

// holdTimeout bounds the wait of a Hold for the present reading. Most readings take a few milliseconds.
const holdTimeout = 250 * time.Millisecond

// Hold makes the Refresher leave the sandboxes of the containers alone, until the caller gives each to Release. Each
// Hold needs its own Release. Hold first waits until the checkpoints contain what the kernel has reported so far, so
// that a restore brings back the last state. It does not wait for a long reading, or after the end of ctx. The
// sandboxes are held in all cases. Run must be running. Hold returns false if it did not wait to the end: the checkpoints can have what another
// program has detached.
//
// If it holds most sandboxes, the Refresher hears nothing until the first Release, and then reads the others too.
func (r *Refresher) Hold(ctx context.Context, containerIDs ...string) (renewed bool) {
	majority := false
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, id := range containerIDs {
			r.held[id]++
		}
		if majority && !r.muted {
			r.muted = true
			r.reportDeaf(r.watch.Mute())
		}
	}()
	h := holdRequest{containerIDs: containerIDs, finished: make(chan bool, 1)}
	select {
	case r.holds <- h:
	case <-time.After(holdTimeout): // A pod can have so many routes that its reading takes seconds.
		return false
	case <-ctx.Done():
		return false
	}
	select {
	case majority = <-h.finished:
		return true
	case <-ctx.Done():
		return false
	}
}

// reportDeaf reports an error of the watch.
func (r *Refresher) reportDeaf(err error) {
	if err != nil {
		r.OnError(attachment.Namespace{}, err)
	}
}

// readForHold reads sandboxes before they are held, if the kernel has reported more than a loss. For the others, a
// reading would add nothing to the checkpoints, and a parent that goes marks hundreds of them at once. Of sandboxes
// whose readings take long, readForHold writes only what the kernel has reported.
func (r *Refresher) readForHold(ctx context.Context, h holdRequest) {
	defer func() { h.finished <- 2*len(h.containerIDs) > len(r.containers) }()
	r.loadRequested()
	ids := r.readCaches(ctx)
	for _, id := range h.containerIDs {
		for _, s := range r.containers[id] {
			r.forgetDetached(ctx, s, ids)
			switch {
			case len(s.events) == 0:
			case s.pace.slow, r.isLost(s):
				r.saveEvents(ctx, s, s.events)
			default:
				r.read(ctx, s)
			}
		}
	}
}

// Release ends a Hold. After the last Release of a sandbox, the Refresher reads it.
func (r *Refresher) Release(containerID string) {
	r.mu.Lock()
	if r.held[containerID]--; r.held[containerID] <= 0 {
		delete(r.held, containerID)
	}
	if r.muted {
		err := r.watch.Unmute()
		r.muted = err != nil // The next Release tries again.
		r.reportDeaf(err)
	}
	r.mu.Unlock()
	r.request(containerID, func(q *request) { q.released = true })
}

func (r *Refresher) request(containerID string, add func(*request)) {
	r.mu.Lock()
	q := r.requested[containerID]
	add(&q)
	r.requested[containerID] = q
	r.mu.Unlock()
	wait.Wake(r.wake)
}

// TakeRefusals returns why checkpoints are not renewed, as far as that has changed since the last call: nil for one that is renewed
// again. Lost interfaces are left out.
func (r *Refresher) TakeRefusals() map[attachment.Key]*Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := r.changedRefusals
	r.changedRefusals = map[attachment.Key]*Refusal{}
	return changed
}

// HasRead says that the interfaces of the container were read since New. What its refusals say until then may be out of date.
func (r *Refresher) HasRead(containerID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.readContainers[containerID]
}

// HasLookedAtAll says that Run has looked at all sandboxes of the checkpoints that it was told of before. It may not have found all.
func (r *Refresher) HasLookedAtAll() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seenAll
}

// noteSeen notes that somebody has looked at the sandbox.
func (r *Refresher) noteSeen(s *sandbox) {
	delete(r.unseen, s)
	if len(r.unseen) > 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.seenAll {
		r.seenAll = true
		r.OnRefusals()
	}
}

// noteRead notes that all interfaces of the sandbox with checkpoints were read.
func (r *Refresher) noteRead(s *sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range s.containers {
		if !r.readContainers[id] {
			r.readContainers[id] = true
			r.OnRefusals()
		}
	}
}

// Counters returns what was counted so far.
func (r *Refresher) Counters() Counters {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counters
}

// count adds to one of the counters.
func (r *Refresher) count(counter *uint64, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*counter += uint64(n)
}
