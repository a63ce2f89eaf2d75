package restore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/selection"
)

// holder is a device of the sandbox that has the recorded index and not the recorded name.
type holder struct {
	name string
	// is says that it is the recorded interface under a new name.
	is bool
	// mac is the device's.
	mac string
}

// lookElsewhere looks for an interface that is not there under its name. The error says that it is
// there under another name.
func (w *work) lookElsewhere() error {
	holder, err := w.holder()
	if err != nil || holder == nil {
		return err
	}
	if holder.is {
		return holder.renamed(w.record, w.sandbox.Path())
	}
	w.taken = holder.name
	return nil
}

// holder returns the device that has the recorded index. It is nil if no device has it, or the
// interface itself.
func (w *work) holder() (*holder, error) {
	link := w.record.Interface.Link
	if link.Index == 0 {
		return nil, nil
	}
	name, err := w.sandbox.NameOf(link.Index)
	if errors.Is(err, kernel.ErrNoDevice) || err == nil && name == link.Name {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	device, err := w.sandbox.Device(link.Index)
	if errors.Is(err, kernel.ErrNoDevice) || err == nil && kernel.Unfinished(device) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	live, err := kernel.Capture(w.host, w.sandbox, w.devices, name, kernel.Extent{})
	switch {
	case errors.Is(err, kernel.ErrNoDevice):
		return nil, nil
	case errors.Is(err, kernel.ErrUnsupported):
		return &holder{name: name}, nil
	case err != nil:
		return nil, err
	}
	h := &holder{name: name, mac: live.Link.MAC}
	if !isRenamed(w.record.Interface, live, w.parents) {
		return h, nil
	}
	inside, err := w.others()
	h.is = err == nil && inside.mine(w.record, live.Link)
	return h, err
}

// inside has the records of one sandbox, and by the index of a device the record that it belongs to.
type inside struct {
	records []checkpoint.Record
	of      map[int]checkpoint.Record
}

// others reads what the sandbox has and what is recorded of it.
func (w *work) others() (inside, error) {
	records, _, err := w.Store.Select(selection.Selection{Names: []string{w.record.Attachment.ContainerID}})
	if err != nil {
		return inside{}, err
	}
	devices, err := w.sandbox.Devices()
	if err != nil {
		return inside{}, err
	}
	devices = slices.DeleteFunc(devices, kernel.Unfinished)
	records = slices.DeleteFunc(records, func(r checkpoint.Record) bool { return r.Namespace.Same(w.record.Namespace) != nil })
	return inside{records: records, of: checkpoint.Match(records, devices)}, nil
}

// mine says that the device belongs to the record. If another record names the device and has no
// device of its own, the device belongs to that record, unless the MAC says otherwise.
func (i inside) mine(record checkpoint.Record, link netstate.Link) bool {
	if i.of[link.Index].Attachment != record.Attachment {
		return false
	}
	return link.MAC == record.Interface.Link.MAC || !slices.ContainsFunc(i.records, func(r checkpoint.Record) bool {
		return r.Attachment != record.Attachment && r.Interface.Link.Name == link.Name && !i.has(r)
	})
}

// has says that a device belongs to the record.
func (i inside) has(r checkpoint.Record) bool {
	for _, of := range i.of {
		if of.Attachment == r.Attachment {
			return true
		}
	}
	return false
}

// isStranger says that the device under the recorded name may be another one: neither its index nor
// its MAC is the recorded one.
func isStranger(recorded, live netstate.Link) bool {
	return recorded.Index != 0 && recorded.Index != live.Index && (recorded.MAC != live.MAC || recorded.SharesMAC())
}

// lookUnderName finds out whose device has the name of the interface. The error says that it is
// another attachment's.
func (w *work) lookUnderName(live netstate.Link) error {
	inside, err := w.others()
	if err != nil {
		return err
	}
	r, ok := inside.of[live.Index]
	if !ok || r.Attachment == w.record.Attachment {
		return nil
	}
	was := r.Interface.Link.Name
	return &Problem{Reason: fmt.Sprintf(
		"%s is gone, and its name is that of %s now, which was renamed: rename that back (nsenter --net=%s ip link set %s name %s), and restore again",
		live.Name, was, w.sandbox.Path(), live.Name, was)}
}

// isRenamed is a pure function: it says that the device with the recorded index is the recorded
// interface. It has the same kind and the same parents. Its MAC may differ: KubeVirt gives the pod's
// interface another MAC when it renames it.
func isRenamed(recorded, live netstate.Interface, parents []netstate.Device) bool {
	recorded.Parents = parents
	for _, d := range netstate.Diff(recorded, live) {
		switch d.Field {
		case netstate.FieldKind, netstate.FieldVLAN, netstate.FieldParent:
			return false
		}
	}
	was, is := recorded.Link.NIC, live.Link.NIC
	return was == nil || is != nil && *was == *is
}

// renamed says what is there and what to do about it. restore does not rename it back. Whoever renames
// a pod's interface, as KubeVirt does, works with it under the new name. And before Linux 6.2 it would
// have to go down for that, and would lose its routes.
func (h holder) renamed(recorded checkpoint.Record, sandbox string) *Problem {
	was := recorded.Interface.Link
	mac := ""
	if was.MAC != "" && was.MAC != h.mac {
		mac = fmt.Sprintf(", with the MAC %s instead of %s", h.mac, was.MAC)
	}
	return &Problem{Reason: fmt.Sprintf(
		"%s was renamed: it is there as %s (the same index %d, kind and parent%s) and is not built again: record the new name (relink capture --refresh %s), or rename it back (nsenter --net=%s ip link set %s name %s)",
		was.Name, h.name, was.Index, mac, outcomeOf(recorded).argument(), sandbox, h.name, was.Name)}
}

// otherIndex says that the interface cannot get its index again.
func otherIndex(index int, holder string) string {
	return fmt.Sprintf("its index %d is that of %s now, so that it gets another: programs that are bound to the index (SO_BINDTODEVICE, multicast groups) have to bind again", index, holder)
}
