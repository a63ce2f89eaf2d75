package checkpoint

import (
	"errors"
	"slices"

	"github.com/relink-cni/relink/pkg/netstate"
)

// Wanted returns what of the record's interface there still has to be, as other interfaces of
// the sandbox come and go. Without are
//   - a route through several interfaces one of which neither exists nor has a checkpoint: it
//     has been detached, and the kernel has taken the route away with it;
//   - a route that only has an address of this interface as source, where its own is not there:
//     it is for that one's checkpoint;
//   - the order of routes of which another interface's checkpoint, a newer one, says what it is.
func (s *Store) Wanted(r Record, exists func(name string) (bool, error)) (netstate.Interface, error) {
	b := &beside{store: s, exists: exists, record: r, there: map[string]bool{}, records: map[string]Record{}}
	wanted := r.Interface
	wanted.Routes = slices.DeleteFunc(slices.Clone(wanted.Routes), b.took)
	wanted.RouteOrder = slices.DeleteFunc(slices.Clone(wanted.RouteOrder), b.knowsNewer)
	return wanted, b.err
}

// beside looks for the other interfaces of a record's sandbox.
type beside struct {
	store  *Store
	exists func(name string) (bool, error)
	record Record
	there  map[string]bool
	// records are the checkpoints, empty for none.
	records map[string]Record
	err     error
}

// took says that another interface is gone, and the route with it.
func (b *beside) took(route netstate.Route) bool {
	return slices.ContainsFunc(route.Devices(), func(name string) bool {
		return !b.isThere(name) && (route.Device != "" || !b.isRecorded(name))
	})
}

func (b *beside) knowsNewer(order netstate.Order) bool {
	return slices.ContainsFunc(order.Routes, func(p netstate.Place) bool {
		return p.Device != "" && b.isRecorded(p.Device) && b.records[p.Device].CapturedAt.After(b.record.CapturedAt) &&
			slices.ContainsFunc(b.records[p.Device].Interface.RouteOrder, func(o netstate.Order) bool { return o.Slot == order.Slot })
	})
}

func (b *beside) isThere(name string) bool {
	if _, ok := b.there[name]; !ok {
		there, err := b.exists(name)
		b.there[name], b.err = there || err != nil, errors.Join(b.err, err)
	}
	return b.there[name]
}

// isRecorded says that the interface has a checkpoint, readable or not.
func (b *beside) isRecorded(name string) bool {
	if _, ok := b.records[name]; !ok {
		record, err := b.store.Load(b.record.Attachment.ContainerID, name)
		if err != nil && !errors.Is(err, ErrNone) {
			record.Version = Version
		}
		b.records[name] = record
	}
	return b.records[name].Version != 0
}
