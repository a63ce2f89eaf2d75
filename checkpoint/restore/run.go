package restore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/selection"
)

// Options of a run.
type Options struct {
	Store *checkpoint.Store
	// Select limits the run.
	Select selection.Selection
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

// pollInterval is how often the devices are looked at while waiting.
const pollInterval = 100 * time.Millisecond

// restoreRun is one restore under way. Its chains share it.
type restoreRun struct {
	Options
	host      *kernel.Namespace
	announcer *kernel.Announcer
	// recorded are all the NICs that the records name.
	recorded []netstate.Member
	chains   []*chainRestore
	runner   *change.Runner
	// sandboxes are those of the chains, by their container IDs.
	sandboxes map[string]*sandboxRestore
	// waitingFor is what each chain waits for. mu guards it.
	waitingFor [][]string
	// movedPaths has the paths of namespaces that are not at their recorded ones any more. It does not change
	// once the chains are there.
	movedPaths map[attachment.Namespace]string
	// unasked says that nobody asked for this run. Then it does the parts of the attachments, and does not prove which
	// sandboxes are gone: absent has those that were not found.
	unasked bool
	scopes  map[attachment.Key]repairScope
	absent  []attachment.Key
	// vanished are the records whose namespace disappeared from its path during the run. mu guards it.
	mu       sync.Mutex
	vanished []missingNamespace
	// readNode reads the node's addresses once in a run, for host access.
	readNode func() (hostaccess.Node, error)
	// notes are those that concern the run itself.
	notes []string
}

// Run makes the kernel agree with the checkpoints. A dry run says what that would take. If one
// attachment fails, the others go on, and the report has all of them. An error says that Run could
// look at nothing.
func Run(ctx context.Context, opts Options) (Report, error) {
	records, unreadable, err := Select(opts.Store, opts.Select)
	if err != nil {
		return Report{}, err
	}
	host, err := kernel.OpenHost()
	if err != nil {
		return Report{}, err
	}
	defer host.Close()
	r := newRun(opts, host)
	if err := r.checkNames(records); err != nil {
		return Report{}, err
	}
	if !opts.DryRun {
		if r.announcer, err = host.NewAnnouncer(); err != nil {
			return Report{}, err
		}
		defer r.announcer.Close()
	}
	report, _, err := r.restoreRecords(ctx, records, unreadable)
	return report, err
}

// restoreRecords restores the records. It returns the attachments whose sandboxes were found nowhere, if the run is unasked.
func (r *restoreRun) restoreRecords(ctx context.Context, records []checkpoint.Record, unreadable []checkpoint.Unreadable) (_ Report, absent []attachment.Key, err error) {
	start := time.Now()
	todo := r.locateNamespaces(ctx, records)
	r.noteMoved(todo.found)
	if !r.unasked {
		if r.recorded, err = r.allNICs(ctx, todo); err != nil {
			return Report{}, nil, err
		}
	}
	r.newChains(todo.found)
	if err := r.restoreChains(ctx); err != nil {
		return Report{}, nil, err
	}
	r.proveGone(ctx, r.vanished)
	report := r.report(append(r.outcomes(), todo.outcomes...))
	report.addHostSteps(r.repairHostAccess(ctx, todo.found, r.Select.MatchesAll() && !r.unasked && len(unreadable) == 0))
	report.Attachments = append(report.Attachments, unreadableOutcomes(records, unreadable)...)
	if r.DryRun {
		for i, o := range report.Attachments {
			report.Attachments[i].State = cmp.Or(dryRunStates[o.State], o.State)
		}
		r.dropDetached(ctx, &report)
	}
	slices.SortStableFunc(report.Attachments, func(a, b Outcome) int {
		return cmp.Or(
			strings.Compare(a.Pod.Namespace, b.Pod.Namespace), strings.Compare(a.Pod.Name, b.Pod.Name), compareKeys(a.Attachment, b.Attachment))
	})
	report.Duration, report.Interrupted = time.Since(start), ctx.Err() != nil
	r.saveLastRestore(start, &report)
	return report, r.absent, nil
}

func compareKeys(a, b attachment.Key) int {
	return cmp.Or(strings.Compare(a.ContainerID, b.ContainerID), strings.Compare(a.IfName, b.IfName))
}

func newRun(opts Options, host *kernel.Namespace) *restoreRun {
	runner := change.NewRunner(opts.Store)
	runner.Unlocked, runner.Progress = opts.DryRun, opts.Progress
	return &restoreRun{
		Options: opts, host: host, runner: runner, movedPaths: map[attachment.Namespace]string{}, sandboxes: map[string]*sandboxRestore{}, scopes: map[attachment.Key]repairScope{},
		readNode: sync.OnceValues(func() (hostaccess.Node, error) { return hostaccess.ReadNode(host) }),
	}
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

// outcomes are those of all chains.
func (r *restoreRun) outcomes() (outcomes []*Outcome) {
	for _, c := range r.chains {
		outcomes = append(outcomes, c.outcomes...)
	}
	return outcomes
}

// report is what is told of the run and of its chains.
func (r *restoreRun) report(outcomes []*Outcome) Report {
	report := Report{DryRun: r.DryRun, Parents: []StepResult{}, Attachments: []Outcome{}, Notes: r.notes}
	for _, c := range r.chains {
		report.add(c.report)
		if c.afterPlan != nil {
			report.Devices = append(report.Devices, deviceStates(c.afterPlan, c.lastDevices, c.records)...)
		}
	}
	for _, o := range outcomes {
		report.Attachments = append(report.Attachments, *o)
	}
	return report
}

// add adds what is told of a chain.
func (r *Report) add(chain Report) {
	r.Parents = append(r.Parents, chain.Parents...)
	for _, note := range chain.Notes {
		r.Notes = appendNew(r.Notes, note)
	}
	for _, problem := range chain.Problems {
		r.problem(problem)
	}
	r.WaitDuration = max(r.WaitDuration, chain.WaitDuration)
}

// unreadableOutcomes reports the checkpoints that cannot be read, with what is known of them. records tell the
// pods of their sandboxes.
func unreadableOutcomes(records []checkpoint.Record, unreadable []checkpoint.Unreadable) (outcomes []Outcome) {
	things := selection.WithPods(checkpoint.Candidates(records, unreadable))[len(records):]
	for i, u := range unreadable {
		outcomes = append(outcomes, Outcome{
			Attachment: attachment.Key{Network: things[i].Network, ContainerID: u.ContainerID, IfName: u.IfName}, Pod: things[i].Pod,
			State: Failed, Reason: u.Err.Error(), failure: causeKey{kind: CauseUnreadable, detail: unreadableReason(u.Err)},
		})
	}
	return outcomes
}

func outcomeOf(record checkpoint.Record) *Outcome {
	o := &Outcome{Attachment: record.Attachment, Pod: record.Pod, Interface: record.Interface, State: AsRecorded}
	if len(record.Interface.Parents) > 0 {
		o.Parent = record.Interface.Parents[0].Name
	}
	return o
}

// setFailed makes the state Failed, or NotTried, with the error on one line as the reason.
func (o *Outcome) setFailed(err error) {
	o.State, o.Reason = Failed, printable.Joined(err)
	if errors.Is(err, change.ErrNotTried) {
		o.State = NotTried
	}
}
