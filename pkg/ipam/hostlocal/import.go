package hostlocal

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
)

// State is what became of a file of host-local, or of an imported address without one. Of a dry
// run, those that begin with To stand for the others.
type State string

// The states.
const (
	Imported State = "imported"
	ToImport State = "to import"
	// Present says that the address is leased as the file has it.
	Present State = "already there"
	// Completed is Present, with what an import before did not know: pod, namespace or policy.
	Completed  State = "completed"
	ToComplete State = "to complete"
	// NoSandbox says that the address is leased as the file has it, and that the sandbox is
	// proven gone: it is held until somebody has it reclaimed.
	NoSandbox State = "no live sandbox"
	// GivenUp says that host-local has no such file any more, and that the sandbox is gone: the
	// holder has given the address up.
	GivenUp  State = "given up"
	ToGiveUp State = "to give up"
	// Kept says that host-local has no such file any more, and that the sandbox may be alive.
	Kept State = "kept"
	// OutOfDate says that the address is another's by its lease, and that the file's sandbox is
	// proven gone.
	OutOfDate State = "out of date"
	// Torn says that nobody can tell whose the address is: it is held back.
	Torn State = "torn"
	// Conflict says that the address is another's by its lease, which is kept.
	Conflict State = "conflict"
	// Ignored says that the file is nothing of host-local's.
	Ignored State = "ignored"
)

// Outcome is what is reported of one file, or of an imported address without one.
type Outcome struct {
	// File is its name, empty if there is none.
	File string `json:"file,omitempty"`
	// Address is the zero Addr for a file that is ignored.
	Address netip.Addr `json:"address,omitzero"`
	// Attachment is whose the address is by the file, or was by the import before.
	Attachment attachment.Key `json:"attachment,omitzero"`
	// Owner is the attachment's pod, as far as it is known.
	Owner attachment.Owner `json:"owner,omitzero"`
	State State            `json:"state"`
	// Why is for people; empty where the state says all.
	Why string `json:"why,omitempty"`
}

// Last is where the search for a free address goes on.
type Last struct {
	Set     int        `json:"set"`
	Address netip.Addr `json:"address"`
}

// Report is the whole of what an import found and did.
type Report struct {
	Network string    `json:"network"`
	Dir     string    `json:"dir"`
	DryRun  bool      `json:"dryRun"`
	Files   []Outcome `json:"files"`
	// Last are the range sets whose next address comes after that of host-local.
	Last []Last `json:"last"`
	// Problems say what of the node could not be looked at: pods may be missing for that.
	Problems []string `json:"problems"`
}

// Well says that every file is leased as it says, and that nothing else needs a look. A sandbox
// that is gone is left to reclaim.
func (r Report) Well() bool {
	return !slices.ContainsFunc(r.Files, func(f Outcome) bool { return !f.State.Well() })
}

// Well says that the file needs no look.
func (s State) Well() bool {
	switch s {
	case Torn, Conflict, Ignored, Kept:
		return false
	}
	return true
}

// Options of an import.
type Options struct {
	// Dir is host-local's directory of the network.
	Dir string
	reclaim.Sources
	// DryRun decides and changes nothing.
	DryRun bool
	// Policy has Sticky and Retain of the addresses whose owner is known.
	Policy lease.Policy
}

// Import takes over the addresses that host-local has given of the store's network: all at once or
// none. The pods are those that the CNI caches name. It can be run again at any time: a lease that
// is there is kept, and completed. What an import before has taken over, and host-local has no file
// of any more, is given up unless its sandbox may be alive. An address whose file is torn is
// reserved for nobody until it is released by hand: a pod may have it. The directory stays as it
// is; host-local is kept out of it meanwhile. The error is that nothing was taken over.
// lease.ErrBusy: host-local or others had the directory or the store for as long as the caller
// waited.
func Import(ctx context.Context, store *lease.Store, o Options) (Report, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return Report{}, err
	}
	unlock, err := lock(ctx, dir, flock.Patience)
	if err != nil {
		return Report{}, err
	}
	defer unlock()
	d, err := readDirectory(ctx, dir)
	if err != nil {
		return Report{}, err
	}
	// All that has a file is older than this look.
	node, err := reclaim.Look(ctx, o.Sources)
	if err != nil {
		return Report{}, fmt.Errorf("look for the sandboxes: %w", err)
	}
	im := importer{network: store.Network(), dir: dir, policy: o.Policy, node: node, now: time.Now()}
	err = store.TakeIn(ctx, o.DryRun, func(v lease.View) (lease.Intake, error) { return im.decide(d, v) })
	return im.report(d, o.DryRun), err
}

// evidence is what is known of the node.
type evidence interface {
	Judge(a netip.Addr, h lease.Holder, now time.Time, others ...lease.Holder) reclaim.Judgement
	Entry(of attachment.Key) (cnicache.Entry, bool)
	Has(id attachment.Namespace, a netip.Addr) bool
	Problems() []string
}

// importer decides about the files of a directory.
type importer struct {
	network, dir string
	policy       lease.Policy
	node         evidence
	// now is the time of day, as that of the files.
	now time.Time
	// view is what there is before.
	view lease.View

	files  []Outcome
	intake lease.Intake
}

// decide says what is to be done about each file, and each address that has none any more.
func (im *importer) decide(d directory, v lease.View) (lease.Intake, error) {
	im.view, im.intake = v, lease.Intake{Why: "from host-local's " + im.dir, Last: map[int]netip.Addr{}}
	for _, f := range d.given {
		was, err := v.Get(f.address)
		if err != nil {
			return lease.Intake{}, err
		}
		if f.torn != "" {
			im.torn(f, was)
		} else {
			im.file(f, was)
		}
	}
	if err := im.withoutFile(d); err != nil {
		return lease.Intake{}, err
	}
	slices.SortStableFunc(im.files, func(a, b Outcome) int { return a.Address.Compare(b.Address) })
	slices.SortFunc(im.intake.Leases, func(a, b lease.Lease) int { return a.Address.Compare(b.Address) })
	for set, a := range d.last {
		// Where relink has given since, its own is right.
		if !v.LastGiven(set).IsValid() {
			im.intake.Last[set] = a
		}
	}
	return im.intake, nil
}

func (im *importer) report(d directory, dryRun bool) Report {
	r := Report{
		Network: im.network, Dir: im.dir, DryRun: dryRun, Last: []Last{},
		Files: append(append([]Outcome{}, im.files...), d.unknown...), Problems: append([]string{}, im.node.Problems()...),
	}
	if dryRun {
		for i, f := range r.Files {
			r.Files[i].State = f.State.planned()
		}
	}
	for _, set := range slices.Sorted(maps.Keys(im.intake.Last)) {
		r.Last = append(r.Last, Last{set, im.intake.Last[set]})
	}
	return r
}

// planned is the state in a dry run.
func (s State) planned() State {
	switch s {
	case Imported:
		return ToImport
	case Completed:
		return ToComplete
	case GivenUp:
		return ToGiveUp
	}
	return s
}
