package restore

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/netstate"
)

// restoreCarried brings back the addresses and routes that VLAN devices and bonds of the host had themselves,
// if the operator asked for that. Otherwise it says what they lack.
func (c *chainRestore) restoreCarried() error {
	for _, step := range c.report.Parents {
		if (step.Action == CreateVLAN || step.Action == CreateBond) && step.Error == "" {
			c.report.Notes = append(c.report.Notes, notRestoredNotes(step.Device, c.records)...)
		}
	}
	for _, recorded := range newestCarried(c.records, c.currentName) {
		device, ok := c.devices.ByName(recorded.name)
		if !ok {
			continue // It has been reported.
		}
		var live netstate.Carried
		if device.Index > 0 { // A dry run has devices that are not there yet.
			var err error
			if live, _, err = c.run.host.CarriedBy(device.Index); err != nil {
				return err
			}
		}
		uptime, err := boot.Uptime()
		if err != nil {
			return err
		}
		steps, note := planCarried(recorded.name, recorded.carried, live, uptime)
		if note != "" {
			c.report.Notes = appendNew(c.report.Notes, note)
		}
		if len(steps) > 0 && !c.run.HostAddresses {
			c.report.Notes = appendNew(c.report.Notes, lackingNote(recorded.name, steps))
			continue
		}
		for i := range steps {
			steps[i].planned = device
		}
		c.applyHostSteps(steps, false)
	}
	return nil
}

// notRestoredNotes names what the device had when recorded and does not get again when it is made
// anew. It looks at all records: one that ADD wrote has less than one of a whole capture.
func notRestoredNotes(name string, records []checkpoint.Record) []string {
	var items []string
	for i := range records {
		if !onHost(&records[i]) {
			continue
		}
		for _, p := range records[i].Interface.Parents {
			if p.Name != name || p.Carried == nil {
				continue
			}
			for _, thing := range p.Carried.NotRestored {
				items = appendNew(items, thing)
			}
		}
	}
	if len(items) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s in the host is made anew, without what it had when recorded and no restore brings back: %s",
		name, strings.Join(items, ", "))}
}

func lackingNote(name string, steps []Step) string {
	var items []string
	for _, s := range steps {
		if s.Action == AddAddress {
			items = append(items, "address "+s.Address.String())
		} else {
			items = append(items, "route "+s.Route.String())
		}
	}
	return fmt.Sprintf("%s in the host lacks what it carried when recorded (%s): --host-addresses brings it back, where the host's network manager does not",
		name, strings.Join(items, ", "))
}

// currentName returns the name that the parent at that place of the record has now.
func (c *chainRestore) currentName(record checkpoint.Record, place int) (string, bool) {
	result := c.afterPlan.chain(record.Interface.Parents)
	if result.blocker != nil {
		return "", false
	}
	return result.found[place].Name, true
}

// carriedRecord is what a device of the host carried, and its name now.
type carriedRecord struct {
	name       string
	capturedAt time.Time
	carried    netstate.Carried
}

// newestCarried returns what each device had by its newest record. The newest record can say that the
// device had nothing. So an address that somebody has removed is not brought back.
func newestCarried(records []checkpoint.Record, nameNow func(checkpoint.Record, int) (string, bool)) []carriedRecord {
	hasCarried := func(r checkpoint.Record) bool {
		return slices.ContainsFunc(r.Interface.Parents, func(d netstate.Device) bool { return d.Carried != nil })
	}
	if !slices.ContainsFunc(records, hasCarried) {
		return nil // As on most nodes.
	}
	newest := map[string]carriedRecord{}
	for _, record := range records {
		for place, p := range record.Interface.Parents {
			before, ok := newest[p.Name]
			if !onHost(&record) || ok && !record.CapturedAt.After(before.capturedAt) {
				continue
			}
			if name, ok := nameNow(record, place); ok {
				newest[p.Name] = carriedRecord{name: name, capturedAt: record.CapturedAt, carried: *cmp.Or(p.Carried, &netstate.Carried{})}
			}
		}
	}
	list := slices.DeleteFunc(slices.Collect(maps.Values(newest)), func(d carriedRecord) bool {
		return len(d.carried.Addresses)+len(d.carried.Routes) == 0
	})
	slices.SortFunc(list, func(a, b carriedRecord) int { return strings.Compare(a.name, b.name) })
	return list
}

// planCarried is a pure function: it decides which of the recorded addresses and routes a device of the
// host gets back. If the device has another address by now, the network manager takes care of it. uptime is a time since the
// boot.
func planCarried(name string, recorded, live netstate.Carried, uptime time.Duration) (steps []Step, note string) {
	for _, a := range live.Addresses {
		if !slices.ContainsFunc(recorded.Addresses, a.SameAddress) {
			return nil, fmt.Sprintf("%s in the host has the address %s now, which was not recorded: its addresses are left alone", name, a)
		}
	}
	for _, d := range netstate.Diff(netstate.Interface{Addresses: recorded.Addresses, Routes: netstate.InOrder(recorded.Routes)}.Unexpired(uptime),
		netstate.Interface{Addresses: live.Addresses, Routes: live.Routes}) {
		if d.Live != "" {
			continue // It is there in another form.
		}
		steps = append(steps, Step{Action: actions[d.Field], Device: name, Reason: d.String(), Address: d.Address, Route: d.Route})
	}
	return steps, ""
}
