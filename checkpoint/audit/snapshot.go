package audit

import (
	"iter"
	"net/netip"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// Snapshot is a node at one moment, as plain data.
type Snapshot struct {
	BootID string
	// Time is the time of day.
	Time       time.Time
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

// leases iterates over the leases of all networks.
func (s *Snapshot) leases() iter.Seq2[*Network, *lease.Lease] {
	return func(yield func(*Network, *lease.Lease) bool) {
		for i := range s.Networks {
			n := &s.Networks[i]
			for k := range n.Leases {
				if !yield(n, &n.Leases[k]) {
					return
				}
			}
		}
	}
}

// Attached is an attachment that has a checkpoint.
type Attached struct {
	Record checkpoint.Record
	// Owner is nobody if it is not known.
	Owner attachment.Owner
	// Interface says how it is now: Fine, LostInterface, WrongInterface, or Unknown if nobody could look. Reason says why it is not Fine.
	Interface Kind
	Reason    string
	// Index is that of the device in the sandbox, 0 if it is not there.
	Index int
	// Assigned are the addresses that relink-ipam gave it, by the result of the ADD. LeaseDir is the directory of the leases
	// that its configuration names, empty for one that was read. LeaseStore is the name of their store,
	// empty if the configuration of a later plugin does not tell it.
	Assigned   []netip.Addr
	LeaseDir   string
	LeaseStore string
}

// isOf says whether the attachment gets its addresses from the store of that name. a is nil without a checkpoint.
func (a *Attached) isOf(store string, key attachment.Key) bool {
	return key.Network == store || a != nil && (a.Record.Attachment.Network == store || a.LeaseStore == store)
}

// Unreadable is a checkpoint that cannot be read.
type Unreadable struct {
	checkpoint.Unreadable
	Pod attachment.Pod
}

// Network is the leases of a network, or of several that have one store.
type Network struct {
	// Name is that of the store.
	Name string
	// Dir is the directory of its store.
	Dir string
	// StoreTime is the time of the store. Times in leases are by this clock, except those of imported holders.
	StoreTime time.Time
	Leases    []lease.Lease
	// Pools says that its addresses are of pools: they go to other nodes with their owners.
	Pools bool
	// Problem says why the leases cannot be read.
	Problem string
}

// Sandboxes are the network namespaces that are there, and what the container runtime tells.
type Sandboxes struct {
	Live map[attachment.NamespaceFile]LiveNamespace
	// Runtime are the runtime's sandboxes by their container IDs. NotAsked says why they may not be all. It is empty if
	// the runtime told of all.
	Runtime  map[string]sandbox.RuntimeSandbox
	NotAsked string
	// Cache answers for the runtime if that was not asked. It is nil without Sources.ByCache.
	Cache *reclaim.Cache
	// Proofs are of namespaces that are not in Live.
	Proofs map[attachment.Namespace]sandbox.Evidence
	// Judged are the holders whose namespace was not recorded, or comes from a cache.
	Judged map[*lease.Holder]sandbox.Judgement
}

// LiveNamespace is a network namespace that is there.
type LiveNamespace struct {
	Namespace attachment.Namespace
	// Addresses are those of its addresses that somebody holds or was given.
	Addresses []DeviceAddress
}

// DeviceAddress is an address on a device of a sandbox.
type DeviceAddress struct {
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
	Unattached map[attachment.Owner][]sandbox.RuntimeSandbox
	// Unasked is how many owners were not asked for.
	Unasked int
	// NewClusters are the clusters of stores that know none yet: the UID of the namespace kube-system by the path of the store.
	NewClusters map[string]string
}
