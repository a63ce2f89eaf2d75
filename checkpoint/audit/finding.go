package audit

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// Kind is what a finding says.
type Kind string

// The kinds.
const (
	// Fine is an attachment about which there is nothing to say.
	Fine Kind = "fine"
	// LostInterface: the sandbox is alive, and its interface is not there.
	LostInterface Kind = "lost interface"
	// WrongInterface: the interface is there, and not as recorded.
	WrongInterface Kind = "wrong interface"
	// DuplicateAddress: two live sandboxes have one address of one network.
	DuplicateAddress Kind = "duplicate address"
	// LeaseWithoutSandbox: the sandbox of a holder is gone.
	LeaseWithoutSandbox Kind = "lease without sandbox"
	// SandboxWithoutLease: an interface has an address that relink-ipam gave it, and no lease of it.
	SandboxWithoutLease Kind = "sandbox without lease"
	// ReservationWithoutOwner: nobody will ask for a reserved address.
	ReservationWithoutOwner Kind = "reservation without owner"
	// CheckpointWithoutSandbox: the sandbox of a checkpoint is gone.
	CheckpointWithoutSandbox Kind = "checkpoint without sandbox"
	// Unknown: nothing proves how it is.
	Unknown Kind = "unknown"
)

// Kinds are all kinds, the worst first.
var Kinds = []Kind{
	DuplicateAddress, LostInterface, WrongInterface, SandboxWithoutLease, LeaseWithoutSandbox, ReservationWithoutOwner,
	CheckpointWithoutSandbox, Unknown, Fine,
}

// Severity tells what is wrong from what is only good to know.
type Severity string

// The severities. A pod is cut off, or may be, with an Error, or relink cannot read its own files. Information
// mends itself, or relink gc mends it.
const (
	Error       Severity = "error"
	Information Severity = "information"
)

// Finding is what an audit says of one thing.
type Finding struct {
	Kind     Kind     `json:"kind"`
	Severity Severity `json:"severity"`
	// Attachment is the one that the finding is about. Of a reservation it is the last holder.
	Attachment attachment.Key `json:"attachment,omitzero"`
	Pod        attachment.Pod `json:"pod,omitzero"`
	Network    string         `json:"network,omitempty"`
	// LeaseDir is the directory of the leases, if the finding is about one.
	LeaseDir string           `json:"leaseDir,omitempty"`
	Address  netip.Addr       `json:"address,omitzero"`
	Owner    attachment.Owner `json:"owner,omitzero"`
	// Evidence is in words, for people.
	Evidence []string `json:"evidence"`
	Fields   Fields   `json:"fields"`
	// Proven says that the thing is proven dead: relink gc frees it when it has seen it twice.
	Proven bool `json:"proven,omitempty"`

	// Subject is what can be freed.
	Subject Subject `json:"-"`
}

// Fields are the evidence for programs. What does not apply is empty.
type Fields struct {
	// Namespace is the sandbox's, as it was recorded. NamespaceState says whether it is there.
	Namespace      attachment.Namespace `json:"namespace,omitzero"`
	NamespaceState sandbox.Verdict      `json:"namespaceIs,omitempty"`
	// Runtime is what the container runtime says of the sandbox.
	Runtime RuntimeState `json:"runtime,omitempty"`
	// Standing is that of the owner.
	Standing owner.Standing `json:"standing,omitempty"`
	// Since is when the attachment was given the address or recorded, ReleasedAt when a reservation began.
	Since      time.Time `json:"since,omitzero"`
	ReleasedAt time.Time `json:"releasedAt,omitzero"`
	// ElsewherePodUID is the UID of the owner's pod, if that it is on another node is the proof.
	ElsewherePodUID string `json:"elsewhere,omitempty"`
	// OtherAttachments are the other attachments that have the address. PresentSandbox is the sandbox of the owner's present pod.
	OtherAttachments []attachment.Key `json:"others,omitempty"`
	PresentSandbox   string           `json:"present,omitempty"`
}

// Subject is what a finding is about, as it was seen. At most one of Holder, Reservation and Checkpoint is set.
type Subject struct {
	// Lease is that of Holder, or the reservation.
	Lease       lease.Lease
	Holder      *lease.Holder
	Reservation bool
	Checkpoint  *checkpoint.Record
	// Unreadable is set for a checkpoint that cannot be read.
	Unreadable *checkpoint.Unreadable
}

// NodeReport is everything that an audit found.
type NodeReport struct {
	// Findings are errors first, then information. Those that are Fine come last.
	Findings []Finding `json:"findings"`
	// Counts has the number of findings of each kind, 0 among them.
	Counts map[Kind]int `json:"counts"`
	// Errors is the number of errors.
	Errors int `json:"errors"`
	// Leases is the number of addresses that are not free. Reservations are those of them that wait for an owner. KeptByHand
	// are the reservations that an operator made: nobody asks for their owners.
	Leases       int `json:"leases"`
	Reservations int `json:"reservations"`
	KeptByHand   int `json:"keptByHand"`
	// OwnersUnasked is how many owners were not asked for in this look, because there are so many.
	OwnersUnasked int `json:"ownersLeft,omitempty"`
	// LeaseDirs are the directories whose leases were read.
	LeaseDirs []string `json:"leaseDirs,omitempty"`
	// NewClusters are the clusters of stores that know none yet: the UID of the namespace kube-system by the path of the store. An
	// audit changes nothing: who frees notes them before that.
	NewClusters map[string]string `json:"-"`
	// Problems say what could not be looked at. Notes say what nobody was there to ask for.
	Problems []string `json:"problems,omitempty"`
	Notes    []string `json:"notes,omitempty"`
}

// IsHealthy says that nothing is wrong, and that all could be looked at.
func (r NodeReport) IsHealthy() bool { return r.Errors == 0 && len(r.Problems) == 0 }

// sortAndCount sorts and counts.
func (r *NodeReport) sortAndCount() {
	rank := map[Kind]int{}
	r.Counts = map[Kind]int{}
	for i, k := range Kinds {
		rank[k], r.Counts[k] = i, 0
	}
	for _, f := range r.Findings {
		r.Counts[f.Kind]++
		if f.Severity == Error {
			r.Errors++
		}
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(
			strings.Compare(string(a.Severity), string(b.Severity)), rank[a.Kind]-rank[b.Kind],
			strings.Compare(a.Network, b.Network), a.Address.Compare(b.Address),
			change.Outcome{Attachment: a.Attachment, Pod: a.Pod}.Compare(change.Outcome{Attachment: b.Attachment, Pod: b.Pod}),
		)
	})
}
