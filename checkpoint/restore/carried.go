package restore

import (
	"fmt"
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
			c.report.note(notRestoredNote(step.Device, c.records))
		}
	}
	host, opts := c.run.node.host, &c.run.opts
	for _, recorded := range newestCarried(c.records, c.host.after) {
		device, ok := c.host.devices.ByName(recorded.name)
		if !ok {
			continue // It has been reported.
		}
		var live netstate.Carried
		if device.Index > 0 { // A dry run has devices that are not there yet.
			var err error
			if live, _, err = host.CarriedBy(device.Index); err != nil {
				return err
			}
		}
		uptime, _ := boot.Uptime() // CLOCK_BOOTTIME is there since Linux 2.6.39.
		steps, note := planCarried(device, *recorded.carried, live, uptime)
		if len(steps) > 0 && !opts.HostAddresses {
			note, steps = lackingNote(recorded.name, steps), nil
		}
		c.report.note(note)
		c.report.addSteps(runSteps(host, steps, opts.DryRun, false))
	}
	return nil
}

// notRestoredNote names what the device had when recorded and does not get again when it is made
// anew. It looks at all records: one that ADD wrote has less than one of a whole capture.
func notRestoredNote(name string, records []checkpoint.Record) string {
	var items []string
	for i := range records {
		for _, p := range checkpoint.HostParents(records[i].Interface) {
			if p.Name == name && p.Carried != nil {
				addNew(&items, p.Carried.NotRestored...)
			}
		}
	}
	if len(items) == 0 {
		return ""
	}
	return fmt.Sprintf("%s in the host is made anew, without what it had when recorded and no restore brings back: %s", name, strings.Join(items, ", "))
}

func lackingNote(name string, steps []Step) string {
	var items []string
	for _, s := range steps {
		items = append(items, s.Reason)
	}
	return fmt.Sprintf("%s in the host lacks what it carried when recorded (%s): --host-addresses brings it back, where the host's network manager does not",
		name, strings.Join(items, ", "))
}

// carriedRecord is what a device of the host carried, and its name now.
type carriedRecord struct {
	name    string
	carried *netstate.Carried
}

// newestCarried returns what each device had by its newest record. plan tells its name now. The newest record can say that the
// device had nothing. So an address that somebody has removed is not brought back.
func newestCarried(records []checkpoint.Record, plan *ParentPlan) (list []carriedRecord) {
	newest := map[string]*checkpoint.Record{}
	for i := range records {
		r := &records[i]
		for _, p := range checkpoint.HostParents(r.Interface) {
			if known := newest[p.Name]; known == nil || r.CapturedAt.After(known.CapturedAt) {
				newest[p.Name] = r
			}
		}
	}
	for name, r := range newest {
		for place, p := range r.Interface.Parents {
			if p.Name != name || p.Carried == nil || len(p.Carried.Addresses)+len(p.Carried.Routes) == 0 {
				continue
			}
			if result := plan.chain(r.Interface.Parents); result.Problem == nil {
				list = append(list, carriedRecord{result.Found[place].Name, p.Carried})
			}
		}
	}
	slices.SortFunc(list, func(a, b carriedRecord) int { return strings.Compare(a.name, b.name) })
	return list
}

// planCarried is a pure function: it decides which of the recorded addresses and routes a device of the
// host gets back. If the device has another address by now, the network manager takes care of it. uptime is a time since the
// boot.
func planCarried(device netstate.LiveDevice, recorded, live netstate.Carried, uptime time.Duration) (steps []Step, note string) {
	for _, a := range live.Addresses {
		if !slices.ContainsFunc(recorded.Addresses, a.SameAddress) {
			return nil, fmt.Sprintf("%s in the host has the address %s now, which was not recorded: its addresses are left alone", device.Name, a)
		}
	}
	for _, d := range netstate.Diff(netstate.Interface{Addresses: recorded.Addresses, Routes: netstate.InOrder(recorded.Routes)}.Unexpired(uptime),
		netstate.Interface{Addresses: live.Addresses, Routes: live.Routes}) {
		if d.Live != "" {
			continue // It is there in another form.
		}
		steps = append(steps, Step{Action: actions[d.Field], Device: device.Name, Reason: d.String(), Address: d.Address, Route: d.Route, planned: device})
	}
	return steps, ""
}
