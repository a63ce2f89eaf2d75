package restore

import (
	"fmt"

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
	if recorded.Kind == netstate.KindNIC && recorded.NIC != (netstate.NIC{}) {
		return p.findNIC(recorded.Name, recorded.NIC)
	}
	i := p.byName(recorded.Name)
	if i < 0 {
		return 0, "", &Problem{Reason: fmt.Sprintf("%s (%s) is not there", recorded.Name, recorded.Kind), Waiting: true}
	}
	if p.devices[i].Kind != recorded.Kind {
		return 0, "", p.otherKind(i, recorded.Kind)
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
	var unclear *Problem
	for _, by := range []struct {
		what  string
		match func(netstate.LiveDevice) bool
	}{
		{"permanent MAC " + nic.PermanentMAC, func(d netstate.LiveDevice) bool {
			return nic.PermanentMAC != "" && d.PermanentMAC == nic.PermanentMAC
		}},
		{"bus address " + nic.BusAddress, func(d netstate.LiveDevice) bool {
			return nic.BusAddress != "" && d.BusAddress == nic.BusAddress
		}},
	} {
		switch found := p.findNICs(name, by.match); len(found) {
		case 0:
		case 1:
			live := p.devices[found[0]]
			if exchanged(nic, live.NIC) {
				return found[0], fmt.Sprintf("%s is another card in the place of %s (%s; permanent MAC %s, recorded %s)",
					live.Name, name, by.what, live.PermanentMAC, nic.PermanentMAC), nil
			}
			return found[0], renamed(name, live.Name, by.what), nil
		default:
			first, second := p.devices[found[0]].Name, p.devices[found[1]].Name
			unclear = &Problem{Reason: fmt.Sprintf("%s could be %s or %s (same %s): say which by --parent %s=%s",
				name, first, second, by.what, name, first)}
		}
	}
	if unclear != nil {
		return 0, "", unclear
	}
	if i := p.byName(name); i >= 0 {
		d := p.devices[i]
		if d.Kind != netstate.KindNIC {
			return 0, "", p.otherKind(i, netstate.KindNIC)
		}
		return 0, "", &Problem{Waiting: true, Reason: fmt.Sprintf(
			"%s is another NIC now (permanent MAC %s, bus address %s; recorded %s, %s): use it by --parent %s=%s",
			name, d.PermanentMAC, d.BusAddress, nic.PermanentMAC, nic.BusAddress, name, name)}
	}
	return 0, "", &Problem{Waiting: true, Reason: fmt.Sprintf(
		"%s (permanent MAC %s, bus address %s) is not there", name, nic.PermanentMAC, nic.BusAddress)}
}

func renamed(was, is, by string) string {
	if was == is {
		return ""
	}
	return fmt.Sprintf("%s is now %s (same %s)", was, is, by)
}

// findNICs returns the places of the NICs that match; of several, the one that has
// the old name alone, if one has.
func (p *ParentPlan) findNICs(name string, match func(netstate.LiveDevice) bool) []int {
	var found []int
	for i, d := range p.devices {
		if d.Kind != netstate.KindNIC || !match(d) {
			continue
		}
		if d.Name == name {
			return []int{i}
		}
		found = append(found, i)
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
	name := link.Alias // Where the reference plugin remembers the name in the host.
	if name == "" {
		name = link.Name
	}
	index, note, problem := p.find(netstate.Device{Kind: netstate.KindNIC, Name: name, NIC: *link.NIC})
	if problem != nil {
		return netstate.LiveDevice{}, "", problem
	}
	return p.devices[index], note, nil
}
