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

// applyTo carries out steps that batchSteps has grouped, on a device that is there. recorded is the whole interface that a route
// belongs to.
func applyTo(namespace *kernel.Namespace, index int, recorded netstate.Interface, steps ...Step) error {
	switch s := steps[0]; s.Action {
	case SetMTU, RaiseMTU:
		return namespace.SetMTU(index, s.Device, s.MTU)
	case SetUp:
		return namespace.SetUp(index, s.Device)
	case SetMAC:
		return namespace.SetMAC(s.Device, s.MAC)
	case SetKind:
		return namespace.SetKind(*s.Link)
	case SetAttributes:
		return namespace.SetAttributes(*s.Link)
	case SetMaster:
		return namespace.SetMaster(s.Device, *s.Master)
	case SetSetting:
		return namespace.WriteSetting(s.Device, s.Setting, s.Value)
	case AddAddress:
		var addresses []netstate.Address
		for _, s := range steps {
			addresses = append(addresses, *s.Address)
		}
		return namespace.AddAddresses(index, addresses)
	case AddRoute:
		var routes []netstate.Route
		for _, s := range steps {
			routes = append(routes, *s.Route)
		}
		return namespace.AddRoutes(index, routes, recorded)
	case AddRule:
		return namespace.AddRule(*s.Rule)
	case AddNeighbour:
		return namespace.AddNeighbour(s.Device, *s.Neighbour)
	case AddQdisc:
		return namespace.AddQdisc(s.Device, *s.Qdisc)
	default:
		return fmt.Errorf("%s: not a step on a device that is there", s)
	}
}

// stepRunner carries steps on parents out, in one namespace. It knows a device by its index, which no
// other device gets. Another device can have its name by the time of the step.
type stepRunner struct {
	namespace *kernel.Namespace
	// created has the real indices of devices that were made, by the indices that the plan gave them.
	created map[int]int
}

func newStepRunner(namespace *kernel.Namespace) *stepRunner {
	return &stepRunner{namespace: namespace, created: map[int]int{}}
}

// run carries the step out. It looks at the step's devices once more before.
func (h *stepRunner) run(step Step) error {
	related, err := 0, error(nil)
	if step.related.Index != 0 {
		related, err = h.check(step.related)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	if step.Action == CreateBond || step.Action == CreateVLAN {
		return h.create(step, related)
	}
	index, err := h.check(step.planned)
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	if step.Action == Enslave {
		err = h.namespace.Enslave(index, related)
	} else {
		err = applyTo(h.namespace, index, netstate.Interface{}, step)
	}
	if err == nil {
		return nil
	}
	if _, checkErr := h.check(step.planned); errors.Is(checkErr, errChanged) {
		return fmt.Errorf("%s: %w", step, checkErr) // The device has changed, which explains the error.
	}
	return err
}

// create makes a bond or a VLAN device. An ADD or the host's network manager may be faster. The device that they made is used if it
// is the one that was to be made.
func (h *stepRunner) create(step Step, related int) (err error) {
	if step.Action == CreateBond {
		err = h.namespace.CreateBond(step.planned.Device, related)
	} else {
		err = h.namespace.CreateVLAN(related, step.planned.Device)
		step.planned.ParentIndex = related
	}
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
func (h *stepRunner) check(planned netstate.LiveDevice) (int, error) {
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
func (h *stepRunner) indexOf(planned int) int {
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
