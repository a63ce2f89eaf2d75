package adopt

import (
	"fmt"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// file identifies a namespace, but for one thing: the kernel gives inode numbers again.
type file struct{ device, inode uint64 }

// sandboxes has the records by the file of their namespace.
type sandboxes map[file][]checkpoint.Record

func bySandbox(records []checkpoint.Record) sandboxes {
	all := sandboxes{}
	for _, r := range records {
		at := file{r.Namespace.Device, r.Namespace.Inode}
		all[at] = append(all[at], r)
	}
	return all
}

// in matches the records of the namespace with its devices.
func (s sandboxes) in(namespace attachment.Namespace, devices netstate.Devices) matched {
	m := matched{devices: devices}
	for _, r := range s[file{namespace.Device, namespace.Inode}] {
		if r.Namespace.Same(namespace) == nil {
			m.records = append(m.records, r)
		}
	}
	m.of = checkpoint.Match(m.records, devices)
	return m
}

// matched are the records of one sandbox with all its container IDs.
type matched struct {
	records []checkpoint.Record
	devices netstate.Devices
	// of has the records by the index of their device.
	of map[int]checkpoint.Record
}

// record returns the checkpoint of the interface that was found.
func (m matched) record(f Found) (checkpoint.Record, bool) {
	r, ok := m.of[f.Live.Link.Index]
	return r, ok
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

// why says why no interface was found for the record. It is empty if another container ID has a
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

// namesake says whose checkpoint already has the name under which an interface of the sandbox would
// be remembered.
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
	all, records := map[attachment.Namespace]matched{}, bySandbox(node.Records)
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
