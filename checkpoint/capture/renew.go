package capture

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// LinkHistory is what a listener to the kernel knows about a sandbox.
type LinkHistory struct {
	// Down are the indexes of the devices that were down or gone while the sandbox was read. The reading of such a
	// device may be incomplete. Index 0 stands for any device.
	Down map[int]bool
	// NeverDown says that no device of the sandbox was down since all its interfaces were last found whole. Then
	// anything missing now was removed on purpose: the kernel drops addresses and routes by itself only when a device
	// goes down.
	NeverDown bool
}

// Renewal renews the checkpoints of one sandbox. It looks at no other sandbox, and writes no checkpoint for an
// interface that has none.
type Renewal struct {
	Store *checkpoint.Store
	// Host is the host's namespace. Devices are its devices as they are now.
	Host    *kernel.Namespace
	Devices netstate.Devices
	// Namespace is the sandbox. ContainerIDs are the IDs under which it has checkpoints.
	Namespace    attachment.Namespace
	ContainerIDs []string
	// Quick reads only the sysctls that a checkpoint has, because sysctls take most of the time of a capture. For the
	// others, the checkpoints keep their values.
	Quick bool
	// Marks are the marks of the interfaces' sysctls, by their indices, from when all sysctls were last recorded. While a mark is the same, only
	// those are read that the checkpoint has. Renew changes the map.
	Marks map[int]kernel.SettingsMark
	// LinkHistory is called once: after the reading, and before the decision.
	LinkHistory func() LinkHistory
}

// errWentDown says that an interface went down or was deleted during the reading.
var errWentDown = fmt.Errorf("an interface went down while it was read: %w", kernel.ErrNoDevice)

// Renew captures the interfaces that have checkpoints. It decides like a capture with Refresh, and writes the
// checkpoints that are out of date. It writes nothing if only the time differs. It never writes a state that was read
// while an interface or a parent went away.
//
// Renew returns checkpoint.ErrBusy at once if another process works on the sandbox. It returns kernel.ErrNoNamespace or
// attachment.ErrOtherNamespace if the sandbox is gone. It returns checkpoint.ErrUnfinishedMove if a move did not end. It returns kernel.ErrNoDevice if an interface or a parent went
// down or was deleted during the reading. In these cases it writes nothing.
func (n Renewal) Renew(ctx context.Context) (outcomes []InterfaceOutcome, err error) {
	err = n.underLock(ctx, func() error {
		outcomes, err = n.renew()
		return err
	})
	return outcomes, err
}

// underLock calls f under the sandbox's lock, while it holds the VLAN parents.
func (n Renewal) underLock(ctx context.Context, f func() error) error {
	for _, id := range n.ContainerIDs {
		unlock, err := n.Store.TryLock(id)
		if err != nil {
			return err
		}
		defer unlock()
		if err := n.Store.CheckNoMove(id); err != nil {
			return err
		}
	}
	shared, err := n.Store.LockParents(ctx)
	if err != nil {
		return err
	}
	defer shared.Release()
	return f()
}

// renewalRun is a running Renewal. It has the sandbox's lock.
type renewalRun struct {
	Renewal
	inspector  *sandboxInspector
	records    []checkpoint.Record
	unreadable []checkpoint.Unreadable
	interfaces []LiveInterface
	// quick are the indices of the interfaces whose other sysctls were not read. marks are the marks of the others.
	quick map[int]bool
	marks map[int]kernel.SettingsMark
}

func (n Renewal) renew() ([]InterfaceOutcome, error) {
	r := &renewalRun{Renewal: n, quick: map[int]bool{}, marks: map[int]kernel.SettingsMark{}}
	if r.records, r.unreadable = n.Store.ListSandboxes(n.ContainerIDs); len(r.records) == 0 {
		return nil, nil
	}
	namespace, err := kernel.OpenSame(n.Namespace)
	if err != nil {
		return nil, err
	}
	defer namespace.Close()
	if err := r.readInterfaces(namespace); err != nil {
		return nil, err
	}
	heard := n.LinkHistory()
	if heard.Down[0] || slices.ContainsFunc(r.interfaces, func(f LiveInterface) bool { return heard.Down[f.Live.Link.Index] }) {
		return nil, errWentDown
	}
	if err := r.checkStillUp(); err != nil {
		return nil, err
	}
	return r.updateCheckpoints(heard.NeverDown), nil
}

// readInterfaces reads the interfaces of all records.
func (r *renewalRun) readInterfaces(namespace *kernel.Namespace) (err error) {
	l := &inspector{host: r.Host, hostDevices: r.Devices, records: indexRecords(r.records, r.unreadable)}
	if r.inspector, err = l.openInspector(namespace); err != nil {
		return err
	}
	for _, record := range r.inspector.records.records {
		device, exists := r.inspector.records.device(record)
		if !exists {
			continue
		}
		if err := r.limitSettings(device.Index, record); err != nil {
			return err
		}
		f, err := r.inspector.inspect(device.Name)
		if err != nil {
			return err
		}
		if f != nil {
			r.interfaces = append(r.interfaces, *f)
		}
	}
	return nil
}

// limitSettings has all sysctls of the interface read if they can have changed since they were last recorded.
func (r *renewalRun) limitSettings(index int, record checkpoint.Record) error {
	r.quick[index] = r.Quick
	if !r.Quick {
		mark, err := r.inspector.namespace.SettingsMark(index)
		if err != nil {
			return err
		}
		r.quick[index], r.marks[index] = mark == r.Marks[index], mark
	}
	r.inspector.limitSettings(!r.quick[index], record)
	return nil
}

// checkStillUp returns ErrNoDevice unless all interfaces and parents that were up are still up. When a parent goes,
// the kernel first sets the interface down, then drops its routes and addresses, and then deletes it. So if an
// interface is still up now, everything that was read about it before is whole.
func (r *renewalRun) checkStillUp() error {
	for _, f := range r.interfaces {
		if err := r.inspector.checkStillUp(f); err != nil {
			return err
		}
	}
	return nil
}

// checkStillUp is for one interface.
func (r *sandboxInspector) checkStillUp(f LiveInterface) error {
	if err := checkDeviceUp(r.namespace, f.Live.Link.Index, f.Live.Link.Up); err != nil {
		return err
	}
	namespace, devices := r.host, r.hostDevices
	if f.Live.ParentsInSandbox {
		namespace, devices = r.namespace, r.sandboxDevices
	}
	for _, p := range f.Live.Parents {
		parent, exists := devices.ByName(p.Name)
		if !exists {
			return errWentDown // The device came during the reading.
		}
		if err := checkDeviceUp(namespace, parent.Index, parent.Up); err != nil {
			return err
		}
	}
	return nil
}

// checkDeviceUp returns ErrNoDevice unless the device is there. A device that was up must still be up.
func checkDeviceUp(n *kernel.Namespace, index int, wasUp bool) error {
	device, err := n.Device(index)
	if err == nil && wasUp && !device.Up {
		return errWentDown
	}
	return err
}

// updateCheckpoints compares the reading with the checkpoints, and writes those that are out of date. It leaves torn checkpoints alone:
// nobody has asked to repair them.
func (r *renewalRun) updateCheckpoints(unbroken bool) (outcomes []InterfaceOutcome) {
	for i := range r.interfaces {
		r.interfaces[i].NeverDown = unbroken
	}
	for _, a := range r.inspector.records.decideSandbox(r.interfaces, true) {
		if a.torn == nil && a.recorded != nil {
			if r.isReplaced(*a.recorded, a.Interface) {
				outcomes = append(outcomes, r.forgetReplaced(a))
				continue
			}
			a.WentAlone = a.State == change.Refused && r.wentAlone(*a.recorded)
			outcomes = append(outcomes, r.updateCheckpoint(a))
		}
	}
	return outcomes
}

// forgetReplaced drops the checkpoint of an interface that was detached. The one that has its name now is recorded anew.
func (r *renewalRun) forgetReplaced(a InterfaceAction) InterfaceOutcome {
	a = a.decided(Replaced, "another program has detached it, and attached another one under its name")
	if err := r.Store.ForgetListed(*a.recorded, nil); err != nil {
		a.Fail(err)
	}
	return a.InterfaceOutcome
}

// updateCheckpoint carries out the action, if it changes the record.
func (r *renewalRun) updateCheckpoint(a InterfaceAction) InterfaceOutcome {
	if a.State != Refreshed {
		return a.InterfaceOutcome
	}
	previous := *a.recorded
	if r.Store.Detaching(a.Namespace, previous.Attachment.IfName) {
		return a.decided(change.Kept, "it is being detached").InterfaceOutcome
	}
	record := recordOf(a, previous.Writer)
	if r.quick[a.Interface.Link.Index] {
		keepSettingNotes(previous.Interface, &record.Interface)
	}
	if !a.Interface.Carrier {
		keepWithoutRouteFlags(previous.Interface.Addresses, record.Interface.Addresses)
	}
	record.Interface.Parents = mergeLostParts(previous.Interface.Parents, record.Interface.Parents, a.readAt)
	if isSameContent(previous, record, a.readAt) {
		a = a.decided(change.Kept, a.Reason)
	} else if err := r.Store.Save(record); err != nil {
		a.Fail(err)
		return a.InterfaceOutcome
	}
	if mark, read := r.marks[a.Interface.Link.Index]; read { // What was read in vain is read again.
		r.Marks[a.Interface.Link.Index] = mark
	}
	return a.InterfaceOutcome
}

// keepSettingNotes keeps what the record says about sysctls that were not read.
func keepSettingNotes(recorded netstate.Interface, live *netstate.Interface) {
	live.NotCaptured = withSettings(recorded.NotCaptured, live.NotCaptured)
	live.Parents = slices.Clone(live.Parents)
	for i := range min(len(recorded.Parents), len(live.Parents)) {
		p := &live.Parents[i]
		before, carried := recorded.Parents[i].Carried, *cmp.Or(p.Carried, &netstate.Carried{})
		if before == nil || !p.SameDevice(recorded.Parents[i]) {
			continue
		}
		if carried.NotRestored = withSettings(before.NotRestored, carried.NotRestored); p.Carried != nil || len(carried.NotRestored) > 0 {
			p.Carried = &carried
		}
	}
}

// withSettings returns the notes that were read, and those recorded about sysctls.
func withSettings(recorded, read []string) []string {
	isSetting := func(note string) bool { return strings.HasPrefix(note, kernel.SettingNote) }
	rest := slices.DeleteFunc(slices.Clone(recorded), isSetting)
	if slices.Equal(rest, read) {
		return recorded
	}
	return append(slices.Clip(read), slices.DeleteFunc(slices.Clone(recorded), func(note string) bool { return !isSetting(note) })...)
}

// keepWithoutRouteFlags keeps what the record says about addresses without the kernel's route. A link without carrier does
// not show that.
func keepWithoutRouteFlags(recorded, live []netstate.Address) {
	for i := range live {
		live[i].WithoutRoute = slices.ContainsFunc(recorded, func(a netstate.Address) bool { return a.Prefix == live[i].Prefix && a.WithoutRoute })
	}
}

// mergeLostParts returns the parents as they are, and adds the bond members, addresses and routes that they have lost. Such a
// loss is not a change in the pod. It can come from a restart of the host's network that is half done. uptime is a time since
// the boot.
func mergeLostParts(recorded, live []netstate.Device, uptime time.Duration) []netstate.Device {
	live = slices.Clone(live)
	for i := range min(len(recorded), len(live)) {
		if !recorded[i].SameDevice(live[i]) {
			continue
		}
		if hasLostCarried(recorded[i], live[i], uptime) {
			live[i].Carried = recorded[i].Carried
		}
		if members, lost := mergeLostMembers(recorded[i], live[i]); lost {
			bond, name, index, carried := *recorded[i].Bond, live[i].Name, live[i].IfIndex, live[i].Carried
			// A bond without members has a wrong MAC and wrong options.
			live[i] = recorded[i]
			bond.Members = members
			live[i].Bond, live[i].Name, live[i].IfIndex, live[i].Carried = &bond, name, index, carried
		}
	}
	return live
}

// mergeLostMembers returns the recorded members. Those that are there are as they are now. lost says that a member is
// missing.
func mergeLostMembers(recorded, live netstate.Device) (members []netstate.Member, lost bool) {
	if recorded.Bond == nil || live.Bond == nil {
		return nil, false
	}
	for _, m := range recorded.Bond.Members {
		i := slices.IndexFunc(live.Bond.Members, func(member netstate.Member) bool {
			if m.Identified() && member.Identified() {
				return m.Same(member.NIC) // Another NIC can have the name of the lost one.
			}
			return m.Name == member.Name
		})
		if i < 0 {
			members, lost = append(members, m), true
		} else {
			members = append(members, live.Bond.Members[i])
		}
	}
	return members, lost
}

// hasLostCarried reports whether the parent lacks an address or a route that it was given.
func hasLostCarried(recorded, live netstate.Device, uptime time.Duration) bool {
	if recorded.Carried == nil {
		return false
	}
	carried := cmp.Or(live.Carried, &netstate.Carried{})
	return len(netstate.Diff(carriedInterface(*recorded.Carried).Unexpired(uptime), carriedInterface(*carried))) > 0
}

// carriedInterface returns an interface with what a parent carries, for a comparison.
func carriedInterface(c netstate.Carried) netstate.Interface {
	return netstate.Interface{Addresses: c.Addresses, Routes: c.Routes}
}

// isSameContent says that the records differ at most in the time, and in lifetimes as far as lifetimeMatches allows. uptime is a time
// since the boot.
func isSameContent(previous, current checkpoint.Record, uptime time.Duration) bool {
	// The paths can differ. The path that the runtime gave stays valid.
	if previous.Namespace.Same(current.Namespace) != nil || previous.Pod != current.Pod || previous.AnnouncementOwed != current.AnnouncementOwed {
		return false
	}
	a, before := splitLifetimes(previous.Interface)
	b, after := splitLifetimes(current.Interface)
	return bytes.Equal(a, b) && slices.EqualFunc(before, after, func(x, y netstate.Address) bool {
		return lifetimeMatches(x.ValidUntil, y.ValidUntil, uptime) && lifetimeMatches(x.PreferredUntil, y.PreferredUntil, uptime)
	})
}

// splitLifetimes returns the interface without the lifetimes of addresses, as JSON, and the addresses with them, in the same order.
func splitLifetimes(i netstate.Interface) (content []byte, addresses []netstate.Address) {
	strip := func(list []netstate.Address) []netstate.Address {
		addresses = append(addresses, list...)
		list = slices.Clone(list)
		for n := range list {
			list[n].ValidUntil, list[n].PreferredUntil = 0, 0
		}
		return list
	}
	i.Addresses, i.Parents = strip(i.Addresses), slices.Clone(i.Parents)
	for n, p := range i.Parents {
		if p.Carried != nil {
			carried := *p.Carried
			carried.Addresses = strip(carried.Addresses)
			i.Parents[n].Carried = &carried
		}
	}
	content, _ = json.Marshal(i) // It was read or is about to be saved as JSON.
	return content, addresses
}

// lifetimeMatches says that the recorded end of a lifetime is as good as the present one: a restore would give at least three
// quarters of what is left, and no more than that. Some clients renew their lease every few seconds, and a checkpoint is not
// written for each time. Most renew it when half of it is left: then the checkpoint is written. Both ends are rounded.
func lifetimeMatches(recorded, present int64, uptime time.Duration) bool {
	if recorded == 0 || present == 0 {
		return recorded == present
	}
	recordedRest, presentRest := netstate.Remaining(recorded, uptime), netstate.Remaining(present, uptime)
	return recordedRest <= presentRest+1 && 4*(recordedRest+1) >= 3*presentRest
}
