package restore

import (
	"fmt"

	"github.com/relink-cni/relink/pkg/netstate"
)

// createBond makes a bond from its record. primary is the device that its primary member is now. It is
// the zero value if that is not there.
type createBond struct {
	recorded netstate.Device
	primary  netstate.LiveDevice
}

func (createBond) action() Action { return CreateBond }

func (c createBond) describe(device string) string {
	return fmt.Sprintf("create %s, a bond of mode %s", device, c.recorded.Bond.Mode)
}

func (c createBond) encode(e *encodedStep) { e.Bond, e.MTU = c.recorded.Bond, c.recorded.MTU }

func (c createBond) run(h *stepRunner, step Step) error {
	primary := 0
	if c.primary.Index != 0 {
		var err error
		if primary, err = h.check(c.primary); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	if err := h.namespace.CreateBond(c.recorded, primary); err != nil {
		return changedIfExists(err)
	}
	device, err := h.byName(step.Device)
	if err != nil {
		return err
	}
	if device.Kind != netstate.KindBond {
		return fmt.Errorf("%s %w: it is a %s", step.Device, errChanged, device.Kind)
	}
	h.created[step.planned.Index] = device.Index
	return nil
}

// createVLAN makes a VLAN parent on another device. An ADD or the host's network manager may be faster.
// The device that they made is used if it is the one that was to be made.
type createVLAN struct {
	recorded netstate.Device
	parent   netstate.LiveDevice
}

func (createVLAN) action() Action { return CreateVLAN }

func (c createVLAN) describe(device string) string {
	return fmt.Sprintf("create %s, %s on %s", device, c.recorded.VLAN, c.parent.Name)
}

func (c createVLAN) encode(e *encodedStep) {
	e.Parent, e.VLAN, e.MTU = c.parent.Name, c.recorded.VLAN, c.recorded.MTU
}

func (c createVLAN) run(h *stepRunner, step Step) error {
	parent, err := h.check(c.parent)
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	if err := h.namespace.CreateVLAN(parent, c.recorded); err != nil {
		return changedIfExists(err)
	}
	vlan, err := h.byName(step.Device)
	if err != nil {
		return err
	}
	step.planned.ParentIndex = parent
	if reason := mismatch(step.planned, vlan); reason != "" {
		return fmt.Errorf("%s %w: %s", step.Device, errChanged, reason)
	}
	h.created[step.planned.Index] = vlan.Index
	return nil
}

// enslave makes a NIC a member of the bond.
type enslave struct{ bond netstate.LiveDevice }

func (enslave) action() Action { return Enslave }

func (c enslave) describe(device string) string {
	return fmt.Sprintf("enslave %s to %s", device, c.bond.Name)
}

func (c enslave) encode(e *encodedStep) { e.Parent = c.bond.Name }

func (c enslave) run(h *stepRunner, step Step) error {
	return h.changeDevice(step, func(index int) error {
		bond, err := h.check(c.bond)
		if err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
		return h.namespace.Enslave(index, bond)
	})
}

// setMTU gives a device the MTU, in bytes.
type setMTU struct{ bytes int }

func (setMTU) action() Action { return SetMTU }

func (c setMTU) describe(device string) string {
	return fmt.Sprintf("set MTU of %s to %d", device, c.bytes)
}

func (c setMTU) encode(e *encodedStep) { e.MTU = c.bytes }

func (c setMTU) run(h *stepRunner, step Step) error {
	return h.changeDevice(step, func(index int) error { return h.namespace.SetMTU(index, step.Device, c.bytes) })
}

func (c setMTU) apply(w *attachmentRestore, device string) error { return w.changeDevice(c, device) }

// raiseMTU is setMTU on a parent, whose MTU is never lowered.
type raiseMTU struct{ setMTU }

func (raiseMTU) action() Action { return RaiseMTU }

// setUp sets a device up.
type setUp struct{}

func (setUp) action() Action { return SetUp }

func (setUp) describe(device string) string { return fmt.Sprintf("set %s up", device) }

func (setUp) encode(*encodedStep) {}

func (setUp) run(h *stepRunner, step Step) error {
	return h.changeDevice(step, func(index int) error { return h.namespace.SetUp(index, step.Device) })
}

func (c setUp) apply(w *attachmentRestore, device string) error { return w.changeDevice(c, device) }
