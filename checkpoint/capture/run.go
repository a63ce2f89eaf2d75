package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/pkg/selection"
)

// Options of a run.
type Options struct {
	Store *checkpoint.Store
	// CacheDir is where the CNI caches are (cnicache.DefaultDir).
	CacheDir string
	// Select limits the run. FindUnrecorded passes over it.
	Select selection.Selection
	// Attached are names of interfaces that were attached to the pods. It overrides the caches.
	Attached []string
	// Refresh renews existing checkpoints.
	Refresh bool
	// DryRun decides and writes nothing.
	DryRun bool
}

// InterfaceState is what became of an interface's checkpoint. A dry run has those that begin with To in place
// of the others.
type InterfaceState string

// The states.
const (
	Captured  InterfaceState = "captured"
	Refreshed InterfaceState = "refreshed"
	Forgotten InterfaceState = "forgotten"
	Kept      InterfaceState = "kept"
	Refused   InterfaceState = "refused"
	Failed    InterfaceState = "failed"
	Skipped   InterfaceState = "left alone"
	ToCapture InterfaceState = "to capture"
	ToRefresh InterfaceState = "to refresh"
	ToForget  InterfaceState = "to forget"
)

// InterfaceOutcome is what is reported of one interface.
type InterfaceOutcome struct {
	Attachment attachment.Key       `json:"attachment"`
	Pod        attachment.Pod       `json:"pod,omitzero"`
	Namespace  attachment.Namespace `json:"namespace"`
	Interface  netstate.Interface   `json:"interface,omitzero"`
	State      InterfaceState       `json:"state"`
	Reason     string               `json:"reason"`
}

// InterfaceReport is the whole of what a run found and did.
type InterfaceReport struct {
	DryRun     bool               `json:"dryRun"`
	Interfaces []InterfaceOutcome `json:"interfaces"`
	// Problems name sandboxes and interfaces that could not be looked at.
	Problems []string `json:"problems,omitempty"`
	// Notes name entries of the caches that cannot be read.
	Notes []string `json:"notes,omitempty"`
}

// Complete says that everything was done that was asked for.
func (r InterfaceReport) Complete() bool {
	for _, o := range r.Interfaces {
		if o.State == Refused || o.State == Failed {
			return false
		}
	}
	return len(r.Problems) == 0
}

// Run captures the interfaces of the running sandboxes. One failure does not stop the others; the
// report has all of them. Run returns an error if it could look at nothing.
func Run(ctx context.Context, opts Options) (InterfaceReport, error) {
	r := newRun(opts)
	if err := r.firstPass(ctx); err != nil {
		return InterfaceReport{}, err
	}
	r.recheck(ctx)
	for _, a := range r.actions {
		r.report.Interfaces = append(r.report.Interfaces, a.InterfaceOutcome)
	}
	r.report.Problems = problemLines(r.problems)
	return r.report, nil
}

// firstPass takes the first look, and carries out what it decides about what is selected.
func (r *captureRun) firstPass(ctx context.Context) error {
	node, err := r.readNode(ctx)
	if err != nil {
		return err
	}
	defer r.inspector.close()
	actions := Decide(node, r.Refresh)
	r.firstCandidates = r.candidates(actions)
	if actions, r.problems, err = selectActions(actions, r.problems, r.firstCandidates, r.Select); err != nil {
		return err
	}
	r.execute(ctx, actions)
	return nil
}

// execute does what was decided. A dry run only reports it.
func (r *captureRun) execute(ctx context.Context, actions []InterfaceAction) {
	r.actions = actions
	if !r.DryRun {
		r.writeActions(ctx)
		return
	}
	for i := range actions {
		actions[i].State = cmp.Or(plannedStates[actions[i].State], actions[i].State)
	}
}

// plannedStates are the states in a dry run of what is changed otherwise.
var plannedStates = map[InterfaceState]InterfaceState{Captured: ToCapture, Refreshed: ToRefresh, Forgotten: ToForget}

// captureRun is one run under way, or its second look.
type captureRun struct {
	Options
	inspector *inspector
	report    InterfaceReport
	node      Node
	actions   []InterfaceAction
	problems  []InspectionProblem
	// firstCandidates is all that the first look could choose from.
	firstCandidates []selection.Candidate
}

func newRun(opts Options) *captureRun {
	return &captureRun{Options: opts, report: InterfaceReport{DryRun: opts.DryRun, Interfaces: []InterfaceOutcome{}}}
}

// readNode looks at everything that is remembered and everything that runs.
func (r *captureRun) readNode(ctx context.Context) (Node, error) {
	if _, err := r.readSandboxes(nil, false); err != nil {
		return Node{}, err
	}
	for _, record := range r.node.Records {
		if isAbsent(record, r.node.LiveNamespaces) {
			r.node.Absent = append(r.node.Absent, record)
		}
	}
	r.node.Evidence = r.proveNamespaces(ctx, r.node)
	return r.node, nil
}

// readSandboxes looks at what is remembered and at what runs in all sandboxes, or only in some if that is not nil. onlyNew skips
// interfaces that have a record. The caller closes r.inspector unless there is an error.
func (r *captureRun) readSandboxes(limit map[attachment.NamespaceFile]bool, onlyNew bool) (Node, error) {
	records, unreadable, err := r.Store.List()
	if err != nil {
		return Node{}, err
	}
	var torn []error
	if r.inspector, torn, err = newInspector(r.Options, records, unreadable, onlyNew); err != nil {
		return Node{}, err
	}
	node, problems, err := r.inspector.inspectNode(limit)
	if err != nil {
		r.inspector.close()
		return Node{}, err
	}
	node.Records, node.Unreadable = records, unreadable
	r.node, r.problems, r.report.Notes = node, problems, errorLines(torn)
	return node, nil
}

// proveNamespaces finds out whether the namespaces of some checkpoints still exist. These are the checkpoints that may have to go.
func (r *captureRun) proveNamespaces(ctx context.Context, node Node) map[attachment.Namespace]sandbox.Evidence {
	var namespaces []attachment.Namespace
	for _, record := range node.Absent {
		if mayForget(record) {
			namespaces = append(namespaces, record.Namespace)
		}
	}
	for _, u := range node.Unreadable {
		if n := unreadableNamespace(u, node.Records); r.Refresh && n != (attachment.Namespace{}) {
			namespaces = append(namespaces, n)
		}
	}
	return sandbox.Prove(ctx, sandbox.SeesAllProcesses(), namespaces...)
}

// isAbsent reports whether the record's namespace is neither among the living ones nor at its path. If nobody can
// tell, it is not gone.
func isAbsent(r checkpoint.Record, alive []attachment.Namespace) bool {
	recorded := r.Namespace
	reused := false
	for _, n := range alive {
		if recorded.Same(n) == nil {
			return false
		}
		reused = reused || n.File() == recorded.File()
	}
	err := kernel.CheckNamespace(recorded)
	if err == nil || errors.Is(err, kernel.ErrNoNamespace) {
		return err != nil || reused
	}
	file, ok := sandbox.Identify(recorded.Path)
	return ok && file != recorded.File()
}

func errorLines(errs []error) []string {
	var lines []string
	for _, err := range errs {
		lines = append(lines, printable.Joined(err))
	}
	return lines
}

// errNodeBusy says that pods came and went all the time. There was no quiet moment to write in.
var errNodeBusy = errors.New("too many pods are changing to tell whose interface this is: try again")

func (o *InterfaceOutcome) setFailed(err error) { o.State, o.Reason = Failed, printable.Joined(err) }

func captureTime() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// recordOf returns the record for the action to write.
func recordOf(a InterfaceAction) checkpoint.Record {
	return checkpoint.Record{
		Attachment: a.Attachment, Pod: a.Pod, Owner: a.owner, Namespace: a.Namespace, Interface: a.Interface, HostAccess: a.access, CNI: a.cni,
		Writer: Writer, CapturedAt: captureTime(), AnnouncementOwed: a.announcementOwed,
	}
}

func wrapBusy(err error) error {
	if errors.Is(err, checkpoint.ErrBusy) {
		return fmt.Errorf("%w for more than %s", err, flock.DefaultTimeout)
	}
	return err
}
