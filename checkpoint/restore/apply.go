package restore

import (
	"errors"
	"fmt"

	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// errChanged says that the devices have changed since the step was planned. A new plan from a
// fresh look may work.
var errChanged = errors.New("changed since it was looked at")

// maxPasses is how often what was done is compared at most. A step can take something else away: an address
// that is replaced takes its routes with it.
const maxPasses = 3

// batchSteps groups steps that follow each other and are done in one go: each address or route alone would have to read
// all of them.
func batchSteps(steps []Step) [][]Step {
	var groups [][]Step
	for i, s := range steps {
		if i > 0 && s.Action == steps[i-1].Action && (s.Action == AddAddress || s.Action == AddRoute) {
			groups[len(groups)-1] = append(groups[len(groups)-1], s)
		} else {
			groups = append(groups, []Step{s})
		}
	}
	return groups
}

// target is what a step is carried out on.
type target struct {
	namespace *kernel.Namespace
	// index is that of the device that is changed. related is that of the second device that the step is about: the parent of what is
	// made, the bond of a member, the NIC in the host. It is in the namespace parentAt.
	index, related int
	parentAt       *kernel.Namespace
	// recorded is the whole interface of the record, and wanted what of it has to be there. wanted is nil where nobody has asked for it yet.
	recorded netstate.Interface
	wanted   *netstate.Interface
	// built is what the kernel told of the interface when it made it.
	built kernel.Built
}

// apply carries out steps that batchSteps has grouped.
func (t *target) apply(steps ...Step) (err error) {
	s := steps[0]
	part := netstate.Interface{Link: netstate.Link{Name: s.Device}}
	switch s.Action {
	case CreateBond:
		return t.namespace.CreateBond(s.planned.Device, t.related)
	case CreateVLAN:
		return t.namespace.CreateVLAN(t.related, s.planned.Device)
	case Enslave:
		return t.namespace.Enslave(t.index, t.related)
	case Create:
		t.built, err = kernel.Build(t.parentAt, t.namespace, t.related, *t.wanted)
		return err
	case MoveNIC:
		return kernel.MoveNIC(t.parentAt, t.namespace, t.related, *t.wanted)
	case SetMTU, RaiseMTU:
		return t.namespace.SetMTU(t.index, s.Device, s.MTU)
	case SetUp:
		part.Link.Up = true
	case SetMAC:
		return t.namespace.SetMAC(t.index, s.Device, s.MAC)
	case SetKind:
		return t.namespace.SetKind(t.index, *s.Link)
	case SetAttributes:
		return t.namespace.SetAttributes(t.index, *s.Link)
	case SetMaster:
		part.Master = s.Master
	case SetSetting:
		part.Settings = map[string]string{s.Setting: s.Value}
	case AddAddress:
		return t.namespace.AddAddresses(t.index, partsOf(steps, func(s Step) *netstate.Address { return s.Address }))
	case AddRoute:
		return t.namespace.AddRoutes(t.index, partsOf(steps, func(s Step) *netstate.Route { return s.Route }), t.recorded)
	case AddRule:
		part.Rules = []netstate.Rule{*s.Rule}
	case AddNeighbour:
		part.Neighbours = []netstate.Neighbour{*s.Neighbour}
	case AddQdisc:
		return t.namespace.AddQdisc(t.index, *s.Qdisc)
	default:
		return fmt.Errorf("%s: not a step on a device", s)
	}
	return t.namespace.Configure(t.index, part, true)
}

// partsOf returns what each step adds.
func partsOf[T any](steps []Step, part func(Step) *T) (parts []T) {
	for _, s := range steps {
		parts = append(parts, *part(s))
	}
	return parts
}

// stepRunner carries steps on parents out, in one namespace. It knows a device by its index, which no
// other device gets. Another device can have its name by the time of the step.
type stepRunner struct {
	namespace *kernel.Namespace
	// created has the real indices of devices that were made, by the indices that the plan gave them.
	created map[int]int
}

// runSteps carries out steps on parents in the namespace. With giveUp, it stops at a step whose devices have changed: the next plan knows
// better. It returns what became of the steps that it has finished with. A dry run does none of them.
func runSteps(namespace *kernel.Namespace, steps []Step, dryRun, giveUp bool) (results []Step) {
	runner := stepRunner{namespace, map[int]int{}}
	for _, step := range steps {
		if !dryRun {
			err := runner.run(step)
			if giveUp && errors.Is(err, errChanged) {
				break
			}
			if err != nil {
				step.Error = err.Error()
			}
		}
		results = append(results, step)
	}
	return results
}

// run carries the step out. It looks at the step's devices once more before.
func (h stepRunner) run(step Step) (err error) {
	t := target{namespace: h.namespace}
	if step.related.Index != 0 {
		t.related, err = h.check(step.related)
	}
	creates := step.Action == CreateBond || step.Action == CreateVLAN
	if err == nil && !creates {
		t.index, err = h.check(step.planned)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	err = t.apply(step)
	switch {
	case creates:
		return h.findCreated(step, err)
	case err == nil:
		return nil
	}
	if _, checkErr := h.check(step.planned); errors.Is(checkErr, errChanged) {
		return fmt.Errorf("%s: %w", step, checkErr) // The device has changed, which explains the error.
	}
	return err
}

// findCreated notes the index of the bond or VLAN device that the step has made, or failed to make. An ADD or the host's network manager
// may be faster. The device that they made is used if it is the one that was to be made.
func (h stepRunner) findCreated(step Step, err error) error {
	if errors.Is(err, kernel.ErrExists) {
		return fmt.Errorf("%w: %w", errChanged, err)
	}
	if err != nil {
		return err
	}
	created := step.planned
	if created.Index, err = h.namespace.Index(step.Device); errors.Is(err, kernel.ErrNoDevice) {
		return fmt.Errorf("%s %w: it is gone", step.Device, errChanged)
	}
	if err == nil {
		_, err = h.check(created)
	}
	if err == nil {
		h.created[step.planned.Index] = created.Index
	}
	return err
}

// check returns the index of the device. It is errChanged if the device is gone or another one than
// the step was planned for.
func (h stepRunner) check(planned netstate.LiveDevice) (int, error) {
	index := h.indexOf(planned.Index)
	if index <= 0 {
		return 0, fmt.Errorf("%s was not made", planned.Name)
	}
	device, err := h.namespace.Device(index)
	if errors.Is(err, kernel.ErrNoDevice) {
		return 0, fmt.Errorf("%s (index %d) %w: it is gone", planned.Name, index, errChanged)
	}
	if err != nil {
		return 0, err
	}
	planned.ParentIndex = h.indexOf(planned.ParentIndex)
	if reason := mismatch(planned, device); reason != "" {
		return 0, fmt.Errorf("%s (index %d) %w: %s", planned.Name, index, errChanged, reason)
	}
	return index, nil
}

// indexOf returns the real index of the device that has this index in the plan. It is negative if
// the device was not made.
func (h stepRunner) indexOf(planned int) int {
	if index, ok := h.created[planned]; ok {
		return index
	}
	return planned
}

// mismatch is a pure function: it says why live is another device than the planned one. It returns ""
// if it is the same. The name decides nothing.
func mismatch(planned, live netstate.LiveDevice) string {
	switch {
	case planned.Kind != live.Kind:
		return fmt.Sprintf("it is a %s, not a %s", live.Kind, planned.Kind)
	case planned.Contradicts(live.NIC):
		return fmt.Sprintf("it is another NIC (%s), not that one (%s)", live.Hardware(), planned.Hardware())
	case planned.VLAN != nil && *planned.VLAN != *live.VLAN:
		return fmt.Sprintf("it is %s, not %s", live.VLAN, planned.VLAN)
	case planned.VLAN != nil && planned.ParentIndex != live.ParentIndex:
		return fmt.Sprintf("it is on the device with index %d, not on that with index %d", live.ParentIndex, planned.ParentIndex)
	}
	return ""
}
