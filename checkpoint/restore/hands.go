package restore

import (
	"errors"
	"fmt"

	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// errChanged says that the devices are not those any more that a step was planned for: a
// plan from a fresh look may do.
var errChanged = errors.New("changed since it was looked at")

// hands carry steps out on the devices of one namespace. A device is known by its index,
// which no other gets: its name can be another's by the time of the step.
type hands struct {
	at *kernel.Namespace
	// made are the indices of what was made, by those that the plan gave it.
	made map[int]int
}

func newHands(at *kernel.Namespace) *hands { return &hands{at: at, made: map[int]int{}} }

// do looks at the step's devices once more and carries it out.
func (h *hands) do(step Step) error {
	switch step.Action {
	case CreateBond:
		return h.createBond(step)
	case CreateVLAN:
		return h.createVLAN(step)
	}
	index, err := h.look(step.at)
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	if err = h.change(index, step); err == nil {
		return nil
	}
	if _, again := h.look(step.at); errors.Is(again, errChanged) {
		return fmt.Errorf("%s: %w", step, again) // It went right then.
	}
	return err
}

// change carries the step out on the device of that index.
func (h *hands) change(index int, step Step) error {
	switch step.Action {
	case Enslave:
		bond, err := h.look(step.on)
		if err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
		return h.at.Enslave(index, bond)
	case RaiseMTU, SetMTU:
		return h.at.SetMTU(index, step.Device, step.MTU)
	case SetUp:
		return h.at.SetUp(index, step.Device)
	case AddAddress:
		return h.at.AddAddresses(index, []netstate.Address{*step.Address})
	case AddRoute:
		return h.at.AddRoutes(index, []netstate.Route{*step.Route}, netstate.Interface{})
	}
	return fmt.Errorf("step %s: not one on a device", step)
}

// look returns the index that the device has, which is still what it was when the step
// was planned; errChanged if not.
func (h *hands) look(planned netstate.LiveDevice) (int, error) {
	index := h.indexOf(planned.Index)
	if index <= 0 {
		return 0, fmt.Errorf("%s was not made", planned.Name)
	}
	now, err := h.at.Device(index)
	if errors.Is(err, kernel.ErrNoDevice) {
		return 0, fmt.Errorf("%s (index %d) %w: it is gone", planned.Name, index, errChanged)
	}
	if err != nil {
		return 0, err
	}
	planned.ParentIndex = h.indexOf(planned.ParentIndex)
	if why := mistaken(planned, now); why != "" {
		return 0, fmt.Errorf("%s (index %d) %w: %s", planned.Name, index, errChanged, why)
	}
	return index, nil
}

// indexOf returns the index that the plan's index stands for, a negative one where that
// was not made.
func (h *hands) indexOf(planned int) int {
	if index, ok := h.made[planned]; ok {
		return index
	}
	return planned
}

// mistaken says, purely, why now is another device than the planned one, "" if it is none.
// The name says nothing.
func mistaken(planned, now netstate.LiveDevice) string {
	switch {
	case planned.Kind != now.Kind:
		return fmt.Sprintf("it is a %s, not a %s", now.Kind, planned.Kind)
	case planned.Contradicts(now.NIC):
		return fmt.Sprintf("it is another NIC (%s), not that one (%s)", hardwareWords(now.NIC), hardwareWords(planned.NIC))
	case planned.VLAN != nil && *planned.VLAN != *now.VLAN:
		return fmt.Sprintf("it is %s, not %s", now.VLAN, planned.VLAN)
	case planned.VLAN != nil && planned.ParentIndex != now.ParentIndex:
		return fmt.Sprintf("it is on the device with index %d, not on that with index %d", now.ParentIndex, planned.ParentIndex)
	}
	return ""
}

// createVLAN makes the VLAN parent. Somebody else may be faster, an ADD or the host's
// network manager: what is there then is used if it is the one that was to be made.
func (h *hands) createVLAN(step Step) error {
	parent, err := h.look(step.on)
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	err = h.at.CreateVLAN(parent, step.device)
	if err != nil {
		return changedIfThere(err)
	}
	there, err := h.byName(step.Device)
	if err != nil {
		return err
	}
	step.at.ParentIndex = parent
	if why := mistaken(step.at, there); why != "" {
		return fmt.Errorf("%s %w: %s", step.Device, errChanged, why)
	}
	h.made[step.at.Index] = there.Index
	return nil
}

// createBond makes the bond, with the primary member that it had if that is there.
func (h *hands) createBond(step Step) error {
	primary := 0
	if step.on.Index != 0 {
		var err error
		if primary, err = h.look(step.on); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	if err := h.at.CreateBond(step.device, primary); err != nil {
		return changedIfThere(err)
	}
	there, err := h.byName(step.Device)
	if err != nil {
		return err
	}
	if there.Kind != netstate.KindBond {
		return fmt.Errorf("%s %w: it is a %s", step.Device, errChanged, there.Kind)
	}
	h.made[step.at.Index] = there.Index
	return nil
}

// changedIfThere makes it errChanged that somebody else was faster.
func changedIfThere(err error) error {
	if errors.Is(err, kernel.ErrExists) {
		return fmt.Errorf("%w: %w", errChanged, err)
	}
	return err
}

func (h *hands) byName(name string) (netstate.LiveDevice, error) {
	index, err := h.at.Index(name)
	if errors.Is(err, kernel.ErrNoDevice) {
		return netstate.LiveDevice{}, fmt.Errorf("%s %w: it is gone", name, errChanged)
	}
	if err != nil {
		return netstate.LiveDevice{}, err
	}
	return h.at.Device(index)
}
