package restore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

// checkIdentity is for an interface that may not be what is under its name. The error says that the interface is there under another
// name, or that its name is another attachment's: owner is the device that has the name, nil if it is not to be looked at. If another
// device has the recorded index, checkIdentity notes its name.
func (w *attachmentRestore) checkIdentity(owner *netstate.Link) error {
	name, err := w.nameOfIndex()
	if err != nil || name == "" && owner == nil {
		return err
	}
	inside, err := w.matchSandbox()
	if err != nil {
		return err
	}
	if name != "" {
		wanted, err := w.wantedState()
		if err != nil {
			return err
		}
		live, err := kernel.Capture(w.node.host, w.sandbox, w.devices, name, kernel.ExtentOf(wanted))
		switch {
		case err == nil && isRenamed(w.record.Interface, live, w.parents) && inside.belongsTo(w.record, live.Link):
			occupied, _ := w.sandbox.Exists(w.record.Interface.Link.Name)
			return renamedProblem(w.record, live.Link, w.worseReason(live), w.sandbox.Path(), occupied)
		case err != nil && !errors.Is(err, kernel.ErrNoDevice) && !errors.Is(err, kernel.ErrUnsupported):
			return err
		}
		w.indexOwnerName = name
	}
	if owner == nil {
		return nil
	}
	r, ok := inside.byIndex[owner.Index]
	if !ok || r.Attachment == w.record.Attachment {
		return nil
	}
	oldName := r.Interface.Link.Name
	return &Problem{Reason: fmt.Sprintf(
		"%s is gone, and its name is that of %s now, which was renamed: rename that back (%s), and restore again",
		owner.Name, oldName, renameCommand(w.sandbox.Path(), owner.Name, oldName))}
}

// worseReason says why a capture would not record the live interface. wantedState was called before.
func (w *attachmentRestore) worseReason(live netstate.Interface) string {
	return netstate.WorseReason(*w.wanted, live, w.present.FirstDown(live.Parents), netstate.Diff(*w.wanted, live), false)
}

// nameOfIndex returns the name of the device that has the recorded index and not the recorded name, "" if there is none.
func (w *attachmentRestore) nameOfIndex() (string, error) {
	link := w.record.Interface.Link
	if link.Index == 0 {
		return "", nil
	}
	name, err := w.sandbox.NameOf(link.Index) // A lost interface takes only this.
	if err == nil && name == link.Name {
		return "", nil
	}
	var device netstate.LiveDevice
	if err == nil {
		device, err = w.sandbox.Device(link.Index)
	}
	if errors.Is(err, kernel.ErrNoDevice) || kernel.Unfinished(device) {
		return "", nil
	}
	return name, err
}

// sandboxRecords has the records of one sandbox, and by the index of a device the record that it belongs to.
type sandboxRecords struct {
	records []checkpoint.Record
	byIndex map[int]checkpoint.Record
}

// matchSandbox reads what the sandbox has and what is recorded of it.
func (w *attachmentRestore) matchSandbox() (sandboxRecords, error) {
	records, _ := w.node.store.ListSandbox(w.record.Attachment.ContainerID)
	devices, err := w.sandbox.Devices()
	if err != nil {
		return sandboxRecords{}, err
	}
	devices = slices.DeleteFunc(devices, kernel.Unfinished)
	records = slices.DeleteFunc(records, func(r checkpoint.Record) bool { return r.Namespace.Same(w.record.Namespace) != nil })
	return sandboxRecords{records: records, byIndex: checkpoint.Match(records, devices)}, nil
}

// belongsTo says that the device belongs to the record. If another record names the device and has no
// device of its own, the device belongs to that record, unless the MAC says otherwise.
func (i sandboxRecords) belongsTo(record checkpoint.Record, link netstate.Link) bool {
	if i.byIndex[link.Index].Attachment != record.Attachment {
		return false
	}
	matched := map[attachment.Key]bool{}
	for _, r := range i.byIndex {
		matched[r.Attachment] = true
	}
	return link.MAC == record.Interface.Link.MAC || !slices.ContainsFunc(i.records, func(r checkpoint.Record) bool {
		return r.Interface.Link.Name == link.Name && !matched[r.Attachment]
	})
}

// isForeign says that the device under the recorded name may be another one: neither its index nor
// its MAC is the recorded one.
func isForeign(recorded, live netstate.Link) bool {
	return recorded.Index != 0 && recorded.Index != live.Index && (recorded.MAC != live.MAC || recorded.SharesMAC())
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
	recordedNIC, liveNIC := recorded.Link.NIC, live.Link.NIC
	return recordedNIC == nil || liveNIC != nil && *recordedNIC == *liveNIC
}

// renamedProblem says as what the interface is there and what to do about it. worse says why capture --refresh refuses it: what it has lost
// comes back when it has its name again. nameTaken says that another device has that name. restore does not rename it back. Whoever renames
// a pod's interface, as KubeVirt does, works with it under the new name. And before Linux 6.2 it would
// have to go down for that, and would lose its routes.
func renamedProblem(recorded checkpoint.Record, live netstate.Link, worse, sandbox string, nameTaken bool) *Problem {
	link := recorded.Interface.Link
	mac := ""
	if link.MAC != "" && link.MAC != live.MAC {
		mac = fmt.Sprintf(", with the MAC %s instead of %s", live.MAC, link.MAC)
	}
	cause := "the interface was renamed: relink capture --refresh records the new name"
	advice := fmt.Sprintf("record the new name (relink capture --refresh %s), or rename it back", outcomeOf(recorded).argument())
	if worse != "" {
		cause, advice = "the interface was renamed, and has lost something: rename it back", worse+". Rename it back, and relink restore repairs it"
	}
	if nameTaken {
		advice += ". Its name is that of another device now: give that one another name first"
	}
	return &Problem{Cause: cause, Reason: fmt.Sprintf(
		"%s was renamed: it is there as %s (the same index %d, kind and parent%s) and is not built again: %s (%s)",
		link.Name, live.Name, link.Index, mac, advice, renameCommand(sandbox, live.Name, link.Name))}
}

func renameCommand(sandbox, present, name string) string {
	return printable.Command("nsenter", "--net="+sandbox, "ip", "link", "set", present, "name", name)
}
