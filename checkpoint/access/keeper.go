package access

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

	// Only Run uses these. filtered is when the rules of iptables were last looked at. broken are the accesses whose end in the
	// host was missing or down at the last look.
	filtered time.Time
	broken   map[string]bool
	// filters looks at the rules of iptables, once at a time: filtering says that it does.
	filters   sync.WaitGroup
	filtering atomic.Bool

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
		KeeperOptions: opts, wake: make(chan struct{}, 1), records: map[attachment.Key]checkpoint.Record{}, marked: map[attachment.Key]bool{},
		findings: map[attachment.Key]Finding{},
	}
}

// Know tells the Keeper all records of living sandboxes. complete says that none is missing.
func (k *Keeper) Know(records []checkpoint.Record, complete bool) {
	k.mu.Lock()
	was := k.records
	k.records, k.complete = map[attachment.Key]checkpoint.Record{}, complete
	changed := false
	for _, r := range records {
		if r.HostAccess == nil {
			continue
		}
		k.records[r.Attachment] = r
		if before, ok := was[r.Attachment]; !ok || !before.CapturedAt.Equal(r.CapturedAt) {
			k.marked[r.Attachment], changed = true, true
		}
	}
	changed = changed || len(was) != len(k.records)
	for key := range k.findings {
		if _, there := k.records[key]; !there {
			delete(k.findings, key)
		}
	}
	k.mu.Unlock()
	if changed {
		k.wakeUp()
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
		k.wakeUp()
	}
}

func (k *Keeper) wakeUp() {
	select {
	case k.wake <- struct{}{}:
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
	// restShare: about 1/restShare of the time goes into looks. A node can have a routing daemon that changes routes all the
	// time.
	restShare = 10
	// retry is how soon a failed look is repeated. round is how often the Keeper looks without an event: changes of iptables
	// cause none.
	retry = time.Second
	round = time.Minute
)

// Run keeps all host accesses right until ctx is done. Before the first pod with host access comes, it costs nothing.
func (k *Keeper) Run(ctx context.Context) error {
	for !k.hasAny() {
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		}
	}
	// First the watch, then the look: nothing is missed in between.
	watch, err := k.Host.WatchAddressing(kernel.WatchOptions{})
	if err != nil {
		return err
	}
	defer watch.Close()
	defer k.filters.Wait()
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
		next = round
		if err := k.lookTwice(ctx, &last); err != nil {
			k.OnError(err)
			next = retry
		}
		if !sleep(ctx, min(max(rest, restShare*time.Since(began)), longestRest)) {
			return nil
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (k *Keeper) hasAny() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.records) > 0
}

// lookTwice looks again after a failure. An address can go between two steps of a look. Then the kernel refuses it as a source.
func (k *Keeper) lookTwice(ctx context.Context, last *hostaccess.Node) error {
	if k.look(ctx, last) == nil {
		return nil
	}
	sleep(ctx, rest)
	return k.look(ctx, last)
}

// look makes the host's part right, and the pods' parts if the node is not what it was at the last look.
func (k *Keeper) look(ctx context.Context, last *hostaccess.Node) error {
	node, err := hostaccess.ReadNode(k.Host)
	if err != nil {
		return err
	}
	records, marked, complete := k.due(node.Equal(*last))
	host := Host{Store: k.Store, Host: k.Host, Records: records, All: complete, Quick: true}
	moved := node.Source4 != last.Source4 || node.Source6 != last.Source6
	if (moved || time.Since(k.filtered) >= round) && !k.filtering.Swap(true) {
		k.filtered = time.Now()
		k.filters.Go(func() { k.filter(ctx, host) })
	}
	plan, err := host.Assert(ctx, node)
	steps, failed := plan.Steps, []error{err}
	marked = append(marked, k.brokenNow(records, plan.Broken)...)
	*last = node
	for _, r := range marked {
		done, err := k.pod(r, node)
		steps = append(steps, done...)
		if err != nil {
			k.again(r)
			failed = append(failed, err)
		}
	}
	if len(steps) > 0 {
		k.OnDone(steps)
	}
	return errors.Join(failed...)
}

// filter makes the rules of iptables right. Changes of them cause no event, and a look takes several processes: nothing waits for
// it.
func (k *Keeper) filter(ctx context.Context, host Host) {
	defer k.filtering.Store(false)
	host.Quick = false
	node, err := hostaccess.ReadNode(host.Host)
	for now := node; err == nil && ctx.Err() == nil; {
		var plan hostaccess.HostPlan
		plan, err = host.Assert(ctx, node)
		if len(plan.Steps) > 0 {
			k.OnDone(plan.Steps)
		}
		if err == nil {
			now, err = hostaccess.ReadNode(host.Host)
		}
		if now.Equal(node) {
			break
		}
		node = now // It has changed meanwhile.
	}
	if err != nil {
		k.OnError(err)
	}
}

// due returns all records, and those to look at.
func (k *Keeper) due(sameNode bool) (all, marked []checkpoint.Record, complete bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, r := range k.records {
		all = append(all, r)
		if !sameNode || k.marked[key] {
			marked = append(marked, r)
		}
	}
	clear(k.marked)
	return all, marked, k.complete
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

func (k *Keeper) again(r checkpoint.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.marked[r.Attachment] = true
}

// pod makes right what follows from the node, and notes what does not.
func (k *Keeper) pod(r checkpoint.Record, node hostaccess.Node) (steps []string, err error) {
	sandbox, err := kernel.Open(r.Namespace.Path)
	if errors.Is(err, kernel.ErrNoNamespace) {
		return nil, nil // Its DEL comes, or a GC.
	}
	if err != nil {
		return nil, err
	}
	defer sandbox.Close()
	if r.Namespace.Same(sandbox.Identity()) != nil {
		return nil, nil
	}
	pod := r.AccessIn(k.Host, sandbox)
	pod.WithoutFilter = true
	seen, err := pod.Look(node)
	if err == nil && (seen.NodeOnly || seen.Follows()) {
		steps, seen, err = k.follow(r, pod, node)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name(r), err)
	}
	k.note(r, seen.Differences)
	return steps, nil
}

// follow looks again under the sandbox's lock, and makes right what follows from the node. It returns what it did, and what is left
// then. If somebody works on the sandbox, it returns ErrBusy.
func (k *Keeper) follow(r checkpoint.Record, pod hostaccess.Pod, node hostaccess.Node) (steps []string, left hostaccess.Seen, err error) {
	unlock, err := k.Store.TryLockOf(r)
	if err != nil {
		return nil, left, err
	}
	defer unlock()
	now, err := k.Store.Reload(r)
	if errors.Is(err, checkpoint.ErrNone) || err == nil && now.HostAccess == nil {
		return nil, left, nil // Its DEL was faster.
	}
	if err != nil {
		return nil, left, err
	}
	seen, err := pod.Look(node)
	if err != nil {
		return nil, left, err
	}
	if seen.NodeOnly {
		err = pod.Mend(seen, node)
	} else if err = pod.Follow(seen); err == nil {
		left, err = pod.Look(node)
	}
	for _, d := range seen.Differences {
		if !slices.Contains(left.Differences, d) {
			steps = append(steps, name(r)+": "+d)
		}
	}
	return steps, left, err
}

func name(r checkpoint.Record) string {
	if r.Pod.Name != "" {
		return r.Pod.String()
	}
	return r.Attachment.String()
}

// note notes what somebody has changed, or that nothing is changed any more.
func (k *Keeper) note(r checkpoint.Record, differences []string) {
	k.mu.Lock()
	before, was := k.findings[r.Attachment]
	f := Finding{Attachment: r.Attachment, Pod: r.Pod, Reason: "host access: " + strings.Join(differences, ", ")}
	if len(differences) == 0 {
		delete(k.findings, r.Attachment)
	} else {
		k.findings[r.Attachment] = f
	}
	k.mu.Unlock()
	if was != (len(differences) > 0) || was && before != f {
		k.OnFindings()
	}
}
