package checkpoint

import (
	"cmp"
	"errors"
	"os"
	"slices"

	"github.com/relink-cni/relink/pkg/netstate"
)

// Wanted returns what of the record's interface there still has to be, as other interfaces of
// the sandbox come and go. Without are
//   - a route through several interfaces one of which neither exists nor has a checkpoint: it
//     has been detached, and the kernel has taken the route away with it;
//   - a route that only has an address of this interface as source, where its own is not there:
//     it is for that one's checkpoint.
//
// The orders of routes are those of all checkpoints of the sandbox. Where two of them say
// otherwise, the newer one is right. So everybody who looks at a slot wants the same.
func (s *Store) Wanted(r Record, exists func(name string) (bool, error)) (netstate.Interface, error) {
	b := &beside{store: s, exists: exists, record: r, there: map[string]bool{}, records: map[string]Record{}}
	wanted := r.Interface
	wanted.Routes = slices.DeleteFunc(slices.Clone(wanted.Routes), b.took)
	wanted.RouteOrder = s.orders(r)
	return wanted, b.err
}

// orders returns the orders of the slots that the record's interface has to do with.
func (s *Store) orders(r Record) []netstate.Order {
	var records []Record
	if !s.isAlone(r) {
		records, _ = s.listSandbox(r.Attachment.ContainerID) // Of one that can't be read, nobody knows.
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

// isAlone says that the sandbox has no other checkpoint than the record's, as most have not.
func (s *Store) isAlone(r Record) bool {
	files, err := os.ReadDir(s.sandboxDir(r.Attachment.ContainerID))
	return err == nil && !slices.ContainsFunc(files, func(f os.DirEntry) bool {
		return !isTemporary(f.Name()) && f.Name() != r.Attachment.IfName+suffix
	})
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
