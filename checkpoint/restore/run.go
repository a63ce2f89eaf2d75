package restore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/selection"
)

// Options of a run.
type Options struct {
	Store *checkpoint.Store
	// Select limits the run.
	Select selection.Selection
	// Task is what a run may do that nobody asked for. It takes the place of Select and of ParentOptions. Such a run proves no sandbox
	// gone.
	Task *Task
	// Wait is how long to wait for missing devices at most, and then again for their
	// carrier.
	Wait time.Duration
	ParentOptions
	// HostAddresses brings back the addresses and routes that VLAN devices and bonds of the
	// host had themselves.
	HostAddresses bool
	// DryRun plans and changes nothing. It waits for nothing.
	DryRun bool
	// Waiting is called again and again with what the run waits for. It may be nil.
	Waiting func(reasons []string)
	// Progress is called after each sandbox with the number of those that are done. It may be nil.
	Progress func(finished, total int)
}

// Restorer has open what a run needs. It is for a process that lives long. Several goroutines may
// use it at once, each for its own chains. The caller closes it.
type Restorer struct {
	store     *checkpoint.Store
	host      *kernel.Namespace
	announcer *kernel.Announcer
}

// NewRestorer returns a Restorer of the host's namespace and the store.
func NewRestorer(store *checkpoint.Store) (*Restorer, error) { return openRestorer(store, true) }

func openRestorer(store *checkpoint.Store, announces bool) (*Restorer, error) {
	host, err := kernel.OpenHost()
	if err != nil {
		return nil, err
	}
	r := &Restorer{store: store, host: host}
	if announces {
		if r.announcer, err = host.NewAnnouncer(); err != nil {
			host.Close()
			return nil, err
		}
	}
	return r, nil
}

// Close releases what the Restorer has open.
func (r *Restorer) Close() {
	if r.announcer != nil {
		r.announcer.Close()
	}
	r.host.Close()
}

// Host returns the host's namespace. The Restorer owns it.
func (r *Restorer) Host() *kernel.Namespace { return r.host }

// Result is what a run has done.
type Result struct {
	Report
	// Absent are the attachments whose sandboxes are not at their paths and were found nowhere else, if nobody asked for the run. Their
	// pods have ended, or will end soon.
	Absent []attachment.Key
	// announcements are the attachments, as long as they can be announced.
	announcements []*announcements
}

// Run makes the kernel agree with the checkpoints. A dry run says what that would take. If one
// attachment fails, the others go on, and the report has all of them. An error says that Run could
// look at nothing.
func Run(ctx context.Context, opts Options) (Report, error) {
	r, err := openRestorer(opts.Store, !opts.DryRun)
	if err != nil {
		return Report{}, err
	}
	defer r.Close()
	result, err := r.Run(ctx, opts)
	return result.Report, err
}

// pollInterval is how often the devices are looked at while waiting.
const pollInterval = 100 * time.Millisecond

// restoreRun is one restore under way. Its chains share it.
type restoreRun struct {
	node *Restorer
	opts Options
	// recorded are all the NICs that the records name.
	recorded []netstate.Member
	chains   []*chainRestore
	runner   *change.Runner
	// mu guards what the chains wait for.
	mu         sync.Mutex
	namespaces namespaces
	// scopes are those of attachments of which only a part is restored.
	scopes map[attachment.Key]repairScope
	// readNode reads the node's addresses once in a run, for host access.
	readNode func() (hostaccess.Node, error)
}

// Run is the function Run for a process that lives on: the Result can announce later what has no carrier yet, and is never nil. The store
// is that of the Restorer.
func (r *Restorer) Run(ctx context.Context, opts Options) (*Result, error) {
	start := time.Now()
	run := &restoreRun{
		node: r, opts: opts, runner: change.NewRunner(r.store), namespaces: namespaces{moved: map[attachment.Namespace]string{}, unasked: opts.Task != nil},
		readNode: sync.OnceValues(func() (hostaccess.Node, error) { return hostaccess.ReadNode(r.host) }),
	}
	run.runner.Unlocked, run.runner.Progress = opts.DryRun, opts.Progress
	records, unreadable, notes, err := run.chooseRecords()
	if err != nil {
		return &Result{}, err
	}
	found, rest := run.namespaces.locate(ctx, records)
	if run.recorded, err = run.allNICs(ctx, found, rest); err != nil {
		return &Result{}, err
	}
	run.newChains(found)
	if err := run.restoreChains(ctx); err != nil {
		return &Result{}, err
	}
	result := run.result(ctx, rest)
	report := &result.Report
	report.note(append(notes, run.namespaces.movedNotes(found)...)...)
	run.repairHostAccess(ctx, found, opts.Select.MatchesAll() && opts.Task == nil && len(unreadable) == 0, report)
	report.Outcomes = append(report.Outcomes, unreadableOutcomes(records, unreadable)...)
	if opts.DryRun {
		for i, o := range report.Outcomes {
			report.Outcomes[i].State = o.dryRunState()
		}
		dropDetached(ctx, r.store, report)
	}
	report.Sort()
	report.Duration, report.Interrupted = time.Since(start), ctx.Err() != nil
	if !opts.DryRun {
		saveLastRestore(r.store, opts.Select, start, report)
	}
	return result, nil
}

// chooseRecords returns what the run is about.
func (r *restoreRun) chooseRecords() (records []checkpoint.Record, unreadable []checkpoint.Unreadable, notes []string, err error) {
	if task := r.opts.Task; task != nil {
		records, r.scopes = task.records()
		r.runner.Patience = busyTimeout
		r.opts.ParentOptions = ParentOptions{RebuildBond: task.RebuildBond, allowed: task.policy().allows}
		return records, nil, nil, nil
	}
	records, unreadable, err = Select(r.node.store, r.opts.Select)
	if err == nil {
		notes, err = checkNames(r.opts.Mapped, records)
	}
	return records, unreadable, notes, err
}

// allNICs returns the NICs that any checkpoint names, also those of sandboxes that are not selected.
// The NICs of sandboxes that are gone are nobody's. found and rest are the selected records, as locate returns them.
func (r *restoreRun) allNICs(ctx context.Context, found []checkpoint.Record, rest []*attachmentState) ([]netstate.Member, error) {
	switch {
	case r.opts.Task != nil:
		return r.opts.Task.NICs, nil
	case !r.opts.Select.MatchesAll():
		records, _, err := r.node.store.List()
		if err != nil {
			return nil, err
		}
		found, rest = r.namespaces.locate(ctx, records)
	}
	known := slices.Clip(found)
	for _, s := range rest {
		if s.outcome.State != SandboxGone {
			known = append(known, *s.listed)
		}
	}
	return NICs(known), nil
}

// restoreChains restores the chains beside each other. It returns the errors of those that could look at nothing.
func (r *restoreRun) restoreChains(ctx context.Context) error {
	errs := make([]error, len(r.chains))
	var group sync.WaitGroup
	for i, c := range r.chains {
		group.Go(func() { errs[i] = c.restore(ctx) })
	}
	group.Wait()
	for _, c := range r.chains {
		c.saveIndices(ctx) // Of attachments that another chain has brought back.
		c.reportUnconnected(ctx)
	}
	return errors.Join(errs...)
}

// result is what is told of the chains, and of the rest of the attachments.
func (r *restoreRun) result(ctx context.Context, rest []*attachmentState) *Result {
	result := &Result{Report: Report{Report: change.Report[Outcome]{DryRun: r.opts.DryRun, Outcomes: []Outcome{}}, Parents: []Step{}}}
	var states, vanished []*attachmentState
	for _, c := range r.chains {
		result.add(c.report)
		result.Devices = append(result.Devices, deviceStates(c.host.after, c.host.live, c.records)...)
		result.announcements = append(result.announcements, c.attachments)
		for _, s := range c.attachments.states {
			states = append(states, s)
			if s.missing != nil {
				vanished = append(vanished, s)
			}
		}
	}
	r.namespaces.proveGone(ctx, vanished)
	for _, s := range append(states, rest...) {
		key := s.outcome.Attachment
		if r.opts.Task != nil && s.missing != nil {
			result.Absent = append(result.Absent, key)
		}
		if r.scopes[key] != dependentRoutes || len(s.outcome.Steps) > 0 {
			result.Outcomes = append(result.Outcomes, s.outcome)
		}
	}
	return result
}

// add adds what is told of a chain.
func (r *Report) add(chain Report) {
	r.Parents = append(r.Parents, chain.Parents...)
	r.note(chain.Notes...)
	r.problem(chain.Problems...)
	r.WaitDuration = max(r.WaitDuration, chain.WaitDuration)
}

// unreadableOutcomes reports the checkpoints that cannot be read, with what is known of them. records tell the
// pods of their sandboxes.
func unreadableOutcomes(records []checkpoint.Record, unreadable []checkpoint.Unreadable) (outcomes []Outcome) {
	things := selection.WithPods(checkpoint.Candidates(records, unreadable))[len(records):]
	for i, u := range unreadable {
		o := Outcome{Outcome: change.Outcome{Attachment: attachment.Key{Network: things[i].Network, ContainerID: u.ContainerID, IfName: u.IfName}, Pod: things[i].Pod}}
		o.Fail(&Problem{Reason: u.Err.Error(), Cause: "the checkpoint cannot be read"})
		outcomes = append(outcomes, o)
	}
	return outcomes
}

// dropDetached looks a second time at what differs, and drops what has no checkpoint any more. A dry run takes no lock, so it can read the
// checkpoint before a DEL, and look at the interface after it.
func dropDetached(ctx context.Context, store *checkpoint.Store, report *Report) {
	if !slices.ContainsFunc(report.Outcomes, Outcome.Differs) {
		return
	}
	if !checkpoint.AwaitSettled(ctx) {
		return // The report of the first look counts.
	}
	report.Outcomes = slices.DeleteFunc(report.Outcomes, func(o Outcome) bool {
		if !o.Differs() || o.Attachment.IfName == "" { // Without a name it is a directory that cannot be read.
			return false
		}
		_, err := store.Load(o.Attachment.ContainerID, o.Attachment.IfName)
		return errors.Is(err, checkpoint.ErrNoCheckpoint)
	})
}

// Unannounced returns a Result for AnnounceConnected, of records that owe an announcement.
func (r *Restorer) Unannounced(records []checkpoint.Record) *Result {
	owed := &announcements{node: r, comesAgain: true}
	for i := range records {
		record := &records[i]
		s := newState(record)
		o := &s.outcome
		o.AnnouncementOwed, o.NoCarrier = true, o.Parent
		if parents := checkpoint.HostParents(record.Interface); len(parents) > 0 {
			s.parentIndex = parents[0].IfIndex
		} else {
			o.NoCarrier, o.OwnLink = record.Interface.Link.Name, true
		}
		owed.states = append(owed.states, s)
	}
	return &Result{announcements: []*announcements{owed}}
}

// CountPending returns how many attachments of the result lack carrier or an announcement.
func (r *Result) CountPending() (n int) {
	for _, a := range r.announcements {
		n += len(a.pending())
	}
	return n
}

// AnnounceConnected looks for carrier again, and announces what it can. Then it returns the new value of CountPending.
func (r *Result) AnnounceConnected() (owed int, err error) {
	for _, a := range r.announcements {
		a.announceConnected()
		err = cmp.Or(err, a.failed)
	}
	return r.CountPending(), err
}
