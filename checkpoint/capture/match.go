package capture

import (
	"fmt"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// recordIndex has what is remembered by the file of its namespace.
type recordIndex struct {
	// records are the checkpoints that can be read, and what can be read of the torn ones. torn are by their attachments without
	// the networks.
	records map[attachment.NamespaceFile][]checkpoint.Record
	torn    map[attachment.Key]checkpoint.Unreadable
}

func indexRecords(records []checkpoint.Record, unreadable []checkpoint.Unreadable) recordIndex {
	index := recordIndex{records: map[attachment.NamespaceFile][]checkpoint.Record{}, torn: map[attachment.Key]checkpoint.Unreadable{}}
	for _, r := range slices.Concat(records, partialRecords(unreadable, records)) {
		key := r.Namespace.File()
		index.records[key] = append(index.records[key], r)
	}
	for _, u := range unreadable {
		index.torn[u.Attachment().WithoutNetwork()] = u
	}
	return index
}

// match matches the records of the namespace with its devices.
func (s recordIndex) match(namespace attachment.Namespace, devices netstate.Devices) matchedRecords {
	m := matchedRecords{devices: devices, torn: s.torn}
	for _, r := range s.records[namespace.File()] {
		if r.Namespace.Same(namespace) == nil {
			m.records = append(m.records, r)
		}
	}
	m.byIndex = checkpoint.Match(m.records, devices)
	return m
}

// matchedRecords are the records of one sandbox with all its container IDs. What can be read of a torn checkpoint is a
// record like the others. So a torn checkpoint gets the interface that fits it best.
type matchedRecords struct {
	records []checkpoint.Record
	torn    map[attachment.Key]checkpoint.Unreadable
	devices netstate.Devices
	// byIndex has the records by the index of their device.
	byIndex map[int]checkpoint.Record
}

// record returns the checkpoint of the interface that was found, if it can be read.
func (m matchedRecords) record(f LiveInterface) (checkpoint.Record, bool) {
	r, ok := m.byIndex[f.Live.Link.Index]
	_, torn := m.unreadable(r)
	return r, ok && !torn
}

// recorded says that the device has a checkpoint, readable or not.
func (m matchedRecords) recorded(index int) bool {
	_, ok := m.byIndex[index]
	return ok
}

// unreadable returns the torn checkpoint of the record, if the record is what can be read of one.
func (m matchedRecords) unreadable(r checkpoint.Record) (checkpoint.Unreadable, bool) {
	u, torn := m.torn[r.Attachment.WithoutNetwork()]
	return u, torn
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

// lost returns the records without a device.
func (m matchedRecords) lost() []checkpoint.Record {
	matched := map[attachment.Key]bool{}
	for _, r := range m.byIndex {
		matched[r.Attachment] = true
	}
	var lost []checkpoint.Record
	for _, r := range m.records {
		if !matched[r.Attachment] {
			lost = append(lost, r)
		}
	}
	return lost
}

// missingReason returns the reason why no interface was found for the record. It is empty if another container ID has a
// checkpoint of the same interface.
func (m matchedRecords) missingReason(r checkpoint.Record) string {
	recordedLink := r.Interface.Link
	if live, exists := m.device(r); exists {
		return notCapturableReason(recordedLink, live)
	}
	const gone = " is gone from the sandbox"
	d, named := m.devices.ByName(recordedLink.Name)
	occupant, recorded := m.byIndex[d.Index]
	switch {
	case !named || !recorded:
		return recordedLink.Name + gone + ": relink restore brings it back"
	case occupant.Interface.Link.Name == recordedLink.Name:
		return ""
	}
	return fmt.Sprintf("%s%s, and %s was renamed to %s: rename that back, then relink restore brings %s back",
		recordedLink.Name, gone, occupant.Interface.Link.Name, recordedLink.Name, recordedLink.Name)
}

// notCapturableReason says that the interface is there, and why its state cannot be remembered.
func notCapturableReason(recorded netstate.Link, live netstate.LiveDevice) string {
	suffix := ""
	if live.Name != recorded.Name {
		suffix = " as " + live.Name
	}
	if live.Kind != recorded.Kind {
		return fmt.Sprintf("%s is there%s as a %s, not a %s, and can't be remembered", recorded.Name, suffix, live.Kind, recorded.Kind)
	}
	return fmt.Sprintf("%s is there%s, and can't be remembered as it is", recorded.Name, suffix)
}

// nameConflictReason says whose checkpoint r is. A new checkpoint of an interface of the sandbox would have the same name.
func (m matchedRecords) nameConflictReason(r checkpoint.Record) string {
	if live, exists := m.device(r); exists {
		return fmt.Sprintf("its name is taken: %s was renamed from %s, and its checkpoint still has that name", live.Name, r.Attachment.IfName)
	}
	return "its name is that of a checkpoint of another namespace, " + r.Namespace.Path
}

// matchSandboxes matches records with devices for each sandbox.
func matchSandboxes(node Node) map[attachment.Namespace]matchedRecords {
	devices := map[attachment.Namespace]netstate.Devices{}
	for _, f := range node.Interfaces {
		devices[f.Namespace] = nil
	}
	for namespace, beside := range node.Devices {
		devices[namespace] = beside
	}
	for _, f := range node.Interfaces {
		devices[f.Namespace] = withDevice(devices[f.Namespace], f)
	}
	result, records := map[attachment.Namespace]matchedRecords{}, indexRecords(node.Records, node.Unreadable)
	for namespace, list := range devices {
		result[namespace] = records.match(namespace, list)
	}
	return result
}

// withDevice returns the devices and the interface's own one, which may have come after the list was made.
func withDevice(devices netstate.Devices, f LiveInterface) netstate.Devices {
	link := f.Live.Link
	if _, exists := devices.ByIndex(link.Index); exists {
		return devices
	}
	return append(slices.Clip(devices), netstate.LiveDevice{Device: netstate.Device{Kind: link.Kind, Name: link.Name, MAC: link.MAC}, Index: link.Index})
}
