package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Version is the version of the format. docs/state-format.md describes it.
const Version = 1

// Record is the checkpoint of one attachment.
type Record struct {
	Version    int            `json:"version"`
	Attachment attachment.Key `json:"attachment"`
	Pod        attachment.Pod `json:"pod,omitzero"`
	// Owner is the pod's by the Kubernetes API, nobody if the API was not asked.
	Owner     attachment.Owner     `json:"owner,omitzero"`
	Namespace attachment.Namespace `json:"namespace"`
	Interface netstate.Interface   `json:"interface"`
	// HostAccess is the path between the pod and its node, nil for none.
	HostAccess *hostaccess.Access `json:"hostAccess,omitempty"`
	CNI        CNI                `json:"cni"`
	// Writer is the program that captured the record, such as relink-macvlan.
	Writer string `json:"writer"`
	// CapturedAt is when, in UTC.
	CapturedAt time.Time `json:"capturedAt"`
	// AnnouncementOwed says that the neighbours may not know the interface's addresses: a restore built or changed it
	// while nothing could be sent, or was killed before it said that something was.
	AnnouncementOwed bool `json:"announcementOwed,omitempty"`
	// IndexSteps is how many steps of the file indices.json the parents' indices have. The store sets it.
	IndexSteps int `json:"indexSteps,omitempty"`

	// file is the one that the record was read from.
	file fs.FileInfo
	// savedSteps is IndexSteps as it is in the file.
	savedSteps int
	// hasLeftovers says that the listing found leftovers of a kill beside it.
	hasLeftovers bool
}

// HasOldParent says that the parent, as it is now, has another index than in the record. Whoever built the interface on
// it has not written so, and may not have told the neighbours its addresses.
func (r Record) HasOldParent(parents []netstate.Device) bool {
	recorded := HostParents(r.Interface)
	return len(recorded) > 0 && len(parents) > 0 && recorded[0].IfIndex != 0 && recorded[0].IfIndex != parents[0].IfIndex
}

// HostParents returns the devices of the host that the interface is on, the nearest first. A NIC, and an interface on another one of the
// sandbox, are on none.
func HostParents(i netstate.Interface) []netstate.Device {
	if i.ParentsInSandbox || i.Link.Kind == netstate.KindNIC {
		return nil
	}
	return i.Parents
}

// Base returns the lowest device of a chain of parents, none for an empty chain.
func Base(parents []netstate.Device) (base netstate.Device) {
	if len(parents) > 0 {
		base = parents[len(parents)-1]
	}
	return base
}

// CNI is what the runtime gave and got: the same JSON, but not byte for byte.
type CNI struct {
	Config json.RawMessage `json:"config"`
	Result json.RawMessage `json:"result"`
}

// Validate returns the first reason why nobody can act upon r.
func (r Record) Validate() error {
	if err := r.Attachment.Validate(); err != nil {
		return fmt.Errorf("attachment: %w", err)
	}
	n := r.Namespace
	if n.Path == "" || n.BootID == "" || n.Inode == 0 {
		return errors.New("namespace: path, boot ID or inode is missing")
	}
	if err := r.Interface.Validate(); err != nil {
		return fmt.Errorf("interface: %w", err)
	}
	if r.Interface.Link.Name == "" || r.Interface.Link.MAC == "" || r.Interface.Link.MTU == 0 {
		return errors.New("interface: name, MAC or MTU is missing")
	}
	if r.HostAccess != nil {
		if err := r.HostAccess.Validate(); err != nil {
			return fmt.Errorf("hostAccess: %w", err)
		}
	}
	return nil
}

// KeysOf returns the keys of the records.
func KeysOf(records []Record) map[attachment.Key]bool {
	keys := map[attachment.Key]bool{}
	for _, r := range records {
		keys[r.Attachment] = true
	}
	return keys
}
