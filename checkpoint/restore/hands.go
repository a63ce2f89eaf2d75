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

// stepRunner carry steps out on the devices of one namespace. They know a device by its index, which no
// other device gets. Another device can have its name by the time of the step.
type stepRunner struct {
	namespace *kernel.Namespace
	// created has the real indices of devices that were made, by the indices that the plan gave them.
	created map[int]int
}

func newStepRunner(namespace *kernel.Namespace) *stepRunner {
	return &stepRunner{namespace: namespace, created: map[int]int{}}
}

// run carries the step out.
func (h *stepRunner) run(step Step) error {
	c, ok := step.change.(deviceChange)
	if !ok {
		return fmt.Errorf("%s: not a step on a device", step)
	}
	return c.run(h, step)
}

// changeDevice looks at the step's device once more and has change change it. change gets its index.
func (h *stepRunner) changeDevice(step Step, change func(index int) error) error {
	index, err := h.check(step.planned)
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	if err = change(index); err == nil {
		return nil
	}
	if _, checkErr := h.check(step.planned); errors.Is(checkErr, errChanged) {
		return fmt.Errorf("%s: %w", step, checkErr) // The device has changed, which explains the error.
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

// changedIfExists returns errChanged if somebody else has made the device in the meantime.
func changedIfExists(err error) error {
	if errors.Is(err, kernel.ErrExists) {
		return fmt.Errorf("%w: %w", errChanged, err)
	}
	return err
}

func (h *stepRunner) byName(name string) (netstate.LiveDevice, error) {
	index, err := h.namespace.Index(name)
	if errors.Is(err, kernel.ErrNoDevice) {
		return netstate.LiveDevice{}, fmt.Errorf("%s %w: it is gone", name, errChanged)
	}
	if err != nil {
		return netstate.LiveDevice{}, err
	}
	return h.namespace.Device(index)
}
