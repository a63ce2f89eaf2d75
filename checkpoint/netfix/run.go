package netfix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

// Options of a run.
type Options struct {
	Store *checkpoint.Store
	// Dir is where the tool's files are.
	Dir   string
	Below Below
	// Replace writes checkpoints anew that an import wrote from a file, while their interfaces are
	// gone.
	Replace bool
	// DryRun decides and writes nothing.
	DryRun bool
}

// State is what became of a file. A dry run has those that begin with To in place of the others.
type State string

// The states.
const (
	Imported  State = "imported"
	Replaced  State = "replaced"
	ToImport  State = "to import"
	ToReplace State = "to replace"
	Kept      State = "kept"
	Refused   State = "refused"
	Failed    State = "failed"
)

// Outcome is what is reported of one file.
type Outcome struct {
	// Path is the file's.
	Path string `json:"path"`
	// PodName is what the file has. Pod has it only if it can be a pod's name.
	PodName    string               `json:"podName,omitempty"`
	Attachment attachment.Key       `json:"attachment,omitzero"`
	Pod        attachment.Pod       `json:"pod,omitzero"`
	Namespace  attachment.Namespace `json:"namespace,omitzero"`
	Interface  *netstate.Interface  `json:"interface,omitempty"`
	// From is empty if nothing is written.
	From   Source `json:"from,omitempty"`
	State  State  `json:"state"`
	Reason string `json:"reason"`
}

// Report is the whole of what a run found and did.
type Report struct {
	DryRun bool      `json:"dryRun"`
	Files  []Outcome `json:"files"`
}

// Complete says that everything is remembered that the files name.
func (r Report) Complete() bool {
	for _, o := range r.Files {
		if o.State == Refused || o.State == Failed {
			return false
		}
	}
	return true
}

// run is one run under way.
type run struct {
	Options
	look *look
	node Node
}

// Run writes checkpoints of the attachments of the files. One failure does not stop the others; the
// report has all of them. Run returns an error if it could look at nothing, or if no parent exists.
func Run(ctx context.Context, opts Options) (Report, error) {
	r := &run{Options: opts, node: Node{Replace: opts.Replace}}
	found, err := readDir(opts.Dir)
	if err != nil {
		return Report{}, err
	}
	if r.look, err = newLook(); err != nil {
		return Report{}, err
	}
	defer r.look.close()
	if r.node.Parents, r.node.MTU, err = opts.Below.choose(r.look.devices); err != nil {
		return Report{}, err
	}
	if r.node.Records, r.node.Unreadable, err = opts.Store.List(); err != nil {
		return Report{}, err
	}
	for i, f := range found {
		if f.Err == nil {
			found[i].There, found[i].Err = r.look.at(f.File)
		}
	}
	report := Report{DryRun: opts.DryRun, Files: []Outcome{}}
	for i, a := range Decide(found, r.node) {
		report.Files = append(report.Files, r.outcome(ctx, found[i], a, rivals(found[i], found)))
	}
	return report, nil
}

// outcome does what was decided. A dry run does nothing.
func (r *run) outcome(ctx context.Context, f Found, a Action, rivals []string) Outcome {
	switch {
	case f.Err != nil:
		return failed(f, f.Err)
	case ctx.Err() != nil:
		return failed(f, errors.New("interrupted before it was written"))
	case a.writes() && r.DryRun:
		return outcomeOf(f, a, planned[a.Do])
	case a.writes():
		return r.write(ctx, f, rivals)
	}
	return outcomeOf(f, a, done[a.Do])
}

// writes says that the action writes a checkpoint.
func (a Action) writes() bool { return a.Do == Import || a.Do == Replace }

// planned and done map what was decided to states.
var (
	planned = map[Verb]State{Import: ToImport, Replace: ToReplace}
	done    = map[Verb]State{Import: Imported, Replace: Replaced, Keep: Kept, Refuse: Refused}
)

func outcomeOf(f Found, a Action, state State) Outcome {
	o := Outcome{
		Path: f.Path, PodName: f.File.PodName, Attachment: a.Attachment, Pod: a.Pod, Namespace: a.Namespace,
		From: a.From, State: state, Reason: a.Reason,
	}
	if a.Do != Refuse {
		o.Interface = &a.Interface
	}
	return o
}

// failed reports a file that could not be looked at. If its sandbox is gone, or is none, the file is
// refused.
func failed(f Found, err error) Outcome {
	o := Outcome{Path: f.Path, PodName: f.File.PodName, State: Failed, Reason: printable.Joined(err)}
	if f.File.Sandbox != "" {
		o.Attachment = attachment.Key{Network: checkpoint.NetworkUnknown, ContainerID: f.File.Sandbox, IfName: f.File.IfName}
		o.Pod = f.File.Pod()
	}
	if errors.Is(err, kernel.ErrNoNamespace) || errors.Is(err, errHost) {
		o.State = Refused
	}
	return o
}

// write decides again under the sandbox's lock, from what is there then, and saves the checkpoint.
func (r *run) write(ctx context.Context, f Found, rivals []string) Outcome {
	ctx, cancel := context.WithTimeout(ctx, flock.Patience)
	defer cancel()
	unlock, err := r.Store.Lock(ctx, f.File.Sandbox)
	if err != nil {
		return failed(f, err)
	}
	defer unlock()
	shared, err := r.Store.ShareParents(ctx)
	if err != nil {
		return failed(f, err)
	}
	defer shared.Release()
	was := f.There.Namespace
	if f.There, err = r.look.at(f.File); err != nil {
		return failed(f, err)
	}
	if err := was.Same(f.There.Namespace); err != nil {
		return failed(f, fmt.Errorf("%s: %w", f.File.Netns, err))
	}
	a := decide(f, rivals, r.current(f))
	if a.writes() && r.Store.Detaching(a.Namespace, a.Attachment.IfName) {
		a.Do, a.From, a.Reason = Refuse, "", "it is being detached"
	}
	if a.writes() {
		record := recordOf(f.File, a)
		if err := r.Store.Save(record); err != nil {
			return failed(f, err)
		}
		r.node.Records = append(r.node.Records, record)
	}
	return outcomeOf(f, a, done[a.Do])
}

// current returns the checkpoints as they are now, as far as they matter for the file: its own one,
// and the one that capture writes if it does not know the container ID. Neither changes until the
// locks are released.
func (r *run) current(f Found) Node {
	node := r.node
	node.Records, node.Unreadable = nil, nil
	ids := []string{f.File.Sandbox, checkpoint.UnnamedID(f.There.Namespace)}
	for _, id := range ids {
		record, err := r.Store.Load(id, f.File.IfName)
		switch {
		case errors.Is(err, checkpoint.ErrNone):
		case err != nil:
			node.Unreadable = append(node.Unreadable, checkpoint.Unreadable{ContainerID: f.File.Sandbox, IfName: f.File.IfName, Err: err})
		default:
			node.Records = append(node.Records, record)
		}
	}
	for _, record := range r.node.Records {
		key := record.Attachment
		if (key.ContainerID != ids[0] && key.ContainerID != ids[1]) || key.IfName != f.File.IfName {
			node.Records = append(node.Records, record)
		}
	}
	return node
}

// noConfig is the CNI configuration in such a record: the tool had none.
const noConfig = `{"name":"` + checkpoint.NetworkUnknown + `","type":"macvlan"}`

func recordOf(file File, a Action) checkpoint.Record {
	writer := Writer
	if a.From == FromFile {
		writer = WriterFromFile
	}
	return checkpoint.Record{
		Attachment: a.Attachment, Pod: a.Pod, Namespace: a.Namespace, Interface: a.Interface,
		CNI:    checkpoint.CNI{Config: json.RawMessage(noConfig), Result: file.Result},
		Writer: writer, CapturedAt: time.Now().UTC().Truncate(time.Millisecond),
	}
}
