package status

import (
	"slices"

	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// FindFree returns the devices of the host that could replace a missing base, by its name. They have no address.
func FindFree(report restore.Report) (free map[string][]string, err error) {
	if !slices.ContainsFunc(report.Devices, isMissingBase) {
		return nil, nil
	}
	host, err := kernel.OpenHost()
	if err != nil {
		return nil, err
	}
	defer host.Close()
	devices, err := host.Devices()
	if err != nil {
		return nil, err
	}
	return freeDevices(report.Devices, devices, func(d netstate.LiveDevice) bool {
		assigned, readErr := host.HasAddresses(d.Index)
		return assigned || readErr != nil
	}), nil
}

func isMissingBase(p restore.DeviceState) bool { return !p.Present && p.Below == "" }

// freeDevices returns the devices of the kind of a missing base that nothing uses, by the base's name: nothing is stacked on them, they
// belong to no bond or bridge, and have no address. A VF forgets its VLAN with its PF, and a veth is somebody's, such as a pod's.
func freeDevices(parents []restore.DeviceState, devices netstate.Devices, assigned func(netstate.LiveDevice) bool) map[string][]string {
	isFree := func(d netstate.LiveDevice) bool {
		stacked := slices.ContainsFunc(devices, func(over netstate.LiveDevice) bool { return over.ParentIndex == d.Index })
		recorded := slices.ContainsFunc(parents, func(p restore.DeviceState) bool { return p.Present && p.Name == d.Name })
		return d.Name != "lo" && d.Kind != netstate.KindVeth && d.MasterIndex == 0 && d.PF == "" && !stacked && !recorded && !assigned(d)
	}
	free := map[string][]string{}
	for _, p := range parents {
		if !isMissingBase(p) {
			continue
		}
		for _, d := range devices {
			if d.Kind == p.Kind && isFree(d) {
				free[p.Name] = append(free[p.Name], d.Name)
			}
		}
	}
	return free
}
