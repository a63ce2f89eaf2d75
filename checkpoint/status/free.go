package status

import (
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// FindFree returns the devices of the host that could replace a missing base that attachments wait for, by its name.
func FindFree(report restore.Report) (map[string][]string, error) {
	if !slices.ContainsFunc(report.Outcomes, func(o restore.Outcome) bool { return o.State == restore.Waiting }) {
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
	assigned := map[int][]netip.Addr{}
	for _, d := range devices {
		if assigned[d.Index], err = host.Addresses(d.Index); err != nil {
			return nil, err
		}
	}
	return freeDevices(report.Devices, devices, assigned), nil
}

// freeDevices returns the devices that nothing uses, by the name of a missing base of their kind: nothing is stacked on them, they belong to
// no bond or bridge, and nobody has given them an address. A VF forgets its VLAN with its PF.
func freeDevices(parents []restore.DeviceState, devices netstate.Devices, assigned map[int][]netip.Addr) map[string][]string {
	used := map[int]bool{}
	for _, d := range devices {
		used[d.ParentIndex] = true
		used[d.Index] = used[d.Index] || d.MasterIndex != 0 || d.PF != "" || d.Name == "lo" || slices.ContainsFunc(assigned[d.Index], func(a netip.Addr) bool { return !a.IsLinkLocalUnicast() }) ||
			slices.ContainsFunc(parents, func(p restore.DeviceState) bool { return p.Present && p.Name == d.Name })
	}
	free := map[string][]string{}
	for _, p := range parents {
		if p.Present || p.Below != "" {
			continue
		}
		for _, d := range devices {
			if d.Kind == p.Kind && !used[d.Index] {
				free[p.Name] = append(free[p.Name], d.Name)
			}
		}
	}
	return free
}
