package audit

import (
	"net/netip"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// World is a node at one moment, as plain data.
type World struct {
	BootID string
	// Now is the time of day.
	Now        time.Time
	Attached   []Attached
	Unreadable []Unreadable
	Networks   []Network
	// LeaseDirs are the directories whose leases were read.
	LeaseDirs []string
	Sandboxes Sandboxes
	Owners    Owners
	// Problems say what could not be looked at. Notes say what nobody was there to ask for.
	Problems, Notes []string
}

// Attached is an attachment that has a checkpoint.
type Attached struct {
	Record checkpoint.Record
	// Owner is nobody if it is not known.
	Owner attachment.Owner
	// Interface says how it is now. Why says why it is not AsRecorded.
	Interface Interface
	Why       string
	// Index is that of the device in the sandbox, 0 if it is not there.
	Index int
	// Given are the addresses that relink-ipam gave it, by the result of the ADD. LeaseDir is the directory of the leases
	// that its configuration names, empty for one that was read.
	Given    []netip.Addr
	LeaseDir string
}

// Interface is how a recorded interface is now.
type Interface string

// The values of Interface.
const (
	AsRecorded Interface = "as recorded"
	Lost       Interface = "lost"
	Wrong      Interface = "wrong"
	// NotSeen says that nobody could look.
	NotSeen Interface = "not seen"
)

// Unreadable is a checkpoint that cannot be read.
type Unreadable struct {
	checkpoint.Unreadable
	Pod attachment.Pod
}

// Network is the leases of a network.
type Network struct {
	Name string
	// Dir is the directory of its store.
	Dir string
	// Now is the time of the store. Times in leases are by this clock, except those of imported holders.
	Now    time.Time
	Leases []lease.Lease
	// Pools says that its addresses are of pools: they go to other nodes with their owners.
	Pools bool
	// Problem says why the leases cannot be read.
	Problem string
}

// Place tells network namespaces apart at one moment.
type Place struct{ Device, Inode uint64 }

// PlaceOf returns the place of the namespace.
func PlaceOf(n attachment.Namespace) Place { return Place{n.Device, n.Inode} }

// Sandboxes are the network namespaces that are there, and what the container runtime tells.
type Sandboxes struct {
	Live map[Place]Live
	// Runtime are the runtime's sandboxes by their container IDs. NotAsked says why they may not be all. It is empty if
	// the runtime told of all.
	Runtime  map[string]sandbox.OfRuntime
	NotAsked string
	// Proofs are of namespaces that are not in Live.
	Proofs map[attachment.Namespace]sandbox.Evidence
	// Judged are the holders whose namespace was not recorded, or comes from a cache.
	Judged map[Holding]reclaim.Judgement
}

// Holding is a holder of an address.
type Holding struct {
	LeaseDir    string
	Network     string
	Address     netip.Addr
	ContainerID string
	IfName      string
}

// Live is a network namespace that is there.
type Live struct {
	Namespace attachment.Namespace
	// Addresses are those of its addresses that somebody holds or was given.
	Addresses []At
}

// At is an address on a device of a sandbox.
type At struct {
	Address netip.Addr
	Device  string
	Index   int
	// Parent is the index of the device of the host that a macvlan or ipvlan is on, else 0. What is on one parent is in
	// one network.
	Parent int
}

// Owners are what the API said of the owners of reservations.
type Owners struct {
	Judged map[attachment.Owner]owner.Judgement
	// Unattached are the sandboxes that the runtime keeps running, and that relink has attached to nothing, by the owners of
	// their pods. Only those count whose owners have reservations.
	Unattached map[attachment.Owner][]sandbox.OfRuntime
	// Left is how many owners were not asked for.
	Left int
	// NewClusters are the clusters of stores that know none yet: the UID of the namespace kube-system by the path of the store.
	NewClusters map[string]string
}
