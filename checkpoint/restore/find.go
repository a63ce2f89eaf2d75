package restore

import (
	"fmt"

	"github.com/relink-cni/relink/pkg/netstate"
)

// find returns the place of the device that the recorded one is now. What the operator said decides
// first. Hardware is known by its permanent MAC, then by its address on the bus, whatever its name.
// Anything else is known by its name and kind.
func (p *ParentPlan) find(recorded netstate.Device) (index int, note string, problem *Problem) {
	if name, ok := p.Mapped[recorded.Name]; ok {
		if i := p.byName(name); i >= 0 {
			return i, mappedNote(recorded.Name, name), nil
		}
		return 0, "", missingTarget(name, recorded.Name)
	}
	wanted := netstate.Member{Name: recorded.Name, NIC: recorded.NIC}
	if recorded.Kind == netstate.KindNIC && recorded.Identified() {
		return p.findNIC(wanted)
	}
	i := p.byName(recorded.Name)
	if i < 0 {
		return 0, "", &Problem{Reason: fmt.Sprintf("%s (%s) is not there", recorded.Name, recorded.Kind), Transient: true}
	}
	if p.devices[i].Kind != recorded.Kind {
		return 0, "", p.otherKind(i, recorded.Kind)
	}
	if owner := p.recordedAs(i, wanted); owner != nil {
		return 0, "", p.otherNIC(wanted, i, *owner)
	}
	return i, "", nil
}

func mappedNote(recorded, target string) string {
	return fmt.Sprintf("%s is %s, as told by --parent", recorded, target)
}

func missingTarget(target, recorded string) *Problem {
	return &Problem{Reason: fmt.Sprintf("%s, told by --parent for %s, is not there", target, recorded), Transient: true}
}

func (p *ParentPlan) otherKind(index int, recorded string) *Problem {
	d := p.devices[index]
	return &Problem{Reason: fmt.Sprintf("%s is a %s now, recorded as a %s: left alone", d.Name, d.Kind, recorded)}
}

func (p *ParentPlan) byName(name string) int {
	for i := range p.devices {
		if p.devices[i].Name == name {
			return i
		}
	}
	return -1
}

// findHostNIC returns the NIC in the host that is to be moved to its sandbox as the link. A VF is never moved, even if an old record names it.
func (p *ParentPlan) findHostNIC(link netstate.Link) (netstate.LiveDevice, string, *Problem) {
	index, note, problem := p.find(netstate.Device{Kind: netstate.KindNIC, Name: nameInHost(link), NIC: *link.NIC})
	if problem != nil {
		return netstate.LiveDevice{}, "", problem
	}
	if d := p.devices[index]; d.PF != "" {
		return netstate.LiveDevice{}, "", &Problem{Reason: netstate.VFReason(d.Name, d.PF) + ": left in the host"}
	}
	return p.devices[index], note, nil
}

// nameInHost is the name that a NIC of a sandbox's own has in the host.
func nameInHost(link netstate.Link) string {
	if link.Alias != "" {
		return link.Alias // Where the reference plugin remembers it.
	}
	return link.Name
}
