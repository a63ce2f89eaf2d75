package restore

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/relink-cni/relink/pkg/netstate"
)

// ParentPlan decides, purely, what brings back the parents that records name. It
// works on a picture of the namespace's devices in which each planned step has
// been done already, so that what many records need is planned once.
type ParentPlan struct {
	devices netstate.Devices
	steps   []Step
	// mapped are the names that the operator gave by --parent old=new.
	mapped map[string]string
	seen   map[string]chainResult
}

// chainResult is what the plan says of one chain of parents.
type chainResult struct {
	parent netstate.LiveDevice
	// now is the recorded chain with the names and hardware that were found for
	// it.
	now []netstate.Device
	// unsure says that waiting may find something better.
	unsure bool
	notes  []string
	// problems leave the chain usable: a bond that lacks a member.
	problems []*Problem
	// broken is why the chain can't be built on, nil if it can.
	broken *Problem
}

// sharedPlan is a ParentPlan that many use at once.
type sharedPlan struct {
	mu   sync.Mutex
	plan *ParentPlan
}

// chain is the plan's, with the steps that it needs for them and the chain as it
// is then.
func (s *sharedPlan) chain(parents []netstate.Device) (r chainResult, steps []Step, live []netstate.Device, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r = s.plan.chain(parents); r.broken != nil {
		return r, nil, nil, nil
	}
	live, err = s.plan.devices.Chain(r.parent.Index)
	return r, s.plan.stepsFor(r.parent.Index), live, err
}

// NewParentPlan plans on the devices as they are, which it leaves alone. mapped
// gives devices that came back under another name, by the old one.
func NewParentPlan(devices netstate.Devices, mapped map[string]string) *ParentPlan {
	return &ParentPlan{devices: append(netstate.Devices(nil), devices...), mapped: mapped, seen: map[string]chainResult{}}
}

// Steps are what has been planned so far, in the order in which it is to be done.
func (p *ParentPlan) Steps() []Step { return p.steps }

// chain plans for the parents, given nearest first, and says on which device the
// interface is to be built.
func (p *ParentPlan) chain(parents []netstate.Device) chainResult {
	key := chainKey(parents)
	if r, ok := p.seen[key]; ok {
		return r
	}
	r := p.plan(parents)
	p.seen[key] = r
	return r
}

// stepsBelow returns the steps that were planned for what the parents name. It
// plans nothing, so that many may ask at once.
func (p *ParentPlan) stepsBelow(parents []netstate.Device) []Step {
	r, ok := p.seen[chainKey(parents)]
	if !ok || r.broken != nil {
		return nil
	}
	return p.stepsFor(r.parent.Index)
}

// chainKey makes chains comparable by what matters for the plan.
func chainKey(parents []netstate.Device) string {
	var key strings.Builder
	for _, d := range parents {
		fmt.Fprintf(&key, "%s %s %d %+v %+v %+v\n", d.Kind, d.Name, d.MTU, d.NIC, d.VLAN, d.Bond)
	}
	return key.String()
}

func (p *ParentPlan) plan(parents []netstate.Device) (r chainResult) {
	r.now = slices.Clone(parents)
	for i := len(parents) - 1; i >= 0; i-- {
		recorded := parents[i]
		var index int
		if i == len(parents)-1 {
			index, r.broken = p.base(recorded, &r)
		} else {
			index, r.broken = p.vlan(recorded, r.parent, &r)
		}
		if r.broken != nil {
			return r
		}
		p.identify(&r.now[i], index)
		p.carryMTU(index, recorded)
		p.setUp(index)
		r.parent = p.devices[index]
	}
	return r
}

// stepsFor returns the planned steps that concern the device of that index or
// anything below it.
func (p *ParentPlan) stepsFor(index int) []Step {
	chain, err := p.devices.Chain(index)
	if err != nil {
		return nil
	}
	var steps []Step
	for _, s := range p.steps {
		if slices.ContainsFunc(chain, func(d netstate.Device) bool { return d.Name == s.Device || d.Name == s.On && s.Action == Enslave }) {
			steps = append(steps, s)
		}
	}
	return steps
}

// identify gives the recorded device the name and the hardware that it has now. One
// of another kind, which only the operator can name for it, takes its place whole.
func (p *ParentPlan) identify(recorded *netstate.Device, index int) {
	live := p.devices[index]
	if live.Kind != recorded.Kind {
		*recorded = p.devices.Recorded(live)
		return
	}
	recorded.Name, recorded.NIC = live.Name, live.NIC
}

func (p *ParentPlan) add(s Step) { p.steps = append(p.steps, s) }

func (p *ParentPlan) carryMTU(index int, recorded netstate.Device) {
	live := &p.devices[index]
	if live.MTU >= recorded.MTU {
		return
	}
	p.add(Step{Action: RaiseMTU, Device: live.Name, MTU: recorded.MTU,
		Reason: fmt.Sprintf("its MTU is %d, recorded %d", live.MTU, recorded.MTU)})
	live.MTU = recorded.MTU
}

func (p *ParentPlan) setUp(index int) {
	live := &p.devices[index]
	if live.Up {
		return
	}
	p.add(Step{Action: SetUp, Device: live.Name, Reason: "it is down"})
	live.Up = true
}

// base finds the lowest device of a chain, and gives a bond its members back.
func (p *ParentPlan) base(recorded netstate.Device, r *chainResult) (int, *Problem) {
	index, note, problem := p.find(recorded)
	if problem != nil {
		return 0, problem
	}
	r.note(note)
	r.unsure = r.unsure || exchanged(recorded.NIC, p.devices[index].NIC) && p.mapped[recorded.Name] == ""
	if live := p.devices[index]; recorded.Bond != nil && live.Bond != nil {
		if live.Bond.Mode != recorded.Bond.Mode {
			r.problems = append(r.problems, &Problem{Reason: fmt.Sprintf(
				"%s is in mode %s, recorded in mode %s: left alone", live.Name, live.Bond.Mode, recorded.Bond.Mode)})
		}
		bond := *recorded.Bond
		bond.Members = p.members(live, bond, r)
		r.now[len(r.now)-1].Bond = &bond
	}
	return index, nil
}

// note keeps what the operator should know.
func (r *chainResult) note(text string) {
	if text != "" {
		r.notes = append(r.notes, text)
	}
}

// exchanged says that another card is in the place of the recorded one.
func exchanged(recorded, live netstate.NIC) bool {
	return recorded.PermanentMAC != "" && live.PermanentMAC != "" && recorded.PermanentMAC != live.PermanentMAC
}

// find returns the place of the device that recorded is now. Hardware is known by
// its permanent MAC, then by its address on the bus, whatever its name; anything
// else is known by name and kind. What the operator said goes before all.
func (p *ParentPlan) find(recorded netstate.Device) (index int, note string, problem *Problem) {
	if name, ok := p.mapped[recorded.Name]; ok {
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

// members plans to enslave the recorded members that came back free, and returns
// them by the names and hardware that they have now.
func (p *ParentPlan) members(bond netstate.LiveDevice, recorded netstate.Bond, r *chainResult) []netstate.Member {
	now := slices.Clone(recorded.Members)
	for i, m := range recorded.Members {
		if there := p.byName(m.Name); there >= 0 && p.mapped[m.Name] == "" && p.devices[there].MasterIndex == bond.Index && !exchanged(m.NIC, p.devices[there].NIC) {
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

func (p *ParentPlan) nameOf(index int) string {
	if d, ok := p.devices.ByIndex(index); ok {
		return d.Name
	}
	return fmt.Sprintf("the device with index %d", index)
}

// vlan finds the VLAN device on below, or plans to create it.
func (p *ParentPlan) vlan(recorded netstate.Device, below netstate.LiveDevice, r *chainResult) (int, *Problem) {
	if recorded.VLAN == nil {
		return 0, &Problem{Reason: fmt.Sprintf("%s is recorded as a %s on %s, which can't be built", recorded.Name, recorded.Kind, below.Name)}
	}
	name := recorded.Name
	if told, ok := p.mapped[name]; ok {
		if p.byName(told) < 0 {
			return 0, notThere(told, name)
		}
		r.notes = append(r.notes, asTold(name, told))
		name = told
	}
	if i := p.byName(name); i >= 0 {
		d := p.devices[i]
		if d.VLAN == nil || *d.VLAN != *recorded.VLAN || d.ParentIndex != below.Index {
			return 0, &Problem{Reason: fmt.Sprintf("%s is there but is %s, recorded as %s on %s: left alone",
				d.Name, p.describe(d), recorded.VLAN, below.Name)}
		}
		return i, nil
	}
	if d, ok := p.devices.VLANOn(below.Index, *recorded.VLAN); ok {
		r.note(fmt.Sprintf("%s is now %s (same %s on %s)", recorded.Name, d.Name, d.VLAN, below.Name))
		return p.byName(d.Name), nil
	}
	p.add(Step{Action: CreateVLAN, Device: recorded.Name, On: below.Name, VLAN: recorded.VLAN, MTU: recorded.MTU, Reason: "it is missing"})
	created := recorded
	// No device that is there has a negative index.
	p.devices = append(p.devices, netstate.LiveDevice{
		Device: created, Index: -len(p.devices) - 1, ParentIndex: below.Index, Up: true, Carrier: below.Carrier,
	})
	return len(p.devices) - 1, nil
}

func (p *ParentPlan) describe(d netstate.LiveDevice) string {
	if d.VLAN == nil {
		return "a " + d.Kind
	}
	return fmt.Sprintf("%s on %s", d.VLAN, p.nameOf(d.ParentIndex))
}
