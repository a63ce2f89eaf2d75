package netfix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

// Options of a run.
type Options struct {
	Store *checkpoint.Store
	// Dir is where the tool's files are.
	Dir    string
	Parent ParentSpec
	// Replace writes checkpoints anew that an import wrote from a file, while their interfaces are
	// gone.
	Replace bool
	// DryRun decides and writes nothing.
	DryRun bool
}

// FileState is what became of a file. A dry run has those that begin with To in place of the others.
type FileState string

// The states.
const (
	Imported  FileState = "imported"
	Replaced  FileState = "replaced"
	ToImport  FileState = "to import"
	ToReplace FileState = "to replace"
	Kept      FileState = "kept"
	Refused   FileState = "refused"
	Failed    FileState = "failed"
)

// FileOutcome is what is reported of one file.
type FileOutcome struct {
	// Path is the file's.
	Path string `json:"path"`
	// PodName is what the file has. Pod has it only if it can be a pod's name.
	PodName    string               `json:"podName,omitempty"`
	Attachment attachment.Key       `json:"attachment,omitzero"`
	Pod        attachment.Pod       `json:"pod,omitzero"`
	Namespace  attachment.Namespace `json:"namespace,omitzero"`
	Interface  netstate.Interface   `json:"interface,omitzero"`
	// Source is empty if nothing is written.
	Source Source    `json:"from,omitempty"`
	State  FileState `json:"state"`
	Reason string    `json:"reason"`
}

// FileReport is the whole of what a run found and did.
type FileReport struct {
	DryRun bool          `json:"dryRun"`
	Files  []FileOutcome `json:"files"`
}

// Complete says that everything is remembered that the files name.
func (r FileReport) Complete() bool {
	for _, o := range r.Files {
		if o.State == Refused || o.State == Failed {
			return false
		}
	}
	return true
}

// importRun is one run under way.
type importRun struct {
	Options
	inspector *inspector
	node      Node
}

// Run writes checkpoints of the attachments of the files. One failure does not stop the others; the
// report has all of them. Run returns an error if it could look at nothing, or if no parent exists.
func Run(ctx context.Context, opts Options) (FileReport, error) {
	r := &importRun{Options: opts, node: Node{Replace: opts.Replace}}
	found, err := readDir(opts.Dir)
	if err != nil {
		return FileReport{}, err
	}
	if r.inspector, err = newInspector(); err != nil {
		return FileReport{}, err
	}
	defer r.inspector.close()
	if r.node.Parents, r.node.MTU, err = opts.Parent.resolve(r.inspector.devices); err != nil {
		return FileReport{}, err
	}
	if r.node.Records, r.node.Unreadable, err = opts.Store.List(); err != nil {
		return FileReport{}, err
	}
	for i, f := range found {
		if f.Err == nil {
			found[i].Sandbox, found[i].Err = r.inspector.inspect(f.File)
		}
	}
	report := FileReport{DryRun: opts.DryRun, Files: []FileOutcome{}}
	for i, o := range Decide(found, r.node) {
		report.Files = append(report.Files, r.execute(ctx, found[i], o, conflictingFiles(found[i], found)))
	}
	return report, nil
}

// execute does what was decided. A dry run does nothing.
func (r *importRun) execute(ctx context.Context, f Candidate, o FileOutcome, rivals []string) FileOutcome {
	planned, writes := plannedStates[o.State]
	switch {
	case f.Err != nil:
		return failedOutcome(f, f.Err)
	case ctx.Err() != nil:
		return failedOutcome(f, errors.New("interrupted before it was written"))
	case writes && r.DryRun:
		o.State = planned
	case writes:
		return r.writeCheckpoint(ctx, f, rivals)
	}
	return o
}

// plannedStates are the states in a dry run of what is written otherwise.
var plannedStates = map[FileState]FileState{Imported: ToImport, Replaced: ToReplace}

func newOutcome(f Candidate) FileOutcome {
	o := FileOutcome{Path: f.Path, PodName: f.File.PodName}
	if f.File.ContainerID != "" {
		o.Attachment = attachment.Key{Network: checkpoint.NetworkUnknown, ContainerID: f.File.ContainerID, IfName: f.File.IfName}
		o.Pod = f.File.Pod()
	}
	return o
}

// failedOutcome reports a file that could not be looked at. If its sandbox is gone, or is none, the file is
// refused.
func failedOutcome(f Candidate, err error) FileOutcome {
	o := newOutcome(f)
	o.State, o.Reason = Failed, printable.Joined(err)
	if errors.Is(err, kernel.ErrNoNamespace) || errors.Is(err, errHost) {
		o.State = Refused
	}
	return o
}

// writeCheckpoint decides again under the sandbox's lock, from what is there then, and saves the checkpoint.
func (r *importRun) writeCheckpoint(ctx context.Context, f Candidate, rivals []string) (o FileOutcome) {
	err := r.Store.WithLock(ctx, f.File.ContainerID, func() (err error) {
		o, err = r.redecide(ctx, f, rivals)
		return err
	})
	if err != nil {
		return failedOutcome(f, err)
	}
	return o
}

func (r *importRun) redecide(ctx context.Context, f Candidate, rivals []string) (o FileOutcome, err error) {
	shared, err := r.Store.LockParents(ctx)
	if err != nil {
		return o, err
	}
	defer shared.Release()
	expected := f.Sandbox.Namespace
	if f.Sandbox, err = r.inspector.inspect(f.File); err != nil {
		return o, err
	}
	if err := expected.Same(f.Sandbox.Namespace); err != nil {
		return o, fmt.Errorf("%s: %w", f.File.Netns, err)
	}
	o = decide(f, rivals, r.currentNode(f))
	if _, writes := plannedStates[o.State]; !writes {
		return o, nil
	}
	if r.Store.Detaching(o.Namespace, o.Attachment.IfName) {
		o.Source = ""
		o.refuse("it is being detached")
		return o, nil
	}
	record := recordOf(f.File, o)
	if err := r.Store.Save(record); err != nil {
		return o, err
	}
	r.node.Records = append(r.node.Records, record)
	return o, nil
}

// currentNode returns the checkpoints as they are now, as far as they matter for the file: its own one,
// and the one that capture writes if it does not know the container ID. Neither changes until the
// locks are released.
func (r *importRun) currentNode(f Candidate) Node {
	node := r.node
	node.Records, node.Unreadable = nil, nil
	ids := []string{f.File.ContainerID, checkpoint.UnnamedID(f.Sandbox.Namespace)}
	for _, id := range ids {
		record, err := r.Store.Load(id, f.File.IfName)
		switch {
		case errors.Is(err, checkpoint.ErrNoCheckpoint):
		case err != nil:
			node.Unreadable = append(node.Unreadable, checkpoint.Unreadable{ContainerID: f.File.ContainerID, IfName: f.File.IfName, Err: err})
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

// unknownConfig is the CNI configuration in such a record: the tool had none.
const unknownConfig = `{"name":"` + checkpoint.NetworkUnknown + `","type":"macvlan"}`

func recordOf(file File, o FileOutcome) checkpoint.Record {
	writer := Writer
	if o.Source == FromFile {
		writer = WriterFromFile
	}
	return checkpoint.Record{
		Attachment: o.Attachment, Pod: o.Pod, Namespace: o.Namespace, Interface: o.Interface,
		CNI:    checkpoint.CNI{Config: json.RawMessage(unknownConfig), Result: file.Result},
		Writer: writer, CapturedAt: time.Now().UTC().Truncate(time.Millisecond),
	}
}
