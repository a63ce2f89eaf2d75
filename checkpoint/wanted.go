package checkpoint

import (
	"cmp"
	"errors"
	"os"
	"slices"

	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Wanted returns what still has to exist of the record's interface. Other interfaces of the sandbox
// come and go, so it leaves out:
//
//   - an address that has expired, and the routes that need it;
//   - a route through several interfaces, if one of them is gone and has no checkpoint. That one
//     was detached, and the kernel removed the route with it;
//   - a route of another interface that has an address of this one as source, if the other is
//     gone. The other's checkpoint has the route.
//
// The orders of routes are from all checkpoints of the sandbox. Where two disagree, the newer one
// counts. So everybody who looks at a slot wants the same order.
func (s *Store) Wanted(r Record, exists func(name string) (bool, error)) (netstate.Interface, error) {
	b := &siblings{store: s, exists: exists, record: r, present: map[string]bool{}, records: map[string]Record{}}
	uptime, err := boot.Uptime()
	if err != nil {
		return r.Interface, err
	}
	wanted := r.Interface.Unexpired(uptime)
	wanted.Routes = slices.DeleteFunc(slices.Clone(wanted.Routes), b.tookRoute)
	wanted.RouteOrder = s.orders(r)
	return wanted, b.err
}

// orders returns the orders of all slots in which the record's interface has a route.
func (s *Store) orders(r Record) []netstate.Order {
	var records []Record
	if !s.isOnlyCheckpoint(r) {
		records, _ = s.listSandbox(r.Attachment.ContainerID) // An unreadable one tells no order.
	}
	records = slices.DeleteFunc(records, func(sibling Record) bool { return sibling.Attachment.IfName == r.Attachment.IfName })
	var recorded []string
	for _, sibling := range records {
		recorded = append(recorded, sibling.Attachment.IfName)
	}
	records = append(records, r)
	slices.SortStableFunc(records, func(a, b Record) int {
		return cmp.Or(b.CapturedAt.Compare(a.CapturedAt), cmp.Compare(a.Attachment.IfName, b.Attachment.IfName))
	})
	var orders netstate.Orders
	for _, record := range records {
		orders.Add(record.Interface.Link.Name, record.Interface.RouteOrder)
	}
	return orders.ForInterface(r.Interface, recorded)
}

// isOnlyCheckpoint says that the record is the only checkpoint of its sandbox, as most are.
func (s *Store) isOnlyCheckpoint(r Record) bool {
	files, err := os.ReadDir(s.sandboxDir(r.Attachment.ContainerID))
	return err == nil && !slices.ContainsFunc(files, func(f os.DirEntry) bool {
		return !isTemporary(f.Name()) && f.Name() != r.Attachment.IfName+suffix
	})
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
