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
			return i, asTold(recorded.Name, name), nil
		}
		return 0, "", notThere(name, recorded.Name)
	}
	wanted := netstate.Member{Name: recorded.Name, NIC: recorded.NIC}
	if recorded.Kind == netstate.KindNIC && recorded.Known() {
		return p.findNIC(wanted)
	}
	i := p.byName(recorded.Name)
	if i < 0 {
		return 0, "", &Problem{Reason: fmt.Sprintf("%s (%s) is not there", recorded.Name, recorded.Kind), Waiting: true}
	}
	if p.devices[i].Kind != recorded.Kind {
		return 0, "", p.otherKind(i, recorded.Kind)
	}
	if owner, ok := p.owner(i, wanted); ok {
		return 0, "", p.isAnother(wanted, i, owner)
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

// findNIC returns the place of the NIC that the wanted one has the greatest claim to.
func (p *ParentPlan) findNIC(wanted netstate.Member) (int, string, *Problem) {
	wanted = withPort(wanted, p.recorded)
	f := p.fit(wanted)
	switch {
	case len(f.free) == 0 && f.owner != nil:
		return 0, "", p.isAnother(wanted, f.owned, *f.owner)
	case len(f.free) == 0:
		return 0, "", p.notFound(wanted.Name, wanted.NIC)
	}
	index := p.choose(wanted, f)
	if index < 0 {
		return 0, "", p.couldBe(wanted, f.free)
	}
	if other, ok := p.rival(wanted, f, index); ok {
		return 0, "", p.couldBeEither(wanted, other, index)
	}
	return index, p.foundBy(wanted, f, index), nil
}

// foundBy says what the operator should know of the NIC that was found.
func (p *ParentPlan) foundBy(wanted netstate.Member, f fit, index int) string {
	live := p.devices[index]
	if f.claim == byPlace && exchanged(wanted.NIC, live.NIC) {
		return fmt.Sprintf("%s is another card in the place of %s (bus address %s; permanent MAC %s, recorded %s)",
			live.Name, wanted.Name, wanted.BusAddress, live.PermanentMAC, wanted.PermanentMAC)
	}
	if f.claim == byPlace || f.claim == byBoth && p.withMAC(live.PermanentMAC) > 1 {
		return renamed(wanted.Name, live.Name, "bus address "+wanted.BusAddress)
	}
	return renamed(wanted.Name, live.Name, "permanent MAC "+wanted.PermanentMAC)
}

// withMAC counts the NICs that have the permanent MAC.
func (p *ParentPlan) withMAC(mac string) (n int) {
	for _, d := range p.devices {
		if d.Kind == netstate.KindNIC && d.PermanentMAC == mac {
			n++
		}
	}
	return n
}

// notFound says that no NIC is the recorded one. If another device has its name, it says so.
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
	return &Problem{Waiting: true, Reason: fmt.Sprintf("%s (%s) is not there", name, nic.Hardware())}
}

func inWords(m netstate.Member) string { return fmt.Sprintf("%s (%s)", m.Name, m.Hardware()) }

// isAnother says that the NIC at that place is another recorded one than the wanted one.
func (p *ParentPlan) isAnother(wanted netstate.Member, index int, other netstate.Member) *Problem {
	live := p.devices[index]
	return &Problem{Waiting: true, Reason: fmt.Sprintf(
		"the recorded %s is not there; what is %s now is the recorded %s: to use it for %s as well, say --parent %s=%s",
		inWords(wanted), live.Name, inWords(other), wanted.Name, wanted.Name, live.Name)}
}

// couldBe says that several NICs could be the wanted one. First comes the one with its name, or else
// one whose name is not recorded. If none has its name, waiting may help: one may get it yet.
func (p *ParentPlan) couldBe(wanted netstate.Member, found []int) *Problem {
	first := p.named(wanted.Name, found)
	if first < 0 {
		first = max(slices.IndexFunc(found, func(i int) bool { return !p.isRecorded(p.devices[i].Name) }), 0)
	}
	var all []string
	for _, i := range slices.Concat(found[first:first+1], found[:first], found[first+1:]) {
		all = append(all, inWords(netstate.Member{Name: p.devices[i].Name, NIC: p.devices[i].NIC}))
	}
	name := p.devices[found[first]].Name
	return &Problem{Waiting: name != wanted.Name, Reason: fmt.Sprintf("the recorded %s could be what is now %s: say which, such as --parent %s=%s",
		inWords(wanted), strings.Join(all, " or "), wanted.Name, name)}
}

func (p *ParentPlan) isRecorded(name string) bool {
	return slices.ContainsFunc(p.recorded, func(r netstate.Member) bool { return r.Name == name })
}

// couldBeEither says that the NIC could be the wanted one or the other. The recorded NIC that has the
// name of the live one comes first.
func (p *ParentPlan) couldBeEither(wanted, other netstate.Member, index int) *Problem {
	name := p.devices[index].Name
	if other.Name == name {
		wanted, other = other, wanted
	}
	say := fmt.Sprintf("--parent %s=%s to use it for %s", wanted.Name, name, wanted.Name)
	if other.Name != wanted.Name {
		say += fmt.Sprintf(", or --parent %s=%s to use it for %s", other.Name, name, other.Name)
	}
	return &Problem{Waiting: true, Reason: fmt.Sprintf("what is %s now could be the recorded %s or the recorded %s: say %s",
		name, inWords(wanted), inWords(other), say)}
}

func renamed(was, is, by string) string {
	if was == is {
		return ""
	}
	return fmt.Sprintf("%s is now %s (same %s)", was, is, by)
}

func (p *ParentPlan) byName(name string) int {
	for i := range p.devices {
		if p.devices[i].Name == name {
			return i
		}
	}
	return -1
}

// nic returns the NIC in the host that is to be moved to its sandbox as the link. A VF is never moved, even if an old record names it.
func (p *ParentPlan) nic(link netstate.Link) (netstate.LiveDevice, string, *Problem) {
	index, note, problem := p.find(netstate.Device{Kind: netstate.KindNIC, Name: nameInHost(link), NIC: *link.NIC})
	if problem != nil {
		return netstate.LiveDevice{}, "", problem
	}
	if d := p.devices[index]; d.PF != "" {
		return netstate.LiveDevice{}, "", &Problem{Reason: netstate.WhyVF(d.Name, d.PF) + ": left in the host"}
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
