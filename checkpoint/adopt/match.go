package adopt

import (
	"fmt"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// file identifies a namespace as long as it exists. After that, the kernel can give its inode number to another one.
type file struct{ device, inode uint64 }

// sandboxes has what is remembered by the file of its namespace.
type sandboxes struct {
	// records are the checkpoints that can be read, and what can be read of the torn ones.
	records map[file][]checkpoint.Record
	torn    map[name]checkpoint.Unreadable
}

// name identifies the file of a checkpoint.
type name struct{ containerID, ifName string }

func nameOf(k attachment.Key) name { return name{k.ContainerID, k.IfName} }

func bySandbox(records []checkpoint.Record, unreadable []checkpoint.Unreadable) sandboxes {
	all := sandboxes{records: map[file][]checkpoint.Record{}, torn: map[name]checkpoint.Unreadable{}}
	for _, r := range slices.Concat(records, leftovers(unreadable, records)) {
		at := fileOf(r.Namespace)
		all.records[at] = append(all.records[at], r)
	}
	for _, u := range unreadable {
		all.torn[name{u.ContainerID, u.IfName}] = u
	}
	return all
}

// in matches the records of the namespace with its devices.
func (s sandboxes) in(namespace attachment.Namespace, devices netstate.Devices) matched {
	m := matched{devices: devices, torn: s.torn}
	for _, r := range s.records[fileOf(namespace)] {
		if r.Namespace.Same(namespace) == nil {
			m.records = append(m.records, r)
		}
	}
	m.of = checkpoint.Match(m.records, devices)
	return m
}

// matched are the records of one sandbox with all its container IDs. What can be read of a torn checkpoint is a
// record like the others. So a torn checkpoint gets the interface that fits it best.
type matched struct {
	records []checkpoint.Record
	torn    map[name]checkpoint.Unreadable
	devices netstate.Devices
	// of has the records by the index of their device.
	of map[int]checkpoint.Record
}

// record returns the checkpoint of the interface that was found, if it can be read.
func (m matched) record(f Found) (checkpoint.Record, bool) {
	r, ok := m.of[f.Live.Link.Index]
	_, torn := m.unreadable(r)
	return r, ok && !torn
}

// recorded says that the device has a checkpoint, readable or not.
func (m matched) recorded(index int) bool {
	_, ok := m.of[index]
	return ok
}

// unreadable returns the torn checkpoint of the record, if the record is what can be read of one.
func (m matched) unreadable(r checkpoint.Record) (checkpoint.Unreadable, bool) {
	u, torn := m.torn[nameOf(r.Attachment)]
	return u, torn
}

// device returns the device of the record.
func (m matched) device(r checkpoint.Record) (netstate.LiveDevice, bool) {
	i := slices.IndexFunc(m.devices, func(d netstate.LiveDevice) bool {
		of, ok := m.of[d.Index]
		return ok && of.Attachment == r.Attachment
	})
	if i < 0 {
		return netstate.LiveDevice{}, false
	}
	return m.devices[i], true
}

// lost returns the records without a device.
func (m matched) lost() []checkpoint.Record {
	there := map[attachment.Key]bool{}
	for _, r := range m.of {
		there[r.Attachment] = true
	}
	var lost []checkpoint.Record
	for _, r := range m.records {
		if !there[r.Attachment] {
			lost = append(lost, r)
		}
	}
	return lost
}

// why returns the reason why no interface was found for the record. It is empty if another container ID has a
// checkpoint of the same interface.
func (m matched) why(r checkpoint.Record) string {
	was := r.Interface.Link
	if is, there := m.device(r); there {
		return notTaken(was, is)
	}
	const gone = " is gone from the sandbox"
	d, named := m.devices.ByName(was.Name)
	other, recorded := m.of[d.Index]
	switch {
	case !named || !recorded:
		return was.Name + gone + ": relink restore brings it back"
	case other.Interface.Link.Name == was.Name:
		return ""
	}
	return fmt.Sprintf("%s%s, and %s was renamed to %s: rename that back, then relink restore brings %s back",
		was.Name, gone, other.Interface.Link.Name, was.Name, was.Name)
}

// notTaken says that the interface is there, and why its state cannot be remembered.
func notTaken(was netstate.Link, is netstate.LiveDevice) string {
	as := ""
	if is.Name != was.Name {
		as = " as " + is.Name
	}
	if is.Kind != was.Kind {
		return fmt.Sprintf("%s is there%s as a %s, not a %s, and can't be remembered", was.Name, as, is.Kind, was.Kind)
	}
	return fmt.Sprintf("%s is there%s, and can't be remembered as it is", was.Name, as)
}

// namesake says whose checkpoint r is. A new checkpoint of an interface of the sandbox would have the same name.
func (m matched) namesake(r checkpoint.Record) string {
	if is, there := m.device(r); there {
		return fmt.Sprintf("its name is taken: %s was renamed from %s, and its checkpoint still has that name", is.Name, r.Attachment.IfName)
	}
	return "its name is that of a checkpoint of another namespace, " + r.Namespace.Path
}

// recordsOf matches records with devices for each sandbox.
func recordsOf(node Node) map[attachment.Namespace]matched {
	devices := map[attachment.Namespace]netstate.Devices{}
	for _, f := range node.Found {
		devices[f.Namespace] = nil
	}
	for namespace, beside := range node.Beside {
		devices[namespace] = beside
	}
	for _, f := range node.Found {
		devices[f.Namespace] = with(devices[f.Namespace], f)
	}
	all, records := map[attachment.Namespace]matched{}, bySandbox(node.Records, node.Unreadable)
	for namespace, there := range devices {
		all[namespace] = records.in(namespace, there)
	}
	return all
}

// with returns the devices and the interface's own one, which may have come after the list was made.
func with(devices netstate.Devices, f Found) netstate.Devices {
	link := f.Live.Link
	if _, there := devices.ByIndex(link.Index); there {
		return devices
	}
	return append(slices.Clip(devices), netstate.LiveDevice{Device: netstate.Device{Kind: link.Kind, Name: link.Name, MAC: link.MAC}, Index: link.Index})
}
