package restore

import (
	"fmt"
	"maps"
	"slices"

	"github.com/relink-cni/relink/pkg/netstate"
)

// planMissingBond plans to build the bond from its record, if the operator asked for that. Otherwise the
// host's network manager makes it. notThere says that the bond is missing.
func (p *ParentPlan) planMissingBond(recorded netstate.Device, notThere *Problem) (int, *Problem) {
	if !p.RebuildBond {
		notThere.Reason += ": --rebuild-bond builds it from its record, where the host's network manager does not"
		return 0, notThere
	}
	isFree := func(m netstate.Member) bool { d := p.liveMember(m); return d.Index != 0 && d.MasterIndex == 0 }
	if !slices.ContainsFunc(recorded.Bond.Members, isFree) {
		return 0, transientf("%s can't be built: none of its members is there and free", recorded.Name)
	}
	var primary netstate.LiveDevice
	if i := memberIndex(recorded.Bond.Members, recorded.Bond.Primary); i >= 0 {
		primary = p.liveMember(recorded.Bond.Members[i])
	}
	live, bond := recorded, *recorded.Bond
	bond.Members = nil
	live.Bond = &bond
	index := p.addDevice(netstate.LiveDevice{Device: live})
	p.addStep(Step{Action: CreateBond, Device: recorded.Name, Reason: "it is missing, and --rebuild-bond was given",
		Bond: recorded.Bond, MTU: recorded.MTU, planned: p.devices[index], related: primary})
	return index, nil
}

// liveMember returns the device that the recorded member is now. It is the zero value if that is not there.
func (p *ParentPlan) liveMember(m netstate.Member) netstate.LiveDevice {
	index, _, problem := p.find(memberDevice(m))
	if problem != nil {
		return netstate.LiveDevice{}
	}
	return p.devices[index]
}

// memberIndex returns the place of the member of that name, -1 if there is none.
func memberIndex(members []netstate.Member, name string) int {
	return slices.IndexFunc(members, func(m netstate.Member) bool { return m.Name == name })
}

func memberDevice(m netstate.Member) netstate.Device {
	return netstate.Device{Kind: netstate.KindNIC, Name: m.Name, NIC: m.NIC}
}

// planMembers plans to enslave the recorded members that came back free. It returns all members
// by the names and the hardware that they have now.
func (p *ParentPlan) planMembers(bond netstate.LiveDevice, recorded netstate.Bond, r *ReadyChain) []netstate.Member {
	members := slices.Clone(recorded.Members)
	assigned := map[int]string{}
	for i, m := range recorded.Members {
		index, problem := p.planMember(bond, m, assigned, r)
		if problem != nil {
			problem.Reason = fmt.Sprintf("%s lacks its member: %s", bond.Name, problem.Reason)
			r.lacking = append(r.lacking, problem)
			continue
		}
		live := p.devices[index]
		members[i] = netstate.Member{Name: live.Name, IfIndex: live.Index, NIC: live.NIC}
		if p.isWithheld(live) {
			members[i].IfIndex = m.IfIndex // Still lost.
		}
		assigned[index] = m.Name
	}
	return members
}

// planMember returns the place of the device that the recorded member is now. It plans to enslave
// the device if that is free. assigned has the names of other members by their places.
func (p *ParentPlan) planMember(bond netstate.LiveDevice, m netstate.Member, assigned map[int]string, r *ReadyChain) (int, *Problem) {
	index, note, problem := p.findMember(bond, m)
	if problem != nil {
		if i := p.byName(m.Name); i >= 0 && assigned[i] == "" && p.devices[i].MasterIndex == bond.Index && p.canBeMember(m, i) {
			return i, nil
		}
		return 0, problem
	}
	nic := &p.devices[index]
	if name := assigned[index]; name != "" {
		return 0, problemf("%s would be %s, which is its member %s already", m.Name, nic.Name, name)
	}
	switch nic.MasterIndex {
	case bond.Index:
	case 0:
		p.planEnslave(nic, bond, m.Name)
	default:
		return 0, problemf("%s belongs to %s now, left alone", nic.Name, p.nameOf(nic.MasterIndex))
	}
	if isExchanged(m.NIC, nic.NIC) {
		r.addNote(note)
	}
	return index, nil
}

// findMember is find for a member of the bond. The operator may map the member's name to the bond, to
// move what was on the member to the bond. The member itself is still the same NIC then.
func (p *ParentPlan) findMember(bond netstate.LiveDevice, m netstate.Member) (int, string, *Problem) {
	unmapped := *p
	if p.Mapped[m.Name] == bond.Name {
		unmapped.Mapped = maps.Clone(p.Mapped)
		delete(unmapped.Mapped, m.Name)
	}
	return unmapped.find(memberDevice(m))
}

// canBeMember says that the device with the member's name can be the member. Not every member is a
// NIC, and of a NIC not everything may be known.
func (p *ParentPlan) canBeMember(m netstate.Member, index int) bool {
	if p.Mapped[m.Name] != "" || m.Contradicts(p.devices[index].NIC) {
		return false
	}
	return p.recordedAs(index, m) == nil
}

// isWithheld says that the NIC is to be made a member, and that this is not allowed yet.
func (p *ParentPlan) isWithheld(nic netstate.LiveDevice) bool {
	return slices.ContainsFunc(p.withheld, func(s Step) bool { return s.Action == Enslave && s.planned.Index == nic.Index })
}

// planEnslave plans to make the NIC a member of the bond. name is the recorded name of the NIC.
func (p *ParentPlan) planEnslave(nic *netstate.LiveDevice, bond netstate.LiveDevice, name string) {
	reason := fmt.Sprintf("it was a member of %s when recorded and is free", bond.Name)
	if nic.Name != name {
		reason = fmt.Sprintf("it was a member of %s as %s when recorded and is free", bond.Name, name)
	}
	p.addStep(Step{Action: Enslave, Device: nic.Name, Parent: bond.Name, Reason: reason, planned: *nic, related: bond})
	nic.MasterIndex, nic.Up = bond.Index, true
}
