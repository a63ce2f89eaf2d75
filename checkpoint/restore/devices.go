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
	// On is the name of the device below it, empty for a base.
	On string `json:"on,omitempty"`
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
// it is on. there are the devices as they are. The plan's own devices can be as they will be after its
// steps.
func deviceStates(plan *ParentPlan, there netstate.Devices, records []checkpoint.Record) []DeviceState {
	known := map[string]*DeviceState{}
	for i := range records {
		if !onHost(&records[i]) {
			continue
		}
		recorded := records[i].Interface.Parents
		result := plan.chain(recorded)
		path, on := "", ""
		for place := range slices.Backward(recorded) {
			now := result.now[place]
			path += "\x00" + now.Name // The names from the base up tell devices apart.
			state, ok := known[path]
			if !ok {
				state = &DeviceState{Name: now.Name, Kind: now.Kind, On: on}
				if live, found := there.ByIndex(result.indices[place]); found && result.indices[place] > 0 {
					state.Present, state.Up, state.Carrier = true, live.Up, live.Carrier
				}
				known[path] = state
			}
			if place == 0 {
				state.Attachments++
			} else {
				state.Through++
			}
			on = now.Name
		}
	}
	var all []DeviceState
	for _, path := range slices.Sorted(maps.Keys(known)) {
		all = append(all, *known[path])
	}
	return all
}
