package restore

import (
	"fmt"
	"slices"

	"github.com/relink-cni/relink/pkg/netstate"
)

// missingBond plans to build the bond from its record, if that was asked for: it is the
// host's network manager that makes bonds. notThere says that it is missing.
func (p *ParentPlan) missingBond(recorded netstate.Device, notThere *Problem) (int, *Problem) {
	if !p.RebuildBond {
		notThere.Reason += ": --rebuild-bond builds it from its record, where the host's network manager does not"
		return 0, notThere
	}
	if !slices.ContainsFunc(recorded.Bond.Members, p.free) {
		return 0, &Problem{Waiting: true, Reason: fmt.Sprintf("%s can't be built: none of its members is there and free", recorded.Name)}
	}
	p.add(Step{Action: CreateBond, Device: recorded.Name, Bond: recorded.Bond, MTU: recorded.MTU,
		Reason: "it is missing, and --rebuild-bond was given", device: recorded})
	live := recorded
	bond := *recorded.Bond
	bond.Members = nil
	live.Bond = &bond
	return p.made(netstate.LiveDevice{Device: live}), nil
}

// free says that the recorded member is there and belongs to nothing.
func (p *ParentPlan) free(m netstate.Member) bool {
	index, _, problem := p.find(netstate.Device{Kind: netstate.KindNIC, Name: m.Name, NIC: m.NIC})
	return problem == nil && p.devices[index].MasterIndex == 0
}

// members plans to enslave the recorded members that came back free, and returns
// them by the names and hardware that they have now.
func (p *ParentPlan) members(bond netstate.LiveDevice, recorded netstate.Bond, r *chainResult) []netstate.Member {
	now := slices.Clone(recorded.Members)
	for i, m := range recorded.Members {
		if there := p.byName(m.Name); there >= 0 && p.Mapped[m.Name] == "" && p.devices[there].MasterIndex == bond.Index && !exchanged(m.NIC, p.devices[there].NIC) {
			continue // Whatever it is: not every member is a NIC.
		}
		index, note, problem := p.find(netstate.Device{Kind: netstate.KindNIC, Name: m.Name, NIC: m.NIC})
		if problem != nil {
			problem.Reason = fmt.Sprintf("%s lacks its member: %s", bond.Name, problem.Reason)
			r.problems = append(r.problems, problem)
			continue
		}
		nic := &p.devices[index]
		switch nic.MasterIndex {
		case bond.Index:
		case 0:
			reason := fmt.Sprintf("it was a member of %s when recorded and is free", bond.Name)
			if nic.Name != m.Name {
				reason = fmt.Sprintf("it was a member of %s as %s when recorded and is free", bond.Name, m.Name)
			}
			p.add(Step{Action: Enslave, Device: nic.Name, On: bond.Name, Reason: reason})
			nic.MasterIndex, nic.Up = bond.Index, true
		default:
			r.problems = append(r.problems, &Problem{Reason: fmt.Sprintf(
				"%s lacks its member: %s belongs to %s now, left alone", bond.Name, nic.Name, p.nameOf(nic.MasterIndex))})
			continue
		}
		if exchanged(m.NIC, nic.NIC) {
			r.note(note)
		}
		now[i] = netstate.Member{Name: nic.Name, NIC: nic.NIC}
	}
	return now
}
