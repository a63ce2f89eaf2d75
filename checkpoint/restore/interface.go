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
// the error says why.
func planInterface(recorded netstate.Interface, live *netstate.Interface, parent string, parents []netstate.Device) ([]Step, error) {
	name := recorded.Link.Name
	if live == nil {
		step := Step{Action: Create, Device: name, Parent: parent, Link: &recorded.Link, Reason: "it is gone from the sandbox"}
		if recorded.Link.Kind == netstate.KindNIC {
			step.Action, step.Reason = MoveNIC, step.Reason+", and the host has it"
		}
		return []Step{step}, nil
	}
	recorded.Parents = parents
	differences := netstate.Diff(recorded, *live)
	slices.SortStableFunc(differences, func(a, b netstate.Difference) int {
		return slices.Index(repairOrder, actions[a.Field]) - slices.Index(repairOrder, actions[b.Field])
	})
	var steps []Step
	for _, d := range differences {
		action, ok := actions[d.Field]
		switch {
		case d.Field == netstate.FieldMode && (d.Want == "passthru" || d.Live == "passthru"):
			return nil, fmt.Errorf("%s: %s, and the kernel does not change passthru", name, d)
		case !ok:
			return nil, fmt.Errorf("%s is there, but its %s", name, d)
		}
		// One step sets everything that one message sets. Those differences follow each other.
		if last := len(steps) - 1; last >= 0 && steps[last].Action == action && (action == SetKind || action == SetAttributes) {
			steps[last].Reason += ", " + d.String()
			continue
		}
		steps = append(steps, repairStep(action, recorded, d))
	}
	return steps, nil
}

// actions has what repairs a difference. What is not in it cannot be repaired.
var actions = map[netstate.Field]Action{
	netstate.FieldMode: SetKind, netstate.FieldOptions: SetKind,
	netstate.FieldMTU: SetMTU, netstate.FieldMAC: SetMAC,
	netstate.FieldTxQueueLen: SetAttributes, netstate.FieldAlias: SetAttributes, netstate.FieldGroup: SetAttributes, netstate.FieldFlags: SetAttributes,
	netstate.FieldSetting: SetSetting, netstate.FieldMaster: SetMaster, netstate.FieldUp: SetUp, netstate.FieldAddress: AddAddress,
	netstate.FieldNeighbour: AddNeighbour, netstate.FieldRoute: AddRoute, netstate.FieldRule: AddRule, netstate.FieldQdisc: AddQdisc,
}

// repairOrder is the order in which the differences of an interface are repaired: the link before
// it goes up, and addresses before the routes that need them. What cannot be repaired comes first.
var repairOrder = []Action{
	SetKind, SetMTU, SetMAC, SetAttributes, SetSetting, SetMaster, SetUp, AddAddress, AddNeighbour, AddRoute, AddRule, AddQdisc,
}

// repairStep returns the step of the action for the difference.
func repairStep(action Action, recorded netstate.Interface, d netstate.Difference) Step {
	step := Step{
		Action: action, Device: recorded.Link.Name, Reason: d.String(),
		Setting: d.Setting, Value: recorded.Settings[d.Setting],
		Address: d.Address, Route: d.Route, Rule: d.Rule, Neighbour: d.Neighbour, Qdisc: d.Qdisc,
	}
	switch action {
	case SetKind, SetAttributes:
		step.Link = &recorded.Link
	case SetMTU:
		step.MTU = recorded.Link.MTU
	case SetMAC:
		step.MAC = recorded.Link.MAC
	case SetMaster:
		step.Master = recorded.Master
	}
	return step
}

// stepReasons joins the steps' reasons for a table or a line.
func stepReasons(steps []Step) string {
	var texts []string
	for _, s := range steps {
		texts = append(texts, fmt.Sprintf("%s: %s", s.Device, s.Reason))
	}
	return strings.Join(texts, "; ")
}
