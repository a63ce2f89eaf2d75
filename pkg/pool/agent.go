package pool

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// AgentLimit is how long an Agent takes at most.
const AgentLimit = 2 * time.Second

var (
	// ErrUnavailable says that the agent cannot do it now: no agent runs, the API does not answer, the pool has no free
	// address, or another node has the address and does not answer. The same request may succeed later.
	ErrUnavailable = errors.New("the pool gives nothing now")
	// ErrUnknown says that there is no such pool, or that its spec is wrong.
	ErrUnknown = errors.New("the pool cannot be used")
)

// Agent is asked by an ADD for what the node's store does not have. Its methods may be called at any time. Without an agent an
// ADD goes on with what the store has.
type Agent interface {
	// Refill takes addresses of the pools for the network's store. It returns when the store has some to give. errors.Is
	// matches ErrUnavailable and ErrUnknown.
	Refill(ctx context.Context, d Demand) error
	// Acquire brings the address of an owner to this node: if the owner has one, on whatever node, the store can give it
	// afterwards, and has it reserved for the owner. errors.Is matches ErrUnavailable and ErrUnknown.
	Acquire(ctx context.Context, a Acquisition) (Acquired, error)
	// Claim notes that the owner has the address, so that its next pod finds it on any node. errors.Is matches
	// ErrUnavailable.
	Claim(ctx context.Context, c ClaimedAddress) error
}

// Demand is a network that needs addresses.
type Demand struct {
	Network string `json:"network"`
	// Pools are names and Choices.
	Pools []string `json:"pools"`
	// Probes says that the attachment can probe for an address before it uses it.
	Probes bool `json:"probes,omitempty"`
}

// Acquisition is the pod of an owner that is about to get an address.
type Acquisition struct {
	Network string           `json:"network"`
	Pool    string           `json:"pool"`
	IfName  string           `json:"ifName"`
	Owner   attachment.Owner `json:"owner"`
	Pod     attachment.Pod   `json:"pod"`
	// Requested is the address that the pod asks for, the zero Addr for none.
	Requested netip.Addr `json:"wanted,omitzero"`
	// Retain is the policy's, 0 for as long as the owner lives.
	Retain time.Duration `json:"retain,omitempty"`
	// Siblings are the UIDs of the pods from which the owner's virtual machine can migrate to this one.
	Siblings []string `json:"siblings,omitempty"`
	// Roam says that the owner gets another address where the pool of its address does not select the node.
	Roam bool `json:"roam,omitempty"`
}

// ClaimName returns the name of the owner's claim.
func (a Acquisition) ClaimName() string { return ClaimName(a.Pool, a.IfName, a.Owner) }

// Acquired is what an owner has.
type Acquired struct {
	// Address is the zero Addr if the owner has none so far.
	Address netip.Addr `json:"address,omitzero"`
	// Migrating says that the address is still in use on another node, by the pod from which a virtual machine comes. It
	// is neither probed for nor announced.
	Migrating bool `json:"migrating,omitempty"`
}

// ClaimedAddress is an address that an owner's pod has.
type ClaimedAddress struct {
	Acquisition
	Address netip.Addr `json:"address"`
}
