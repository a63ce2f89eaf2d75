package restore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/netstate"
)

// planInterface is a pure function: it decides which steps make the live interface the recorded one.
// live is nil if the interface is gone. parent is the name of the device to stack it on, and parents the
// whole chain as it is now. An interface that cannot be changed into the recorded one is left alone, and
// the Problem says why.
func planInterface(recorded netstate.Interface, live *netstate.Interface, parent string, parents []netstate.Device) ([]Step, *Problem) {
	name := recorded.Link.Name
	if live == nil {
		if recorded.Link.Kind == netstate.KindNIC {
			return []Step{{Device: name, Reason: "it is gone from the sandbox, and the host has it", change: moveNIC{recorded: recorded, hostName: parent}}}, nil
		}
		return []Step{{Device: name, Reason: "it is gone from the sandbox", change: create{recorded: recorded, parent: parent}}}, nil
	}
	recorded.Parents = parents
	differences := netstate.Diff(recorded, *live)
	slices.SortStableFunc(differences, func(a, b netstate.Difference) int { return repairIndex(a.Field) - repairIndex(b.Field) })
	var steps []Step
	for _, d := range differences {
		step, problem := planRepair(recorded, d)
		if problem != nil {
			return nil, problem
		}
		// One step sets everything that one message sets. Those differences follow each other.
		if last := len(steps) - 1; last >= 0 && steps[last].Action() == step.Action() && isOneMessage(step) {
			steps[last].Reason += ", " + step.Reason
			continue
		}
		steps = append(steps, step)
	}
	return steps, nil
}

// isOneMessage says that the step sets all that there is of its action.
func isOneMessage(step Step) bool { return step.Action() == SetKind || step.Action() == SetAttributes }

// repairOrder is the order in which the differences of an interface are repaired: the link before
// it goes up, and addresses before the routes that need them.
var repairOrder = []netstate.Field{
	netstate.FieldKind, netstate.FieldVLAN, netstate.FieldParent,
	netstate.FieldMode, netstate.FieldOptions, netstate.FieldBCQueue,
	netstate.FieldMTU, netstate.FieldMAC, netstate.FieldTxQueueLen, netstate.FieldAlias, netstate.FieldGroup, netstate.FieldFlags,
	netstate.FieldSetting, netstate.FieldMaster, netstate.FieldUp,
	netstate.FieldAddress, netstate.FieldNeighbour, netstate.FieldRoute, netstate.FieldRule, netstate.FieldQdisc,
}

func repairIndex(f netstate.Field) int { return slices.Index(repairOrder, f) }

func planRepair(recorded netstate.Interface, d netstate.Difference) (Step, *Problem) {
	name := recorded.Link.Name
	if d.Field == netstate.FieldMode && (d.Want == "passthru" || d.Live == "passthru") {
		return Step{}, &Problem{Reason: fmt.Sprintf("%s: %s, and the kernel does not change passthru: left alone", name, d)}
	}
	c := changeFor(recorded, d)
	if c == nil {
		return Step{}, &Problem{Reason: fmt.Sprintf("%s is there, but its %s: left alone", name, d)}
	}
	return Step{Device: name, Reason: d.String(), change: c}, nil
}

// changeFor returns what mends the difference, nil if nothing does.
func changeFor(recorded netstate.Interface, d netstate.Difference) change {
	switch d.Field {
	case netstate.FieldMode, netstate.FieldOptions, netstate.FieldBCQueue:
		return setKind{recorded.Link}
	case netstate.FieldMTU:
		return setMTU{recorded.Link.MTU}
	case netstate.FieldMAC:
		return setMAC{recorded.Link.MAC}
	case netstate.FieldTxQueueLen, netstate.FieldAlias, netstate.FieldGroup, netstate.FieldFlags:
		return setAttributes{recorded.Link}
	case netstate.FieldMaster:
		return setMaster{*recorded.Master}
	case netstate.FieldSetting:
		return setSetting{d.Setting, recorded.Settings[d.Setting]}
	case netstate.FieldUp:
		return setUp{}
	case netstate.FieldAddress:
		return addAddress{*d.Address}
	case netstate.FieldRoute:
		return addRoute{*d.Route}
	case netstate.FieldRule:
		return addRule{*d.Rule}
	case netstate.FieldNeighbour:
		return addNeighbour{*d.Neighbour}
	case netstate.FieldQdisc:
		return addQdisc{*d.Qdisc}
	}
	return nil
}

// stepReasons joins the steps' reasons for a table or a line.
func stepReasons(steps []Step) string {
	var texts []string
	for _, s := range steps {
		texts = append(texts, fmt.Sprintf("%s: %s", s.Device, s.Reason))
	}
	return strings.Join(texts, "; ")
}
