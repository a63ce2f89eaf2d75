package hostends

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/wait"
)

// ReconcilerOptions are those of a Reconciler.
type ReconcilerOptions struct {
	Store *checkpoint.Store
	// Host is the host's namespace. It stays open until Run has returned.
	Host *kernel.Namespace
	// OnDone is called with what was made right, in words, and why. OnError is called with each failure: the Reconciler tries
	// again by itself. OnDrifts is called when Drifts has changed. None may call the Reconciler. Several goroutines call
	// OnDone and OnError.
	OnDone   func(steps []string)
	OnError  func(err error)
	OnDrifts func()
}

// Reconciler makes right what follows from the node: see the package. Run does the work. The other methods may be called from
// several goroutines at once, and wait for nothing.
type Reconciler struct {
	ReconcilerOptions
	wake chan struct{}

	// filter wakes reconcileFilter.
	filter chan struct{}

	// Only Run uses these. node is as it was at the last look, and broken are the host's ends that were missing or down. failures is how often
	// the look at a pod has failed in a row.
	node     hostaccess.Node
	broken   map[string]bool
	failures map[attachment.Key]int

	mu sync.Mutex
	// records are the records with host access. complete says that they are all of the node's.
	records  map[attachment.Key]checkpoint.Record
	complete bool
	// marked are the attachments to look at. Each look looks at the host.
	marked map[attachment.Key]bool
	drifts map[attachment.Key]control.Drift
}

// NewReconciler returns a Reconciler that knows of no pod yet.
func NewReconciler(opts ReconcilerOptions) *Reconciler {
	return &Reconciler{
		ReconcilerOptions: opts, wake: make(chan struct{}, 1), filter: make(chan struct{}, 1),
		failures: map[attachment.Key]int{}, records: map[attachment.Key]checkpoint.Record{}, marked: map[attachment.Key]bool{}, drifts: map[attachment.Key]control.Drift{},
	}
}

// SetRecords tells the Reconciler all records of living sandboxes. complete says that none is missing.
func (k *Reconciler) SetRecords(records []checkpoint.Record, complete bool) {
	k.mu.Lock()
	previous, wasComplete := k.records, k.complete
	k.records, k.complete = map[attachment.Key]checkpoint.Record{}, complete
	changed, masquerades := false, false
	for _, r := range records {
		if r.HostAccess == nil {
			continue
		}
		k.records[r.Attachment] = r
		before, ok := previous[r.Attachment]
		if !ok || !before.CapturedAt.Equal(r.CapturedAt) || !reflect.DeepEqual(before.HostAccess, r.HostAccess) {
			k.marked[r.Attachment], changed = true, true
			masquerades = masquerades || r.HostAccess.Masquerade
		}
	}
	changed = changed || len(previous) != len(k.records) || complete != wasComplete
	for key := range k.drifts {
		if _, ok := k.records[key]; !ok {
			delete(k.drifts, key)
		}
	}
	k.mu.Unlock()
	if changed {
		wait.Wake(k.wake)
	}
	if masquerades {
		wait.Wake(k.filter)
	}
}

// MarkSandboxes makes the Reconciler look at these sandboxes: something has changed there.
func (k *Reconciler) MarkSandboxes(containerIDs ...string) {
	k.mu.Lock()
	marked := false
	for key := range k.records {
		if slices.Contains(containerIDs, key.ContainerID) {
			k.marked[key], marked = true, true
		}
	}
	k.mu.Unlock()
	if marked {
		wait.Wake(k.wake)
	}
}

// Drifts returns the host accesses that somebody has changed.
func (k *Reconciler) Drifts() []control.Drift {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Values(k.drifts))
}

const (
	// minPause is the time from a change to the look, and the least time between two looks. maxPause is the longest time between
	// them: the probes' source is right again within a second.
	minPause, maxPause = 50 * time.Millisecond, 300 * time.Millisecond
	// pauseFactor: about 1/pauseFactor of the time goes into looks. A node can have a routing daemon that changes routes all the
	// time.
	pauseFactor = 10
	// retryDelay is how soon a failed look is repeated. interval is how often the Reconciler looks without an event: changes of iptables
	// cause none.
	retryDelay = time.Second
	interval   = time.Minute
)

// Run keeps all host accesses right until ctx is done. On a node that never had a pod with host access, it costs nothing.
func (k *Reconciler) Run(ctx context.Context) error {
	for !k.hasWork() {
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		}
	}
	// First the watch, then the look: nothing is missed in between.
	watch, err := k.Host.WatchAddressing()
	if err != nil {
		return err
	}
	defer watch.Close()
	var filters sync.WaitGroup
	filters.Go(func() { k.reconcileFilter(ctx) })
	defer filters.Wait()
	next := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-watch.Changed():
			// A change of an address comes as several messages, and several addresses often change at once.
			if !wait.Sleep(ctx, minPause) {
				return nil
			}
			watch.Take()
		case <-k.wake:
		case <-time.After(next):
		}
		began := time.Now()
		next = interval
		if err := k.reconcile(ctx); err != nil {
			k.OnError(err)
			next = retryDelay
		}
		if !wait.Sleep(ctx, min(max(minPause, pauseFactor*time.Since(began)), maxPause)) {
			return nil
		}
	}
}

// hasWork says that a pod has host access, or that a pod that is gone may have left something.
func (k *Reconciler) hasWork() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.records) > 0 || k.complete && (k.Store.HadHostAccess() || len(k.Store.Masquerade().Sources) > 0)
}

// reconcile makes the host's part right. It makes the pods' parts right too, if the node has changed since the last look.
func (k *Reconciler) reconcile(ctx context.Context) error {
	node, err := hostaccess.ReadNode(k.Host)
	if err != nil {
		return err
	}
	before := k.node
	k.node = node
	host := k.snapshot()
	moved := node.Source4 != before.Source4 || node.Source6 != before.Source6
	if moved {
		wait.Wake(k.filter)
	}
	marked := k.takeMarked(node.Equal(before))
	var steps []string
	var errs []error
	if moved && node.KeepsSources(before) {
		// The pods answer to the earlier source. They must have routes to the new one before the node uses it.
		steps, errs = k.reconcilePods(marked, node)
		marked = nil
	}
	plan, err := host.AssertRoutes(ctx, node)
	marked = append(marked, k.changedEnds(host.Records, plan.Broken)...)
	if err != nil {
		errs = append(errs, err)
		marked = host.Records // The kernel takes no route through an end whose settings somebody has changed.
	} else {
		steps = append(steps, plan.Steps()...)
	}
	podSteps, podErrs := k.reconcilePods(marked, node)
	if steps = append(steps, podSteps...); len(steps) > 0 {
		k.OnDone(steps)
	}
	return errors.Join(append(errs, podErrs...)...)
}

// reconcilePods makes these pods' parts right. steps say what was done.
func (k *Reconciler) reconcilePods(records []checkpoint.Record, node hostaccess.Node) (steps []string, errs []error) {
	for _, r := range records {
		podSteps, err := k.reconcilePod(r, node)
		steps = append(steps, podSteps...)
		if err == nil {
			delete(k.failures, r.Attachment)
			continue
		}
		errs = append(errs, err)
		// A pod can make it impossible for good. It is looked at again when something changes.
		if k.failures[r.Attachment]++; k.failures[r.Attachment] <= maxFailures || errors.Is(err, checkpoint.ErrBusy) {
			k.mark(r)
		}
	}
	return steps, errs
}

// maxFailures is how often a pod that fails is looked at again without a change.
const maxFailures = 30

// snapshot returns the host with all records.
func (k *Reconciler) snapshot() Host {
	k.mu.Lock()
	defer k.mu.Unlock()
	return Host{Store: k.Store, Host: k.Host, Records: slices.Collect(maps.Values(k.records)), Complete: k.complete}
}

// takeMarked returns the records to look at.
func (k *Reconciler) takeMarked(sameNode bool) (marked []checkpoint.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, r := range k.records {
		if !sameNode || k.marked[key] {
			marked = append(marked, r)
		}
	}
	clear(k.marked)
	maps.DeleteFunc(k.failures, func(key attachment.Key, _ int) bool { _, recorded := k.records[key]; return !recorded })
	return marked
}

// changedEnds returns the records whose end in the host has broken or is whole again since the last look.
func (k *Reconciler) changedEnds(records []checkpoint.Record, broken []string) (changed []checkpoint.Record) {
	previous := k.broken
	k.broken = map[string]bool{}
	for _, name := range broken {
		k.broken[name] = true
	}
	for _, r := range records {
		if name := r.HostAccess.HostName; previous[name] != k.broken[name] {
			changed = append(changed, r)
		}
	}
	return changed
}

func (k *Reconciler) mark(r checkpoint.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.marked[r.Attachment] = true
}
