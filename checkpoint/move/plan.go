package move

import (
	"fmt"
	"slices"
	"strings"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/parents"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// checkUplink is a pure function: it checks the device that attachments will move to.
func checkUplink(devices netstate.Devices, source, target string) (netstate.LiveDevice, error) {
	device, ok := devices.ByName(target)
	switch {
	case source == target:
		return device, fmt.Errorf("%s is both the old and the new device: name two devices", target)
	case !ok:
		return device, fmt.Errorf("%s is not there: name a device of this host", target)
	case !device.Up:
		return device, fmt.Errorf("%s is down: set it up first (ip link set %s up)", target, target)
	case !device.Carrier:
		return device, fmt.Errorf("%s has no carrier: look at the link, the cable and the switch's port", target)
	}
	if below, err := devices.Chain(device.Index); err == nil && slices.ContainsFunc(below, func(d netstate.Device) bool { return d.Name == source }) {
		return device, fmt.Errorf("%s is on %s, and would go with it: name a device that stays without %s", target, source, source)
	}
	if err := parents.CheckMember(devices, device); err != nil {
		return device, fmt.Errorf("invalid device %q: %w", target, err)
	}
	return device, nil
}

// planMoves is a pure function: it decides which of the records move from the device to the uplink. It leaves out
// records that are not on the device.
func planMoves(records []checkpoint.Record, devices netstate.Devices, source string, uplink netstate.LiveDevice) ([]*job, error) {
	below, err := devices.Chain(uplink.Index)
	if err != nil {
		return nil, err
	}
	var moves []*job
	for _, record := range records {
		place := slices.IndexFunc(record.Interface.Parents, func(d netstate.Device) bool { return d.Name == source })
		if record.Interface.Link.Kind == netstate.KindNIC || place < 0 {
			continue
		}
		var chain []netstate.Device
		refused := immovableReason(record, records)
		if refused == "" {
			chain, refused = planChain(devices, record.Interface, place, uplink, below)
		}
		moves = append(moves, newJob(record, chain, 0, refused))
	}
	if len(moves) == 0 {
		return nil, noAttachmentError(records, source)
	}
	return moves, nil
}

// noAttachmentError says that no attachment is on the device. It suggests other devices.
func noAttachmentError(records []checkpoint.Record, source string) error {
	for _, record := range records {
		for _, d := range record.Interface.Parents {
			if d.Bond != nil && slices.ContainsFunc(d.Bond.Members, func(m netstate.Member) bool { return m.Name == source }) {
				return fmt.Errorf("%s is a member of %s: name %s", source, d.Name, d.Name)
			}
		}
	}
	return fmt.Errorf("no attachment is on %s: relink list shows what is on which device", source)
}

// immovableReason says why the attachment cannot move, by the records alone.
func immovableReason(record checkpoint.Record, records []checkpoint.Record) string {
	i := record.Interface
	switch {
	case i.ParentsInSandbox:
		return "it is on a device of the pod itself, and moves with that"
	case i.Link.Macvlan != nil && i.Link.Macvlan.Mode == "passthru":
		return "it is a macvlan in mode passthru, which has its uplink for itself"
	}
	for _, sibling := range records {
		if sibling.Attachment.ContainerID == record.Attachment.ContainerID && sibling.Interface.ParentsInSandbox &&
			slices.ContainsFunc(sibling.Interface.Parents, func(d netstate.Device) bool { return d.Name == i.Link.Name }) {
			return fmt.Sprintf("%s of the pod is on it, and would go with it", sibling.Interface.Link.Name)
		}
	}
	return ""
}

// planChain returns the parents of the interface, with the uplink instead of the device at place. below is the chain of
// the uplink itself. A VLAN device that has to be made has the name that it gets.
func planChain(devices netstate.Devices, i netstate.Interface, place int, uplink netstate.LiveDevice, below []netstate.Device) (chain []netstate.Device, refused string) {
	chain, parent := below, uplink
	for k := place - 1; k >= 0; k-- {
		recorded := i.Parents[k]
		if recorded.VLAN == nil {
			return nil, fmt.Sprintf("%s, a %s, cannot be made on %s", recorded.Name, recorded.Kind, parent.Name)
		}
		live, name, err := parents.PlanVLAN(devices, parent, *recorded.VLAN, "")
		if err != nil {
			return nil, fmt.Sprintf("%v: make one for this VLAN by hand", err)
		}
		vlan := devices.Recorded(live)
		if name != "" {
			vlan = recorded
			vlan.Name, vlan.MTU, vlan.Carried = name, min(recorded.MTU, parent.MTU), nil
			if recorded.MAC == i.Parents[k+1].MAC {
				vlan.MAC = parent.MAC
			}
			live = netstate.LiveDevice{Device: vlan}
		}
		chain, parent = append([]netstate.Device{vlan}, chain...), live
	}
	for _, d := range slices.Backward(chain) {
		if i.Link.MTU > d.MTU {
			return nil, fmt.Sprintf("its MTU %d does not fit %s, which has %d: ip link set %s mtu %d", i.Link.MTU, d.Name, d.MTU, d.Name, i.Link.MTU)
		}
	}
	if v := i.Link.VLAN; v != nil && parent.Index != 0 {
		if existing, ok := devices.VLANOn(parent.Index, *v); ok {
			return nil, fmt.Sprintf("%s already has a device for %s, %s: the kernel allows only one", parent.Name, v, existing.Name)
		}
	}
	return chain, ""
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
		var texts []string
		for _, d := range differences {
			texts = append(texts, d.String())
		}
		return "it is not as recorded (" + strings.Join(texts, ", ") + "): relink restore, or relink capture --refresh"
	}
	if len(live.NotCaptured) > 0 {
		return "it has what a new interface would not get: " + strings.Join(live.NotCaptured, ", ")
	}
	for _, d := range beside.devices {
		if slices.Contains(beside.siblings, d.Index) && !slices.Contains(beside.recorded, d.Name) && d.Name != live.Link.Name && !kernel.Unfinished(d) {
			return fmt.Sprintf("%s of the pod is on %s too and has no checkpoint: it would stay behind", d.Name, nearestParent(live.Parents))
		}
		if d.ParentIndex == live.Link.Index && d.Index != live.Link.Index && !kernel.Unfinished(d) {
			return fmt.Sprintf("%s of the pod, a %s, is on it, and would go with it", d.Name, d.Kind)
		}
	}
	return ""
}
