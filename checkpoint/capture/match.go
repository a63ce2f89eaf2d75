package capture

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// recordIndex has what is remembered. What can be read of a torn checkpoint is a record like the others, if its namespace is known: so its
// interface is known to be attached. readable are the records without these.
type recordIndex struct {
	readable, records []checkpoint.Record
	byNamespace       map[attachment.NamespaceFile][]checkpoint.Record
	unreadable        []checkpoint.Unreadable
	// torn are the checkpoints that cannot be read, by their attachments without the networks.
	torn map[attachment.Key]checkpoint.Unreadable
}

func indexRecords(records []checkpoint.Record, unreadable []checkpoint.Unreadable) recordIndex {
	index := recordIndex{
		readable: records, records: slices.Clip(records), unreadable: unreadable,
		byNamespace: map[attachment.NamespaceFile][]checkpoint.Record{}, torn: map[attachment.Key]checkpoint.Unreadable{},
	}
	for _, u := range unreadable {
		index.torn[u.Attachment().WithoutNetwork()] = u
		if r := u.Partial; u.IfName != "" && r.Namespace != (attachment.Namespace{}) {
			r.Attachment, r.Interface.Link.Name = u.Attachment(), cmp.Or(r.Interface.Link.Name, u.IfName)
			index.records = append(index.records, r)
		}
	}
	for _, r := range index.records {
		index.byNamespace[r.Namespace.File()] = append(index.byNamespace[r.Namespace.File()], r)
	}
	return index
}

// match matches the records of the namespace with its devices.
func (s recordIndex) match(namespace attachment.Namespace, devices netstate.Devices) matchedRecords {
	m := matchedRecords{node: s, devices: devices}
	for _, r := range s.byNamespace[namespace.File()] {
		if r.Namespace.Same(namespace) == nil {
			m.records = append(m.records, r)
		}
	}
	m.byIndex = checkpoint.Match(m.records, devices)
	return m
}

// matchedRecords are the records of one sandbox with all its container IDs. A torn checkpoint gets the interface that fits it best, as any
// other.
type matchedRecords struct {
	node    recordIndex
	records []checkpoint.Record
	devices netstate.Devices
	// byIndex has the records by the index of their device.
	byIndex map[int]checkpoint.Record
}

// record returns the checkpoint of the interface that was found, if it can be read.
func (m matchedRecords) record(f LiveInterface) (checkpoint.Record, bool) {
	r, ok := m.byIndex[f.Live.Link.Index]
	return r, ok && !m.isTorn(r)
}

// recorded says that the device has a checkpoint, readable or not.
func (m matchedRecords) recorded(index int) bool {
	_, ok := m.byIndex[index]
	return ok
}

func (m matchedRecords) isTorn(r checkpoint.Record) bool {
	_, torn := m.node.torn[r.Attachment.WithoutNetwork()]
	return torn
}

// findUnreadable returns the checkpoint of the interface, or the directory that it would be in, if that cannot be read.
// It goes by the name only if nothing tells the checkpoint's namespace. The name comes from a cache, and the cache can
// be of a container that is gone: another container has its path now.
func (m matchedRecords) findUnreadable(f LiveInterface) (checkpoint.Unreadable, bool) {
	if u, torn := m.node.torn[m.byIndex[f.Live.Link.Index].Attachment.WithoutNetwork()]; torn {
		return u, true
	}
	i := slices.IndexFunc(m.node.unreadable, func(u checkpoint.Unreadable) bool {
		nameless := u.IfName == f.Attachment.IfName && u.Partial.Namespace == (attachment.Namespace{})
		return u.ContainerID == f.Attachment.ContainerID && (u.IfName == "" || nameless)
	})
	if i < 0 {
		return checkpoint.Unreadable{}, false
	}
	return m.node.unreadable[i], true
}

// device returns the device of the record.
func (m matchedRecords) device(r checkpoint.Record) (netstate.LiveDevice, bool) {
	i := slices.IndexFunc(m.devices, func(d netstate.LiveDevice) bool {
		record, ok := m.byIndex[d.Index]
		return ok && record.Attachment == r.Attachment
	})
	if i < 0 {
		return netstate.LiveDevice{}, false
	}
	return m.devices[i], true
}

// missingReason returns the reason why no interface was found for the record. It is empty if another container ID has a
// checkpoint of the same interface.
func (m matchedRecords) missingReason(r checkpoint.Record) string {
	name := r.Interface.Link.Name
	if live, exists := m.device(r); exists {
		return fmt.Sprintf("%s is there as %s, a %s, and can't be remembered as it is", name, live.Name, live.Kind)
	}
	d, _ := m.devices.ByName(name)
	occupant, recorded := m.byIndex[d.Index]
	switch {
	case !recorded:
		return name + " is gone from the sandbox: relink restore brings it back"
	case occupant.Interface.Link.Name == name:
		return ""
	}
	return fmt.Sprintf("%[1]s is gone from the sandbox, and %[2]s was renamed to %[1]s: rename that back, then relink restore brings %[1]s back",
		name, occupant.Interface.Link.Name)
}

// nameConflictReason says whose checkpoint r is. A new checkpoint of an interface of the sandbox would have the same name.
func (m matchedRecords) nameConflictReason(r checkpoint.Record) string {
	if live, exists := m.device(r); exists {
		if kernel.IsTemporaryName(live.Name) {
			return temporaryReason(live.Name)
		}
		return fmt.Sprintf("its name is taken: %s was renamed from %s, and its checkpoint still has that name", live.Name, r.Attachment.IfName)
	}
	return "its name is that of a checkpoint of another namespace, " + r.Namespace.Path
}
