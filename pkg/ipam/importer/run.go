package importer

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// EntryState is what became of an entry of the other plugin. In a dry run, a
// state that begins with To replaces the other one.
type EntryState string

// The states.
const (
	Imported EntryState = "imported"
	ToImport EntryState = "to import"
	// Present says that the lease agrees with the entry.
	Present EntryState = "already there"
	// Completed is Present, and the lease got what an earlier import did not know: pod, namespace or policy.
	Completed  EntryState = "completed"
	ToComplete EntryState = "to complete"
	// NoSandbox says that the lease agrees with the entry, and that the sandbox is proven gone. The address
	// is held until it is reclaimed.
	NoSandbox EntryState = "no live sandbox"
	// OutOfDate says that the lease names another attachment, and that the entry's sandbox is proven gone.
	OutOfDate EntryState = "out of date"
	// Torn says that nobody can tell whose the address is: it is held back.
	Torn EntryState = "torn"
	// Conflict says that the lease names another attachment. The lease is kept.
	Conflict EntryState = "conflict"
	// Ignored says that the entry is not as the plugin writes it.
	Ignored EntryState = "ignored"
	// Missing says that a pod of this node has the address by the CNI caches, and that the plugin has no entry of it.
	Missing EntryState = "missing"
	// Refused says that the pool does not give the address to this node.
	Refused EntryState = "refused"
)

// EntryOutcome is the report on one entry.
type EntryOutcome struct {
	// File is the entry's name, empty if there is none.
	File string `json:"file,omitempty"`
	// Address is the zero Addr for an ignored entry.
	Address netip.Addr `json:"address,omitzero"`
	// Attachment has the address by the file.
	Attachment attachment.Key `json:"attachment,omitzero"`
	// Owner is the attachment's pod, as far as it is known.
	Owner attachment.Owner `json:"owner,omitzero"`
	State EntryState       `json:"state"`
	// Reason is for people. It is empty if the state says everything.
	Reason string `json:"why,omitempty"`
}

// ImportReport is everything that an import found and did.
type ImportReport struct {
	// Network is the name of the store.
	Network string `json:"network"`
	// Dir is the path of the source.
	Dir    string `json:"dir"`
	DryRun bool   `json:"dryRun"`
	// Pools are those that the addresses are of. Closed says why they give nothing now: only a dry run has it.
	Pools  []string `json:"pools,omitempty"`
	Closed string   `json:"closed,omitempty"`
	// OnOtherNodes is how many entries are of other nodes, and OtherNetworks how many are of other networks of this node.
	OnOtherNodes  int            `json:"elsewhere,omitempty"`
	OtherNetworks int            `json:"otherNetworks,omitempty"`
	Files         []EntryOutcome `json:"files"`
	// Problems say what of the node could not be looked at. Pods may be unknown because of that.
	Problems []string `json:"problems"`
	// Failed says what the agent has not done. Another import does it.
	Failed []string `json:"failed,omitempty"`
}

// Complete says that every lease agrees with its entry, and that nothing else needs a look. A sandbox that is gone
// is for reclaim.
func (r ImportReport) Complete() bool {
	return len(r.Failed) == 0 && !slices.ContainsFunc(r.Files, func(f EntryOutcome) bool { return !f.State.IsSettled() })
}

// IsSettled says that the entry needs no look.
func (s EntryState) IsSettled() bool {
	switch s {
	case Torn, Conflict, Ignored, Missing, Refused:
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
	// Alias is another name that the network may have in the CNI caches, empty for none.
	Alias string
	// Entries are in the order of the addresses. Each has another one.
	Entries []Entry
	// Unknown are entries that are not as the plugin writes them.
	Unknown []EntryOutcome
	// Unlisted are what pods of this node have by the CNI caches, and what the plugin has no entry of.
	Unlisted []Entry
	// OnOtherNodes and OtherNetworks are those of an ImportReport.
	OnOtherNodes, OtherNetworks int
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
	// Network is the network's name, empty for that of the store.
	Network string
	// DryRun decides and changes nothing.
	DryRun bool
	// Policy has Sticky and Retain of the addresses whose owner is known. Owners tells whose the pods are. Without it, an address is
	// kept for the pod by its name.
	Policy lease.Policy
	Owners OwnerAsker
	// Pools are those of the network, in the order of its configuration. Agent takes addresses of them. Without pools, nobody is asked.
	Pools []string
	Agent Agent
}

// Agent has this node's part of address pools.
type Agent interface {
	pool.Importer
	Claim(ctx context.Context, c pool.ClaimedAddress) error
}

// Import takes over the addresses that another plugin has given in a network: all or none. readSource returns what the plugin says of it,
// after a look at the node. The CNI caches name the pods. Import can be run again at any time: a lease that is there is
// kept, and completed. One whose entry is gone stays until its sandbox is proven gone, for reclaim. An
// address whose entry is torn is reserved for nobody until somebody releases it: a pod may have it. If there is an
// error, nothing was taken over. lease.ErrBusy: others had locked the store for as long as the caller waited.
//
// With pools, the leases come first: a free address of a pool could be given to another pod. The agent takes their addresses
// then. What it does not take is Refused.
func Import(ctx context.Context, store *lease.Store, readSource func(n *reclaim.Node, network string) (Source, error), o Options) (ImportReport, error) {
	node, err := reclaim.Look(ctx, o.Sources)
	if err != nil {
		return ImportReport{}, fmt.Errorf("look for the sandboxes: %w", err)
	}
	network := cmp.Or(o.Network, store.Network())
	source, err := readSource(node, network)
	if err != nil {
		return ImportReport{}, err
	}
	im := importRun{Source: source, Options: o, leases: store, network: network, store: store.Network(), node: node, instant: time.Now()}
	return im.run(ctx)
}

// run is Import after the look at the node.
func (im *importRun) run(ctx context.Context) (ImportReport, error) {
	if im.Owners != nil {
		if err := im.askOwners(ctx); err != nil {
			return ImportReport{}, err
		}
	}
	if len(im.Pools) > 0 {
		if err := im.askPools(ctx); err != nil {
			return ImportReport{}, err
		}
	}
	if err := im.leases.Import(ctx, im.DryRun, im.decide); err != nil {
		return ImportReport{}, err
	}
	if len(im.Pools) > 0 && !im.DryRun {
		im.takeFromPools(ctx)
	}
	return im.report(), nil
}

// nodeEvidence is what is known of the node.
type nodeEvidence interface {
	Judge(a netip.Addr, h lease.Holder, instant time.Time, otherHolders ...lease.Holder) sandbox.Judgement
	Entry(key attachment.Key) (cnicache.Entry, bool)
	Has(id attachment.Namespace, a netip.Addr) bool
	Problems() []string
}

// importRun decides about the entries of a source.
type importRun struct {
	Source
	Options
	leases *lease.Store
	// network is the network's name, and store that of its store.
	network, store string
	node           nodeEvidence
	// instant is the time of day, as in the times of the entries.
	instant time.Time
	// view is the store before the import.
	view lease.ImportView

	// refused has why the pools do not give an address. closed and failed are those of an ImportReport.
	refused map[netip.Addr]string
	closed  string
	failed  []string

	// pendingOwners are the pods of whose owners nobody was asked so far, and answers are the answers. Both are nil if addresses are kept for
	// pods by their names.
	pendingOwners map[attachment.Key]attachment.Pod
	answers       map[attachment.Key]owner.Answer

	// wanted are the addresses that have a lease at the end.
	wanted []netip.Addr
	files  []EntryOutcome
	batch  lease.Import
}

// decide decides about each entry.
func (im *importRun) decide(v lease.ImportView) lease.Import {
	im.view, im.files, im.wanted, im.batch = v, nil, nil, lease.Import{Reason: fmt.Sprintf("from %s's %s", im.Plugin, im.Path)}
	for _, e := range im.Entries {
		if previous := v.Leases[e.Address]; e.Torn != "" {
			im.decideTorn(e, previous)
		} else {
			im.decideEntry(e, previous)
		}
	}
	for _, e := range im.Unlisted {
		im.decideUnlisted(e, v.Leases[e.Address])
	}
	slices.SortStableFunc(im.files, func(a, b EntryOutcome) int { return a.Address.Compare(b.Address) })
	slices.SortFunc(im.batch.Leases, func(a, b lease.Lease) int { return a.Address.Compare(b.Address) })
	return im.batch
}

func (im *importRun) report() ImportReport {
	r := ImportReport{
		Network: im.store, Dir: im.Path, DryRun: im.DryRun, Pools: im.Pools, Closed: im.closed,
		OnOtherNodes: im.OnOtherNodes, OtherNetworks: im.OtherNetworks, Failed: im.failed,
		Files: append(append([]EntryOutcome{}, im.files...), im.Unknown...), Problems: append([]string{}, im.node.Problems()...),
	}
	if im.DryRun {
		for i, f := range r.Files {
			r.Files[i].State = cmp.Or(planned[f.State], f.State)
		}
	}
	return r
}

// planned has the states of a dry run that replace others.
var planned = map[EntryState]EntryState{Imported: ToImport, Completed: ToComplete}
