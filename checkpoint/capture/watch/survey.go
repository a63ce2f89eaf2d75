package watch

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	sandboxes "github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/pkg/wait"
)

const (
	// surveyRound is the time between two looks for sandboxes that nothing has announced.
	surveyRound = time.Minute
	// surveyDelay is the time from a hint to the first look: a runtime makes the file first, and then mounts the namespace there.
	surveyDelay = 500 * time.Millisecond
	// identifyInterval is the least time between two questions whose the sandboxes are.
	identifyInterval = time.Second
	// patientInterval is the time between two questions about a sandbox that nobody knows for long.
	patientInterval = 10 * time.Second
	// identifyLimit is how long the runtime may take for its answer.
	identifyLimit = 3 * time.Second
	// unrestLimit is how long a sandbox that never rests is left alone.
	unrestLimit = 30 * time.Second
	// detachLimit is how long after its interface the CNI cache of an attachment goes: a DEL removes the cache last.
	detachLimit = time.Minute
)

// netnsDir is where the runtimes, and ip(8), mount namespaces.
const netnsDir = "/run/netns"

// survey looks for sandboxes, and asks whose they are.
type survey struct {
	// due is when to look for sandboxes again, zero for never. roundAt is when everything was last looked through, hintedAt when something last
	// hinted at one.
	due, roundAt, hintedAt time.Time
	// hints says that a namespace came or went.
	hints chan struct{}
	// questions starts a question whose the sandboxes are, and identified gets the answer.
	questions  chan struct{}
	identified chan capture.Identities
	identities capture.Identities
	// watcher hears netnsDir, nil while inotify(7) has no room.
	watcher *fsnotify.Watcher
}

func newSurvey() survey {
	return survey{hints: make(chan struct{}, 1), questions: make(chan struct{}, 1), identified: make(chan capture.Identities)}
}

func (v *survey) hint(instant time.Time) {
	v.hintedAt = instant
	v.lookIn(instant, surveyDelay)
}

func (v *survey) lookIn(instant time.Time, delay time.Duration) {
	if next := instant.Add(delay); next.Before(v.due) {
		v.due = next
	}
}

// planNext plans the next look. On a busy node it takes long from a hint to the mount, which nothing tells.
func (v *survey) planNext(instant time.Time) {
	v.due = v.roundAt.Add(surveyRound)
	if age := instant.Sub(v.hintedAt); age < patientInterval {
		v.lookIn(instant, max(age, surveyDelay))
	}
}

// unrecordedState is what is known of the interfaces of a sandbox that have no checkpoint.
type unrecordedState struct {
	// seen is since when each of them is there, by its index.
	seen map[int]time.Time
	// underWay says that plugins may be at work, or that nobody has said yet whose the sandbox is. failing says that something failed.
	underWay, failing bool
	// restlessSince is since when it has not been quiet, as far as it is not. lookedAt is when it was last looked at.
	restlessSince, lookedAt time.Time
	// emptyTold says that OnEmpty was called, lacking that it was not, because the sandbox lacks an interface that a cache names.
	emptyTold, lacking bool
	// missingSince is since when nothing leads to the sandbox, zero if something does.
	missingSince time.Time
}

// awaitsIdentities says that the next answer can say more of the sandbox. The rounds ask again for one that is missing for long.
func (s *sandbox) awaitsIdentities() bool {
	return s.underWay || !s.missingSince.IsZero() && time.Since(s.missingSince) < detachLimit
}

// isSettled says that nothing has changed for a while. A pod that goes on changing its routes is looked at all the same.
func (s *sandbox) isSettled(instant time.Time) bool {
	return !s.pace.isAfterChange(instant) || instant.Sub(s.restlessSince) > unrestLimit
}

// startSurvey begins to look for sandboxes, if they are to be looked for. The caller calls stop in the end.
func (r *Refresher) startSurvey(ctx context.Context) (stop func()) {
	if r.Identities.Cache == nil {
		return func() {}
	}
	r.survey.due = time.Now()
	go r.identify(ctx)
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return func() {} // The rounds find them, too. The agent's index says which limit is reached.
	}
	r.survey.watcher = watcher
	go r.survey.listen()
	if watcher.Add(netnsDir) != nil {
		_ = watcher.Add(filepath.Dir(netnsDir)) // The first pod makes it. Else the rounds find them.
	}
	return func() { _ = watcher.Close() }
}

// listen passes on what inotify(7) reports, until the watcher is closed.
func (v *survey) listen() {
	for {
		select {
		case e, ok := <-v.watcher.Events:
			if !ok {
				return
			}
			if e.Has(fsnotify.Create) && e.Name == netnsDir {
				_ = v.watcher.Add(netnsDir)
			}
		case _, ok := <-v.watcher.Errors: // Events are lost.
			if !ok {
				return
			}
		}
		wait.Wake(v.hints)
	}
}

// identify asks whose the sandboxes are, as often as somebody wants to know.
func (r *Refresher) identify(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.survey.questions:
		}
		bounded, cancel := context.WithTimeout(ctx, identifyLimit)
		ids := r.Identities.Read(bounded)
		cancel()
		select {
		case <-ctx.Done():
			return
		case r.survey.identified <- ids:
		}
		wait.Sleep(ctx, identifyInterval)
	}
}

// lookForSandboxes looks for sandboxes if it is time.
func (r *Refresher) lookForSandboxes() {
	instant := time.Now()
	if r.survey.due.IsZero() || instant.Before(r.survey.due) {
		return
	}
	list, round := sandboxes.ListMounted, instant.Sub(r.survey.roundAt) >= surveyRound
	if round {
		list, r.survey.roundAt = sandboxes.List, instant
		r.beginRound()
	}
	r.survey.planNext(instant)
	listed, err := list()
	if err != nil {
		r.OnError(attachment.Namespace{}, err)
		return
	}
	watched := map[attachment.NamespaceFile]bool{}
	for _, s := range r.sandboxes {
		watched[s.namespace.File()] = watched[s.namespace.File()] || s.watched
	}
	for _, l := range listed {
		if !watched[l.NamespaceFile] {
			r.addListed(l)
			wait.Wake(r.survey.questions)
		}
	}
}

// beginRound has the sandboxes looked at again that something may have become of which nothing has told.
func (r *Refresher) beginRound() {
	if r.survey.watcher != nil {
		_ = r.survey.watcher.Add(netnsDir) // Somebody can have mounted another directory there.
	}
	for _, s := range r.sandboxes {
		unsaid := r.OnEmpty != nil && len(s.attachments) == 0 && !s.emptyTold && !s.lacking // Its ADD can have taken long.
		if unsaid || s.isRefused() || s.lost || len(r.unrecorded[s]) > 0 || !s.missingSince.IsZero() {
			r.mark(s)
			wait.Wake(r.survey.questions)
		}
	}
}

// isRefused says that an attachment is not as recorded.
func (s *sandbox) isRefused() bool {
	for _, entry := range s.attachments {
		if !entry.refused.IsZero() {
			return true
		}
	}
	return false
}

// addListed begins to watch a sandbox without checkpoints.
func (r *Refresher) addListed(l sandboxes.Sandbox) {
	namespace, err := kernel.OpenListed(l)
	if err != nil {
		return // It has gone, or the next round tells.
	}
	id := namespace.Identity()
	namespace.Close()
	s, exists := r.sandboxes[withoutPath(id)]
	if !exists {
		s = r.addSandbox(id)
	}
	if err := r.hear(s); err != nil && !exists {
		r.forget(s)
		return
	}
	r.mark(s)
}

// takeIdentities goes on with the sandboxes that waited for the answer.
func (r *Refresher) takeIdentities(ctx context.Context, ids capture.Identities) {
	if ids.CacheProblem != "" && ids.CacheProblem != r.survey.identities.CacheProblem {
		r.OnError(attachment.Namespace{}, errors.New("what other programs detach from its sandbox is not forgotten: "+ids.CacheProblem))
	}
	before := r.survey.identities
	r.survey.identities = ids
	waits := false
	for _, s := range r.sandboxes {
		if s.awaitsIdentities() {
			if file := s.namespace.File(); ids.Stage(file) != before.Stage(file) {
				s.pace.notBefore = time.Time{}
			}
			s.pace.dirty, s.changed = true, true
			r.enqueue(s)
		}
		waits = r.forgetDetached(ctx, s, ids) || waits
	}
	if waits {
		wait.Wake(r.survey.questions)
	}
}

// record writes the first checkpoints of the interfaces of the sandbox.
func (r *Refresher) record(ctx context.Context, s *sandbox) error {
	if r.Identities.Cache == nil {
		return nil
	}
	if err := r.loadDevices(); err != nil { // The last reading can have heard of others.
		return err
	}
	if s.seen == nil {
		s.seen = map[int]time.Time{}
	}
	changedAt := s.pace.changed
	if s.lookedAt.After(changedAt) {
		changedAt = s.lookedAt
	}
	s.lookedAt = time.Now()
	report, err := capture.FirstRecording{
		Store: r.Store, Host: r.Host, Devices: r.devices, Namespace: s.namespace, ContainerIDs: s.containers,
		Identities: r.survey.identities, Seen: s.seen, ChangedAt: changedAt, Marks: s.marks, DryRun: r.OnlyOwn,
	}.Record(ctx)
	if err != nil {
		return err
	}
	r.count(&r.counters.Recordings, len(report.Written))
	for _, record := range report.Written {
		r.addRecord(record) // To write it was a reading: another one follows only if more changes.
	}
	r.setUnrecorded(s, report.Unrecorded)
	s.lacking, s.failing = report.Lacking, false
	s.underWay = report.UnderWay || s.lacking && time.Since(s.watchedAt) < capture.UnknownRest
	for _, u := range report.Unrecorded {
		if u.Obstacle == capture.ObstacleFailed {
			s.failing = true
			r.OnError(s.namespace, errors.New(u.Reason))
		}
	}
	if report.Empty {
		r.tellEmpty(s)
	}
	if s.underWay && (s.hasNew() || time.Since(r.survey.identities.AsOf) >= patientInterval) {
		wait.Wake(r.survey.questions)
	}
	return nil
}

// hasNew says that the sandbox, or an interface without a checkpoint, came a moment ago: its ADD will soon be over.
func (s *sandbox) hasNew() bool {
	if time.Since(s.watchedAt) < unrestLimit {
		return true
	}
	for _, since := range s.seen {
		if time.Since(since) < unrestLimit {
			return true
		}
	}
	return false
}

// tellEmpty tells of a pod without anything to record, as soon as somebody has said whose the sandbox is.
func (r *Refresher) tellEmpty(s *sandbox) {
	if r.OnEmpty == nil || s.emptyTold {
		return
	}
	pod, ready := r.survey.identities.ReadyPod(s.namespace.File())
	if ready = ready && s.watchedAt.Before(r.survey.identities.AsOf); !ready {
		s.underWay = s.hasNew()
		return
	}
	s.emptyTold = true
	r.OnEmpty(pod)
}

func (r *Refresher) setUnrecorded(s *sandbox, unrecorded []capture.Unrecorded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(unrecorded) > 0 {
		r.unrecorded[s] = unrecorded
	} else {
		delete(r.unrecorded, s)
	}
}

// Unrecorded returns the interfaces that have no checkpoint, and why.
func (r *Refresher) Unrecorded() []capture.Unrecorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Concat(slices.Collect(maps.Values(r.unrecorded))...)
}

// noteRefused notes since when an attachment is not as recorded, and since when its interface is gone, if that went while its parent was there. The
// latter stays so when the parent goes later. The caches may tell that another program has detached it.
func (r *Refresher) noteRefused(s *sandbox, o capture.InterfaceOutcome) {
	entry := s.attachments[o.Attachment]
	if entry == nil || !entry.refused.IsZero() && (!o.WentAlone || !entry.wentAlone.IsZero()) {
		return
	}
	if entry.refused = time.Now(); o.WentAlone {
		entry.wentAlone = entry.refused
	}
	wait.Wake(r.survey.questions)
}

// renewal is for the checkpoints of the sandbox.
func (r *Refresher) renewal(s *sandbox) capture.Renewal {
	return capture.Renewal{Store: r.Store, Namespace: s.namespace, ContainerIDs: s.containers}
}

// forgetDetached drops the checkpoints of what another program's DEL has taken. waits says that the DEL may not be over.
func (r *Refresher) forgetDetached(ctx context.Context, s *sandbox, ids capture.Identities) (waits bool) {
	detached := map[attachment.Key]string{}
	if r.loadDevices() != nil {
		return false
	}
	lost := false // What is on a sibling is lost with that one's parent.
	for _, entry := range s.attachments {
		lost = lost || entry.parent == onNothing || entry.parent != onSibling && !r.present[entry.parent]
	}
	for key, entry := range s.attachments {
		if !entry.foreign || entry.refused.IsZero() && !lost {
			continue
		}
		goneAlone := !entry.wentAlone.IsZero() && entry.wentAlone.Before(ids.AsOf)
		if reason := ids.DetachedReason(key, entry.result, goneAlone); reason != "" {
			detached[key] = reason
		}
		waits = waits || time.Since(entry.refused) < detachLimit
	}
	if len(detached) == 0 {
		return waits
	}
	forgotten, err := r.renewal(s).ForgetDetached(ctx, func(key attachment.Key) bool { return detached[key] != "" })
	for _, key := range forgotten {
		r.forgotten([]attachment.Key{key}, detached[key])
	}
	return waits || err != nil && !kernel.IsMissing(err) // The reading says what becomes of a sandbox that is missing.
}

// readCaches returns what the caches say now, for a Hold: what was detached is not to be restored. It asks no runtime.
func (r *Refresher) readCaches(ctx context.Context) capture.Identities {
	if r.Identities.Cache == nil {
		return capture.Identities{}
	}
	return capture.IdentitySources{Cache: r.Identities.Cache}.Read(ctx)
}

// forgetEnded forgets a sandbox that has ended, by the kernel, with the checkpoints of what other programs have attached. It returns false if
// relink has attached something, which a DEL forgets.
func (r *Refresher) forgetEnded(ctx context.Context, s *sandbox) bool {
	if kernel.CheckNamespace(s.namespace) == nil { // The message was about another one, which had its number before.
		s.ended = false
		return false
	}
	if r.dropForeign(ctx, s, "the kernel says that its network namespace has ended") != nil {
		s.pace.failed(time.Now(), time.Now(), longestRetry)
		r.enqueue(s)
		return true
	}
	for _, entry := range s.attachments {
		if !entry.foreign {
			return false
		}
	}
	if len(s.attachments) == 0 {
		r.forget(s)
	}
	return true // If it has attachments, the next reading of the store tells that they are gone.
}

// forgetMissing handles a sandbox to which nothing leads. It drops the checkpoints of what other programs have attached, once the caches prove that
// it is detached. Most often the kernel tells the end before.
func (r *Refresher) forgetMissing(ctx context.Context, s *sandbox) {
	if len(s.attachments) == 0 {
		r.forget(s)
		return
	}
	if s.missingSince.IsZero() {
		s.missingSince = time.Now()
	}
	if r.isDetached(s) {
		_ = r.dropForeign(ctx, s, "nothing leads to its network namespace, and no CNI cache names its sandbox any more") // It comes again.
	} else if s.awaitsIdentities() {
		wait.Wake(r.survey.questions)
	}
	r.enqueue(s)
}

// dropForeign drops the checkpoints of what other programs have attached to a sandbox that is gone.
func (r *Refresher) dropForeign(ctx context.Context, s *sandbox, reason string) error {
	if len(s.attachments) == 0 {
		return nil
	}
	forgotten, err := r.renewal(s).ForgetGone(ctx)
	r.forgotten(forgotten, reason)
	if err != nil && ctx.Err() == nil {
		r.OnError(s.namespace, err)
	}
	return err
}

// isDetached says that the sandbox has foreign attachments, and that the CNI caches named them once, and do not name the sandbox any more.
func (r *Refresher) isDetached(s *sandbox) (detached bool) {
	for key, entry := range s.attachments {
		if entry.foreign && (len(entry.result) == 0 || !r.survey.identities.IsDetached(key.ContainerID)) {
			return false
		}
		detached = detached || entry.foreign
	}
	return detached
}

func (r *Refresher) forgotten(keys []attachment.Key, reason string) {
	if len(keys) > 0 {
		r.count(&r.counters.Forgotten, len(keys))
		r.OnForgotten(keys, reason)
	}
}
