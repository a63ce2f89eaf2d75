package checkpoint

import (
	"errors"
	"slices"

	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Effective returns what still has to exist of the record's interface. Other interfaces of the sandbox
// come and go, so it leaves out:
//
//   - an address that has expired, and the routes that need it;
//   - a route through several interfaces, if one of them is gone and has no checkpoint. That one
//     was detached, and the kernel removed the route with it;
//   - a route of another interface that has an address of this one as source, if the other is
//     gone. The other's checkpoint has the route.
func (s *Store) Effective(r Record, exists func(name string) (bool, error)) (netstate.Interface, error) {
	b := &siblings{store: s, exists: exists, record: r, present: map[string]bool{}, records: map[string]Record{}}
	uptime, err := boot.Uptime()
	if err != nil {
		return r.Interface, err
	}
	wanted := r.Interface.Unexpired(uptime)
	wanted.Routes = slices.DeleteFunc(slices.Clone(wanted.Routes), b.tookRoute)
	return wanted, b.err
}

// siblings knows the other interfaces of a record's sandbox.
type siblings struct {
	store   *Store
	exists  func(name string) (bool, error)
	record  Record
	present map[string]bool
	// records are the checkpoints that were looked up. An empty one stands for none.
	records map[string]Record
	err     error
}

// tookRoute says that another interface is gone and took the route away.
func (b *siblings) tookRoute(route netstate.Route) bool {
	return slices.ContainsFunc(route.Devices(), func(name string) bool {
		return !b.isPresent(name) && (route.Device != "" || !b.isRecorded(name))
	})
}

func (b *siblings) isPresent(name string) bool {
	if _, ok := b.present[name]; !ok {
		exists, err := b.exists(name)
		b.present[name], b.err = exists || err != nil, errors.Join(b.err, err)
	}
	return b.present[name]
}

// isRecorded says that the interface has a checkpoint, even one that cannot be read.
func (b *siblings) isRecorded(name string) bool {
	if _, ok := b.records[name]; !ok {
		record, err := b.store.Load(b.record.Attachment.ContainerID, name)
		if err != nil && !errors.Is(err, ErrNoCheckpoint) {
			record.Version = Version
		}
		b.records[name] = record
	}
	return b.records[name].Version != 0
}
