package restore

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/netstate"
)

// find returns the place of the device that the recorded one is now. What the operator said decides
// first. Hardware is known by its permanent MAC, then by its address on the bus, whatever its name.
// Anything else is known by its kind, and by its index until it is gone. After that it is known by its name.
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
	if found := p.byIndex(recorded); found >= 0 && found != i {
		return found, fmt.Sprintf("%s is now %s (the same index %d)", recorded.Name, p.devices[found].Name, recorded.IfIndex), nil
	}
	if i < 0 {
		return 0, "", transientf("%s (%s) is not there", recorded.Name, recorded.Kind)
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
	return transientf("%s, told by --parent for %s, is not there", target, recorded)
}

func (p *ParentPlan) otherKind(index int, recorded string) *Problem {
	d := p.devices[index]
	return problemf("%s is a %s now, recorded as a %s: left alone", d.Name, d.Kind, recorded)
}

func (p *ParentPlan) byName(name string) int {
	for i := range p.devices {
		if p.devices[i].Name == name {
			return i
		}
	}
	return -1
}

// byIndex returns the place of the device that has the recorded index and kind, -1 for none: no later device gets the index by itself.
func (p *ParentPlan) byIndex(recorded netstate.Device) int {
	return slices.IndexFunc(p.devices, func(d netstate.LiveDevice) bool {
		return recorded.IfIndex != 0 && d.Index == recorded.IfIndex && d.Kind == recorded.Kind
	})
}

// findHostNIC returns the NIC in the host that is to be moved to its sandbox as the link. A VF is never moved, even if an old record names it.
func (p *ParentPlan) findHostNIC(link netstate.Link) (nic netstate.LiveDevice, note string, problem *Problem) {
	index, note, problem := p.find(netstate.Device{Kind: netstate.KindNIC, Name: nameInHost(link), NIC: *link.NIC})
	if problem != nil {
		return nic, "", problem
	}
	nic = p.devices[index]
	if nic.PF != "" {
		return nic, "", problemf("%s: left in the host", netstate.VFReason(nic.Name, nic.PF))
	}
	return nic, note, nil
}

// nameInHost is the name that a NIC of a sandbox's own has in the host.
func nameInHost(link netstate.Link) string {
	if link.Alias != "" {
		return link.Alias // Where the reference plugin remembers it.
	}
	return link.Name
}

// The parts of a score. The greatest score wins: a NIC is not free if another recorded NIC has a greater score for it.
const (
	// placeScore: the NIC is at the recorded bus address and port. A port that is not known is no match: the card may have been
	// exchanged, and its names given anew. It counts twice if the operator says that the NIC is the one.
	placeScore = 1
	// macScore: the NIC has the recorded permanent MAC.
	macScore = 4
)

// score says how well a NIC that is there fits the recorded one, 0 if it is another one. The name alone never makes a match.
func (p *ParentPlan) score(recorded netstate.Member, live netstate.LiveDevice) (score int) {
	target, mapped := p.Mapped[recorded.Name]
	if live.Kind != netstate.KindNIC || mapped && target != live.Name {
		return 0
	}
	if recorded.BusAddress != "" && recorded.BusAddress == live.BusAddress && recorded.DevPort == live.DevPort {
		score = placeScore
	}
	switch {
	case mapped:
		return 2 * score // The operator moves pods there. That does not make the NIC another one.
	case recorded.PermanentMAC != "" && recorded.PermanentMAC == live.PermanentMAC:
		score += macScore
	}
	return score
}

// nicMatch says which of the NICs that are there a recorded one can be.
type nicMatch struct {
	// score is the greatest score that it has for a NIC that is free. places are those of all NICs that it has this score for.
	score  int
	places []int
	// owner is a recorded NIC that has a greater score for the NIC at the place owned. It is nil if there is none.
	owner *netstate.Member
	owned int
}

func (p *ParentPlan) matchNIC(wanted netstate.Member) (m nicMatch) {
	ownedScore := 0
	for i, live := range p.devices {
		score := p.score(wanted, live)
		if score == 0 {
			continue
		}
		if owner := slices.IndexFunc(p.recorded, func(r netstate.Member) bool { return p.score(r, live) > score && !isSameNIC(r, wanted) }); owner >= 0 {
			if score > ownedScore {
				m.owner, m.owned, ownedScore = &p.recorded[owner], i, score
			}
			continue
		}
		if score > m.score {
			m.score, m.places = score, nil
		}
		if score == m.score {
			m.places = append(m.places, i)
		}
	}
	return m
}

// findNIC returns the place of the NIC that the wanted one is.
func (p *ParentPlan) findNIC(wanted netstate.Member) (int, string, *Problem) {
	m := p.matchNIC(wanted)
	switch {
	case len(m.places) == 0 && m.owner != nil:
		return 0, "", p.otherNIC(wanted, m.owned, *m.owner)
	case len(m.places) == 0:
		return 0, "", p.missingNIC(wanted)
	}
	index := p.chooseNIC(wanted, m)
	if index < 0 {
		return 0, "", p.ambiguous(wanted, m.places, nil)
	}
	if rival := p.findRival(wanted, m, index); rival != nil {
		return 0, "", p.ambiguous(wanted, []int{index}, rival)
	}
	return index, p.foundNote(wanted, m, index), nil
}

// chooseNIC returns the place of the wanted NIC where it has the same score for several. A newer record
// of the same slot decides, then the name. It returns -1 if neither decides.
func (p *ParentPlan) chooseNIC(wanted netstate.Member, m nicMatch) int {
	for _, decides := range []func(int) bool{
		func(int) bool { return len(m.places) == 1 },
		func(i int) bool {
			return slices.ContainsFunc(p.recorded, func(r netstate.Member) bool { return isSameNIC(r, wanted) && p.score(r, p.devices[i]) > m.score })
		},
		func(i int) bool { return p.devices[i].Name == wanted.Name },
	} {
		if chosen := slices.DeleteFunc(slices.Clone(m.places), func(i int) bool { return !decides(i) }); len(chosen) == 1 {
			return chosen[0]
		}
	}
	return -1
}

// findRival returns another recorded NIC that the one at that place could be just as well, nil if there is none. There is
// none if both are there under their own names.
func (p *ParentPlan) findRival(wanted netstate.Member, m nicMatch, index int) *netstate.Member {
	ownName := p.devices[index].Name == wanted.Name
	for i, r := range p.recorded {
		if isSameNIC(r, wanted) || p.score(r, p.devices[index]) != m.score {
			continue
		}
		places := p.matchNIC(r).places
		ownNames := ownName && r.Name != wanted.Name && slices.ContainsFunc(places, func(i int) bool { return p.devices[i].Name == r.Name })
		if slices.Contains(places, index) && !ownNames {
			return &p.recorded[i]
		}
	}
	return nil
}

// recordedAs returns the recorded NIC that the one at that place is, nil if it is the wanted NIC or none.
func (p *ParentPlan) recordedAs(index int, wanted netstate.Member) *netstate.Member {
	for i, r := range p.recorded {
		if isSameNIC(r, wanted) || p.score(r, p.devices[index]) == 0 {
			continue
		}
		if found, _, problem := p.findNIC(r); problem == nil && found == index {
			return &p.recorded[i]
		}
	}
	return nil
}

// foundNote says what the operator should know of the NIC that was found.
func (p *ParentPlan) foundNote(wanted netstate.Member, m nicMatch, index int) string {
	live, property := p.devices[index], "permanent MAC "+wanted.PermanentMAC
	if m.score < macScore {
		property = "bus address " + wanted.BusAddress
		if isExchanged(wanted.NIC, live.NIC) {
			return fmt.Sprintf("%s is another card in the place of %s (bus address %s; permanent MAC %s, recorded %s)",
				live.Name, wanted.Name, wanted.BusAddress, live.PermanentMAC, wanted.PermanentMAC)
		}
	}
	if wanted.Name == live.Name {
		return ""
	}
	return fmt.Sprintf("%s is now %s (same %s)", wanted.Name, live.Name, property)
}

// missingNIC says that no NIC is the recorded one. If another device has its name, it says so.
func (p *ParentPlan) missingNIC(wanted netstate.Member) *Problem {
	i := p.byName(wanted.Name)
	switch {
	case i < 0:
		return transientf("%s is not there", describeNIC(wanted))
	case p.devices[i].Kind != netstate.KindNIC:
		return p.otherKind(i, netstate.KindNIC)
	}
	if owner := p.recordedAs(i, wanted); owner != nil {
		return p.otherNIC(wanted, i, *owner)
	}
	return transientf("%s is another NIC now (%s; recorded %s): use it by --parent %[1]s=%[1]s", wanted.Name, p.devices[i].Hardware(), wanted.Hardware())
}

func describeNIC(m netstate.Member) string { return fmt.Sprintf("%s (%s)", m.Name, m.Hardware()) }

// otherNIC says that the NIC at that place is another recorded one than the wanted one.
func (p *ParentPlan) otherNIC(wanted netstate.Member, index int, recorded netstate.Member) *Problem {
	live := p.devices[index]
	return transientf(
		"the recorded %s is not there; what is %s now is the recorded %s: to use it for %s as well, say --parent %s=%s",
		describeNIC(wanted), live.Name, describeNIC(recorded), wanted.Name, wanted.Name, live.Name)
}

// ambiguous says that several NICs could be the wanted one, or that one of them could be another recorded NIC, the rival, just as well.
// Waiting may help: another NIC may appear, or get its name.
func (p *ParentPlan) ambiguous(wanted netstate.Member, places []int, rival *netstate.Member) *Problem {
	var names []string
	for _, i := range places {
		names = append(names, describeNIC(netstate.Member{Name: p.devices[i].Name, NIC: p.devices[i].NIC}))
	}
	text := fmt.Sprintf("the recorded %s could be what is now %s", describeNIC(wanted), strings.Join(names, " or "))
	if rival != nil {
		text += ", and so could the recorded " + describeNIC(*rival)
	}
	return transientf("%s: say which by --parent %s=DEVICE", text, wanted.Name)
}

// isSameNIC says that two records mean one NIC, or one slot whose card was exchanged between the records.
// With the same MAC they mean one NIC, unless both the places and the names differ: then two NICs have the
// MAC. Without the same MAC they mean one NIC if both the place and the name are the same, because several
// NICs can be at one place.
func isSameNIC(a, b netstate.Member) bool {
	apart := a.BusAddress != "" && b.BusAddress != "" && !a.SamePlace(b.NIC)
	switch {
	case a.PermanentMAC != "" && a.PermanentMAC == b.PermanentMAC:
		return !apart || a.Name == b.Name
	case isExchanged(a.NIC, b.NIC):
		return a.SamePlace(b.NIC) && a.Name == b.Name
	}
	return !apart && a.Name == b.Name
}

// NICs returns all NICs that the records name, each description once.
func NICs(records []checkpoint.Record) []netstate.Member {
	var nics []netstate.Member
	for i := range records {
		nics = appendKnown(nics, hostNICs(&records[i])...)
	}
	return nics
}

// hostNICs returns the NICs of the host that the record names.
func hostNICs(r *checkpoint.Record) []netstate.Member {
	nics := hardwareOf(r.Interface.Parents)
	if link := r.Interface.Link; link.Kind == netstate.KindNIC {
		nics = append(nics, netstate.Member{Name: nameInHost(link), NIC: *cmp.Or(link.NIC, &netstate.NIC{})})
	}
	return nics
}

// appendKnown appends the members that are new and describe their NIC by more than its name. Their indices are
// left out: they differ between records of one NIC.
func appendKnown(nics []netstate.Member, members ...netstate.Member) []netstate.Member {
	for _, m := range members {
		m.IfIndex = 0
		if m.Identified() && !slices.Contains(nics, m) {
			nics = append(nics, m)
		}
	}
	return nics
}

// hardwareOf returns the NICs in the chain, members of bonds among them.
func hardwareOf(chain []netstate.Device) []netstate.Member {
	var nics []netstate.Member
	for _, d := range chain {
		if d.Kind == netstate.KindNIC {
			nics = append(nics, netstate.Member{Name: d.Name, NIC: d.NIC})
		}
		if d.Bond != nil {
			nics = append(nics, d.Bond.Members...)
		}
	}
	return nics
}
