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

// hands carry steps out on the devices of one namespace. They know a device by its index, which no
// other device gets. Another device can have its name by the time of the step.
type hands struct {
	at *kernel.Namespace
	// made has the real indices of devices that were made, by the indices that the plan gave them.
	made map[int]int
}

func newHands(at *kernel.Namespace) *hands { return &hands{at: at, made: map[int]int{}} }

// do carries the step out.
func (h *hands) do(step Step) error {
	c, ok := step.change.(deviceChange)
	if !ok {
		return fmt.Errorf("%s: not a step on a device", step)
	}
	return c.do(h, step)
}

// changeDevice looks at the step's device once more and has change change it. change gets its index.
func (h *hands) changeDevice(step Step, change func(index int) error) error {
	index, err := h.look(step.at)
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	if err = change(index); err == nil {
		return nil
	}
	if _, again := h.look(step.at); errors.Is(again, errChanged) {
		return fmt.Errorf("%s: %w", step, again) // The device has changed, which explains the error.
	}
	return err
}

// look returns the index of the device. It is errChanged if the device is gone or another one than
// the step was planned for.
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

// indexOf returns the real index of the device that has this index in the plan. It is negative if
// the device was not made.
func (h *hands) indexOf(planned int) int {
	if index, ok := h.made[planned]; ok {
		return index
	}
	return planned
}

// mistaken is a pure function: it says why now is another device than the planned one. It returns ""
// if it is the same. The name decides nothing.
func mistaken(planned, now netstate.LiveDevice) string {
	switch {
	case planned.Kind != now.Kind:
		return fmt.Sprintf("it is a %s, not a %s", now.Kind, planned.Kind)
	case planned.Contradicts(now.NIC):
		return fmt.Sprintf("it is another NIC (%s), not that one (%s)", now.Hardware(), planned.Hardware())
	case planned.VLAN != nil && *planned.VLAN != *now.VLAN:
		return fmt.Sprintf("it is %s, not %s", now.VLAN, planned.VLAN)
	case planned.VLAN != nil && planned.ParentIndex != now.ParentIndex:
		return fmt.Sprintf("it is on the device with index %d, not on that with index %d", now.ParentIndex, planned.ParentIndex)
	}
	return ""
}

// changedIfThere returns errChanged if somebody else has made the device in the meantime.
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
