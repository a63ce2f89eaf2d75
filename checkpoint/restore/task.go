package restore

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Task is what a restore that nobody asked for may do: restore the losses of a chain, and nothing else.
type Task struct {
	Chain
	// Losses are the losses of the chain's records (function Losses), in the order of the records.
	Losses []*Loss
	// NICs are all NICs that the records of the node name (function NICs).
	NICs []netstate.Member
	// AllowManagerSteps says that the network manager of the host has had its time. Then the task also takes the manager's steps:
	// it sets a new device up, sets its MTU, and makes it a member of its bond.
	AllowManagerSteps bool
	// RebuildBond lets the task build a missing bond, as one of the manager's steps.
	RebuildBond bool
	// Ready are the records to restore, as an Outlook has them. A run looks at the devices when it has the locks. Beside are other
	// records of the same sandboxes, without a loss: a run repairs those of their routes that depend on restored interfaces.
	Ready, Beside []checkpoint.Record
}

// records returns what the task restores, and of what it restores only a part.
func (t Task) records() ([]checkpoint.Record, map[attachment.Key]repairScope) {
	records, scopes := slices.Clone(t.Ready), map[attachment.Key]repairScope{}
	for i, l := range t.Losses {
		if l != nil && l.Member {
			scopes[t.Records[i].Attachment] = hostOnly
		}
	}
	for _, b := range t.Beside {
		if hasDependentRoutes(b.Interface) {
			scopes[b.Attachment] = dependentRoutes
			records = append(records, b)
		}
	}
	return records, scopes
}

// Outlook is what a Task would find in the host.
type Outlook struct {
	// Ready are the lost records of the task that can be restored now.
	Ready []checkpoint.Record
	// Missing says what the other records wait for: devices that may still appear, or the manager's steps.
	Missing []string
	// Blocked says what will not become better by waiting. The devices are there, and somebody configured them like
	// that.
	Blocked []string
	// UdevPending are devices that the task would change, but that udev has not finished with.
	UdevPending []string
	// ManagerSteps are the manager's steps that the task would take if its AllowManagerSteps were set.
	ManagerSteps []Step
	// Steps are the steps that the task takes now.
	Steps []Step
}

// Outlook is a pure function, except for udevDone. udevDone says whether udev has finished with the device of an index.
func (t Task) Outlook(devices netstate.Devices, udevDone func(index int) (bool, error)) (o Outlook) {
	policy := t.policy()
	plan := NewParentPlan(devices, t.NICs, ParentOptions{RebuildBond: t.RebuildBond, allowed: policy.allows})
	ready := map[string]bool{}
	for _, inSandbox := range []bool{false, true} { // What is on devices of the sandbox comes back with them.
		for i := range t.Records {
			r, id := &t.Records[i], t.Records[i].Attachment.ContainerID
			if t.Losses[i] == nil || r.Interface.ParentsInSandbox != inSandbox {
				continue
			}
			if inSandbox && ready[id] || !inSandbox && t.isReady(plan, policy, r, t.Losses[i].Member, &o) {
				o.Ready, ready[id] = append(o.Ready, *r), true
			}
		}
	}
	o.Steps = plan.steps
	for _, step := range slices.Concat(o.Steps, plan.withheld) {
		if finished, err := udevDone(step.planned.Index); step.planned.Index > 0 && err == nil && !finished {
			addNew(&o.UdevPending, step.planned.Name+" is there, but udev is not done with it")
		}
	}
	for _, step := range plan.withheld {
		if policy.isManagerStep(step) {
			o.ManagerSteps = append(o.ManagerSteps, step)
		}
	}
	return o
}

// isReady says that the record can be restored now. If it cannot, isReady adds the reason to the outlook. member says
// that only a member of the record's bond has gone.
func (t Task) isReady(plan *ParentPlan, policy policy, r *checkpoint.Record, member bool, o *Outlook) bool {
	if link := r.Interface.Link; link.Kind == netstate.KindNIC {
		_, _, problem := plan.findHostNIC(link)
		return problem == nil || o.addProblem(problem)
	}
	result := plan.chain(r.Interface.Parents)
	for _, problem := range result.lacking {
		if problem.Transient {
			addNew(&o.Missing, problem.Reason)
		}
	}
	if result.Problem != nil {
		return o.addProblem(result.Problem)
	}
	if member {
		return !netstate.SameIndices(result.Found, r.Interface.Parents) // Some member is back.
	}
	for _, step := range plan.stepsConcerning(result.Parent.Index, plan.withheld) {
		switch {
		case step.Action == Enslave:
			// The pods do not need the member to be built.
		case policy.isManagerStep(step):
			return o.addProblem(transientf("%s: %s", step.Device, step.Reason))
		default:
			return o.addProblem(problemf("%s: %s, and it was there all the time: somebody made it so", step.Device, step.Reason))
		}
	}
	return true
}

func (o *Outlook) addProblem(problem *Problem) bool {
	if problem.Transient {
		addNew(&o.Missing, problem.Reason)
	} else {
		addNew(&o.Blocked, problem.Reason)
	}
	return false
}

// policy says which steps in the host a restore takes if nobody asked for it. VLAN parents belong to relink. A device
// that is newer than the records first belongs to the network manager. A device that was there when the records were
// written stays as somebody wants it.
type policy struct {
	recorded          map[int]bool
	allowManagerSteps bool
}

func (t Task) policy() policy {
	p := policy{recorded: map[int]bool{}, allowManagerSteps: t.AllowManagerSteps}
	for i := range t.Records {
		for _, index := range checkpoint.HostIndices(t.Records[i].Interface) {
			p.recorded[*index] = *index != 0
		}
	}
	return p
}

func (p policy) isManagerStep(s Step) bool {
	if s.Action == Enslave && !p.recorded[s.related.Index] {
		return true // The bond is new: its members are free because the old bond went.
	}
	return s.Action != CreateVLAN && !p.recorded[s.planned.Index]
}

func (p policy) allows(s Step) bool {
	return s.Action == CreateVLAN || p.allowManagerSteps && p.isManagerStep(s)
}

// repairScope says how much of an attachment a restore repairs.
type repairScope int

const (
	// wholeAttachment: somebody asked for it, or a device below the interface has gone.
	wholeAttachment repairScope = iota
	// hostOnly: a member of the bond has gone, and the interface is there.
	hostOnly
	// dependentRoutes: the interface itself lacks nothing, but its routes can depend on a restored interface.
	dependentRoutes
)

// filter returns the steps that are in the scope.
func (p repairScope) filter(steps []Step, i netstate.Interface) []Step {
	switch p {
	case hostOnly:
		return nil
	case dependentRoutes:
		return slices.DeleteFunc(slices.Clone(steps), func(s Step) bool { return s.Action != AddRoute || !isDependent(*s.Route, i) })
	}
	return steps
}

// Loss says why the agent may restore an interface unasked: a device below the interface has gone.
type Loss struct {
	// Device is the recorded name of the device that has gone.
	Device string
	Reason string
	// Member says that only a member of the bond has gone. The interface is there, but cannot send.
	Member bool
}

// Losses is a pure function: it returns the losses of a chain's records, in the order of the records. A record without
// a loss has nil. devices are the devices of the host.
//
// An interface is lost if its recorded parent is not there any more. The parent's index proves that: no later device
// has it. Two things do not matter. Another device may have the parent's place by now. The interface may be there: a
// restore that ended too early leaves the old index in the record. A record of an interface that was gone already, as
// relink import writes it, has no index: that is a loss, too. While the parent is there, somebody has taken away whatever
// is missing. That is drift.
func Losses(devices netstate.Devices, records []checkpoint.Record) []*Loss {
	present := devicesByIndex{}
	for i := range devices {
		present[devices[i].Index] = &devices[i]
	}
	losses := make([]*Loss, len(records))
	type name struct{ containerID, ifName string }
	lost := map[name]*Loss{}
	for i := range records {
		if r := &records[i]; !r.Interface.ParentsInSandbox {
			losses[i] = lossInHost(devices, present, r)
			lost[name{r.Attachment.ContainerID, r.Interface.Link.Name}] = losses[i]
		}
	}
	// An interface on another interface of the sandbox goes with that one. Its parents are all that is below it.
	for i := range records {
		if r := &records[i]; r.Interface.ParentsInSandbox {
			for _, p := range r.Interface.Parents {
				losses[i] = cmp.Or(losses[i], lost[name{r.Attachment.ContainerID, p.Name}])
			}
		}
	}
	return losses
}

// devicesByIndex maps indices to devices of the host.
type devicesByIndex map[int]*netstate.LiveDevice

// has says that the recorded device is there. The index alone does not prove that: whoever makes a device can choose
// its index, even an old one.
func (b devicesByIndex) has(d netstate.Device) bool {
	live := b[d.IfIndex]
	switch {
	case live == nil || d.Contradicts(live.NIC):
		return false
	case d.Kind == "": // A member of a bond can be of any kind.
		return true
	case d.VLAN != nil && live.VLAN != nil && *d.VLAN != *live.VLAN:
		return false
	}
	return live.Kind == d.Kind
}

// lossInHost returns the loss of an interface that is on devices of the host.
func lossInHost(devices netstate.Devices, present devicesByIndex, r *checkpoint.Record) *Loss {
	if r.Interface.Link.Kind == netstate.KindNIC {
		return lossOfNIC(devices, r.Interface.Link)
	}
	for i, p := range r.Interface.Parents {
		if (i == 0 || p.IfIndex != 0) && !present.has(p) {
			return &Loss{Device: p.Name, Reason: fmt.Sprintf("%s (index %d) has gone", p.Name, p.IfIndex)}
		}
	}
	for _, p := range r.Interface.Parents {
		if p.Bond == nil {
			continue
		}
		for _, m := range p.Bond.Members {
			if m.IfIndex != 0 && !present.has(netstate.Device{IfIndex: m.IfIndex, NIC: m.NIC}) {
				return &Loss{Device: m.Name, Member: true, Reason: fmt.Sprintf("%s (index %d), a member of %s, has gone", m.Name, m.IfIndex, p.Name)}
			}
		}
	}
	return nil
}

// lossOfNIC returns the loss of a NIC that belongs to the sandbox. If its driver goes and comes back, the kernel makes
// a new device in the host. If somebody moves the NIC to the host by hand, it keeps its index, unless that is taken.
func lossOfNIC(devices netstate.Devices, link netstate.Link) *Loss {
	for _, d := range devices {
		// The PF gives a new VF another MAC.
		if isNICOf(link, d) && d.Index != link.Index && (d.PermanentMAC == link.NIC.PermanentMAC || d.PF != "") {
			return &Loss{Device: nameInHost(link), Reason: fmt.Sprintf("%s is in the host, as a new device", d.Name)}
		}
	}
	return nil
}

// isNICOf says that the device is the NIC of the link, as far as the record tells the hardware.
func isNICOf(link netstate.Link, d netstate.LiveDevice) bool {
	return link.NIC != nil && link.NIC.Identified() && d.Kind == netstate.KindNIC && link.NIC.Same(d.NIC)
}

// AwayNICLoss is a pure function: it returns the loss of a NIC that its sandbox does not have. devices are the devices of the host.
// It returns nil if the NIC is in the host: then Losses tells, or somebody has moved it there by hand.
func AwayNICLoss(devices netstate.Devices, link netstate.Link) *Loss {
	inHost := func(d netstate.LiveDevice) bool { return isNICOf(link, d) }
	if link.Kind != netstate.KindNIC || link.NIC == nil || !link.NIC.Identified() || slices.ContainsFunc(devices, inHost) {
		return nil
	}
	return &Loss{Device: nameInHost(link), Reason: nameInHost(link) + " has gone from its sandbox, and is not in the host"}
}
