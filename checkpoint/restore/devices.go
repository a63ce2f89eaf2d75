package restore

import (
	"maps"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/netstate"
)

// DeviceState is how a device of the host is that records name as a parent.
type DeviceState struct {
	// Name is the name that it has now. If it is not there, it is the recorded name.
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Below is the name of the device below it, empty for a base.
	Below string `json:"on,omitempty"`
	// Present says that the recorded device is there. Another device under its name does not count.
	Present bool `json:"present"`
	Up      bool `json:"up"`
	Carrier bool `json:"carrier"`
	// Attachments is the number of attachments that are on it directly. Through is the number of
	// attachments that are on other devices on it.
	Attachments int `json:"attachments"`
	Through     int `json:"through"`
}

// deviceStates returns the parents that the records have in the host. Each comes after the device that
// it is on. hostDevices are the devices as they are. The plan's own devices can be as they will be after its
// steps.
func deviceStates(plan *ParentPlan, hostDevices netstate.Devices, records []checkpoint.Record) []DeviceState {
	states := map[string]*DeviceState{}
	for i := range records {
		recorded := checkpoint.HostParents(records[i].Interface)
		result := plan.chain(recorded)
		path, below := "", ""
		for place := range slices.Backward(recorded) {
			device := result.Found[place]
			path += "\x00" + device.Name // The names from the base up tell devices apart.
			state, ok := states[path]
			if !ok {
				state = &DeviceState{Name: device.Name, Kind: device.Kind, Below: below}
				if live, found := hostDevices.ByIndex(device.IfIndex); found {
					state.Present, state.Up, state.Carrier = true, live.Up, live.Carrier
				}
				states[path] = state
			}
			if place == 0 {
				state.Attachments++
			} else {
				state.Through++
			}
			below = device.Name
		}
	}
	var list []DeviceState
	for _, path := range slices.Sorted(maps.Keys(states)) {
		list = append(list, *states[path])
	}
	return list
}
