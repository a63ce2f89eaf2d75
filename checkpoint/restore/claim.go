package restore

import (
	"slices"

	"github.com/relink-cni/relink/pkg/netstate"
)

// claim says why a recorded NIC can be one that is there. The greatest claim wins: a NIC is not free
// if another recorded NIC has a greater claim to it.
type claim int

const (
	// noClaim: the NIC has neither the MAC nor the place.
	noClaim claim = iota
	// byPlace: the NIC is at the recorded bus address and port. Its MAC is another one, or is not
	// known.
	byPlace
	// byWord is byPlace, and the operator says that it is the one.
	byWord
	// byMAC: the NIC has the recorded permanent MAC, at another place.
	byMAC
	// byBoth: the NIC has the MAC and the place.
	byBoth
)

func (p *ParentPlan) claim(recorded netstate.Member, live netstate.LiveDevice) claim {
	there := live.Kind == netstate.KindNIC && recorded.SamePlace(live.NIC)
	told, mapped := p.Mapped[recorded.Name]
	switch hasMAC := recorded.PermanentMAC != "" && recorded.PermanentMAC == live.PermanentMAC; {
	case live.Kind != netstate.KindNIC, mapped && told != live.Name:
		return noClaim
	case mapped && there:
		return byWord
	case mapped:
		return noClaim // The operator moves pods there. That does not make the NIC another one.
	case hasMAC && there:
		return byBoth
	case hasMAC:
		return byMAC
	case there:
		return byPlace
	}
	return noClaim
}

// fit says which of the NICs that are there a recorded one can be.
type fit struct {
	// claim is the greatest claim that it has to a NIC that is free. free are the places of all
	// NICs that it has this claim to.
	claim claim
	free  []int
	// owner is a recorded NIC that has a greater claim to the NIC at the place owned. It is nil if
	// there is none.
	owner *netstate.Member
	owned int
}

func (p *ParentPlan) fit(wanted netstate.Member) (f fit) {
	for f.claim = byBoth; f.claim > noClaim; f.claim-- {
		for i, live := range p.devices {
			if p.claim(wanted, live) != f.claim {
				continue
			}
			if other, ok := p.greater(wanted, live, f.claim); !ok {
				f.free = append(f.free, i)
			} else if f.owner == nil {
				f.owner, f.owned = &other, i
			}
		}
		if len(f.free) > 0 {
			return f
		}
	}
	return f
}

// greater returns another recorded NIC that has a greater claim to the live one.
func (p *ParentPlan) greater(wanted netstate.Member, live netstate.LiveDevice, than claim) (netstate.Member, bool) {
	for _, r := range p.recorded {
		if p.claim(r, live) > than && !oneNIC(r, wanted) {
			return r, true
		}
	}
	return netstate.Member{}, false
}

// choose returns the place of the wanted NIC where it has the same claim to several. A newer record
// of the same slot decides, then the name. It returns -1 if neither decides. The names of an exchanged
// card prove nothing if its ports differ: they may have been given anew, and the recorded port is not
// known.
func (p *ParentPlan) choose(wanted netstate.Member, f fit) int {
	if len(f.free) == 1 {
		return f.free[0]
	}
	newer := slices.DeleteFunc(slices.Clone(f.free), func(i int) bool { return !p.hasNewer(wanted, p.devices[i], f.claim) })
	if len(newer) == 1 {
		return newer[0]
	}
	n := p.named(wanted.Name, f.free)
	if n < 0 {
		return -1
	}
	live := p.devices[f.free[n]]
	otherPort := func(i int) bool { return p.devices[i].DevPort != live.DevPort }
	if f.claim == byPlace && exchanged(wanted.NIC, live.NIC) && slices.ContainsFunc(f.free, otherPort) {
		return -1
	}
	return f.free[n]
}

// hasNewer says that another record of the wanted NIC has a greater claim to the live one.
func (p *ParentPlan) hasNewer(wanted netstate.Member, live netstate.LiveDevice, than claim) bool {
	return slices.ContainsFunc(p.recorded, func(r netstate.Member) bool { return oneNIC(r, wanted) && p.claim(r, live) > than })
}

// named returns which of the devices at those places has the name, -1 if none has.
func (p *ParentPlan) named(name string, places []int) int {
	return slices.IndexFunc(places, func(i int) bool { return p.devices[i].Name == name })
}

// rival returns another recorded NIC that the one at that place could be just as well. There is
// none if both are there under their own names.
func (p *ParentPlan) rival(wanted netstate.Member, f fit, index int) (netstate.Member, bool) {
	ownName := p.devices[index].Name == wanted.Name
	for _, r := range p.recorded {
		if oneNIC(r, wanted) || p.claim(r, p.devices[index]) != f.claim {
			continue
		}
		free := p.fit(r).free
		ownNames := ownName && r.Name != wanted.Name && p.named(r.Name, free) >= 0
		if slices.Contains(free, index) && !ownNames {
			return r, true
		}
	}
	return netstate.Member{}, false
}

// owner returns the recorded NIC that the one at that place is. ok is false if it is the wanted NIC
// or none.
func (p *ParentPlan) owner(index int, wanted netstate.Member) (netstate.Member, bool) {
	for _, r := range p.recorded {
		if oneNIC(r, wanted) || p.claim(r, p.devices[index]) == noClaim {
			continue
		}
		if found, _, problem := p.findNIC(r); problem == nil && found == index {
			return r, true
		}
	}
	return netstate.Member{}, false
}
