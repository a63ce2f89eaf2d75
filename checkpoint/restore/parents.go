package restore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/parents"
	"github.com/relink-cni/relink/pkg/netstate"
)

// ParentPlan decides which steps bring back the parents that records name. It touches nothing: it
// works on a picture of the namespace's devices. In this picture each planned step has been done
// already, so that a step that many records need is planned once.
type ParentPlan struct {
	devices netstate.Devices
	// steps are what has been planned so far, in the order in which it is to be done.
	steps []Step
	// withheld are the steps that are not allowed. The picture is as if they were done, too.
	withheld []Step
	// recorded are all the NICs that records name, by the names that they had.
	recorded []netstate.Member
	ParentOptions
	results map[string]ReadyChain
}

// ParentOptions are what the operator says of the parents.
type ParentOptions struct {
	// Mapped are devices that came back under another name, by the old one.
	Mapped map[string]string
	// RebuildBond builds a bond that is missing from its record.
	RebuildBond bool
	// allowed says which steps are taken, nil if all are.
	allowed func(Step) bool
}

// ReadyChain is what a plan says of one chain of parents.
type ReadyChain struct {
	// Parent is the device to build on. It has a negative index if a step makes it.
	Parent netstate.LiveDevice
	// Found is the recorded chain with the names and hardware that were found for
	// it.
	Found []netstate.Device
	// Problem is why the chain can't be built on, nil if it can.
	Problem *Problem
	// unsure says that a better device may still appear.
	unsure bool
	notes  []string
	// lacking leave the chain usable: a bond that lacks a member.
	lacking []*Problem
}

// NewParentPlan plans on the devices as they are. It does not change the list. recorded are all the
// NICs that records name, so that none of them is taken for another.
func NewParentPlan(devices netstate.Devices, recorded []netstate.Member, opts ParentOptions) *ParentPlan {
	return &ParentPlan{devices: slices.Clone(devices), recorded: recorded, ParentOptions: opts, results: map[string]ReadyChain{}}
}

// chain plans for the parents, which are in the order from the interface down. It says on which device
// the interface is to be built.
func (p *ParentPlan) chain(parents []netstate.Device) (r ReadyChain) {
	key := planKey(parents)
	if planned, ok := p.results[key]; ok {
		return planned
	}
	defer func() { p.results[key] = r }()
	r.Found = slices.Clone(parents)
	for i := len(parents) - 1; i >= 0; i-- {
		recorded := parents[i]
		var index int
		if i == len(parents)-1 {
			index, r.Problem = p.planBase(recorded, &r)
		} else {
			index, r.Problem = p.planVLAN(recorded, parents[i+1], r.Parent, &r)
		}
		if r.Problem != nil {
			r.Problem.Device = recorded.Name
			return r
		}
		p.identify(&r.Found[i], index)
		p.planReady(index, recorded)
		r.Parent = p.devices[index]
	}
	return r
}

// planKey returns what matters of a chain for the plan, as a key: its base can be known by its index.
func planKey(parents []netstate.Device) string {
	return fmt.Sprintf("%d %s", checkpoint.Base(parents).IfIndex, chainKey(parents))
}

// chainKey returns what a record tells of a chain, as a key to compare chains by. The indices do not matter.
func chainKey(parents []netstate.Device) string {
	var key strings.Builder
	for _, d := range netstate.WithIndices(parents, nil) {
		for _, word := range []string{d.Kind, d.Name, strconv.Itoa(d.MTU), d.PermanentMAC, d.BusAddress, d.DevPort} {
			key.WriteString(word)
			key.WriteByte(' ')
		}
		if d.VLAN != nil || d.Bond != nil {
			fmt.Fprintf(&key, "%+v %+v %+v", d.VLAN, d.VLANOptions, d.Bond)
		}
		key.WriteByte('\n')
	}
	return key.String()
}

// stepsConcerning returns those of the steps that concern the device of that index or anything below it.
func (p *ParentPlan) stepsConcerning(index int, candidates []Step) []Step {
	chain, err := p.devices.Chain(index)
	if err != nil {
		return nil
	}
	var steps []Step
	for _, s := range candidates {
		if slices.ContainsFunc(chain, func(d netstate.Device) bool { return d.Name == s.Device || s.Action == Enslave && d.Name == s.Parent }) {
			steps = append(steps, s)
		}
	}
	return steps
}

// identify gives the recorded device the name, the index and the hardware that it has now. Only the operator
// can name a device of another kind for it. Such a device replaces the recorded one as a whole.
func (p *ParentPlan) identify(recorded *netstate.Device, index int) {
	live := p.devices[index]
	if live.Kind != recorded.Kind {
		*recorded = p.devices.Recorded(live)
		return
	}
	recorded.Name, recorded.IfIndex, recorded.NIC = live.Name, max(live.Index, 0), live.NIC
}

// addStep plans a step, or withholds it if it is not allowed.
func (p *ParentPlan) addStep(s Step) {
	if p.allowed != nil && !p.allowed(s) {
		p.withheld = append(p.withheld, s)
		return
	}
	p.steps = append(p.steps, s)
}

// planReady plans what the device itself lacks.
func (p *ParentPlan) planReady(index int, recorded netstate.Device) {
	live := &p.devices[index]
	if live.MTU < recorded.MTU {
		p.addStep(Step{Action: RaiseMTU, Device: live.Name, Reason: fmt.Sprintf("its MTU is %d, recorded %d", live.MTU, recorded.MTU),
			MTU: recorded.MTU, planned: *live})
		live.MTU = recorded.MTU
	}
	if !live.Up {
		p.addStep(Step{Action: SetUp, Device: live.Name, Reason: "it is down", planned: *live})
		live.Up = true
	}
}

// planBase finds the lowest device of a chain, and gives a bond its members back.
func (p *ParentPlan) planBase(recorded netstate.Device, r *ReadyChain) (int, *Problem) {
	index, note, problem := p.find(recorded)
	if problem != nil && recorded.Bond != nil && p.byName(recorded.Name) < 0 && p.Mapped[recorded.Name] == "" {
		index, problem = p.planMissingBond(recorded, problem)
	}
	if problem != nil {
		return 0, problem
	}
	r.addNote(note)
	r.unsure = r.unsure || isExchanged(recorded.NIC, p.devices[index].NIC) && p.Mapped[recorded.Name] == ""
	if live := p.devices[index]; recorded.Bond != nil && live.Bond != nil {
		if live.Bond.Mode != recorded.Bond.Mode {
			r.lacking = append(r.lacking, problemf(
				"%s is in mode %s, recorded in mode %s: left alone", live.Name, live.Bond.Mode, recorded.Bond.Mode))
		}
		bond := *recorded.Bond
		bond.Members = p.planMembers(live, bond, r)
		if i := memberIndex(recorded.Bond.Members, bond.Primary); i >= 0 {
			bond.Primary = bond.Members[i].Name
		}
		r.Found[len(r.Found)-1].Bond = &bond
	}
	return index, nil
}

// addNote keeps what the operator should know.
func (r *ReadyChain) addNote(text string) {
	if text != "" {
		r.notes = append(r.notes, text)
	}
}

// isExchanged says that another card is in the place of the recorded one.
func isExchanged(recorded, live netstate.NIC) bool {
	return recorded.PermanentMAC != "" && live.PermanentMAC != "" && recorded.PermanentMAC != live.PermanentMAC
}

func (p *ParentPlan) nameOf(index int) string {
	if d, ok := p.devices.ByIndex(index); ok {
		return d.Name
	}
	return fmt.Sprintf("the device with index %d", index)
}

// planVLAN finds the VLAN device on below, or plans to create it.
func (p *ParentPlan) planVLAN(recorded, recordedBelow netstate.Device, below netstate.LiveDevice, r *ReadyChain) (int, *Problem) {
	if recorded.VLAN == nil {
		return 0, problemf("%s is recorded as a %s on %s, which can't be built", recorded.Name, recorded.Kind, below.Name)
	}
	name := recorded.Name
	target, mapped := p.Mapped[name]
	if mapped {
		if p.byName(target) < 0 {
			return 0, missingTarget(target, name)
		}
		r.notes = append(r.notes, mappedNote(name, target))
		name = target
	}
	existing, newName, err := parents.PlanVLAN(p.devices, below, *recorded.VLAN, name)
	if err != nil && !mapped && below.Name != recordedBelow.Name { // Its base was renamed, and somebody has its own name by now.
		if _, usual, usualErr := parents.PlanVLAN(p.devices, below, *recorded.VLAN, ""); usualErr == nil {
			r.addNote(fmt.Sprintf("%s is made as %s: %v", name, usual, err))
			newName, err = usual, nil
		}
	}
	switch {
	case err != nil:
		return 0, problemf("%v: left alone. Make a device for %s under another name, and relink restore uses it", err, recorded.VLAN)
	case newName == "" && mapped && existing.Name != name:
		return 0, problemf("%s on %s is %s, not %s, told by --parent: left alone", recorded.VLAN, below.Name, existing.Name, name)
	case newName == "":
		if existing.Name != name {
			r.addNote(fmt.Sprintf("%s is now %s (same %s on %s)", name, existing.Name, existing.VLAN, below.Name))
		}
		return p.byName(existing.Name), nil
	}
	if problem := memberProblem(p.devices, below, recordedBelow.Name); problem != nil {
		return 0, problem
	}
	created := recorded
	created.Name = newName
	if recorded.MAC == recordedBelow.MAC {
		created.MAC = "" // It gets the MAC of the device below, whatever that is now.
	}
	index := p.addDevice(netstate.LiveDevice{Device: created, ParentIndex: below.Index, Up: true, Carrier: below.Carrier})
	p.addStep(Step{Action: CreateVLAN, Device: newName, Parent: below.Name, Reason: "it is missing",
		VLAN: created.VLAN, MTU: created.MTU, planned: p.devices[index], related: below})
	return index, nil
}

// memberProblem says why nothing is built on a member of a bond, nil if the device is none. name is that of the recorded device.
func memberProblem(devices netstate.Devices, below netstate.LiveDevice, name string) *Problem {
	err := parents.CheckMember(devices, below)
	if err == nil {
		return nil
	}
	bond, _ := devices.AggregateOf(below)
	problem := problemf("%s: %v. To move to %s: --parent %s=%[3]s", below.Name, err, bond.Name, name)
	problem.Device = name
	return problem
}

// addDevice adds a device to the picture as if it were there, and returns its place. Its index is
// negative: no real device has such an index.
func (p *ParentPlan) addDevice(d netstate.LiveDevice) int {
	d.Index = -len(p.devices) - 1
	p.devices = append(p.devices, d)
	return len(p.devices) - 1
}
