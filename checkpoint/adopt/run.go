package adopt

import (
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
	r := newRun(opts)
	actions, err := r.lookFirst(ctx)
	if err != nil {
		return Report{}, err
	}
	r.lookAgain(ctx, actions)
	r.report.Interfaces = append(r.report.Interfaces, r.outcomes...)
	r.report.Problems = texts(r.problems)
	return r.report, nil
}

// lookFirst takes the first look, and carries out what it decides about what is selected.
func (r *run) lookFirst(ctx context.Context) ([]Action, error) {
	node, err := r.lookAround(ctx)
	if err != nil {
		return nil, err
	}
	defer r.look.close()
	actions := Decide(node, r.Refresh)
	r.seen = r.things(actions)
	if actions, r.problems, err = choose(actions, r.problems, r.seen, r.Select); err != nil {
		return nil, err
	}
	r.carryOut(ctx, actions)
	return actions, nil
}

// carryOut does what was decided. A dry run only reports it.
func (r *run) carryOut(ctx context.Context, actions []Action) {
	r.outcomes = make([]Outcome, len(actions))
	if !r.DryRun {
		r.act(ctx, actions)
		return
	}
	for i, a := range actions {
		r.outcomes[i] = outcomeOf(a, planned[a.Do])
	}
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

// run is one run under way, or its second look.
type run struct {
	Options
	look     *look
	report   Report
	node     Node
	outcomes []Outcome
	problems []Problem
	// seen is all that the first look could choose from.
	seen []selection.Thing
}

func newRun(opts Options) *run {
	return &run{Options: opts, report: Report{DryRun: opts.DryRun, Interfaces: []Outcome{}}}
}

// lookAround looks at everything that is remembered and everything that runs.
func (r *run) lookAround(ctx context.Context) (Node, error) {
	if _, err := r.lookInto(nil); err != nil {
		return Node{}, err
	}
	for _, record := range r.node.Records {
		if isGone(record, r.node.Alive) {
			r.node.Gone = append(r.node.Gone, record)
		}
	}
	r.node.Evidence = r.prove(ctx, r.node)
	return r.node, nil
}

// lookInto looks at what is remembered and at what runs in all sandboxes, or only in some if that is not nil. The
// caller closes r.look unless there is an error.
func (r *run) lookInto(some map[file]bool) (Node, error) {
	records, unreadable, err := r.Store.List()
	if err != nil {
		return Node{}, err
	}
	var torn []error
	if r.look, torn, err = newLook(r.Options, records, unreadable, false); err != nil {
		return Node{}, err
	}
	node, problems, err := r.look.all(some)
	if err != nil {
		r.look.close()
		return Node{}, err
	}
	node.Records, node.Unreadable = records, unreadable
	r.node, r.problems, r.report.Notes = node, problems, lines(torn)
	return node, nil
}

// prove finds out whether the namespaces of some checkpoints still exist. These are the checkpoints that may have to go.
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

// isGone reports whether the record's namespace is neither among the living ones nor at its path. If nobody can
// tell, it is not gone.
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

// errBusy says that pods came and went all the time. There was no quiet moment to write in.
var errBusy = errors.New("too many pods are changing to tell whose interface this is: try again")

func (o *Outcome) fail(err error) { o.State, o.Reason = Failed, printable.Joined(err) }

func stamp() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// recordOf returns the record for the action to write.
func recordOf(a Action) checkpoint.Record {
	return checkpoint.Record{
		Attachment: a.Attachment, Pod: a.Pod, Owner: a.owner, Namespace: a.Namespace, Interface: a.Interface, HostAccess: a.access, CNI: a.cni,
		Writer: Writer, CapturedAt: stamp(), AnnouncementOwed: a.owed,
	}
}

func wrapBusy(err error) error {
	if errors.Is(err, checkpoint.ErrBusy) {
		return fmt.Errorf("%w for more than %s", err, flock.Patience)
	}
	return err
}
