package restore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/netstate"
)

// planInterface decides, purely, what makes the live interface the recorded one:
// live is nil where it is gone. parent is what it is to be stacked on, parents the
// whole chain of it as it is now. An interface that can't be changed into the
// recorded one is left alone, and the Problem says why.
func planInterface(recorded netstate.Interface, live *netstate.Interface, parent string, parents []netstate.Device) ([]Step, *Problem) {
	name := recorded.Link.Name
	if live == nil {
		link := recorded.Link
		if link.Kind == netstate.KindNIC {
			return []Step{{
				Action: MoveNIC, Device: name, On: parent, Link: &link, create: &recorded,
				Reason: "it is gone from the sandbox, and the host has it",
			}}, nil
		}
		return []Step{{
			Action: Create, Device: name, On: parent, Link: &link, create: &recorded,
			Reason: "it is gone from the sandbox",
		}}, nil
	}
	recorded.Parents = parents
	differences := netstate.Diff(recorded, *live)
	slices.SortStableFunc(differences, func(a, b netstate.Difference) int { return order(a.Field) - order(b.Field) })
	var steps []Step
	for _, d := range differences {
		step, problem := repair(recorded, d)
		if problem != nil {
			return nil, problem
		}
		// One step sets all that goes with one message: those differences follow each other.
		if last := len(steps) - 1; last >= 0 && steps[last].Action == step.Action && (step.Action == SetKind || step.Action == SetAttributes) {
			steps[last].Reason += ", " + step.Reason
			continue
		}
		steps = append(steps, step)
	}
	return steps, nil
}

// repairOrder is the order in which the differences of an interface are mended:
// the link before it goes up, addresses before the routes that need them.
var repairOrder = []netstate.Field{
	netstate.FieldKind, netstate.FieldVLAN, netstate.FieldParent,
	netstate.FieldMode, netstate.FieldOptions, netstate.FieldBCQueue,
	netstate.FieldMTU, netstate.FieldMAC, netstate.FieldTxQueueLen, netstate.FieldAlias, netstate.FieldGroup, netstate.FieldFlags,
	netstate.FieldSetting, netstate.FieldMaster, netstate.FieldUp,
	netstate.FieldAddress, netstate.FieldNeighbour, netstate.FieldRoute, netstate.FieldRouteOrder, netstate.FieldRule, netstate.FieldQdisc,
}

func order(f netstate.Field) int { return slices.Index(repairOrder, f) }

func repair(recorded netstate.Interface, d netstate.Difference) (Step, *Problem) {
	link := recorded.Link
	step := Step{Device: link.Name, Reason: d.String()}
	switch d.Field {
	case netstate.FieldMode, netstate.FieldOptions, netstate.FieldBCQueue:
		if d.Field == netstate.FieldMode && (d.Want == "passthru" || d.Have == "passthru") {
			return step, &Problem{Reason: fmt.Sprintf("%s: %s, and the kernel does not change passthru: left alone", link.Name, d)}
		}
		step.Action, step.Link = SetKind, &link
	case netstate.FieldMTU:
		step.Action, step.MTU = SetMTU, link.MTU
	case netstate.FieldMAC:
		step.Action, step.MAC = SetMAC, link.MAC
	case netstate.FieldTxQueueLen, netstate.FieldAlias, netstate.FieldGroup, netstate.FieldFlags:
		step.Action, step.Link = SetAttributes, &link
	case netstate.FieldMaster:
		step.Action, step.Master = SetMaster, recorded.Master
	case netstate.FieldSetting:
		step.Action, step.Setting, step.Value = SetSetting, d.Setting, recorded.Settings[d.Setting]
	case netstate.FieldUp:
		step.Action = SetUp
	case netstate.FieldAddress:
		step.Action, step.Address = AddAddress, d.Address
	case netstate.FieldRoute:
		step.Action, step.Route = AddRoute, d.Route
	case netstate.FieldRouteOrder:
		step.Action, step.Order = OrderRoutes, d.Order
	case netstate.FieldRule:
		step.Action, step.Rule = AddRule, d.Rule
	case netstate.FieldNeighbour:
		step.Action, step.Neighbour = AddNeighbour, d.Neighbour
	case netstate.FieldQdisc:
		step.Action, step.Qdisc = AddQdisc, d.Qdisc
	default:
		return step, &Problem{Reason: fmt.Sprintf("%s is there, but its %s: left alone", link.Name, d)}
	}
	return step, nil
}

// reasons joins the steps' reasons for a table or a line.
func reasons(steps []Step) string {
	var all []string
	for _, s := range steps {
		all = append(all, fmt.Sprintf("%s: %s", s.Device, s.Reason))
	}
	return strings.Join(all, "; ")
}
