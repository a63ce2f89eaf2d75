package access

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
)

// Finding is a host access that somebody has changed.
type Finding struct {
	Attachment attachment.Key
	Pod        attachment.Pod
	Reason     string
}

// KeeperOptions are those of a Keeper.
type KeeperOptions struct {
	Store *checkpoint.Store
	// Host is the host's namespace. It stays open until Run has returned.
	Host *kernel.Namespace
	// ReceiveBuffer is that of the watch, in bytes. 0 stands for the kernel package's own choice.
	ReceiveBuffer int
	// OnDone is called with what was made right, in words, and why. OnError is called with each failure: the Keeper tries
	// again by itself. OnFindings is called when Findings has changed. None may call the Keeper, and each may be nil. Several
	// goroutines call OnDone and OnError.
	OnDone     func(steps []string)
	OnError    func(err error)
	OnFindings func()
}

// Keeper makes right what follows from the node: see the package. Run does the work. The other methods may be called from
// several goroutines at once, and wait for nothing.
type Keeper struct {
	KeeperOptions
	wake chan struct{}
	// podsShare is the constant, but for tests.
	podsShare time.Duration

	// filter wakes the one who keeps the rules of iptables right.
	filter chan struct{}

	// Only Run uses these. broken are the accesses whose end in the host was missing or down at the last look. took is how long
	// the last look at a pod took, and failures is how often it has failed in a row.
	broken   map[string]bool
	took     map[attachment.Key]time.Duration
	failures map[attachment.Key]int

	mu sync.Mutex
	// records are those with host access. complete says that they are all of the node's.
	records  map[attachment.Key]checkpoint.Record
	complete bool
	// marked are those to look at. The host is looked at each time.
	marked   map[attachment.Key]bool
	findings map[attachment.Key]Finding
}

// NewKeeper returns a Keeper that knows of no pod yet.
func NewKeeper(opts KeeperOptions) *Keeper {
	if opts.OnDone == nil {
		opts.OnDone = func([]string) {}
	}
	if opts.OnError == nil {
		opts.OnError = func(error) {}
	}
	if opts.OnFindings == nil {
		opts.OnFindings = func() {}
	}
	return &Keeper{
		KeeperOptions: opts, wake: make(chan struct{}, 1), filter: make(chan struct{}, 1), podsShare: podsShare,
		took: map[attachment.Key]time.Duration{}, failures: map[attachment.Key]int{},
		records: map[attachment.Key]checkpoint.Record{}, marked: map[attachment.Key]bool{}, findings: map[attachment.Key]Finding{},
	}
}

// Know tells the Keeper all records of living sandboxes. complete says that none is missing.
func (k *Keeper) Know(records []checkpoint.Record, complete bool) {
	k.mu.Lock()
	was, wasComplete := k.records, k.complete
	k.records, k.complete = map[attachment.Key]checkpoint.Record{}, complete
	changed, masquerades := false, false
	for _, r := range records {
		if r.HostAccess == nil {
			continue
		}
		k.records[r.Attachment] = r
		before, known := was[r.Attachment]
		if !known || !before.CapturedAt.Equal(r.CapturedAt) || !reflect.DeepEqual(before.HostAccess, r.HostAccess) {
			k.marked[r.Attachment], changed = true, true
			masquerades = masquerades || r.HostAccess.Masquerade
		}
	}
	changed = changed || len(was) != len(k.records) || complete != wasComplete
	for key := range k.findings {
		if _, there := k.records[key]; !there {
			delete(k.findings, key)
		}
	}
	k.mu.Unlock()
	if changed {
		wake(k.wake)
	}
	if masquerades {
		wake(k.filter)
	}
}

// Look makes the Keeper look at these sandboxes: something has changed there.
func (k *Keeper) Look(containerIDs ...string) {
	k.mu.Lock()
	marked := false
	for key := range k.records {
		if slices.Contains(containerIDs, key.ContainerID) {
			k.marked[key], marked = true, true
		}
	}
	k.mu.Unlock()
	if marked {
		wake(k.wake)
	}
}

func wake(who chan<- struct{}) {
	select {
	case who <- struct{}{}:
	default:
	}
}

// Findings returns the host accesses that somebody has changed.
func (k *Keeper) Findings() []Finding {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Values(k.findings))
}

const (
	// rest is the time from a change to the look, and the least time between two looks. longestRest is the longest one: the
	// probes' source is right again within a second.
	rest, longestRest = 50 * time.Millisecond, 300 * time.Millisecond
	// podsShare is how long a look works on pods, before the host is looked at again. A node can have many pods, and the
	// probes' source must not wait for them.
	podsShare = 200 * time.Millisecond
	// restShare: about 1/restShare of the time goes into looks. A node can have a routing daemon that changes routes all the
	// time.
	restShare = 10
	// retry is how soon a failed look is repeated. round is how often the Keeper looks without an event: changes of iptables
	// cause none.
	retry = time.Second
	round = time.Minute
)

// Run keeps all host accesses right until ctx is done. On a node that never had a pod with host access, it costs nothing.
func (k *Keeper) Run(ctx context.Context) error {
	for !k.hasWork() {
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		}
	}
	// First the watch, then the look: nothing is missed in between.
	watch, err := k.Host.WatchAddressing(kernel.WatchOptions{ReceiveBuffer: k.ReceiveBuffer})
	if err != nil {
		return err
	}
	defer watch.Close()
	var filters sync.WaitGroup
	filters.Go(func() { k.keepFilter(ctx) })
	defer filters.Wait()
	var last hostaccess.Node
	next := time.Duration(0)
	for {
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-watch.Changed():
			// A change of an address comes as several messages, and several addresses often change at once.
			if !sleep(ctx, rest) {
				return nil
			}
			watch.Take()
		case <-k.wake:
		case <-timer.C:
		}
		timer.Stop()
		began := time.Now()
		more, err := k.lookTwice(ctx, &last)
		if err != nil {
			k.OnError(err)
		}
		next = untilNext(more, err)
		if more && err == nil {
			continue // The host comes first again.
		}
		if !sleep(ctx, min(max(rest, restShare*time.Since(began)), longestRest)) {
			return nil
		}
	}
}

// untilNext is how long the Keeper waits for an event after a look.
func untilNext(more bool, err error) time.Duration {
	switch {
	case more:
		return 0
	case err != nil:
		return retry
	}
	return round
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// hasWork says that there is a pod with host access, or that one that is gone may have left something.
func (k *Keeper) hasWork() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.records) > 0 || k.complete && (k.Store.GaveHostAccess() || len(k.Store.Masquerades()) > 0)
}

// lookTwice looks again after a failure. An address can go between two steps of a look. Then the kernel refuses it as a source.
func (k *Keeper) lookTwice(ctx context.Context, last *hostaccess.Node) (more bool, err error) {
	if more, err = k.look(ctx, last); err == nil {
		return more, nil
	}
	sleep(ctx, rest)
	return k.look(ctx, last)
}

// look makes the host's part right, and the pods' parts if the node is not what it was at the last look. more says that pods are
// left for the next look.
func (k *Keeper) look(ctx context.Context, last *hostaccess.Node) (more bool, err error) {
	node, err := hostaccess.ReadNode(k.Host)
	if err != nil {
		return false, err
	}
	before := *last
	*last = node
	records, complete := k.known()
	k.forgetPods(records)
	moved := node.Source4 != before.Source4 || node.Source6 != before.Source6
	if moved {
		wake(k.filter)
	}
	host := Host{Store: k.Store, Host: k.Host, Records: records, All: complete, LooksAgain: true}
	marked := k.due(node.Equal(before))
	var done work
	if moved && node.StillSends(before) {
		// The pods answer to the earlier source. They must have routes to the new one before the node uses it.
		k.pods(marked, node, &done, func() bool { return false })
		left := k.host(ctx, host, node, &done)
		k.again(left...)
		more = len(left) > 0
	} else {
		marked = append(marked, k.host(ctx, host, node, &done)...)
		began := time.Now()
		more = k.pods(marked, node, &done, func() bool { return time.Since(began) >= k.podsShare })
	}
	if len(done.steps) > 0 {
		k.OnDone(done.steps)
	}
	return more, errors.Join(done.failed...)
}

// work is what a look has done, and what failed.
type work struct {
	steps  []string
	failed []error
}

// host makes the host's part right. It returns the pods to look at: those whose end has broken or is whole again, and those whose
// routes could not be made.
func (k *Keeper) host(ctx context.Context, host Host, node hostaccess.Node, w *work) (records []checkpoint.Record) {
	plan, err := host.AssertRoutes(ctx, node)
	records = k.brokenNow(host.Records, plan.Broken)
	if err == nil {
		w.steps = append(w.steps, plan.Steps()...)
		return records
	}
	w.failed = append(w.failed, err)
	for _, r := range host.Records {
		if slices.Contains(plan.Lacking, r.HostAccess.HostName) {
			records = append(records, r)
		}
	}
	return records
}

// pods makes right what follows from the node in these pods, until enough says so. more says that some are left for the next look.
func (k *Keeper) pods(records []checkpoint.Record, node hostaccess.Node, w *work, enough func() bool) (more bool) {
	for i, r := range records {
		if i > 0 && enough() {
			k.again(records[i:]...)
			return true
		}
		start := time.Now()
		done, err := k.pod(r, node)
		k.took[r.Attachment] = time.Since(start)
		w.steps = append(w.steps, done...)
		if err == nil {
			delete(k.failures, r.Attachment)
			continue
		}
		w.failed = append(w.failed, err)
		// A pod can make it impossible for good. It is looked at again when something changes.
		if k.failures[r.Attachment]++; k.failures[r.Attachment] <= mostFailures || errors.Is(err, checkpoint.ErrBusy) {
			k.again(r)
		}
	}
	return false
}

// mostFailures is how often a pod that fails is looked at again without a change.
const mostFailures = 30

// known returns all records. complete says that none is missing.
func (k *Keeper) known() (all []checkpoint.Record, complete bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Values(k.records)), k.complete
}

// due returns the records to look at. Those that take long come last: a pod can have very many routes.
func (k *Keeper) due(sameNode bool) (marked []checkpoint.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, r := range k.records {
		if !sameNode || k.marked[key] {
			marked = append(marked, r)
		}
	}
	clear(k.marked)
	slices.SortFunc(marked, func(a, b checkpoint.Record) int { return cmp.Compare(k.took[a.Attachment], k.took[b.Attachment]) })
	return marked
}

// forgetPods drops what is known of the looks at pods that are gone.
func (k *Keeper) forgetPods(records []checkpoint.Record) {
	if len(k.took) <= len(records) {
		return
	}
	there := map[attachment.Key]bool{}
	for _, r := range records {
		there[r.Attachment] = true
	}
	maps.DeleteFunc(k.took, func(key attachment.Key, _ time.Duration) bool { return !there[key] })
	maps.DeleteFunc(k.failures, func(key attachment.Key, _ int) bool { return !there[key] })
}

// brokenNow returns the records whose end in the host has broken or is whole again since the last look.
func (k *Keeper) brokenNow(records []checkpoint.Record, broken []string) (changed []checkpoint.Record) {
	was := k.broken
	k.broken = map[string]bool{}
	for _, name := range broken {
		k.broken[name] = true
	}
	for _, r := range records {
		if name := r.HostAccess.HostName; was[name] != k.broken[name] {
			changed = append(changed, r)
		}
	}
	return changed
}

func (k *Keeper) again(records ...checkpoint.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range records {
		k.marked[r.Attachment] = true
	}
}
