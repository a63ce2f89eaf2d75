package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Options of a run.
type Options struct {
	Store *checkpoint.Store
	// Sandboxes limits the run to these, by container ID, its prefix or
	// namespace/pod. Empty for all.
	Sandboxes []string
	// Wait bounds the wait for devices that have yet to appear, and again that
	// for their carrier.
	Wait time.Duration
	ParentOptions
	// HostAddresses brings back what VLAN devices and bonds of the host carried
	// themselves.
	HostAddresses bool
	// DryRun plans and changes nothing. It waits for nothing.
	DryRun bool
	// Waiting is told, again and again, what is waited for. May be nil.
	Waiting func(reasons []string)
	// Progress is told how many of all sandboxes are done. May be nil.
	Progress func(done, total int)
}

// pollInterval is how often the devices are looked at while waiting.
const pollInterval = 100 * time.Millisecond

// run is one restore under way.
type run struct {
	Options
	host      *kernel.Namespace
	announcer *kernel.Announcer
	report    Report
	// recorded are all the NICs that the records name.
	recorded []netstate.Member
	// plan is for the parents in the host. devices are the host's as they are
	// after it, or of a dry run as they would be; after plans on those, for what
	// is still lacking.
	plan    *ParentPlan
	devices netstate.Devices
	after   sharedPlan
	// inPlace says of NICs that are sandboxes' own whether they are there.
	inPlace map[attachment.Key]bool
	// unfinished says that an earlier restore may have left things unannounced.
	unfinished bool
	// notes are those that concern the run itself.
	notes []string
}

// Run makes the kernel agree with the checkpoints, or in a dry run says what
// that would take. One attachment's failure does not stop the others; the report
// has all of them. The error is that nothing could be looked at.
func Run(ctx context.Context, opts Options) (Report, error) {
	start := time.Now()
	records, unreadable, err := opts.Store.Select(opts.Sandboxes)
	if err != nil {
		return Report{}, err
	}
	if err := checkMapped(opts.Mapped, records); err != nil {
		return Report{}, err
	}
	host, err := kernel.OpenHost()
	if err != nil {
		return Report{}, err
	}
	defer host.Close()
	r := &run{Options: opts, host: host, inPlace: map[attachment.Key]bool{}}
	if !opts.DryRun {
		if r.announcer, err = host.NewAnnouncer(); err != nil {
			return Report{}, err
		}
		defer r.announcer.Close()
	}
	r.report = Report{DryRun: opts.DryRun, Parents: []StepResult{}, Attachments: []Outcome{}}
	settled := false
	note := r.begin()
	defer func() { note.End(settled, len(r.Sandboxes) == 0) }()
	for _, u := range unreadable {
		r.report.Attachments = append(r.report.Attachments, Outcome{
			Attachment: attachment.Key{ContainerID: u.ContainerID, IfName: u.IfName}, State: Failed, Reason: u.Err.Error(),
		})
	}
	todo := lookAt(records)
	if r.recorded, err = allNICs(opts, todo); err != nil {
		return Report{}, err
	}
	if err := r.parents(ctx, todo.here); err != nil {
		return Report{}, err
	}
	outcomes := r.sandboxes(ctx, todo.here)
	r.awaitCarrier(ctx, outcomes)
	outcomes = append(outcomes, todo.outcomes...)
	settled = r.settle(outcomes)
	for _, o := range outcomes {
		r.report.Attachments = append(r.report.Attachments, *o)
	}
	slices.SortStableFunc(r.report.Attachments, func(a, b Outcome) int {
		return cmp.Or(
			strings.Compare(a.Pod.Namespace, b.Pod.Namespace), strings.Compare(a.Pod.Name, b.Pod.Name),
			strings.Compare(a.Attachment.ContainerID, b.Attachment.ContainerID), strings.Compare(a.Attachment.IfName, b.Attachment.IfName))
	})
	r.report.Took = time.Since(start)
	return r.report, nil
}

// begin notes that the restore is under way, and looks whether an earlier one came to its
// end. A store that takes no note keeps no restore from its work.
func (r *run) begin() *checkpoint.Restoring {
	if r.DryRun {
		r.unfinished = r.Store.RestoreUnfinished()
		return nil
	}
	note, err := r.Store.BeginRestore()
	if err != nil {
		r.notes = []string{fmt.Sprintf("%v: if this restore is killed, nothing tells that announcements are owed", err)}
		return nil
	}
	r.unfinished = note.Earlier()
	return note
}

// settle sees to it that no announcement is lost of what failed: of what was built, and after a
// restore that did not come to its end of everything. It says whether the records tell.
func (r *run) settle(outcomes []*Outcome) bool {
	settled := true
	for _, o := range outcomes {
		if !r.DryRun && !o.settled && o.State != Skipped && (r.unfinished || len(o.Steps) > 0) {
			settled = r.setOwed(o, true) == nil && settled
		}
	}
	return settled
}

// checkMapped reports a name in --parent that no checkpoint has.
func checkMapped(mapped map[string]string, records []checkpoint.Record) error {
	if len(mapped) == 0 {
		return nil
	}
	known := map[string]bool{}
	for _, r := range records {
		for _, p := range r.Interface.Parents {
			known[p.Name] = true
			if p.Bond != nil {
				for _, m := range p.Bond.Members {
					known[m.Name] = true
				}
			}
		}
	}
	for was, is := range mapped {
		// Said again after it was remembered, it is no mistake.
		if !known[was] && !known[is] {
			return fmt.Errorf("--parent %s=%s: no checkpoint has a parent or a bond member %s", was, mapped[was], was)
		}
	}
	return nil
}

// onHost says that the interface is stacked on devices of the host.
func onHost(record *checkpoint.Record) bool {
	return !record.Interface.ParentsInSandbox && record.Interface.Link.Kind != netstate.KindNIC
}

// skip says why the namespace is not the recorded one.
func (o *Outcome) skip(record checkpoint.Record, err error) {
	o.State, o.Reason = Skipped, fmt.Sprintf("namespace %s: %v", record.Namespace.Path, err)
}

// skipOrFail takes the error of opening the namespace: one that is gone or another's
// is skipped, one that could not be looked at has failed.
func (o *Outcome) skipOrFail(record checkpoint.Record, err error) {
	if isGone(err) {
		o.skip(record, err)
		return
	}
	o.fail(err)
}

func outcomeOf(record checkpoint.Record) *Outcome {
	o := &Outcome{Attachment: record.Attachment, Pod: record.Pod, Interface: record.Interface, State: AsRecorded}
	if len(record.Interface.Parents) > 0 {
		o.Parent = record.Interface.Parents[0].Name
	}
	return o
}

// workersPerCPU is how many sandboxes are under way at once: most of them wait for their
// turn to change something in the kernel, which pkg/kernel gives to one at a time.
const workersPerCPU = 4

// sandboxes restores the attachments, those of one sandbox one after the other,
// different sandboxes beside each other.
func (r *run) sandboxes(ctx context.Context, records []checkpoint.Record) []*Outcome {
	groups := bySandbox(records)
	outcomes := make([][]*Outcome, len(groups))
	next := make(chan int)
	var workers, waiting sync.WaitGroup
	progress := r.progress(len(groups))
	finish := func(i int, unlock func(), err error) {
		outcomes[i] = r.sandbox(ctx, groups[i], unlock, err)
		progress()
	}
	for range min(workersPerCPU*runtime.GOMAXPROCS(0), len(groups)) {
		workers.Go(func() {
			for i := range next {
				unlock, err := r.tryLock(groups[i])
				if errors.Is(err, checkpoint.ErrBusy) {
					// The others don't wait for whoever is at work on this one.
					waiting.Go(func() {
						unlock, err := r.lock(ctx, groups[i])
						finish(i, unlock, err)
					})
					continue
				}
				finish(i, unlock, err)
			}
		})
	}
	for i := range groups {
		next <- i
	}
	close(next)
	workers.Wait()
	waiting.Wait()
	return slices.Concat(outcomes...)
}

// progress returns a function that counts one more as done.
func (r *run) progress(total int) func() {
	var mu sync.Mutex
	done := 0
	return func() {
		mu.Lock()
		defer mu.Unlock()
		done++
		if r.Progress != nil {
			r.Progress(done, total)
		}
	}
}

// bySandbox cuts the records, which are in the order of container IDs, up by those. Of one
// sandbox, those that are stacked on something inside of it come last, and before them those
// that take any index: not one that another had.
func bySandbox(records []checkpoint.Record) [][]checkpoint.Record {
	var groups [][]checkpoint.Record
	for start, i := 0, 1; i <= len(records); i++ {
		if i == len(records) || records[i].Attachment.ContainerID != records[start].Attachment.ContainerID {
			groups, start = append(groups, records[start:i:i]), i
		}
	}
	depth := func(r checkpoint.Record) int {
		switch i := &r.Interface; {
		case i.ParentsInSandbox:
			return 1 + len(i.Parents)
		case i.Link.Index == 0:
			return 1
		}
		return 0
	}
	for _, group := range groups {
		slices.SortStableFunc(group, func(a, b checkpoint.Record) int { return depth(a) - depth(b) })
	}
	return groups
}

// sandbox restores the attachments of one sandbox under its lock, which it ends by
// unlock; or reports the err of locking.
func (r *run) sandbox(ctx context.Context, records []checkpoint.Record, unlock func(), err error) []*Outcome {
	if err == nil {
		defer unlock()
	}
	if ctx.Err() != nil {
		err = errors.New("interrupted before it was looked at")
	}
	var outcomes []*Outcome
	if err != nil {
		for _, record := range records {
			o := outcomeOf(record)
			o.fail(err)
			outcomes = append(outcomes, o)
		}
		return outcomes
	}
	for _, record := range records {
		if o := r.current(record); o != nil {
			outcomes = append(outcomes, o)
		}
	}
	return r.onceMore(records, outcomes)
}

// onceMore looks again at what has to do with other interfaces of the sandbox, which are there
// by now: what failed, and what was looked at before another one was changed.
func (r *run) onceMore(records []checkpoint.Record, outcomes []*Outcome) []*Outcome {
	changedAfter := false
	again := make([]bool, len(outcomes))
	for i, o := range slices.Backward(outcomes) {
		again[i] = leans(o.Interface) && (o.State == Failed || changedAfter)
		changedAfter = changedAfter || len(o.Steps) > 0 && !r.DryRun
	}
	for i, o := range outcomes {
		if !again[i] {
			continue
		}
		for _, record := range records {
			if record.Attachment != o.Attachment {
				continue
			}
			if now := r.current(record); now != nil {
				outcomes[i] = now.after(o)
			}
		}
	}
	return outcomes
}

// leans says that what the interface has depends on other interfaces: routes go through them,
// stand in one order with theirs, or have an address of theirs as source.
func leans(i netstate.Interface) bool {
	if len(i.RouteOrder) > 0 {
		return true
	}
	own := map[netip.Addr]bool{{}: true}
	for _, a := range i.Addresses {
		own[a.Prefix.Addr()] = true
	}
	return slices.ContainsFunc(i.Routes, func(route netstate.Route) bool { return len(route.Devices()) > 0 || !own[route.Source] })
}

// after returns the outcome with what was done before it on the same attachment.
func (o *Outcome) after(first *Outcome) *Outcome {
	if o.Steps = slices.Concat(first.Steps, o.Steps); len(o.Steps) > 0 && o.AsItShould() {
		o.State, o.Reason = stateOf(o.Steps, Restored, Repaired), reasons(o.Steps)
	}
	if o.ParentReason == "" {
		o.ParentReason = first.ParentReason
	}
	if o.at == (attachment.Namespace{}) {
		o.at = first.at
	}
	o.Announced, o.settled = o.Announced || first.Announced, o.settled || first.settled
	return o
}

// current restores the attachment by its record as it is now: an ADD or a DEL may
// have come since the list was read. It returns nil for one that was detached.
func (r *run) current(listed checkpoint.Record) *Outcome {
	record, err := r.Store.Reload(listed)
	if errors.Is(err, checkpoint.ErrNone) {
		return nil
	}
	if err != nil {
		o := outcomeOf(listed)
		o.fail(err)
		return o
	}
	if record.CapturedAt.Equal(listed.CapturedAt) {
		// This run may have written the names that it was told into it, and to apply
		// --parent to those would be to apply it twice.
		record.Interface.Parents = listed.Interface.Parents
	}
	o := outcomeOf(record)
	r.attachment(record, o)
	return o
}

// lockWait bounds the wait for an ADD or DEL on the same sandbox.
const lockWait = 30 * time.Second

func (r *run) lock(ctx context.Context, of []checkpoint.Record) (func(), error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	return r.Store.Lock(ctx, of[0].Attachment.ContainerID)
}

// tryLock returns checkpoint.ErrBusy where lock would wait. A dry run locks nothing.
func (r *run) tryLock(of []checkpoint.Record) (func(), error) {
	if r.DryRun {
		return func() {}, nil
	}
	return r.Store.TryLockOf(of[0])
}

// fail puts all of the error on one line.
func (o *Outcome) fail(err error) {
	o.State, o.Reason = Failed, oneLine(err)
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
