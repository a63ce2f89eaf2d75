package parents

import (
	"errors"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/checkpoint/attach/netconf"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// CheckHost returns the first error that an ADD of the request would have from the devices of a host: no
// master, one that nothing can be built on, or an MTU that it does not carry. route is the index of
// the default route's device, 0 for none.
func CheckHost(devices netstate.Devices, route int, r netconf.Request) error {
	if r.LinkInContainer {
		return nil // Its master is a sandbox's.
	}
	master, _, err := chooseMaster(devices, r.Master, route)
	if err != nil {
		return err
	}
	if err := CheckNotMember(devices, master); err != nil {
		return err
	}
	plan, err := PlanParent(devices, master, r.VLAN)
	if err != nil {
		return err
	}
	return CheckMTU(r.MTU, plan.Lower)
}

// Master is the device that a configuration names to build on.
type Master struct {
	netstate.LiveDevice
	// Missing are the names before it in the list.
	Missing []string
	// Devices are the master and what it is stacked on, with the ports and the master of each.
	Devices netstate.Devices
}

// Read returns the first configured master that exists. If none is configured, it is the device of the default route.
func Read(ns *kernel.Namespace, names cniplugin.Names) (m Master, err error) {
	index := 0
	if len(names) == 0 {
		index, err = ns.DefaultRouteDevice()
	}
	for _, name := range names {
		if index, err = ns.Index(name); !errors.Is(err, kernel.ErrNoDevice) {
			break
		}
		err = nil
	}
	if err != nil {
		return m, err
	}
	if m.Devices, err = ns.AddStack(nil, index); err != nil {
		return m, err
	}
	m.LiveDevice, m.Missing, err = chooseMaster(m.Devices, names, index)
	return m, err
}

// chooseMaster returns the first of the names that is there, and the names before it. Without names it is the device of the default
// route.
func chooseMaster(devices netstate.Devices, names cniplugin.Names, route int) (master netstate.LiveDevice, missing []string, err error) {
	if len(names) > 0 {
		if master, missing, err = First(devices, names); err != nil {
			err = cniplugin.ConfigError("master", strings.Join(names, ", "), err.Error())
		}
		return master, missing, err
	}
	master, ok := devices.ByIndex(route)
	if !ok || route == 0 {
		err = cniplugin.Error(types.ErrInvalidNetworkConfig, `no "master" is configured and there is no default route to take it from: name a device`)
	}
	return master, nil, err
}

// CheckNotMember refuses a master that is a member of a bond.
func CheckNotMember(devices netstate.Devices, master netstate.LiveDevice) error {
	if err := CheckMember(devices, master); err != nil {
		return cniplugin.ConfigError("master", master.Name, err.Error())
	}
	return nil
}
