package status

import (
	"fmt"
	"slices"

	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

// ToDo is a thing that a person should see to. The command that Advice names does not refuse it.
type ToDo struct {
	Subject string `json:"subject"`
	Advice  string `json:"advice"`
}

// toDo returns what a person should do, the work on most attachments first. missing are the interfaces without a checkpoint.
func (s Summary) toDo(found Observations, missing []capture.InterfaceOutcome) []ToDo {
	list := []ToDo{}
	add := func(n int, thing, matter, advice string) {
		if n > 0 {
			list = append(list, ToDo{Subject: printable.Count(n, thing) + matter, Advice: advice})
		}
	}
	restorable, ignored, failing := s.countByRestore(found)
	add(restorable-ignored, "attachment", " to restore", found.restoreCommand())
	add(ignored, "attachment", " that relink-agent does not restore", "relink restore")
	add(failing, "attachment", " that relink restore does not mend", "relink check says why, and what does")
	for _, c := range s.Causes {
		n := len(c.Attachments)
		switch c.Kind {
		case CauseWaiting:
			add(n, "attachment", " waiting for "+c.Device, found.waitingCommand(c.Device))
		case CauseDrift:
			add(n, "attachment", " changed", "relink restore undoes it")
		case CauseChange:
			add(n, "attachment", " changed", "relink restore undoes it, relink capture --refresh "+s.argument(c)+" records it")
		case CauseCarrier:
			if c.Device != "" {
				add(n, "attachment", " without a link", "see to the cable and the switch port of "+c.Device)
			}
		case CauseUnreadable:
			advice := "relink check says of each what mends it"
			if n == 1 {
				advice = c.Reason
			}
			add(n, "checkpoint", " that cannot be read", advice)
		case CauseUnannounced:
			add(n, "attachment", " whose neighbours were not told", "relink restore")
		}
	}
	refused := len(slices.DeleteFunc(slices.Clone(missing), func(o capture.InterfaceOutcome) bool { return o.Reason == "" }))
	add(len(missing)-refused, "interface", " without a checkpoint", "relink capture")
	add(refused, "interface", " without a checkpoint", "relink check says what keeps relink capture from writing one")
	const dead = " of sandboxes that are gone"
	checkpoints, addresses := s.Attachments[restore.SandboxGone], printable.Count(found.DeadHolders, "address")
	switch {
	case found.DeadHolders == 0:
		add(checkpoints, "checkpoint", dead, found.gcCommand())
	case checkpoints == 0:
		add(found.DeadHolders, "address", dead, found.gcCommand())
	default:
		add(checkpoints, "checkpoint", " and "+addresses+dead, found.gcCommand())
	}
	return list
}

// countByRestore counts the attachments that a restore brings back, those of them that only a person's restore does, and those that none mends.
func (s Summary) countByRestore(found Observations) (restorable, ignored, failing int) {
	for _, c := range s.Causes {
		switch c.Kind {
		case CauseDevice, CauseFailure:
			failing += len(c.Attachments)
		case CauseLost, CauseHost:
			for _, key := range c.Attachments {
				if restorable++; found.agentLeaves(c.Device, key) {
					ignored++
				}
			}
		}
	}
	return restorable, ignored, failing
}

// argument names the pod of the cause on a command line.
func (s Summary) argument(c Cause) string {
	if c.Pods == 1 {
		return s.Names[c.Attachments[0]]
	}
	return "POD"
}

// agentLeaves says that the agent restores the attachment on the base only if a person asks: its parents were there when it went.
func (found Observations) agentLeaves(base string, key attachment.Key) bool {
	return found.Agent != nil && (slices.ContainsFunc(found.Agent.Chains, func(c control.Chain) bool { return c.Base == base && c.State == control.Whole }) ||
		slices.ContainsFunc(found.Agent.Drift, func(d control.Drift) bool { return d.Attachment == key }))
}

// restoreCommand says how to restore what can be restored now.
func (found Observations) restoreCommand() string {
	switch {
	case found.Agent == nil:
		return "relink restore"
	case found.Agent.Paused != nil:
		return "relink resume, or relink restore"
	}
	return "relink-agent restores, or relink restore"
}

// waitingCommand says how to restore what waits for the device.
func (found Observations) waitingCommand(device string) string {
	if slices.ContainsFunc(found.Report.Devices, func(d restore.DeviceState) bool { return d.Name == device && d.Kind == netstate.KindBond }) {
		return "relink restore when it is back, or relink restore --rebuild-bond"
	}
	text := "relink restore when it is back"
	if found.Agent != nil && found.Agent.Paused == nil {
		text = "relink-agent restores when it is back"
	}
	if free := found.Free[device]; len(free) > 0 {
		text += fmt.Sprintf(", or relink restore --parent %s=%s", device, free[0])
		if len(free) > 1 {
			text += " (also free: " + printable.First(free[1:], 3, ", ") + ")"
		}
	}
	return text
}

// gcCommand is the command that frees what sandboxes had which are gone. Without an agent nobody asks the container runtime, and
// only a person can decide.
func (found Observations) gcCommand() string {
	const unless = ", unless the runtime still owes a DEL"
	if found.Agent == nil {
		return "relink gc --now" + unless
	}
	return "relink gc" + unless
}
