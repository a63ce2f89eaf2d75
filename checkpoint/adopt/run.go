package adopt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/restore"
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
	// Select limits the run. Missing passes over it.
	Select selection.Selection
	// Attached are names of interfaces that were attached to the pods. It overrides the caches.
	Attached []string
	// Refresh renews existing checkpoints.
	Refresh bool
	// DryRun decides and writes nothing.
	DryRun bool
}

// State is what became of an interface's checkpoint. A dry run has those that begin with To in place
// of the others.
type State string

// The states.
const (
	Captured  State = "captured"
	Refreshed State = "refreshed"
	Forgotten State = "forgotten"
	Kept      State = "kept"
	Refused   State = "refused"
	Failed    State = "failed"
	LeftAlone State = "left alone"
	ToCapture State = "to capture"
	ToRefresh State = "to refresh"
	ToForget  State = "to forget"
)

// Outcome is what is reported of one interface.
type Outcome struct {
	Attachment attachment.Key       `json:"attachment"`
	Pod        attachment.Pod       `json:"pod,omitzero"`
	Namespace  attachment.Namespace `json:"namespace"`
	Interface  netstate.Interface   `json:"interface,omitzero"`
	State      State                `json:"state"`
	Reason     string               `json:"reason"`
}

// Report is the whole of what a run found and did.
type Report struct {
	DryRun     bool      `json:"dryRun"`
	Interfaces []Outcome `json:"interfaces"`
	// Problems name sandboxes and interfaces that could not be looked at.
	Problems []string `json:"problems,omitempty"`
	// Notes name entries of the caches that cannot be read.
	Notes []string `json:"notes,omitempty"`
}

// Complete says that everything was done that was asked for.
func (r Report) Complete() bool {
	for _, o := range r.Interfaces {
		if o.State == Refused || o.State == Failed {
			return false
		}
	}
	return len(r.Problems) == 0
}

// Run captures the interfaces of the running sandboxes. One failure does not stop the others; the
// report has all of them. Run returns an error if it could look at nothing.
func Run(ctx context.Context, opts Options) (Report, error) {
	r := &run{Options: opts, report: Report{DryRun: opts.DryRun, Interfaces: []Outcome{}}}
	node, err := r.lookAround(ctx)
	if err != nil {
		return Report{}, err
	}
	defer r.look.close()
	actions, problems, err := choose(Decide(node, opts.Refresh), r.problems, restore.NewNaming(r.look.devices, node.Records, node.Unreadable), opts.Select)
	if err != nil {
		return Report{}, err
	}
	r.node, r.problems = node, problems
	r.outcomes = make([]Outcome, len(actions))
	if opts.DryRun {
		for i, a := range actions {
			r.outcomes[i] = outcomeOf(a, planned[a.Do])
		}
	} else {
		r.act(ctx, actions)
	}
	if err := r.lookAgain(ctx, actions); err != nil {
		return Report{}, err
	}
	r.report.Interfaces = append(r.report.Interfaces, r.outcomes...)
	r.report.Problems = texts(r.problems)
	return r.report, nil
}

// planned and done map what was decided to states.
var (
	planned = map[Verb]State{Capture: ToCapture, Refresh: ToRefresh, Forget: ToForget, Keep: Kept, Refuse: Refused, Leave: LeftAlone}
	done    = map[Verb]State{Capture: Captured, Refresh: Refreshed, Forget: Forgotten, Keep: Kept, Refuse: Refused, Leave: LeftAlone}
)

func outcomeOf(a Action, state State) Outcome {
	return Outcome{
		Attachment: a.Attachment, Pod: a.Pod, Namespace: a.Namespace, Interface: a.Interface, State: state, Reason: a.Reason,
	}
}

// run is one run under way.
type run struct {
	Options
	look     *look
	report   Report
	node     Node
	outcomes []Outcome
	problems []Problem
}

// lookAround looks at everything that is remembered and everything that runs.
func (r *run) lookAround(ctx context.Context) (Node, error) {
	records, unreadable, err := r.Store.List()
	if err != nil {
		return Node{}, err
	}
	var torn []error
	known := slices.Concat(records, leftovers(unreadable, records))
	if r.look, torn, err = newLook(r.Options, known, false); err != nil {
		return Node{}, err
	}
	node, problems, err := r.look.all(nil)
	if err != nil {
		r.look.close()
		return Node{}, err
	}
	node.Records, node.Unreadable = records, unreadable
	r.problems, r.report.Notes = problems, lines(torn)
	for _, record := range records {
		if isGone(record, node.Alive) {
			node.Gone = append(node.Gone, record)
		}
	}
	node.Evidence = r.prove(ctx, node)
	return node, nil
}

// prove says whether the namespaces are there of checkpoints that may have to go.
func (r *run) prove(ctx context.Context, node Node) map[attachment.Namespace]sandbox.Evidence {
	var namespaces []attachment.Namespace
	for _, record := range node.Gone {
		if forgets(record) {
			namespaces = append(namespaces, record.Namespace)
		}
	}
	for _, u := range node.Unreadable {
		if n := namespaceOf(u, node.Records); r.Refresh && n != (attachment.Namespace{}) {
			namespaces = append(namespaces, n)
		}
	}
	return sandbox.Prove(ctx, sandbox.SeesAllProcesses(), namespaces...)
}

// isGone says that the record's namespace is neither among the living ones nor at its path. If
// nobody can tell, it is not gone.
func isGone(r checkpoint.Record, alive []attachment.Namespace) bool {
	was := r.Namespace
	reused := false
	for _, n := range alive {
		if was.Same(n) == nil {
			return false
		}
		reused = reused || n.Device == was.Device && n.Inode == was.Inode
	}
	err := kernel.SameNamespace(was)
	if err == nil || errors.Is(err, kernel.ErrNoNamespace) {
		return err != nil || reused
	}
	device, inode, ok := sandbox.Identify(was.Path)
	return ok && (device != was.Device || inode != was.Inode)
}

func lines(errs []error) []string {
	var all []string
	for _, err := range errs {
		all = append(all, printable.Joined(err))
	}
	return all
}

// errBusy says that pods came and went all the time, with no moment to write in.
var errBusy = errors.New("too many pods are changing to tell whose interface this is: try again")

func (o *Outcome) fail(err error) { o.State, o.Reason = Failed, printable.Joined(err) }

func stamp() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// recordOf returns the record for the action to write.
func recordOf(a Action) checkpoint.Record {
	return checkpoint.Record{
		Attachment: a.Attachment, Pod: a.Pod, Namespace: a.Namespace, Interface: a.Interface, CNI: a.cni,
		Writer: Writer, CapturedAt: stamp(), AnnouncementOwed: a.owed,
	}
}

func wrapBusy(err error) error {
	if errors.Is(err, checkpoint.ErrBusy) {
		return fmt.Errorf("%w for more than %s", err, flock.Patience)
	}
	return err
}
