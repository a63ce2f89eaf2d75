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
	b := &beside{store: s, exists: exists, record: r, there: map[string]bool{}, records: map[string]Record{}}
	now, err := boot.Uptime()
	if err != nil {
		return r.Interface, err
	}
	wanted := r.Interface.Unexpired(now)
	wanted.Routes = slices.DeleteFunc(slices.Clone(wanted.Routes), b.took)
	wanted.RouteOrder = s.orders(r)
	return wanted, b.err
}

// orders returns the orders of all slots in which the record's interface has a route.
func (s *Store) orders(r Record) []netstate.Order {
	var records []Record
	if !s.isAlone(r) {
		records, _ = s.listSandbox(r.Attachment.ContainerID) // An unreadable one tells no order.
	}
	records = slices.DeleteFunc(records, func(other Record) bool { return other.Attachment.IfName == r.Attachment.IfName })
	var recorded []string
	for _, other := range records {
		recorded = append(recorded, other.Attachment.IfName)
	}
	records = append(records, r)
	slices.SortStableFunc(records, func(a, b Record) int {
		return cmp.Or(b.CapturedAt.Compare(a.CapturedAt), cmp.Compare(a.Attachment.IfName, b.Attachment.IfName))
	})
	var all netstate.Orders
	for _, known := range records {
		all.Add(known.Interface.Link.Name, known.Interface.RouteOrder)
	}
	return all.Of(r.Interface, recorded)
}

// isAlone says that the record is the only checkpoint of its sandbox, as most are.
func (s *Store) isAlone(r Record) bool {
	files, err := os.ReadDir(s.sandboxDir(r.Attachment.ContainerID))
	return err == nil && !slices.ContainsFunc(files, func(f os.DirEntry) bool {
		return !isTemporary(f.Name()) && f.Name() != r.Attachment.IfName+suffix
	})
}

// beside knows the other interfaces of a record's sandbox.
type beside struct {
	store  *Store
	exists func(name string) (bool, error)
	record Record
	there  map[string]bool
	// records are the checkpoints that were looked up. An empty one stands for none.
	records map[string]Record
	err     error
}

// took says that another interface is gone and took the route away.
func (b *beside) took(route netstate.Route) bool {
	return slices.ContainsFunc(route.Devices(), func(name string) bool {
		return !b.isThere(name) && (route.Device != "" || !b.isRecorded(name))
	})
}

func (b *beside) isThere(name string) bool {
	if _, ok := b.there[name]; !ok {
		there, err := b.exists(name)
		b.there[name], b.err = there || err != nil, errors.Join(b.err, err)
	}
	return b.there[name]
}

// isRecorded says that the interface has a checkpoint, even one that cannot be read.
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
