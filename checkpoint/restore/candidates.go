package restore

import (
	"slices"

	"github.com/relink-cni/relink/pkg/netstate"
)

// matchRank says why a recorded NIC can be one that is there. The greatest claim wins: a NIC is not free
// if another recorded NIC has a greater claim to it.
type matchRank int

const (
	// noMatch: the NIC has neither the MAC nor the place.
	noMatch matchRank = iota
	// matchBus: the NIC is at the recorded bus address and port. Its MAC is another one, or is not
	// known. A port that is not known is no match: the card may have been exchanged, and its names given anew.
	matchBus
	// matchMapped is matchBus, and the operator says that it is the one.
	matchMapped
	// matchMAC: the NIC has the recorded permanent MAC, at another place.
	matchMAC
	// matchMACAndBus: the NIC has the MAC and the place.
	matchMACAndBus
)

func (p *ParentPlan) rank(recorded netstate.Member, live netstate.LiveDevice) matchRank {
	samePlace := recorded.BusAddress != "" && recorded.BusAddress == live.BusAddress && recorded.DevPort == live.DevPort
	target, mapped := p.Mapped[recorded.Name]
	switch hasMAC := recorded.PermanentMAC != "" && recorded.PermanentMAC == live.PermanentMAC; {
	case live.Kind != netstate.KindNIC, mapped && target != live.Name:
		return noMatch
	case mapped && samePlace:
		return matchMapped
	case mapped:
		return noMatch // The operator moves pods there. That does not make the NIC another one.
	case hasMAC && samePlace:
		return matchMACAndBus
	case hasMAC:
		return matchMAC
	case samePlace:
		return matchBus
	}
	return noMatch
}

// nicMatch says which of the NICs that are there a recorded one can be.
type nicMatch struct {
	// rank is the greatest claim that it has to a NIC that is free. free are the places of all
	// NICs that it has this claim to.
	rank matchRank
	free []int
	// better is a recorded NIC that has a greater claim to the NIC at the place owned. It is nil if
	// there is none.
	better      *netstate.Member
	betterIndex int
}

func (p *ParentPlan) matchNIC(wanted netstate.Member) (f nicMatch) {
	for f.rank = matchMACAndBus; f.rank > noMatch; f.rank-- {
		for i, live := range p.devices {
			if p.rank(wanted, live) != f.rank {
				continue
			}
			if better := p.betterMatch(wanted, live, f.rank); better == nil {
				f.free = append(f.free, i)
			} else if f.better == nil {
				f.better, f.betterIndex = better, i
			}
		}
		if len(f.free) > 0 {
			return f
		}
	}
	return f
}

// betterMatch returns another recorded NIC that has a greater claim to the live one, nil if there is none.
func (p *ParentPlan) betterMatch(wanted netstate.Member, live netstate.LiveDevice, than matchRank) *netstate.Member {
	for i, r := range p.recorded {
		if p.rank(r, live) > than && !isSameNIC(r, wanted) {
			return &p.recorded[i]
		}
	}
	return nil
}

// chooseNIC returns the place of the wanted NIC where it has the same claim to several. A newer record
// of the same slot decides, then the name. It returns -1 if neither decides.
func (p *ParentPlan) chooseNIC(wanted netstate.Member, f nicMatch) int {
	if len(f.free) == 1 {
		return f.free[0]
	}
	hasNewerRecord := func(i int) bool {
		return slices.ContainsFunc(p.recorded, func(r netstate.Member) bool { return isSameNIC(r, wanted) && p.rank(r, p.devices[i]) > f.rank })
	}
	newer := slices.DeleteFunc(slices.Clone(f.free), func(i int) bool { return !hasNewerRecord(i) })
	if len(newer) == 1 {
		return newer[0]
	}
	if n := p.indexNamed(wanted.Name, f.free); n >= 0 {
		return f.free[n]
	}
	return -1
}

// indexNamed returns which of the devices at those places has the name, -1 if none has.
func (p *ParentPlan) indexNamed(name string, places []int) int {
	return slices.IndexFunc(places, func(i int) bool { return p.devices[i].Name == name })
}

// findRival returns another recorded NIC that the one at that place could be just as well, nil if there is none. There is
// none if both are there under their own names.
func (p *ParentPlan) findRival(wanted netstate.Member, f nicMatch, index int) *netstate.Member {
	ownName := p.devices[index].Name == wanted.Name
	for i, r := range p.recorded {
		if isSameNIC(r, wanted) || p.rank(r, p.devices[index]) != f.rank {
			continue
		}
		free := p.matchNIC(r).free
		ownNames := ownName && r.Name != wanted.Name && p.indexNamed(r.Name, free) >= 0
		if slices.Contains(free, index) && !ownNames {
			return &p.recorded[i]
		}
	}
	return nil
}

// recordedAs returns the recorded NIC that the one at that place is, nil if it is the wanted NIC or none.
func (p *ParentPlan) recordedAs(index int, wanted netstate.Member) *netstate.Member {
	for i, r := range p.recorded {
		if isSameNIC(r, wanted) || p.rank(r, p.devices[index]) == noMatch {
			continue
		}
		if found, _, problem := p.findNIC(r); problem == nil && found == index {
			return &p.recorded[i]
		}
	}
	return nil
}
