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

func (c createBond) says(device string) string {
	return fmt.Sprintf("create %s, a bond of mode %s", device, c.recorded.Bond.Mode)
}

func (c createBond) encode(e *encodedStep) { e.Bond, e.MTU = c.recorded.Bond, c.recorded.MTU }

func (c createBond) do(h *hands, step Step) error {
	primary := 0
	if c.primary.Index != 0 {
		var err error
		if primary, err = h.look(c.primary); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	if err := h.at.CreateBond(c.recorded, primary); err != nil {
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

// createVLAN makes a VLAN parent on another device. An ADD or the host's network manager may be faster.
// The device that they made is used if it is the one that was to be made.
type createVLAN struct {
	recorded netstate.Device
	on       netstate.LiveDevice
}

func (createVLAN) action() Action { return CreateVLAN }

func (c createVLAN) says(device string) string {
	return fmt.Sprintf("create %s, %s on %s", device, c.recorded.VLAN, c.on.Name)
}

func (c createVLAN) encode(e *encodedStep) {
	e.On, e.VLAN, e.MTU = c.on.Name, c.recorded.VLAN, c.recorded.MTU
}

func (c createVLAN) do(h *hands, step Step) error {
	parent, err := h.look(c.on)
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	if err := h.at.CreateVLAN(parent, c.recorded); err != nil {
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

// enslave makes a NIC a member of the bond.
type enslave struct{ bond netstate.LiveDevice }

func (enslave) action() Action { return Enslave }

func (c enslave) says(device string) string {
	return fmt.Sprintf("enslave %s to %s", device, c.bond.Name)
}

func (c enslave) encode(e *encodedStep) { e.On = c.bond.Name }

func (c enslave) do(h *hands, step Step) error {
	return h.changeDevice(step, func(index int) error {
		bond, err := h.look(c.bond)
		if err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
		return h.at.Enslave(index, bond)
	})
}

// setMTU gives a device the MTU, in bytes.
type setMTU struct{ bytes int }

func (setMTU) action() Action { return SetMTU }

func (c setMTU) says(device string) string {
	return fmt.Sprintf("set MTU of %s to %d", device, c.bytes)
}

func (c setMTU) encode(e *encodedStep) { e.MTU = c.bytes }

func (c setMTU) do(h *hands, step Step) error {
	return h.changeDevice(step, func(index int) error { return h.at.SetMTU(index, step.Device, c.bytes) })
}

func (c setMTU) apply(w *work, device string) error { return w.changeLive(c, device) }

// raiseMTU is setMTU on a parent, whose MTU is never lowered.
type raiseMTU struct{ setMTU }

func (raiseMTU) action() Action { return RaiseMTU }

// setUp sets a device up.
type setUp struct{}

func (setUp) action() Action { return SetUp }

func (setUp) says(device string) string { return fmt.Sprintf("set %s up", device) }

func (setUp) encode(*encodedStep) {}

func (setUp) do(h *hands, step Step) error {
	return h.changeDevice(step, func(index int) error { return h.at.SetUp(index, step.Device) })
}

func (c setUp) apply(w *work, device string) error { return w.changeLive(c, device) }
