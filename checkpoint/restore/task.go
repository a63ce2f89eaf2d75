package restore

import (
	"cmp"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
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
	for i := range t.Records {
		if t.Losses[i] == nil {
			continue
		}
		r := &t.Records[i]
		if r.Interface.ParentsInSandbox {
			continue
		}
		if t.isReady(plan, policy, r, t.Losses[i].Member, &o) {
			o.Ready = append(o.Ready, *r)
			ready[r.Attachment.ContainerID] = true
		}
	}
	for i, r := range t.Records {
		if t.Losses[i] != nil && r.Interface.ParentsInSandbox && ready[r.Attachment.ContainerID] {
			o.Ready = append(o.Ready, r)
		}
	}
	o.Steps = plan.Steps()
	for _, step := range slices.Concat(o.Steps, plan.withheld) {
		if finished, err := udevDone(step.planned.Index); step.planned.Index > 0 && err == nil && !finished {
			o.UdevPending = appendNew(o.UdevPending, step.planned.Name+" is there, but udev is not done with it")
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
	for _, problem := range result.problems {
		if problem.Transient {
			o.Missing = appendNew(o.Missing, problem.Reason)
		}
	}
	if result.blocker != nil {
		return o.addProblem(result.blocker)
	}
	if member {
		return !netstate.SameIndices(result.found, r.Interface.Parents) // Some member is back.
	}
	for _, step := range plan.withheldFor(result.parent.Index) {
		switch {
		case step.Action == Enslave:
			// The pods do not need the member to be built.
		case policy.isManagerStep(step):
			return o.addProblem(&Problem{Reason: step.Device + ": " + step.Reason, Transient: true})
		default:
			return o.addProblem(&Problem{Reason: step.Device + ": " + step.Reason + ", and it was there all the time: somebody made it so"})
		}
	}
	return true
}

func (o *Outlook) addProblem(problem *Problem) bool {
	if problem.Transient {
		o.Missing = appendNew(o.Missing, problem.Reason)
	} else {
		o.Blocked = appendNew(o.Blocked, problem.Reason)
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
		if !onHost(&t.Records[i]) {
			continue
		}
		for _, d := range t.Records[i].Interface.Parents {
			p.recorded[d.IfIndex] = d.IfIndex != 0
			for _, m := range cmp.Or(d.Bond, &netstate.Bond{}).Members {
				p.recorded[m.IfIndex] = m.IfIndex != 0
			}
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
