package capture

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/selection"
)

// Options of a run.
type Options struct {
	Store *checkpoint.Store
	// CacheDir is where the CNI caches are (cnicache.DefaultDir).
	CacheDir string
	// Select limits the run.
	Select selection.Selection
	// Attached are names of interfaces that were attached to the pods. It overrides the caches.
	Attached []string
	// Refresh renews existing checkpoints.
	Refresh bool
	// DryRun decides and writes nothing.
	DryRun bool
}

// The states of an interface's checkpoint, beside those of all verbs. A dry run has those that begin with To in place of the others.
const (
	Captured  change.State = "captured"
	Refreshed change.State = "refreshed"
	Skipped   change.State = "left alone"
	Replaced  change.State = "replaced"
	ToCapture change.State = "to capture"
	ToRefresh change.State = "to refresh"
)

// InterfaceOutcome is what is reported of one interface.
type InterfaceOutcome struct {
	change.Outcome
	Namespace attachment.Namespace `json:"namespace"`
	Interface netstate.Interface   `json:"interface,omitzero"`
	// File is the file of an import.
	File string `json:"file,omitempty"`
	// WentAlone says that a recorded interface is gone, and that its parents were there and up after that: somebody took it away.
	WentAlone bool `json:"-"`
}

// InterfaceReport is the whole of what a run found and did. Its notes name entries of the caches that cannot be read.
type InterfaceReport = change.Report[InterfaceOutcome]

// Candidate is how the interface is selected. If no cache and no checkpoint knows the sandbox, its pod is empty and
// its container ID is made from the namespace. Then --namespace does not choose it: it would be reported under
// every namespace, although it may be no pod's. The parents of what could not be looked at are not known, so --parent does not choose that.
func (o InterfaceOutcome) Candidate() selection.Candidate {
	return selection.Candidate{
		Pod: o.Pod, ContainerID: o.Attachment.ContainerID, Network: o.Attachment.Network, Parents: netstate.ChainNames(o.Interface.Parents),
	}
}

// Run captures the interfaces of the running sandboxes. One failure does not stop the others; the
// report has all of them. Run returns an error if it could look at nothing.
func Run(ctx context.Context, opts Options) (InterfaceReport, error) {
	r := &captureRun{Options: opts}
	if err := r.firstPass(ctx); err != nil {
		return InterfaceReport{}, err
	}
	if err := r.recheck(ctx); err != nil {
		r.notes = append(r.notes, "the second look at what was not captured failed: "+printable.Joined(err))
	}
	return r.report(), nil
}

func (r *captureRun) report() InterfaceReport {
	report := InterfaceReport{DryRun: r.DryRun, Outcomes: []InterfaceOutcome{}, Notes: r.notes}
	for _, a := range r.actions {
		report.Outcomes = append(report.Outcomes, a.InterfaceOutcome)
	}
	return report
}

// FindUnrecorded returns the interfaces of running sandboxes that have no checkpoint and are not the pods' own, and what it could not
// look at (Failed). The Reason says why a capture would write no checkpoint. FindUnrecorded changes nothing. It takes a second look at what it
// would return, so that a pod that is being attached or detached is not reported. If the context ends, it returns the context's error.
func FindUnrecorded(ctx context.Context, opts Options) (found []InterfaceOutcome, err error) {
	opts.DryRun = true
	r := &captureRun{Options: opts, onlyNew: true}
	if err := r.firstPass(ctx); err != nil {
		return nil, err
	}
	if err := cmp.Or(r.recheck(ctx), ctx.Err()); err != nil {
		return nil, err
	}
	for _, a := range r.actions {
		if a.State == ToCapture {
			a.Reason = ""
		}
		if a.recorded == nil && a.State != Skipped {
			found = append(found, a.InterfaceOutcome)
		}
	}
	return found, nil
}

// plannedStates are the states in a dry run of what is changed otherwise.
var plannedStates = map[change.State]change.State{Captured: ToCapture, Refreshed: ToRefresh}

// captureRun is one run under way, or its second look.
type captureRun struct {
	Options
	// onlyNew skips interfaces that have a record.
	onlyNew bool
	// byAgent says that it is the agent's FirstRecording: nobody asked for these checkpoints.
	byAgent   bool
	inspector *inspector
	actions   []InterfaceAction
	notes     []string
}

// firstPass takes the first look, and carries out what it decides about what is selected.
func (r *captureRun) firstPass(ctx context.Context) error {
	if err := r.look(ctx); err != nil {
		return err
	}
	defer r.inspector.host.Close()
	if !r.Select.MatchesAll() {
		var candidates []selection.Candidate
		for _, a := range r.actions {
			candidates = append(candidates, a.candidate())
		}
		chosen, err := r.Select.Choose(candidates)
		if err != nil {
			return err
		}
		r.actions = selection.Keep(r.actions, chosen)
	}
	r.execute(ctx)
	return nil
}

// candidate has the parents that the interface is on, and those that its checkpoint has.
func (a InterfaceAction) candidate() selection.Candidate {
	t := a.Candidate()
	t.Parents, t.Unknown = netstate.ChainNames(a.parents), a.torn != nil
	if a.recorded != nil {
		t.Parents = append(t.Parents, netstate.ChainNames(a.recorded.Interface.Parents)...)
	}
	if t.Unknown && t.Network == checkpoint.NetworkUnknown {
		t.Network = ""
	}
	return t
}

// look looks at what is remembered and at what runs, and decides. The caller closes r.inspector unless there is an error.
func (r *captureRun) look(ctx context.Context) error {
	entries, torn, err := cnicache.Read(r.CacheDir)
	if err != nil {
		return err
	}
	for _, err := range torn {
		r.notes = append(r.notes, printable.Joined(err))
	}
	l, err := newInspector(r.Options)
	if err != nil {
		return err
	}
	r.inspector, l.cache = l, locateEntries(entries)
	l.holders = sync.OnceValue(func() []cacheEntry {
		holders, problems := holderEntries(ctx, r.Store)
		r.notes = append(r.notes, problems...)
		return holders
	})
	if r.actions, err = l.inspectNode(r.onlyNew); err != nil {
		l.host.Close()
	}
	return err
}

// execute does what was decided. A dry run only reports it.
func (r *captureRun) execute(ctx context.Context) {
	if !r.DryRun {
		r.writeActions(ctx)
		return
	}
	for i, a := range r.actions {
		r.actions[i].State = cmp.Or(plannedStates[a.State], a.State)
	}
}

// recheck looks a second time at what was refused, has failed or could not be looked at, and carries out what it decides about that. What it
// does not find any more is settled: a DEL has removed it. The first look counts if the second one fails.
func (r *captureRun) recheck(ctx context.Context) error {
	doubtful := slices.DeleteFunc(slices.Clone(r.actions), r.isResolved)
	if len(doubtful) == 0 || !checkpoint.AwaitSettled(ctx) {
		return nil
	}
	second := &captureRun{Options: r.Options, onlyNew: r.onlyNew}
	if err := second.look(ctx); err != nil {
		return err
	}
	defer second.inspector.host.Close()
	second.actions = slices.DeleteFunc(second.actions, func(a InterfaceAction) bool { return !slices.ContainsFunc(doubtful, a.isAbout) })
	second.execute(ctx)
	r.actions = append(slices.DeleteFunc(r.actions, func(a InterfaceAction) bool { return !r.isResolved(a) }), second.actions...)
	return nil
}

// isResolved says that nothing needs a second look. A dry run for what has no checkpoint reports each that it finds.
func (r *captureRun) isResolved(a InterfaceAction) bool {
	return !a.IsWrong() && (!r.onlyNew || a.State != ToCapture)
}

// isAbout reports whether the earlier action is about the same checkpoint, the same interface, or its whole sandbox. Each look can find a
// sandbox by another of its paths.
func (a InterfaceAction) isAbout(earlier InterfaceAction) bool {
	if a.recorded != nil && earlier.recorded != nil {
		return a.Attachment.SameInterface(earlier.Attachment)
	}
	index := earlier.Interface.Link.Index
	return a.Namespace.File() == earlier.Namespace.File() && (a.Interface.Link.Index == index || earlier.Interface.Link.Name == "")
}

func captureTime() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// recordOf returns the record for the action to write.
func recordOf(a InterfaceAction, writer string) checkpoint.Record {
	if a.file != nil {
		writer = ImportWriter
	}
	return checkpoint.Record{
		Attachment: a.Attachment, Pod: a.Pod, Owner: a.owner, Namespace: a.Namespace, Interface: a.Interface, HostAccess: a.access, CNI: a.cni,
		Writer: writer, CapturedAt: captureTime(), AnnouncementOwed: a.announcementOwed,
	}
}
