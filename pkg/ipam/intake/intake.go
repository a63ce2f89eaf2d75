package intake

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/pool"
)

// State is what became of an entry of the other plugin, or of an imported address without an entry. In a dry run, a
// state that begins with To replaces the other one.
type State string

// The states.
const (
	Imported State = "imported"
	ToImport State = "to import"
	// Present says that the lease agrees with the entry.
	Present State = "already there"
	// Completed is Present, and the lease got what an earlier import did not know: pod, namespace or policy.
	Completed  State = "completed"
	ToComplete State = "to complete"
	// NoSandbox says that the lease agrees with the entry, and that the sandbox is proven gone. The address
	// is held until it is reclaimed.
	NoSandbox State = "no live sandbox"
	// GivenUp says that the plugin has no such entry any more, and that the sandbox is gone. The holder has
	// given up the address.
	GivenUp  State = "given up"
	ToGiveUp State = "to give up"
	// Kept says that the plugin has no such entry any more, and that the sandbox may be alive.
	Kept State = "kept"
	// OutOfDate says that the lease names another attachment, and that the entry's sandbox is proven gone.
	OutOfDate State = "out of date"
	// Torn says that nobody can tell whose the address is: it is held back.
	Torn State = "torn"
	// Conflict says that the lease names another attachment. The lease is kept.
	Conflict State = "conflict"
	// Ignored says that the entry is not as the plugin writes it.
	Ignored State = "ignored"
	// Missing says that a pod of this node has the address by the CNI caches, and that the plugin has no entry of it.
	Missing State = "missing"
	// Refused says that the pool does not give the address to this node.
	Refused State = "refused"
)

// Outcome is the report on one entry, or on an imported address without an entry.
type Outcome struct {
	// File is the entry's name, empty if there is none.
	File string `json:"file,omitempty"`
	// Address is the zero Addr for an ignored entry.
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
	Network string `json:"network"`
	// Dir is the path of the source.
	Dir    string `json:"dir"`
	DryRun bool   `json:"dryRun"`
	// Pools are those that the addresses are of. Closed says why they give nothing now: only a dry run has it.
	Pools  []string `json:"pools,omitempty"`
	Closed string   `json:"closed,omitempty"`
	// Elsewhere is how many entries are of other nodes, and OtherNetworks how many are of other networks of this node.
	Elsewhere     int       `json:"elsewhere,omitempty"`
	OtherNetworks int       `json:"otherNetworks,omitempty"`
	Files         []Outcome `json:"files"`
	// Last are the range sets whose next address comes after that of host-local.
	Last []Last `json:"last"`
	// Problems say what of the node could not be looked at. Pods may be unknown because of that.
	Problems []string `json:"problems"`
	// Failed says what the agent has not done. Another import does it.
	Failed []string `json:"failed,omitempty"`
}

// Complete says that every lease agrees with its entry, and that nothing else needs a look. A sandbox that is gone
// is for reclaim.
func (r Report) Complete() bool {
	return len(r.Failed) == 0 && !slices.ContainsFunc(r.Files, func(f Outcome) bool { return !f.State.Done() })
}

// Done says that the entry needs no look.
func (s State) Done() bool {
	switch s {
	case Torn, Conflict, Ignored, Kept, Missing, Refused:
		return false
	}
	return true
}

// Source is what another IPAM plugin says of the addresses that it has given.
type Source struct {
	// Plugin is the plugin's name, and Path the directory or the file that was read.
	Plugin, Path string
	// Noun is what an entry is called: a file, or an allocation.
	Noun string
	// Copy says that the source is a copy of what the plugin has: it can be older than a pod.
	Copy bool
	// Alias is the name that the network may have in the CNI caches, empty for the store's.
	Alias string
	// Entries are in the order of the addresses. Each has another one.
	Entries []Entry
	// Last has the last address that was given of each range set, by the number of the set.
	Last map[int]netip.Addr
	// Unknown are entries that are not as the plugin writes them.
	Unknown []Outcome
	// Unlisted are what pods of this node have by the CNI caches, and what the plugin has no entry of.
	Unlisted []Entry
	// Elsewhere and OtherNetworks are those of a Report.
	Elsewhere, OtherNetworks int
}

// Entry says whose an address is.
type Entry struct {
	Address netip.Addr
	// Name is that of the entry, for people.
	Name string
	// ContainerID and IfName are set if Torn is empty.
	ContainerID, IfName string
	// Pod is the pod as far as the plugin knows it.
	Pod attachment.Pod
	// Torn is why nobody can tell whose the address is.
	Torn    string
	Written time.Time
}

// Options of an import.
type Options struct {
	reclaim.Sources
	// DryRun decides and changes nothing.
	DryRun bool
	// Policy has Sticky and Retain of the addresses whose owner is known. Owners tells whose the pods are. Without it, an address is
	// kept for the pod by its name.
	Policy lease.Policy
	Owners Owners
	// Pools are those of the network, in the order of its configuration. Agent takes addresses of them. Without pools, nobody is asked.
	Pools []string
	Agent Agent
}

// Agent has this node's part of address pools.
type Agent interface {
	pool.Importer
	Claim(ctx context.Context, c pool.Claimed) error
}

// Import takes over the addresses that another plugin has given in the store's network: all or none. of returns what the plugin says,
// after a look at the node. The CNI caches name the pods. Import can be run again at any time: a lease that is there is
// kept, and completed. An imported lease whose entry is gone is given up, unless its sandbox may be alive. An
// address whose entry is torn is reserved for nobody until somebody releases it: a pod may have it. If there is an
// error, nothing was taken over. lease.ErrBusy: others had locked the store for as long as the caller waited.
//
// With pools, the leases come first: a free address of a pool could be given to another pod. The agent takes their addresses
// then. What it does not take is Refused.
func Import(ctx context.Context, store *lease.Store, of func(*reclaim.Node) (Source, error), o Options) (Report, error) {
	node, err := reclaim.Look(ctx, o.Sources)
	if err != nil {
		return Report{}, fmt.Errorf("look for the sandboxes: %w", err)
	}
	source, err := of(node)
	if err != nil {
		return Report{}, err
	}
	im := importer{Source: source, network: store.Network(), policy: o.Policy, node: node, now: time.Now(), pooled: len(o.Pools) > 0}
	return im.run(ctx, store, o)
}

// run is Import after the look at the node.
func (im *importer) run(ctx context.Context, store *lease.Store, o Options) (Report, error) {
	if o.Owners != nil {
		if err := im.learn(ctx, store, o); err != nil {
			return Report{}, err
		}
	}
	if im.pooled {
		if err := im.ask(ctx, store, o); err != nil {
			return Report{}, err
		}
	}
	if err := store.TakeIn(ctx, o.DryRun, im.decide); err != nil {
		return Report{}, err
	}
	if im.pooled && !o.DryRun {
		im.grant(ctx, store, o)
	}
	return im.report(o), nil
}

// evidence is what is known of the node.
type evidence interface {
	Judge(a netip.Addr, h lease.Holder, now time.Time, others ...lease.Holder) reclaim.Judgement
	Entry(of attachment.Key) (cnicache.Entry, bool)
	Has(id attachment.Namespace, a netip.Addr) bool
	Problems() []string
}

// importer decides about the entries of a source.
type importer struct {
	Source
	network string
	policy  lease.Policy
	node    evidence
	// now is the time of day, as in the times of the entries.
	now time.Time
	// view is the store before the import.
	view lease.View

	// pooled says that the network has pools.
	pooled bool
	// refused has why the pools do not give an address. closed and failed are those of a Report.
	refused map[netip.Addr]string
	closed  string
	failed  []string

	// unasked are the pods of whose owners nobody was asked so far, and learnt are the answers. Both are nil if addresses are kept for
	// pods by their names.
	unasked map[attachment.Key]attachment.Pod
	learnt  map[attachment.Key]owner.Answer

	// wanted are the addresses that have a lease at the end.
	wanted []netip.Addr
	files  []Outcome
	intake lease.Intake
}

// decide decides about each entry, and about each imported address that has no entry any more.
func (im *importer) decide(v lease.View) (lease.Intake, error) {
	im.view, im.files, im.wanted, im.intake = v, nil, nil, lease.Intake{Why: fmt.Sprintf("from %s's %s", im.Plugin, im.Path), Last: map[int]netip.Addr{}}
	for _, e := range im.Entries {
		was, err := v.Get(e.Address)
		if err != nil {
			return lease.Intake{}, err
		}
		if e.Torn != "" {
			im.torn(e, was)
		} else {
			im.entry(e, was)
		}
	}
	for _, e := range im.Unlisted {
		was, err := v.Get(e.Address)
		if err != nil {
			return lease.Intake{}, err
		}
		im.unlisted(e, was)
	}
	if err := im.withoutEntry(); err != nil {
		return lease.Intake{}, err
	}
	slices.SortStableFunc(im.files, func(a, b Outcome) int { return a.Address.Compare(b.Address) })
	slices.SortFunc(im.intake.Leases, func(a, b lease.Lease) int { return a.Address.Compare(b.Address) })
	for set, a := range im.Last {
		// If relink has given an address of the set since, its own last address is right.
		if !v.LastGiven(set).IsValid() {
			im.intake.Last[set] = a
		}
	}
	return im.intake, nil
}

func (im *importer) report(o Options) Report {
	r := Report{
		Network: im.network, Dir: im.Path, DryRun: o.DryRun, Pools: o.Pools, Closed: im.closed, Last: []Last{},
		Elsewhere: im.Elsewhere, OtherNetworks: im.OtherNetworks, Failed: im.failed,
		Files: append(append([]Outcome{}, im.files...), im.Unknown...), Problems: append([]string{}, im.node.Problems()...),
	}
	if o.DryRun {
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
