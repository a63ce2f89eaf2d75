package pool

import (
	"context"
	"net/netip"
	"time"
)

const (
	// ImportLimit is how long an Importer takes at most.
	ImportLimit = 30 * time.Second
	// MaxImported is how many addresses one Import can have.
	MaxImported = 128
)

// Importer takes over addresses that pods of this node have by another IPAM plugin.
type Importer interface {
	// Import takes exactly these addresses of the pools for the network's store. The pools must be paused: otherwise another node
	// could take an address that a pod has whose node was not imported so far. It can be called again at any time: what
	// the store has, it keeps, and needs no pause for that. errors.Is matches ErrUnavailable and ErrUnknown. Then the store
	// can have some of the addresses.
	Import(ctx context.Context, request Import) (Imported, error)
}

// Import is what a node takes over.
type Import struct {
	Network string `json:"network"`
	// Pools are in the order of the network's configuration.
	Pools     []string     `json:"pools"`
	Addresses []netip.Addr `json:"addresses"`
	// DryRun changes nothing.
	DryRun bool `json:"dryRun,omitempty"`
}

// Imported is what became of each address.
type Imported struct {
	// Pools has the pool of each address that the store has now. In a dry run, it would get it.
	Pools map[netip.Addr]string `json:"pools,omitempty"`
	// Refused says of each other address why the store does not get it.
	Refused map[netip.Addr]string `json:"refused,omitempty"`
	// Closed says why the pools give nothing to an Import now. Only a dry run has it: otherwise it is an error.
	Closed string `json:"closed,omitempty"`
}
