package restore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/netstate"
)

// find returns the place of the device that recorded is now. Hardware is known by
// its permanent MAC, then by its address on the bus, whatever its name; anything
// else is known by name and kind. What the operator said goes before all.
func (p *ParentPlan) find(recorded netstate.Device) (index int, note string, problem *Problem) {
	if name, ok := p.Mapped[recorded.Name]; ok {
		if i := p.byName(name); i >= 0 {
			return i, asTold(recorded.Name, name), nil
		}
		return 0, "", notThere(name, recorded.Name)
	}
	if recorded.Kind == netstate.KindNIC && recorded.Known() {
		return p.findNIC(recorded.Name, recorded.NIC)
	}
	i := p.byName(recorded.Name)
	if i < 0 {
		return 0, "", &Problem{Reason: fmt.Sprintf("%s (%s) is not there", recorded.Name, recorded.Kind), Waiting: true}
	}
	if p.devices[i].Kind != recorded.Kind {
		return 0, "", p.otherKind(i, recorded.Kind)
	}
	if other, ok := p.recordedAs(p.devices[i].NIC, recorded.NIC); ok {
		return 0, "", p.isAnother(recorded.Name, p.devices[i], other)
	}
	return i, "", nil
}

func asTold(recorded, told string) string {
	return fmt.Sprintf("%s is %s, as told by --parent", recorded, told)
}

func notThere(told, recorded string) *Problem {
	return &Problem{Reason: fmt.Sprintf("%s, told by --parent for %s, is not there", told, recorded), Waiting: true}
}

func (p *ParentPlan) otherKind(index int, recorded string) *Problem {
	d := p.devices[index]
	return &Problem{Reason: fmt.Sprintf("%s is a %s now, recorded as a %s: left alone", d.Name, d.Kind, recorded)}
}

func (p *ParentPlan) findNIC(name string, nic netstate.NIC) (int, string, *Problem) {
	index, unclear := p.byMAC(name, nic)
	if index >= 0 {
		return index, renamed(name, p.devices[index].Name, "permanent MAC "+nic.PermanentMAC), nil
	}
	index, problem := p.byPlace(name, nic)
	if index >= 0 {
		live, by := p.devices[index], "bus address "+nic.BusAddress
		if exchanged(nic, live.NIC) {
			return index, fmt.Sprintf("%s is another card in the place of %s (%s; permanent MAC %s, recorded %s)",
				live.Name, name, by, live.PermanentMAC, nic.PermanentMAC), nil
		}
		return index, renamed(name, live.Name, by), nil
	}
	for _, p := range []*Problem{problem, unclear} {
		if p != nil {
			return 0, "", p
		}
	}
	return 0, "", p.notFound(name, nic)
}

// notFound says that no NIC is the recorded one, and what has its name.
func (p *ParentPlan) notFound(name string, nic netstate.NIC) *Problem {
	if i := p.byName(name); i >= 0 {
		d := p.devices[i]
		if d.Kind != netstate.KindNIC {
			return p.otherKind(i, netstate.KindNIC)
		}
		return &Problem{Waiting: true, Reason: fmt.Sprintf(
			"%s is another NIC now (permanent MAC %s, bus address %s; recorded %s, %s): use it by --parent %s=%s",
			name, d.PermanentMAC, d.BusAddress, nic.PermanentMAC, nic.BusAddress, name, name)}
	}
	return &Problem{Waiting: true, Reason: fmt.Sprintf("%s (%s) is not there", name, hardwareWords(nic))}
}

func hardwareWords(nic netstate.NIC) string {
	words := fmt.Sprintf("permanent MAC %s, bus address %s", nic.PermanentMAC, nic.BusAddress)
	if nic.DevPort != "" && nic.DevPort != "0" {
		words += ", port " + nic.DevPort
	}
	return words
}

// byMAC returns the place of the NIC that has the recorded permanent MAC, -1 if none has
// or several have.
func (p *ParentPlan) byMAC(name string, nic netstate.NIC) (int, *Problem) {
	found := p.findNICs(func(d netstate.LiveDevice) bool { return nic.PermanentMAC != "" && d.PermanentMAC == nic.PermanentMAC })
	for _, i := range found {
		if p.devices[i].Name == name {
			return i, nil
		}
	}
	switch len(found) {
	case 0:
		return -1, nil
	case 1:
		return found[0], nil
	}
	return -1, p.couldBe(name, found, "permanent MAC "+nic.PermanentMAC)
}

// byPlace returns the place in the picture of the NIC that is where the recorded one was
// on the bus, -1 if there is none. Several ports can be at one address: a NIC is taken only
// if it can be no other recorded one, and no other can be it.
func (p *ParentPlan) byPlace(name string, nic netstate.NIC) (int, *Problem) {
	found := p.findNICs(func(d netstate.LiveDevice) bool { return nic.SamePlace(d.NIC) })
	var free []int
	var taken *Problem
	for _, i := range found {
		live := p.devices[i]
		if other, ok := p.recordedAs(live.NIC, nic); ok {
			taken = p.isAnother(name, live, other)
			continue
		}
		free = append(free, i)
	}
	switch len(free) {
	case 0:
		return -1, taken
	case 1:
	default:
		return -1, p.couldBe(name, free, "bus address "+nic.BusAddress)
	}
	live := p.devices[free[0]]
	if live.PermanentMAC != "" && live.PermanentMAC == nic.PermanentMAC {
		return free[0], nil
	}
	if other, ok := p.rival(nic, live.NIC); ok {
		return -1, &Problem{Waiting: true, Reason: fmt.Sprintf(
			"%s could be %s or %s (same bus address %s): say which by --parent %s=%s",
			live.Name, name, other.Name, nic.BusAddress, name, live.Name)}
	}
	return free[0], nil
}

// recordedAs returns the recorded NIC whose permanent MAC the live one has, if that is
// another than the one that is looked for.
func (p *ParentPlan) recordedAs(live, wanted netstate.NIC) (netstate.Member, bool) {
	if live.PermanentMAC == "" || live.PermanentMAC == wanted.PermanentMAC {
		return netstate.Member{}, false
	}
	for _, r := range p.recorded {
		if r.PermanentMAC == live.PermanentMAC && !p.sameRecorded(r.NIC, wanted) {
			return r, true
		}
	}
	return netstate.Member{}, false
}

// sameRecorded says that two records mean one NIC, of which one may tell less.
func (p *ParentPlan) sameRecorded(a, b netstate.NIC) bool {
	return a.Known() && b.Known() && !a.Contradicts(b)
}

// rival returns another recorded NIC that the live one could be just as well: it was at the
// same place, and is not there by its permanent MAC.
func (p *ParentPlan) rival(wanted, live netstate.NIC) (netstate.Member, bool) {
	for _, r := range p.recorded {
		if p.sameRecorded(r.NIC, wanted) || !r.SamePlace(live) {
			continue
		}
		if found, _ := p.byMAC(r.Name, r.NIC); found < 0 {
			return r, true
		}
	}
	return netstate.Member{}, false
}

func (p *ParentPlan) isAnother(name string, live netstate.LiveDevice, other netstate.Member) *Problem {
	return &Problem{Waiting: true, Reason: fmt.Sprintf(
		"%s is not there, and %s in its place is the recorded NIC %s (permanent MAC %s): if it is to be %s, say so by --parent %s=%s",
		name, live.Name, other.Name, other.PermanentMAC, name, name, live.Name)}
}

func (p *ParentPlan) couldBe(name string, found []int, by string) *Problem {
	var names []string
	for _, i := range found {
		names = append(names, p.devices[i].Name)
	}
	return &Problem{Reason: fmt.Sprintf("%s could be %s (same %s): say which by --parent %s=%s",
		name, strings.Join(names, " or "), by, name, names[0])}
}

func renamed(was, is, by string) string {
	if was == is {
		return ""
	}
	return fmt.Sprintf("%s is now %s (same %s)", was, is, by)
}

// findNICs returns the places of the NICs that match.
func (p *ParentPlan) findNICs(match func(netstate.LiveDevice) bool) []int {
	var found []int
	for i, d := range p.devices {
		if d.Kind == netstate.KindNIC && match(d) {
			found = append(found, i)
		}
	}
	return found
}

func (p *ParentPlan) byName(name string) int {
	for i := range p.devices {
		if p.devices[i].Name == name {
			return i
		}
	}
	return -1
}

// nic returns the NIC in the host that the link is, which is to be moved to its sandbox.
func (p *ParentPlan) nic(link netstate.Link) (netstate.LiveDevice, string, *Problem) {
	index, note, problem := p.find(netstate.Device{Kind: netstate.KindNIC, Name: nameInHost(link), NIC: *link.NIC})
	if problem != nil {
		return netstate.LiveDevice{}, "", problem
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

// recordedNICs returns all the NICs that records name, each description once.
func recordedNICs(records []checkpoint.Record) []netstate.Member {
	var all []netstate.Member
	add := func(m netstate.Member) {
		if m.Known() && !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	for _, r := range records {
		if link := r.Interface.Link; link.Kind == netstate.KindNIC {
			add(netstate.Member{Name: nameInHost(link), NIC: *link.NIC})
		}
		for _, m := range hardwareOf(r.Interface.Parents) {
			add(m)
		}
	}
	return all
}

// hardwareOf returns the NICs in the chain, members of bonds among them.
func hardwareOf(chain []netstate.Device) []netstate.Member {
	var all []netstate.Member
	for _, d := range chain {
		if d.Kind == netstate.KindNIC {
			all = append(all, netstate.Member{Name: d.Name, NIC: d.NIC})
		}
		if d.Bond != nil {
			all = append(all, d.Bond.Members...)
		}
	}
	return all
}
