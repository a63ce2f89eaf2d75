package pool

import (
	"context"
	"errors"
	"net/netip"
)

// Errors of an API. Any other error is unclear: the API may have done what it was asked, or may do it later.
var (
	// ErrNotFound says that the API itself has answered that the object does not exist.
	ErrNotFound = errors.New("the Kubernetes API answers that it does not exist")
	// ErrExists says that an object of that name exists.
	ErrExists = errors.New("it exists already")
	// ErrConflict says that somebody has changed the object since it was read. Nothing was done.
	ErrConflict = errors.New("somebody has changed it meanwhile")
	// ErrRefused says that the API does not allow it. Nothing was done.
	ErrRefused = errors.New("the Kubernetes API refuses")
	// ErrBusy says that the API has too many requests. Nothing was done.
	ErrBusy = errors.New("the Kubernetes API is busy")
)

// IgnoreChanged drops the error if somebody has changed or deleted the object meanwhile: the next look goes on there.
func IgnoreChanged(err error) error {
	if errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// API has the objects of the pools. Every read is one of the API's own store, never of a cache. A change is made only if the
// object is still the one with the UID and the resource version that it names. Create, Update and Delete never try
// again by themselves.
type API interface {
	Pool(ctx context.Context, name string) (Pool, error)
	Pools(ctx context.Context) ([]Pool, error)
	// UpdatePool changes the finalizers, UpdatePoolStatus the status.
	UpdatePool(ctx context.Context, p Pool) (Pool, error)
	UpdatePoolStatus(ctx context.Context, p Pool) (Pool, error)

	Block(ctx context.Context, name string) (Block, error)
	// Blocks returns all of a pool, and AllBlocks those of all pools. BlocksOf returns those of all pools in which the node has addresses or asks
	// for some, by a label that whoever may change a block can remove.
	Blocks(ctx context.Context, pool string) ([]Block, error)
	AllBlocks(ctx context.Context) ([]Block, error)
	BlocksOf(ctx context.Context, node string) ([]Block, error)
	CreateBlock(ctx context.Context, b Block) (Block, error)
	UpdateBlock(ctx context.Context, b Block) (Block, error)
	DeleteBlock(ctx context.Context, b Block) error

	Claim(ctx context.Context, name string) (Claim, error)
	// Claims returns all of a pool. ClaimsOf returns those of all pools that are active on the node.
	Claims(ctx context.Context, pool string) ([]Claim, error)
	ClaimsOf(ctx context.Context, node string) ([]Claim, error)
	// ClaimsAt returns those of all pools that are about the address.
	ClaimsAt(ctx context.Context, a netip.Addr) ([]Claim, error)
	CreateClaim(ctx context.Context, c Claim) (Claim, error)
	UpdateClaim(ctx context.Context, c Claim) (Claim, error)
	DeleteClaim(ctx context.Context, c Claim) error

	// Node returns what counts of a node.
	Node(ctx context.Context, name string) (Node, error)
	Nodes(ctx context.Context) ([]Node, error)
}

// Node is what counts of a Kubernetes node.
type Node struct {
	Name, UID string
	// OutOfService says that a person has proven the node dead by the taint node.kubernetes.io/out-of-service.
	OutOfService bool
	// Ready says that its kubelet has answered lately. Boot is the boot that the kubelet has told last, empty for none.
	Ready bool
	Boot  string
	// Labels are what pools select nodes by.
	Labels map[string]string
	// Deleted says that the API has no such object.
	Deleted bool
}

// DrainLabel is the label of a node that gives back all that no pod has, and takes nothing new. "false" is as no label.
const DrainLabel = Group + "/drained"

// LeaveReason says why the node gives back all that no pod has, empty if it stays.
func (n Node) LeaveReason() string {
	if value, drained := n.Labels[DrainLabel]; drained && value != "false" {
		return "the node is drained: it has the label " + DrainLabel + ", which kubectl relink drain --undo removes"
	}
	if n.Deleted {
		return "the Kubernetes API has no such Node"
	}
	return ""
}

// Handler is told what the watches of the API see. It only says where to look: a watch can be late. Its functions return at once, and change
// nothing of what they get.
type Handler struct {
	// PoolChanged and BlockChanged get the object before and after the change: nil before it was made, and after its end.
	PoolChanged  func(before, after *Pool)
	BlockChanged func(before, after *Block)
	// NodeChanged gets the node of the agent as it is, and as it was if it is deleted.
	NodeChanged func(n Node)
	// APIDown says that the API has stopped answering a watch, or has ended it before its time.
	APIDown func()
}
