package restore

import (
	"fmt"
	"slices"
	"strings"

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

// findNIC returns the place of the NIC that the wanted one has the greatest claim to.
func (p *ParentPlan) findNIC(wanted netstate.Member) (int, string, *Problem) {
	f := p.matchNIC(wanted)
	switch {
	case len(f.free) == 0 && f.better != nil:
		return 0, "", p.otherNIC(wanted, f.betterIndex, *f.better)
	case len(f.free) == 0:
		return 0, "", p.missingNIC(wanted.Name, wanted.NIC)
	}
	index := p.chooseNIC(wanted, f)
	if index < 0 {
		return 0, "", p.ambiguousNIC(wanted, f.free)
	}
	if rival := p.findRival(wanted, f, index); rival != nil {
		return 0, "", p.ambiguousRecord(wanted, *rival, index)
	}
	return index, p.foundNote(wanted, f, index), nil
}

// foundNote says what the operator should know of the NIC that was found.
func (p *ParentPlan) foundNote(wanted netstate.Member, f nicMatch, index int) string {
	live := p.devices[index]
	if f.rank == matchBus && isExchanged(wanted.NIC, live.NIC) {
		return fmt.Sprintf("%s is another card in the place of %s (bus address %s; permanent MAC %s, recorded %s)",
			live.Name, wanted.Name, wanted.BusAddress, live.PermanentMAC, wanted.PermanentMAC)
	}
	if f.rank == matchBus || f.rank == matchMACAndBus && p.countMAC(live.PermanentMAC) > 1 {
		return renamedNote(wanted.Name, live.Name, "bus address "+wanted.BusAddress)
	}
	return renamedNote(wanted.Name, live.Name, "permanent MAC "+wanted.PermanentMAC)
}

// countMAC counts the NICs that have the permanent MAC.
func (p *ParentPlan) countMAC(mac string) (n int) {
	for _, d := range p.devices {
		if d.Kind == netstate.KindNIC && d.PermanentMAC == mac {
			n++
		}
	}
	return n
}

// missingNIC says that no NIC is the recorded one. If another device has its name, it says so.
func (p *ParentPlan) missingNIC(name string, nic netstate.NIC) *Problem {
	if i := p.byName(name); i >= 0 {
		d := p.devices[i]
		if d.Kind != netstate.KindNIC {
			return p.otherKind(i, netstate.KindNIC)
		}
		return &Problem{Transient: true, Reason: fmt.Sprintf(
			"%s is another NIC now (%s; recorded %s): use it by --parent %[1]s=%[1]s", name, d.Hardware(), nic.Hardware())}
	}
	return &Problem{Transient: true, Reason: fmt.Sprintf("%s (%s) is not there", name, nic.Hardware())}
}

func describeNIC(m netstate.Member) string { return fmt.Sprintf("%s (%s)", m.Name, m.Hardware()) }

// otherNIC says that the NIC at that place is another recorded one than the wanted one.
func (p *ParentPlan) otherNIC(wanted netstate.Member, index int, recorded netstate.Member) *Problem {
	live := p.devices[index]
	return &Problem{Transient: true, Reason: fmt.Sprintf(
		"the recorded %s is not there; what is %s now is the recorded %s: to use it for %s as well, say --parent %s=%s",
		describeNIC(wanted), live.Name, describeNIC(recorded), wanted.Name, wanted.Name, live.Name)}
}

// ambiguousNIC says that several NICs could be the wanted one. First comes the one with its name, or else
// one whose name is not recorded. If none has its name, waiting may help: one may get it yet.
func (p *ParentPlan) ambiguousNIC(wanted netstate.Member, found []int) *Problem {
	first := p.indexNamed(wanted.Name, found)
	if first < 0 {
		first = max(slices.IndexFunc(found, func(i int) bool { return !p.isRecorded(p.devices[i].Name) }), 0)
	}
	var candidates []string
	for _, i := range slices.Concat(found[first:first+1], found[:first], found[first+1:]) {
		candidates = append(candidates, describeNIC(netstate.Member{Name: p.devices[i].Name, NIC: p.devices[i].NIC}))
	}
	name := p.devices[found[first]].Name
	return &Problem{Transient: name != wanted.Name, Reason: fmt.Sprintf("the recorded %s could be what is now %s: say which, such as --parent %s=%s",
		describeNIC(wanted), strings.Join(candidates, " or "), wanted.Name, name)}
}

func (p *ParentPlan) isRecorded(name string) bool {
	return slices.ContainsFunc(p.recorded, func(r netstate.Member) bool { return r.Name == name })
}

// ambiguousRecord says that the NIC could be the wanted one or the other. The recorded NIC that has the
// name of the live one comes first.
func (p *ParentPlan) ambiguousRecord(wanted, rival netstate.Member, index int) *Problem {
	name := p.devices[index].Name
	if rival.Name == name {
		wanted, rival = rival, wanted
	}
	advice := fmt.Sprintf("--parent %s=%s to use it for %s", wanted.Name, name, wanted.Name)
	if rival.Name != wanted.Name {
		advice += fmt.Sprintf(", or --parent %s=%s to use it for %s", rival.Name, name, rival.Name)
	}
	return &Problem{Transient: true, Reason: fmt.Sprintf("what is %s now could be the recorded %s or the recorded %s: say %s",
		name, describeNIC(wanted), describeNIC(rival), advice)}
}

func renamedNote(oldName, newName, property string) string {
	if oldName == newName {
		return ""
	}
	return fmt.Sprintf("%s is now %s (same %s)", oldName, newName, property)
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
