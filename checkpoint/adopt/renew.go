package adopt

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Heard is what a listener to the kernel knows about a sandbox.
type Heard struct {
	// Down are the indexes of the devices that were down or gone while the sandbox was read. The reading of such a
	// device may be incomplete. Index 0 stands for any device.
	Down map[int]bool
	// Unbroken says that no device of the sandbox was down since all its interfaces were last found whole. Then
	// anything missing now was removed on purpose: the kernel drops addresses and routes by itself only when a device
	// goes down.
	Unbroken bool
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
	// Heard is called once: after the reading, and before the decision.
	Heard func() Heard
}

// errBroken says that an interface went down or was deleted during the reading.
var errBroken = fmt.Errorf("an interface went down while it was read: %w", kernel.ErrNoDevice)

// Renew captures the interfaces that have checkpoints. It decides like a capture with Refresh, and writes the
// checkpoints that are out of date. It writes nothing if only the time differs. It never writes a state that was read
// while an interface or a parent went away.
//
// Renew returns checkpoint.ErrBusy at once if another process works on the sandbox. It returns kernel.ErrNoNamespace or
// attachment.ErrOtherNamespace if the sandbox is gone. It returns checkpoint.ErrMoving if a move did not end. It returns kernel.ErrNoDevice if an interface or a parent went
// down or was deleted during the reading. In these cases it writes nothing.
func (n Renewal) Renew(ctx context.Context) (outcomes []Outcome, err error) {
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
		if err := n.Store.IsMoving(id); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, flock.Patience)
	defer cancel()
	shared, err := n.Store.ShareParents(ctx)
	if err != nil {
		return err
	}
	defer shared.Release()
	return f()
}

// renewal is a running Renewal. It has the sandbox's lock.
type renewal struct {
	Renewal
	room       *room
	records    []checkpoint.Record
	unreadable []checkpoint.Unreadable
	founds     []Found
}

func (n Renewal) renew() ([]Outcome, error) {
	r := &renewal{Renewal: n}
	for _, id := range n.ContainerIDs {
		records, unreadable := n.Store.ListSandbox(id)
		r.records, r.unreadable = append(r.records, records...), append(r.unreadable, unreadable...)
	}
	if len(r.records) == 0 {
		return nil, nil
	}
	namespace, err := kernel.OpenSame(n.Namespace)
	if err != nil {
		return nil, err
	}
	defer namespace.Close()
	if err := r.look(namespace); err != nil {
		return nil, err
	}
	heard := n.Heard()
	if heard.Down[0] || slices.ContainsFunc(r.founds, func(f Found) bool { return heard.Down[f.Live.Link.Index] }) {
		return nil, errBroken
	}
	if err := r.stillStanding(); err != nil {
		return nil, err
	}
	return r.decide(heard.Unbroken), nil
}

// look reads the interfaces of all records.
func (r *renewal) look(namespace *kernel.Namespace) (err error) {
	l := &look{host: r.Host, devices: r.Devices, records: bySandbox(r.records, r.unreadable)}
	if r.room, err = l.enter(namespace); err != nil {
		return err
	}
	for _, record := range r.room.records.records {
		device, there := r.room.records.device(record)
		if !there {
			continue
		}
		if r.Quick {
			r.room.extent.Changed, r.room.extent.Settings = false, slices.Collect(maps.Keys(record.Interface.Settings))
		}
		f, err := r.room.at(device.Name)
		if err != nil {
			return err
		}
		if f != nil {
			r.founds = append(r.founds, *f)
		}
	}
	return nil
}

// stillStanding returns ErrNoDevice unless all interfaces and parents that were up are still up. When a parent goes,
// the kernel first sets the interface down, then drops its routes and addresses, and then deletes it. So if an
// interface is still up now, everything that was read about it before is whole.
func (r *renewal) stillStanding() error {
	for _, f := range r.founds {
		if err := standing(r.room.namespace, f.Live.Link.Index, f.Live.Link.Up); err != nil {
			return err
		}
		at, devices := r.Host, r.Devices
		if f.Live.ParentsInSandbox {
			at, devices = r.room.namespace, r.room.own
		}
		for _, p := range f.Live.Parents {
			was, known := devices.ByName(p.Name)
			if !known {
				return errBroken // The device came during the reading.
			}
			if err := standing(at, was.Index, was.Up); err != nil {
				return err
			}
		}
	}
	return nil
}

// standing returns ErrNoDevice unless the device is there. A device that was up must still be up.
func standing(n *kernel.Namespace, index int, wasUp bool) error {
	is, err := n.Device(index)
	if err == nil && wasUp && !is.Up {
		return errBroken
	}
	return err
}

// decide compares the reading with the checkpoints, and writes those that are out of date.
func (r *renewal) decide(unbroken bool) (outcomes []Outcome) {
	inside := r.room.records
	found := map[attachment.Key]bool{}
	for _, f := range r.founds {
		f.Unbroken = unbroken
		record, readable := inside.record(f)
		if !readable {
			continue // Its checkpoint is torn. Nobody has asked to repair that.
		}
		found[record.Attachment] = true
		outcomes = append(outcomes, r.write(decide(f, inside, r.records, r.unreadable, true), record, f.ReadAt))
	}
	for _, record := range inside.records {
		if _, torn := inside.unreadable(record); torn || found[record.Attachment] {
			continue
		}
		if why := inside.why(record); why != "" {
			outcomes = append(outcomes, outcomeOf(actionOn(record, Refuse, why), Refused))
		}
	}
	return outcomes
}

// write carries out the action, if it changes the record. readAt is when the interface was read.
func (r *renewal) write(a Action, was checkpoint.Record, readAt time.Duration) Outcome {
	if a.Do != Refresh {
		return outcomeOf(a, done[a.Do])
	}
	if r.Store.Detaching(a.Namespace, was.Attachment.IfName) {
		a.Reason = "it is being detached"
		return outcomeOf(a, Kept)
	}
	is := recordOf(a)
	if !forgets(was) {
		is.Writer = was.Writer // The writer stays the plugin that attached the interface: its DEL will forget the record.
	}
	if r.Quick {
		is.Interface.NotCaptured = was.Interface.NotCaptured
	}
	if !a.Interface.Carrier {
		keepWithoutRoute(was.Interface.Addresses, is.Interface.Addresses)
	}
	is.Interface.Parents = withLost(was.Interface.Parents, is.Interface.Parents, readAt)
	if isSameContent(was, is, readAt) {
		return outcomeOf(a, Kept)
	}
	o := outcomeOf(a, Refreshed)
	if err := r.Store.Save(is); err != nil {
		o.fail(err)
	}
	return o
}

// keepWithoutRoute keeps what the record says about addresses without the kernel's route. A link without carrier does
// not show that.
func keepWithoutRoute(was, is []netstate.Address) {
	for i := range is {
		is[i].WithoutRoute = slices.ContainsFunc(was, func(a netstate.Address) bool { return a.Prefix == is[i].Prefix && a.WithoutRoute })
	}
}

// withLost returns the parents as they are, and adds the bond members, addresses and routes that they have lost. Such a
// loss is not a change in the pod. It can come from a restart of the host's network that is half done. now is a time since
// the boot.
func withLost(was, is []netstate.Device, now time.Duration) []netstate.Device {
	is = slices.Clone(is)
	for i := range min(len(was), len(is)) {
		if !was[i].Is(is[i]) {
			continue
		}
		if hasLostOwn(was[i], is[i], now) {
			is[i].Carried = was[i].Carried
		}
		if members, lost := withLostMembers(was[i], is[i]); lost {
			bond, index, own := *was[i].Bond, is[i].IfIndex, is[i].Carried
			// A bond without members has a wrong MAC and wrong options.
			is[i] = was[i]
			bond.Members = members
			is[i].Bond, is[i].IfIndex, is[i].Carried = &bond, index, own
		}
	}
	return is
}

// withLostMembers returns the recorded members. Those that are there are as they are now. lost says that a member is
// missing.
func withLostMembers(was, is netstate.Device) (members []netstate.Member, lost bool) {
	if was.Bond == nil || is.Bond == nil {
		return nil, false
	}
	for _, m := range was.Bond.Members {
		i := slices.IndexFunc(is.Bond.Members, func(now netstate.Member) bool { return now.Name == m.Name || m.Known() && m.Same(now.NIC) })
		if i < 0 {
			members, lost = append(members, m), true
		} else {
			members = append(members, is.Bond.Members[i])
		}
	}
	return members, lost
}

// hasLostOwn reports whether the parent lacks an address or a route that it was given.
func hasLostOwn(was, is netstate.Device, now time.Duration) bool {
	if was.Carried == nil {
		return false
	}
	own := cmp.Or(is.Carried, &netstate.Carried{})
	return len(netstate.Diff(carrying(*was.Carried).Unexpired(now), carrying(*own))) > 0
}

// carrying returns an interface with what a parent carries, for a comparison.
func carrying(c netstate.Carried) netstate.Interface {
	return netstate.Interface{Addresses: c.Addresses, Routes: c.Routes}
}

// isSameContent says that the records differ at most in the time, and in lifetimes as far as renewed allows. now is a time
// since the boot.
func isSameContent(was, is checkpoint.Record, now time.Duration) bool {
	// The paths can differ. The path that the runtime gave stays valid.
	if was.Namespace.Same(is.Namespace) != nil || was.Pod != is.Pod || was.AnnouncementOwed != is.AnnouncementOwed {
		return false
	}
	a, errA := json.Marshal(was.Interface)
	b, errB := json.Marshal(withRecordedLifetimes(was.Interface, is.Interface, now))
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// withRecordedLifetimes returns the interface as it is, with the recorded lifetimes where a restore may give those.
func withRecordedLifetimes(was, is netstate.Interface, now time.Duration) netstate.Interface {
	is.Addresses = recordedLifetimes(was.Addresses, is.Addresses, now)
	is.Parents = slices.Clone(is.Parents)
	for i := range min(len(was.Parents), len(is.Parents)) {
		before, carried := was.Parents[i].Carried, is.Parents[i].Carried
		if before != nil && carried != nil {
			same := *carried
			same.Addresses = recordedLifetimes(before.Addresses, carried.Addresses, now)
			is.Parents[i].Carried = &same
		}
	}
	return is
}

func recordedLifetimes(was, is []netstate.Address, now time.Duration) []netstate.Address {
	limited := func(a netstate.Address) bool { return a.ValidUntil != 0 || a.PreferredUntil != 0 }
	if !slices.ContainsFunc(is, limited) {
		return is
	}
	type identity struct{ prefix, peer netip.Prefix }
	recorded := make(map[identity]netstate.Address, len(was))
	for _, a := range was {
		recorded[identity{a.Prefix, a.Peer}] = a
	}
	is = slices.Clone(is)
	for i := range is {
		before := recorded[identity{is[i].Prefix, is[i].Peer}]
		if isNear(before.ValidUntil, is[i].ValidUntil, now) && isNear(before.PreferredUntil, is[i].PreferredUntil, now) {
			is[i].ValidUntil, is[i].PreferredUntil = before.ValidUntil, before.PreferredUntil
		}
	}
	return is
}

// isNear says that the recorded end of a lifetime is as good as the present one: a restore would give at least three
// quarters of what is left, and no more than that. Some clients renew their lease every few seconds, and a checkpoint is not
// written for each time. Most renew it when half of it is left: then the checkpoint is written. Both ends are rounded.
func isNear(recorded, present int64, now time.Duration) bool {
	if recorded == 0 || present == 0 {
		return recorded == present
	}
	has, left := netstate.Remaining(recorded, now), netstate.Remaining(present, now)
	return has <= left+1 && 4*(has+1) >= 3*left
}
