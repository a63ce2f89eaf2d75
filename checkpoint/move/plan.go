package move

import (
	"fmt"
	"slices"
	"strings"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// planned is one attachment that is to be moved.
type planned struct {
	record checkpoint.Record
	// to is the new chain of parents, the nearest first. It is empty if the attachment cannot be moved.
	to []netstate.Device
	// index is the index that the interface asks for, 0 for any.
	index int
	// refused says why the attachment cannot be moved. It is empty if it can be moved.
	refused string
}

// uplink is a pure function: it checks the device that attachments will move to.
func uplink(devices netstate.Devices, from, to string) (netstate.LiveDevice, error) {
	device, ok := devices.ByName(to)
	switch {
	case from == to:
		return device, fmt.Errorf("%s is both the old and the new device: name two devices", to)
	case !ok:
		return device, fmt.Errorf("%s is not there: name a device of this host", to)
	case !device.Up:
		return device, fmt.Errorf("%s is down: set it up first (ip link set %s up)", to, to)
	case !device.Carrier:
		return device, fmt.Errorf("%s has no carrier: look at the link, the cable and the switch's port", to)
	}
	if below, err := devices.Chain(device.Index); err == nil && slices.ContainsFunc(below, func(d netstate.Device) bool { return d.Name == from }) {
		return device, fmt.Errorf("%s is on %s, and would go with it: name a device that stays without %s", to, from, from)
	}
	if over, ok := devices.AggregateOf(device); ok {
		return device, fmt.Errorf("%s is a member of %s: name %s, or take %s out of it", to, over.Name, over.Name, to)
	}
	return device, nil
}

// planMoves is a pure function: it decides which of the records move from the device to the uplink. It leaves out
// records that are not on the device.
func planMoves(records []checkpoint.Record, devices netstate.Devices, from string, uplink netstate.LiveDevice) ([]planned, error) {
	below, err := devices.Chain(uplink.Index)
	if err != nil {
		return nil, err
	}
	names := &vlanNames{devices: devices, taken: map[string]netstate.VLAN{}}
	var all []planned
	for _, record := range records {
		place := slices.IndexFunc(record.Interface.Parents, func(d netstate.Device) bool { return d.Name == from })
		if record.Interface.Link.Kind == netstate.KindNIC || place < 0 {
			continue
		}
		p := planned{record: record}
		p.refused = fixed(record, records)
		if p.refused == "" {
			p.to, p.refused = names.chainOn(record.Interface, place, uplink, below)
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		return nil, nothingOn(records, from)
	}
	return all, nil
}

// nothingOn says that no attachment is on the device. It suggests other devices.
func nothingOn(records []checkpoint.Record, from string) error {
	for _, record := range records {
		for _, d := range record.Interface.Parents {
			if d.Bond != nil && slices.ContainsFunc(d.Bond.Members, func(m netstate.Member) bool { return m.Name == from }) {
				return fmt.Errorf("%s is a member of %s: name %s", from, d.Name, d.Name)
			}
		}
	}
	return fmt.Errorf("no attachment is on %s: relink list shows what is on which device", from)
}

// fixed says why the attachment cannot move, by the records alone.
func fixed(record checkpoint.Record, records []checkpoint.Record) string {
	i := record.Interface
	switch {
	case i.ParentsInSandbox:
		return "it is on a device of the pod itself, and moves with that"
	case i.Link.Macvlan != nil && i.Link.Macvlan.Mode == "passthru":
		return "it is a macvlan in mode passthru, which has its uplink for itself"
	}
	for _, other := range records {
		if other.Attachment.ContainerID == record.Attachment.ContainerID && other.Interface.ParentsInSandbox &&
			slices.ContainsFunc(other.Interface.Parents, func(d netstate.Device) bool { return d.Name == i.Link.Name }) {
			return fmt.Sprintf("%s of the pod is on it, and would go with it", other.Interface.Link.Name)
		}
	}
	return ""
}

// vlanNames chooses the VLAN devices on the uplink.
type vlanNames struct {
	devices netstate.Devices
	// taken maps the names of VLAN devices to be made to their VLANs.
	taken map[string]netstate.VLAN
}

// chainOn returns the parents of the interface, with the uplink instead of the device at place. below is the chain of
// the uplink itself.
func (n *vlanNames) chainOn(i netstate.Interface, place int, uplink netstate.LiveDevice, below []netstate.Device) (chain []netstate.Device, refused string) {
	if i.Link.MTU > uplink.MTU {
		return nil, fmt.Sprintf("its MTU %d does not fit %s, which has %d: ip link set %s mtu %d", i.Link.MTU, uplink.Name, uplink.MTU, uplink.Name, i.Link.MTU)
	}
	chain = below
	on := uplink
	for k := place - 1; k >= 0; k-- {
		vlan, live, refused := n.vlanOn(i.Parents[k], i.Parents[k+1], i.Link.MTU, on, chain[0])
		if refused != "" {
			return nil, refused
		}
		chain, on = append([]netstate.Device{vlan}, chain...), live
	}
	if v := i.Link.VLAN; v != nil && on.Index != 0 {
		if there, ok := n.devices.VLANOn(on.Index, *v); ok {
			return nil, fmt.Sprintf("%s already has a device for %s, %s: the kernel allows only one", on.Name, v, there.Name)
		}
	}
	return chain, ""
}

// vlanOn returns the VLAN device on the uplink that corresponds to the recorded one. live is the zero value if the
// device has to be made.
func (n *vlanNames) vlanOn(recorded, recordedBelow netstate.Device, mtu int, on netstate.LiveDevice, below netstate.Device) (vlan netstate.Device, live netstate.LiveDevice, refused string) {
	if recorded.VLAN == nil {
		return vlan, live, fmt.Sprintf("%s, a %s, cannot be made on %s", recorded.Name, recorded.Kind, below.Name)
	}
	if there, ok := n.devices.VLANOn(on.Index, *recorded.VLAN); ok && on.Index != 0 {
		if mtu > there.MTU {
			return vlan, live, fmt.Sprintf("its MTU %d does not fit %s, which has %d: ip link set %s mtu %d", mtu, there.Name, there.MTU, there.Name, mtu)
		}
		return n.devices.Recorded(there), there, ""
	}
	made := recorded
	made.Name = fmt.Sprintf("%s.%d", below.Name, recorded.VLAN.ID)
	made.MTU, made.Carried = min(recorded.MTU, below.MTU), nil
	if recorded.MAC == recordedBelow.MAC {
		made.MAC = below.MAC
	}
	other, taken := n.devices.ByName(made.Name)
	planned, twice := n.taken[made.Name]
	if err := attachment.ValidateIfName(made.Name); err != nil {
		return vlan, live, fmt.Sprintf("the VLAN device's name %q %v: make a device for %s on %s yourself", made.Name, err, recorded.VLAN, below.Name)
	}
	if taken || twice && planned != *recorded.VLAN {
		return vlan, live, fmt.Sprintf("%s is there as a %s, and not as %s on %s: rename it", made.Name, other.Kind, recorded.VLAN, below.Name)
	}
	n.taken[made.Name] = *recorded.VLAN
	return made, live, ""
}

// surroundings are what a sandbox has besides the interface.
type surroundings struct {
	devices netstate.Devices
	// siblings are the indices of devices on the same device of the host. If a pod stacks a macvlan on its own macvlan,
	// the kernel reports it as on the host's device too.
	siblings []int
	// recorded are the names of the interfaces with a checkpoint.
	recorded []string
}

// refusal is a pure function: it says why the live interface cannot be moved. It returns "" if it can be moved.
func refusal(recorded, live netstate.Interface, beside surroundings) string {
	if differences := netstate.Diff(recorded, live); len(differences) > 0 {
		var all []string
		for _, d := range differences {
			all = append(all, d.String())
		}
		return "it is not as recorded (" + strings.Join(all, ", ") + "): relink restore, or relink capture --refresh"
	}
	if len(live.NotCaptured) > 0 {
		return "it has what a new interface would not get: " + strings.Join(live.NotCaptured, ", ")
	}
	for _, d := range beside.devices {
		if slices.Contains(beside.siblings, d.Index) && !slices.Contains(beside.recorded, d.Name) && d.Name != live.Link.Name && !kernel.Unfinished(d) {
			return fmt.Sprintf("%s of the pod is on %s too and has no checkpoint: it would stay behind", d.Name, nearest(live.Parents))
		}
		if d.ParentIndex == live.Link.Index && d.Index != live.Link.Index && !kernel.Unfinished(d) {
			return fmt.Sprintf("%s of the pod, a %s, is on it, and would go with it", d.Name, d.Kind)
		}
	}
	return ""
}
