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

// State is what became of a file of host-local, or of an imported address without a file. In a dry run, a
// state that begins with To replaces the other one.
type State string

// The states.
const (
	Imported State = "imported"
	ToImport State = "to import"
	// Present says that the lease agrees with the file.
	Present State = "already there"
	// Completed is Present, and the lease got what an earlier import did not know: pod, namespace or policy.
	Completed  State = "completed"
	ToComplete State = "to complete"
	// NoSandbox says that the lease agrees with the file, and that the sandbox is proven gone. The address
	// is held until it is reclaimed.
	NoSandbox State = "no live sandbox"
	// GivenUp says that host-local has no such file any more, and that the sandbox is gone. The holder has
	// given up the address.
	GivenUp  State = "given up"
	ToGiveUp State = "to give up"
	// Kept says that host-local has no such file any more, and that the sandbox may be alive.
	Kept State = "kept"
	// OutOfDate says that the lease names another attachment, and that the file's sandbox is proven gone.
	OutOfDate State = "out of date"
	// Torn says that nobody can tell whose the address is: it is held back.
	Torn State = "torn"
	// Conflict says that the lease names another attachment. The lease is kept.
	Conflict State = "conflict"
	// Ignored says that the file is not host-local's.
	Ignored State = "ignored"
)

// Outcome is the report on one file, or on an imported address without a file.
type Outcome struct {
	// File is its name, empty if there is none.
	File string `json:"file,omitempty"`
	// Address is the zero Addr for an ignored file.
	Address netip.Addr `json:"address,omitzero"`
	// Attachment has the address by the file, or had it by the earlier import.
	Attachment attachment.Key `json:"attachment,omitzero"`
	// Owner is the attachment's pod, as far as it is known.
	Owner attachment.Owner `json:"owner,omitzero"`
	State State            `json:"state"`
	// Why is for people. It is empty if the state says everything.
	Why string `json:"why,omitempty"`
}

// Last is the address after which the search for a free address goes on.
type Last struct {
	Set     int        `json:"set"`
	Address netip.Addr `json:"address"`
}

// Report is everything that an import found and did.
type Report struct {
	Network string    `json:"network"`
	Dir     string    `json:"dir"`
	DryRun  bool      `json:"dryRun"`
	Files   []Outcome `json:"files"`
	// Last are the range sets whose next address comes after that of host-local.
	Last []Last `json:"last"`
	// Problems say what of the node could not be looked at. Pods may be unknown because of that.
	Problems []string `json:"problems"`
}

// Complete says that every lease agrees with its file, and that nothing else needs a look. A sandbox that is gone
// is for reclaim.
func (r Report) Complete() bool {
	return !slices.ContainsFunc(r.Files, func(f Outcome) bool { return !f.State.Done() })
}

// Done says that the file needs no look.
func (s State) Done() bool {
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

// Import takes over the addresses that host-local has given in the store's network: all or none. The CNI
// caches name the pods. Import can be run again at any time: a lease that is there is kept, and completed. An
// imported lease whose file is gone is given up, unless its sandbox may be alive. An address whose file is
// torn is reserved for nobody until somebody releases it: a pod may have it. The directory stays as it is,
// and is locked against host-local meanwhile. If there is an error, nothing was taken over. lease.ErrBusy:
// host-local or others had locked the directory or the store for as long as the caller waited.
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
	// Whatever has a file is older than this look.
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
	// now is the time of day, as in the times of the files.
	now time.Time
	// view is the store before the import.
	view lease.View

	files  []Outcome
	intake lease.Intake
}

// decide decides about each file, and about each imported address that has no file any more.
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
		// If relink has given an address of the set since, its own last address is right.
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
