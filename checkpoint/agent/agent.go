package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/checkpoint/capture/watch"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/hostends"
	"github.com/relink-cni/relink/checkpoint/move"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/wait"
)

// Options of an agent.
type Options struct {
	Store *checkpoint.Store
	// HostGrace is the time that the host's network manager has for a device that is back. After that, the agent sets
	// the device up and makes it a member of its bond.
	HostGrace time.Duration
	// Identities tell whose sandboxes are. OnlyOwn makes the agent write no first checkpoint.
	Identities capture.IdentitySources
	OnlyOwn    bool
	// OnEmptyPod is called with each pod that has no interface on a device of the host. Several goroutines may call it. It may be nil.
	OnEmptyPod func(attachment.Pod)
	// RebuildBond makes the agent build a bond that is still missing after HostGrace.
	RebuildBond bool
	Log         *slog.Logger
	// Version is the version of the program.
	Version string
	// The agent calls Ready once: when it knows all checkpoints and hears of each change. It calls Alive in each
	// round of the loop, at least every LoopInterval, and every minute if that is 0 or longer. Both may be nil.
	Ready, Alive func()
	LoopInterval time.Duration
	// Observers hear what the agent does.
	Observers []func(Event)
}

// Agent watches a node. Its methods Status, Pause and Resume may be called from several goroutines at once.
type Agent struct {
	Options
	restorer   *restore.Restorer
	watch      *kernel.Watch
	index      *index
	refresher  *watch.Refresher
	hostAccess *hostends.Reconciler
	started    time.Time
	complaints complaints

	// Only the loop uses these.
	devices netstate.Devices
	// stale says that the loop has to look at the devices again. scannedAt is the time of the last look.
	stale     bool
	scannedAt time.Time
	// verifiedAt is when the loop last asked the index whether it hears of everything.
	verifiedAt time.Time
	// outdated says that checkpoints have changed since the loop read them.
	outdated bool
	chains   []*chain
	nics     []netstate.Member
	// members are all attachments with a checkpoint. stacks are what they are on, by their keys. regrouping says that there are other stacks
	// than the chains have.
	members    map[attachment.Key]*member
	stacks     map[string]*stack
	regrouping bool
	// unread are the attachments whose sandboxes the refresher has not read yet. allSeen says that it has looked for all that were there first.
	unread  map[*member]bool
	allSeen bool
	// concerns are the attachments with a finding, drift, loss or owed announcement, and those whose sandboxes were not found.
	concerns map[*member]bool
	// unreadable is the number of checkpoints that cannot be read. accessChanged says that the Reconciler does not know all host accesses.
	unreadable    int
	accessChanged bool
	// pods are the attachments by their pods. changedPods are those of which the observers may know too little, and connectivityTold says that
	// they have heard of the others.
	pods             map[attachment.Pod]*podMembers
	changedPods      map[attachment.Pod]bool
	connectivityTold bool
	// driftsChanged says that the file does not have all confirmed drifts. driftsSavedAt is when it was written.
	driftsChanged bool
	driftsSavedAt time.Time
	// captured are the times of the records.
	captured capturedTimes
	// findingsChanged says that there are other findings than decide knows.
	findingsChanged bool
	// decidedAt is the time of the last decision.
	decidedAt time.Time
	// overruns counts how often the watch of the host's devices lost messages.
	overruns uint64
	// ends get the end of each restore, and that of finishing moves. running is how many of them are under way.
	ends    chan func()
	running int
	// findings gets a value when the refresher's findings have changed.
	findings chan struct{}
	requests chan func()
	// hasUnfinishedMove says that the refresher met a move that did not end. finishingMoves says that the agent finishes it: only the loop uses
	// that.
	hasUnfinishedMove atomic.Bool
	finishingMoves    bool

	mu sync.Mutex
	// status is the answer to Status. figures is the answer to Figures. mu guards both.
	status  control.Status
	figures Figures
	paused  *control.Pause

	// lastRound is the time of the loop's last round.
	lastRound atomic.Pointer[time.Time]
}

// restoreEnd is the end of a restore.
type restoreEnd struct {
	chain    *chain
	result   *restore.Result
	err      error
	duration time.Duration
	// records are the records that the restore was given. ready are those of the chain.
	records []checkpoint.Record
	ready   map[attachment.Key]bool
	// held are the sandboxes that the refresher left alone during the restore.
	held []string
}

// finishMovesTimeout bounds the wait for sandboxes that another process works on.
const finishMovesTimeout = 10 * time.Second

// finishMoves finishes what a killed move has left. What is not finished after that, and without an error, is tried again.
func (a *Agent) finishMoves() {
	ctx, cancel := context.WithTimeout(context.Background(), finishMovesTimeout)
	defer cancel()
	err := move.FinishKilled(ctx, a.Store)
	if err != nil {
		a.Log.Warn("a killed move is not finished: relink restore finishes it", "error", printable.Joined(err))
	}
	a.hasUnfinishedMove.Store(err == nil && move.HasUnfinished(a.Store))
}

// mayFinishMoves says whether the agent may finish a killed move now. A paused agent may not. Neither may any agent while a guard is at
// work, because a guard finishes its own moves.
func (a *Agent) mayFinishMoves() bool { return a.paused == nil && !a.Store.Guarded() }

// startFinishingMoves finishes a killed move that the loop has met, as soon as nobody moves. It does not make the loop wait.
func (a *Agent) startFinishingMoves() {
	if a.finishingMoves || !a.hasUnfinishedMove.Load() || !a.mayFinishMoves() {
		return
	}
	a.finishingMoves = true
	a.running++
	go func() {
		a.finishMoves() // Pause waits for its end.
		a.ends <- func() {
			a.finishingMoves = false
			a.running--
		}
	}()
}

// New returns an agent for this network namespace and the store. It finishes what a killed move has left. The caller
// runs and closes the agent.
func New(opts Options) (*Agent, error) {
	opts.LoopInterval = min(cmp.Or(opts.LoopInterval, roundInterval), roundInterval)
	restorer, err := restore.NewRestorer(opts.Store)
	if err != nil {
		return nil, err
	}
	// First the watch, then the first look: nothing is missed in between.
	deviceWatch, err := restorer.Host().Watch()
	if err != nil {
		restorer.Close()
		return nil, err
	}
	a := &Agent{
		Options: opts, restorer: restorer, watch: deviceWatch, started: time.Now(), stale: true,
		complaints: complaints{log: opts.Log, logged: map[string]time.Time{}},
		members:    map[attachment.Key]*member{}, stacks: map[string]*stack{},
		unread: map[*member]bool{}, concerns: map[*member]bool{}, accessChanged: true,
		pods: map[attachment.Pod]*podMembers{}, changedPods: map[attachment.Pod]bool{},
		ends: make(chan func()), findings: make(chan struct{}, 1), requests: make(chan func()),
	}
	if a.paused, err = loadPause(a.pauseFile()); err != nil {
		a.Log.Warn("the note of a pause cannot be read: the agent is not paused", "error", err)
	}
	if a.mayFinishMoves() {
		a.finishMoves() // Before the records are read: afterwards they say where the interfaces are.
	}
	a.lastRound.Store(&a.started)
	a.index, err = newIndex(opts.Store, func(before, after indexedSandbox) {
		a.sandboxRead(before, after)
		a.refresher.CheckpointsChanged(after.id, after.records)
	})
	if err != nil {
		a.Close()
		return nil, err
	}
	a.hostAccess = hostends.NewReconciler(hostends.ReconcilerOptions{
		Store: opts.Store, Host: restorer.Host(), OnDone: a.hostAccessChanged, OnError: a.hostAccessFailed, OnDrifts: a.wakeForFindings,
	})
	a.refresher, err = watch.New(watch.Options{
		Store: opts.Store, Host: restorer.Host(), OnError: a.refreshFailed, OnRefusals: a.wakeForFindings, OnRead: a.hostAccess.MarkSandboxes,
		Identities: opts.Identities, OnlyOwn: opts.OnlyOwn, OnForgotten: a.logForgotten, OnEmpty: opts.OnEmptyPod,
	})
	if err != nil {
		a.Close()
		return nil, err
	}
	a.readIndex()
	var records []checkpoint.Record
	for _, m := range a.members {
		records = append(records, m.record)
	}
	a.forgetDetached(records)
	a.readIndex()
	if err := a.loadDrifts(); err != nil {
		a.Log.Warn("the note of earlier drift cannot be read: the agent may undo such a change together with a loss", "error", err)
	}
	return a, nil
}

// forgetDetached drops those of the records whose interfaces other programs have detached: a restore must not bring them back. It is for what the
// refresher has not looked at.
func (a *Agent) forgetDetached(records []checkpoint.Record) {
	if a.Identities.Cache == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), holdLimit)
	defer cancel()
	ids := capture.IdentitySources{Cache: a.Identities.Cache}.Read(ctx)
	for _, r := range records {
		key := r.Attachment
		reason := ids.DetachedReason(key, capture.ResultOf(r), false)
		if reason == "" || !capture.IsForeign(r) {
			continue
		}
		sandbox := capture.Renewal{Store: a.Store, Namespace: r.Namespace, ContainerIDs: []string{key.ContainerID}}
		chosen := func(k attachment.Key) bool { return k == key }
		forgotten, err := sandbox.ForgetDetached(ctx, chosen)
		for errors.Is(err, checkpoint.ErrBusy) && wait.Sleep(ctx, idleScanInterval) { // A restore waits for it, too.
			forgotten, err = sandbox.ForgetDetached(ctx, chosen)
		}
		if len(forgotten) > 0 {
			a.logForgotten(forgotten, reason)
		}
		if err != nil {
			a.Log.Debug("a checkpoint of what was detached is not forgotten yet", "attachment", key.String(), "error", err)
		}
	}
}

// Close releases what the agent has open. Call it after Run has returned.
func (a *Agent) Close() {
	if a.index != nil {
		a.index.close()
	}
	a.watch.Close()
	a.restorer.Close()
}

// Run watches until ctx is done. Then it waits for the restores that are under way.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.scanDevices(ctx); err != nil {
		return fmt.Errorf("look at the host's devices: %w", err)
	}
	var refreshing sync.WaitGroup
	refreshing.Go(func() { a.refresher.Run(ctx) })
	defer refreshing.Wait()
	refreshing.Go(func() { a.runHostAccess(ctx) })
	if a.Ready != nil {
		refreshing.Go(func() {
			select {
			case <-ctx.Done():
			case <-a.refresher.Listening():
				a.Ready()
			}
		})
	}
	a.loop(ctx)
	for a.running > 0 {
		(<-a.ends)()
	}
	a.saveDrifts()
	return nil
}

// runHostAccess runs the Reconciler until ctx is done. The Reconciler ends early only if it cannot watch the host: that may pass.
func (a *Agent) runHostAccess(ctx context.Context) {
	const pause = 10 * time.Second
	for {
		err := a.hostAccess.Run(ctx)
		if err == nil {
			return
		}
		a.hostAccessFailed(err)
		if !wait.Sleep(ctx, pause) {
			return
		}
	}
}

// wakeForFindings wakes the loop.
func (a *Agent) wakeForFindings() { wait.Wake(a.findings) }

// refreshFailed logs that a checkpoint could not be renewed. The refresher calls refreshFailed, and tries again by itself.
func (a *Agent) refreshFailed(namespace attachment.Namespace, err error) {
	if errors.Is(err, checkpoint.ErrUnfinishedMove) {
		a.hasUnfinishedMove.Store(true)
		a.wakeForFindings()
	}
	a.complaints.warn("a checkpoint is not kept fresh", err, time.Now(), "namespace", namespace.Path)
}

// logForgotten logs that checkpoints of what other programs have detached were dropped.
func (a *Agent) logForgotten(keys []attachment.Key, reason string) {
	a.Log.Info("forgotten: another program has detached it", "attachments", len(keys), "first", keys[0].String(), "why", reason)
}

// hostAccessChanged logs what the Reconciler has made right. Many pods are one line.
func (a *Agent) hostAccessChanged(steps []string) {
	a.Log.Info("host access follows the node", "changes", len(steps), "first", printable.Line(steps[0]))
}

// hostAccessFailed logs what the Reconciler could not make right. A sandbox that somebody works on is no failure: the Reconciler comes
// again, and then tells what else is wrong.
func (a *Agent) hostAccessFailed(err error) {
	if !errors.Is(err, checkpoint.ErrBusy) {
		a.complaints.warn("host access is not right", err, time.Now())
	}
}
