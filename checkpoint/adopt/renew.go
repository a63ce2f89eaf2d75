package adopt

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Heard is what somebody who listens to the kernel knows about a sandbox.
type Heard struct {
	// Down are the indexes of the devices that were down or gone while the sandbox was read. What was read of them may be
	// half of the truth. Index 0 stands for any device.
	Down map[int]bool
	// Unbroken says that no device of the sandbox was down since all its interfaces were last found whole. What is
	// missing now was taken away on purpose: the kernel drops addresses and routes by itself only when a device goes
	// down.
	Unbroken bool
}

// Renewal renews the checkpoints of one sandbox. It looks at no other sandbox, and writes no first checkpoint.
type Renewal struct {
	Store *checkpoint.Store
	// Host is the host's namespace, and Devices are its devices as they are now.
	Host    *kernel.Namespace
	Devices netstate.Devices
	// Namespace is the sandbox, and ContainerIDs are those under which it has checkpoints.
	Namespace    attachment.Namespace
	ContainerIDs []string
	// Quick leaves sysctls out, except for those that a checkpoint has. They take most of the time of a capture. The
	// checkpoints keep what they say of the others.
	Quick bool
	// Heard is called once, after everything was read and before it is judged.
	Heard func() Heard
}

// errBroken says that an interface went down or away while it was read.
var errBroken = fmt.Errorf("an interface went down while it was read: %w", kernel.ErrNoDevice)

// Renew captures the interfaces that have checkpoints, decides as a capture with Refresh does, and writes the
// checkpoints that are out of date. It writes nothing if only the time differs. It never writes a state that was read
// while an interface or a parent went away.
//
// It returns checkpoint.ErrBusy at once if somebody works on the sandbox, and kernel.ErrNoNamespace or
// attachment.ErrOtherNamespace if the sandbox is gone. It returns kernel.ErrNoDevice if an interface or a parent went
// down or away meanwhile. Then nothing is written.
func (n Renewal) Renew(ctx context.Context) (outcomes []Outcome, err error) {
	err = n.underLock(ctx, func() error {
		outcomes, err = n.renew()
		return err
	})
	return outcomes, err
}

// underLock calls f under the sandbox's lock, with a hold on the VLAN parents.
func (n Renewal) underLock(ctx context.Context, f func() error) error {
	for _, id := range n.ContainerIDs {
		unlock, err := n.Store.TryLock(id)
		if err != nil {
			return err
		}
		defer unlock()
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

// renewal is a Renewal under way, under the sandbox's lock.
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
	namespace, err := kernel.Open(n.Namespace.Path)
	if err != nil {
		return nil, err
	}
	defer namespace.Close()
	if err := n.Namespace.Same(namespace.Identity()); err != nil {
		return nil, fmt.Errorf("namespace %s: %w", n.Namespace.Path, err)
	}
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

// stillStanding returns ErrNoDevice unless all interfaces that were up are still there and up, and so are their parents.
// When a parent goes, the kernel first sets the interface down, then drops its routes and addresses, and then deletes
// it. So what was read before an interface is seen up is whole.
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
				return errBroken // It came during the look.
			}
			if err := standing(at, was.Index, was.Up); err != nil {
				return err
			}
		}
	}
	return nil
}

// standing returns ErrNoDevice unless the device is there, and is up if it was up.
func standing(n *kernel.Namespace, index int, wasUp bool) error {
	is, err := n.Device(index)
	if err == nil && wasUp && !is.Up {
		return errBroken
	}
	return err
}

// decide judges what was read, and writes what has to be written.
func (r *renewal) decide(unbroken bool) (outcomes []Outcome) {
	inside := r.room.records
	found := map[attachment.Key]bool{}
	for _, f := range r.founds {
		f.Unbroken = unbroken
		record, readable := inside.record(f)
		if !readable {
			continue // Its checkpoint is torn. That is not to be mended unasked.
		}
		found[record.Attachment] = true
		outcomes = append(outcomes, r.write(decide(f, inside, r.records, r.unreadable, true), record))
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

// write carries the action out, if it changes the record.
func (r *renewal) write(a Action, was checkpoint.Record) Outcome {
	if a.Do != Refresh {
		return outcomeOf(a, done[a.Do])
	}
	if r.Store.Detaching(a.Namespace, was.Attachment.IfName) {
		a.Reason = "it is being detached"
		return outcomeOf(a, Kept)
	}
	is := recordOf(a)
	if !forgets(was) {
		is.Writer = was.Writer // It still says who attached the interface: that one will forget it.
	}
	if r.Quick {
		is.Interface.NotCaptured = was.Interface.NotCaptured
	}
	if !a.Interface.Carrier {
		keepWithoutRoute(was.Interface.Addresses, is.Interface.Addresses)
	}
	is.Interface.Parents = withLost(was.Interface.Parents, is.Interface.Parents)
	if isSameContent(was, is) {
		return outcomeOf(a, Kept)
	}
	o := outcomeOf(a, Refreshed)
	if err := r.Store.Save(is); err != nil {
		o.fail(err)
	}
	return o
}

// keepWithoutRoute keeps what was known of addresses without the kernel's route. A link without carrier does not tell.
func keepWithoutRoute(was, is []netstate.Address) {
	for i := range is {
		is[i].WithoutRoute = slices.ContainsFunc(was, func(a netstate.Address) bool { return a.Prefix == is[i].Prefix && a.WithoutRoute })
	}
}

// withLost returns the parents as they are, but with the members of a bond, the addresses and the routes that they have
// lost. Such a loss is no change of the pod's. It can be one half of a restart of the host's network.
func withLost(was, is []netstate.Device) []netstate.Device {
	is = slices.Clone(is)
	for i := range min(len(was), len(is)) {
		if !was[i].Is(is[i]) {
			continue
		}
		if hasLostOwn(was[i], is[i]) {
			is[i].Carried = was[i].Carried
		}
		if members, lost := withLostMembers(was[i], is[i]); lost {
			bond, index, own := *was[i].Bond, is[i].IfIndex, is[i].Carried
			// A bond without members has another MAC and other options than it is to have.
			is[i] = was[i]
			bond.Members = members
			is[i].Bond, is[i].IfIndex, is[i].Carried = &bond, index, own
		}
	}
	return is
}

// withLostMembers returns the recorded members, those that are there as they are now. lost says that one is not there.
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

// hasLostOwn reports whether the parent lacks an address or a route that somebody gave it.
func hasLostOwn(was, is netstate.Device) bool {
	if was.Carried == nil {
		return false
	}
	own := cmp.Or(is.Carried, &netstate.Carried{})
	return len(netstate.Diff(carrying(*was.Carried), carrying(*own))) > 0
}

// carrying returns an interface that has what a parent carries, for a comparison.
func carrying(c netstate.Carried) netstate.Interface {
	return netstate.Interface{Addresses: c.Addresses, Routes: c.Routes}
}

// isSameContent says that the records differ in nothing but the time.
func isSameContent(was, is checkpoint.Record) bool {
	// The path can be another one. The one that the runtime gave is as good as any.
	if was.Namespace.Same(is.Namespace) != nil || was.Pod != is.Pod || was.AnnouncementOwed != is.AnnouncementOwed {
		return false
	}
	a, errA := json.Marshal(was.Interface)
	b, errB := json.Marshal(is.Interface)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}
