package attach

import (
	"errors"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// findMaster returns the first configured master that at has, or the default
// route's device where none is configured.
func findMaster(at *kernel.Namespace, devices netstate.Devices, names cniplugin.Names) (netstate.LiveDevice, error) {
	if len(names) == 0 {
		index, err := at.DefaultRouteDevice()
		if err != nil {
			return netstate.LiveDevice{}, err
		}
		if device, ok := devices.ByIndex(index); ok && index != 0 {
			return device, nil
		}
		return netstate.LiveDevice{}, cniplugin.Error(types.ErrInvalidNetworkConfig,
			`no "master" is configured and there is no default route to take it from: name a device`)
	}
	for _, name := range names {
		if device, ok := devices.ByAnyName(name); ok {
			return device, nil
		}
	}
	what := "does not exist"
	if len(names) > 1 {
		what = "none of them exists"
	}
	return netstate.LiveDevice{}, cniplugin.ConfigError("master", strings.Join(names, ", "), what+": name a device that is there")
}

// parentPlan is the device to build the link on: there already, or a VLAN to
// create on what is.
type parentPlan struct {
	below  netstate.LiveDevice
	create *ParentVLAN
}

// planParent decides what the link is built on. An existing VLAN device is used
// only if it is the very one that is asked for.
func planParent(devices netstate.Devices, master netstate.LiveDevice, vlan *ParentVLAN) (parentPlan, error) {
	if vlan == nil {
		return parentPlan{below: master}, nil
	}
	wanted := *vlan
	if wanted.Name == "" {
		wanted.Name = fmt.Sprintf("%s.%d", master.Name, vlan.ID)
		if err := attachment.ValidateIfName(wanted.Name); err != nil {
			return parentPlan{}, cniplugin.ConfigError("vlan", vlan.ID,
				fmt.Sprintf("the device's name %q %v: give another by vlanName", wanted.Name, err))
		}
	}
	if there, ok := devices.ByName(wanted.Name); ok {
		if there.VLAN == nil || *there.VLAN != vlan.VLAN || there.ParentIndex != master.Index {
			return parentPlan{}, cniplugin.ConfigError("vlan", vlan.ID,
				fmt.Sprintf("%s is there but is %s, not %s on %s: remove it, or give another name by vlanName",
					wanted.Name, describe(devices, there), vlan.VLAN, master.Name))
		}
		return parentPlan{below: there}, nil
	}
	if there, ok := devices.VLANOn(master.Index, vlan.VLAN); ok {
		return parentPlan{}, cniplugin.ConfigError("vlan", vlan.ID,
			fmt.Sprintf("%s on %s is there as %s: set vlanName to use it", vlan.VLAN, master.Name, there.Name))
	}
	return parentPlan{below: master, create: &wanted}, nil
}

func describe(devices netstate.Devices, d netstate.LiveDevice) string {
	if d.VLAN == nil {
		return "a " + d.Kind
	}
	if parent, ok := devices.ByIndex(d.ParentIndex); ok {
		return fmt.Sprintf("%s on %s", d.VLAN, parent.Name)
	}
	return d.VLAN.String()
}

// checkMTU reports an MTU that the parent could not carry.
func checkMTU(mtu int, parent netstate.LiveDevice) error {
	if mtu > parent.MTU {
		return cniplugin.ConfigError("mtu", mtu, fmt.Sprintf("must not be above %d, the MTU of %s", parent.MTU, parent.Name))
	}
	return nil
}

// ensure returns the device to build on, which it creates where the plan says so;
// made says whether it did, also beside an error. Another ADD may do the same at the
// same time: then its device is verified and used.
func (p parentPlan) ensure(host *kernel.Namespace, devices netstate.Devices) (parent netstate.LiveDevice, now netstate.Devices, made bool, err error) {
	if p.create == nil {
		return p.below, devices, false, nil
	}
	err = host.CreateVLAN(p.below.Index, netstate.Device{Kind: netstate.KindVLAN, Name: p.create.Name, VLAN: &p.create.VLAN})
	if err != nil && !errors.Is(err, kernel.ErrExists) {
		return parent, nil, false, fmt.Errorf("VLAN parent: %w%s", err, p.hint())
	}
	made = err == nil
	if devices, err = host.Devices(); err != nil {
		return parent, nil, made, err
	}
	again, err := planParent(devices, p.below, p.create)
	if err == nil && again.create != nil {
		err = fmt.Errorf("VLAN parent %s: it was removed while it was being used", p.create.Name)
	}
	return again.below, devices, made, err
}

// hint says what the kernel does not: a VLAN can't go up on a device that is down.
func (p parentPlan) hint() string {
	if p.below.Up {
		return ""
	}
	return fmt.Sprintf(" (%s is down: set it up)", p.below.Name)
}
