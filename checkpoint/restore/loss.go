package restore

import (
	"cmp"
	"fmt"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Loss says why the agent may restore an interface unasked: a device below the interface has gone.
type Loss struct {
	// Device is the recorded name of the device that has gone.
	Device string
	Reason string
	// Member says that only a member of the bond has gone. The interface is there, but cannot send.
	Member bool
}

// Losses is a pure function: it returns the losses of a chain's records, in the order of the records. A record without
// a loss has nil. devices are the devices of the host.
//
// An interface is lost if its recorded parent is not there any more. The parent's index proves that: no later device
// has it. Two things do not matter. Another device may have the parent's place by now. The interface may be there: a
// restore that ended too early leaves the old index in the record. A record of an interface that was gone already, as
// relink import writes it, has no index: that is a loss, too. While the parent is there, somebody has taken away whatever
// is missing. That is drift.
func Losses(devices netstate.Devices, records []checkpoint.Record) []*Loss {
	present := devicesByIndex{}
	for i := range devices {
		present[devices[i].Index] = &devices[i]
	}
	losses := make([]*Loss, len(records))
	type name struct{ containerID, ifName string }
	lost := map[name]*Loss{}
	for i := range records {
		if r := &records[i]; !r.Interface.ParentsInSandbox {
			losses[i] = lossInHost(devices, present, r)
			lost[name{r.Attachment.ContainerID, r.Interface.Link.Name}] = losses[i]
		}
	}
	// An interface on another interface of the sandbox goes with that one. Its parents are all that is below it.
	for i := range records {
		if r := &records[i]; r.Interface.ParentsInSandbox {
			for _, p := range r.Interface.Parents {
				losses[i] = cmp.Or(losses[i], lost[name{r.Attachment.ContainerID, p.Name}])
			}
		}
	}
	return losses
}

// devicesByIndex maps indices to devices of the host.
type devicesByIndex map[int]*netstate.LiveDevice

// has says that the recorded device is there. The index alone does not prove that: whoever makes a device can choose
// its index, even an old one.
func (b devicesByIndex) has(d netstate.Device) bool {
	live := b[d.IfIndex]
	switch {
	case live == nil || d.Contradicts(live.NIC):
		return false
	case d.Kind == "": // A member of a bond can be of any kind.
		return true
	case d.VLAN != nil && live.VLAN != nil && *d.VLAN != *live.VLAN:
		return false
	}
	return live.Kind == d.Kind
}

// lossInHost returns the loss of an interface that is on devices of the host.
func lossInHost(devices netstate.Devices, present devicesByIndex, r *checkpoint.Record) *Loss {
	if r.Interface.Link.Kind == netstate.KindNIC {
		return lossOfNIC(devices, r.Interface.Link)
	}
	for i, p := range r.Interface.Parents {
		if (i == 0 || p.IfIndex != 0) && !present.has(p) {
			return &Loss{Device: p.Name, Reason: fmt.Sprintf("%s (index %d) has gone", p.Name, p.IfIndex)}
		}
	}
	for _, p := range r.Interface.Parents {
		if p.Bond == nil {
			continue
		}
		for _, m := range p.Bond.Members {
			if m.IfIndex != 0 && !present.has(netstate.Device{IfIndex: m.IfIndex, NIC: m.NIC}) {
				return &Loss{Device: m.Name, Member: true, Reason: fmt.Sprintf("%s (index %d), a member of %s, has gone", m.Name, m.IfIndex, p.Name)}
			}
		}
	}
	return nil
}

// lossOfNIC returns the loss of a NIC that belongs to the sandbox. If its driver goes and comes back, the kernel makes
// a new device in the host. If somebody moves the NIC to the host by hand, it keeps its index, unless that is taken.
func lossOfNIC(devices netstate.Devices, link netstate.Link) *Loss {
	if link.NIC == nil || !link.NIC.Identified() {
		return nil
	}
	for _, d := range devices {
		// The PF gives a new VF another MAC.
		sameMAC := d.PermanentMAC == link.NIC.PermanentMAC || d.PF != ""
		if d.Kind == netstate.KindNIC && d.Index != link.Index && sameMAC && link.NIC.Same(d.NIC) {
			return &Loss{Device: nameInHost(link), Reason: fmt.Sprintf("%s is in the host, as a new device", d.Name)}
		}
	}
	return nil
}

// AwayNICLoss is a pure function: it returns the loss of a NIC that its sandbox does not have. devices are the devices of the host.
// It returns nil if the NIC is in the host: then Losses tells, or somebody has moved it there by hand.
func AwayNICLoss(devices netstate.Devices, link netstate.Link) *Loss {
	if link.Kind != netstate.KindNIC || link.NIC == nil || !link.NIC.Identified() {
		return nil
	}
	for _, d := range devices {
		if d.Kind == netstate.KindNIC && link.NIC.Same(d.NIC) {
			return nil
		}
	}
	return &Loss{Device: nameInHost(link), Reason: nameInHost(link) + " has gone from its sandbox, and is not in the host"}
}
