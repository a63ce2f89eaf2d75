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

// own brings back the addresses and routes that VLAN devices and bonds of the host had themselves,
// if the operator asked for that. Otherwise it says what they lack.
func (c *chain) own() error {
	for _, step := range c.report.Parents {
		if (step.Action() == CreateVLAN || step.Action() == CreateBond) && step.Error == "" {
			c.report.Notes = append(c.report.Notes, notBroughtBack(step.Device, c.records)...)
		}
	}
	for _, recorded := range newestOwn(c.records, c.nameNow) {
		device, ok := c.devices.ByName(recorded.name)
		if !ok {
			continue // It has been reported.
		}
		var live netstate.Carried
		if device.Index > 0 { // A dry run has devices that are not there yet.
			var err error
			if live, _, err = c.host.CarriedBy(device.Index); err != nil {
				return err
			}
		}
		now, err := boot.Uptime()
		if err != nil {
			return err
		}
		steps, note := planOwn(recorded.name, recorded.own, live, now)
		if note != "" {
			c.report.Notes = appendNew(c.report.Notes, note)
		}
		if len(steps) > 0 && !c.HostAddresses {
			c.report.Notes = appendNew(c.report.Notes, lacks(recorded.name, steps))
			continue
		}
		for i := range steps {
			steps[i].at = device
		}
		c.inHost(steps, false)
	}
	return nil
}

// notBroughtBack names what the device had when recorded and does not get again when it is made
// anew. It looks at all records: one that ADD wrote has less than one of a whole capture.
func notBroughtBack(name string, records []checkpoint.Record) []string {
	var what []string
	for i := range records {
		if !onHost(&records[i]) {
			continue
		}
		for _, p := range records[i].Interface.Parents {
			if p.Name != name || p.Carried == nil {
				continue
			}
			for _, thing := range p.Carried.NotRestored {
				what = appendNew(what, thing)
			}
		}
	}
	if len(what) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s in the host is made anew, without what it had when recorded and no restore brings back: %s",
		name, strings.Join(what, ", "))}
}

func lacks(name string, steps []Step) string {
	var what []string
	for _, s := range steps {
		switch c := s.change.(type) {
		case addAddress:
			what = append(what, "address "+c.address.String())
		case addRoute:
			what = append(what, "route "+c.route.String())
		}
	}
	return fmt.Sprintf("%s in the host lacks what it carried when recorded (%s): --host-addresses brings it back, where the host's network manager does not",
		name, strings.Join(what, ", "))
}

// nameNow returns the name that the parent at that place of the record has now.
func (c *chain) nameNow(record checkpoint.Record, place int) (string, bool) {
	result, _, _, err := c.after.chain(record.Interface.Parents)
	if err != nil || result.broken != nil {
		return "", false
	}
	return result.now[place].Name, true
}

// ownRecord is what a device of the host carried, and its name now.
type ownRecord struct {
	name string
	own  netstate.Carried
}

// newestOwn returns what each device had by its newest record. The newest record can say that the
// device had nothing. So an address that somebody has removed is not brought back.
func newestOwn(records []checkpoint.Record, nameNow func(checkpoint.Record, int) (string, bool)) []ownRecord {
	type dated struct {
		ownRecord
		record checkpoint.Record
	}
	carried := func(r checkpoint.Record) bool {
		return slices.ContainsFunc(r.Interface.Parents, func(d netstate.Device) bool { return d.Carried != nil })
	}
	if !slices.ContainsFunc(records, carried) {
		return nil // As on most nodes.
	}
	newest := map[string]dated{}
	for _, record := range records {
		if !onHost(&record) {
			continue
		}
		for place, p := range record.Interface.Parents {
			if before, ok := newest[p.Name]; ok && !record.CapturedAt.After(before.record.CapturedAt) {
				continue
			}
			d := dated{record: record}
			if p.Carried != nil {
				d.own = *p.Carried
			}
			if name, ok := nameNow(record, place); ok {
				d.name = name
				newest[p.Name] = d
			}
		}
	}
	var all []ownRecord
	for _, d := range newest {
		if len(d.own.Addresses)+len(d.own.Routes) > 0 {
			all = append(all, d.ownRecord)
		}
	}
	slices.SortFunc(all, func(a, b ownRecord) int { return strings.Compare(a.name, b.name) })
	return all
}

// planOwn is a pure function: it decides which of the recorded addresses and routes a device of the
// host gets back. If the device has another address by now, the network manager takes care of it. now is a time since the
// boot.
func planOwn(name string, recorded, live netstate.Carried, now time.Duration) (steps []Step, note string) {
	for _, a := range live.Addresses {
		if !slices.ContainsFunc(recorded.Addresses, a.Is) {
			return nil, fmt.Sprintf("%s in the host has the address %s now, which was not recorded: its addresses are left alone", name, a)
		}
	}
	for _, d := range netstate.Diff(netstate.Interface{Addresses: recorded.Addresses, Routes: netstate.InOrder(recorded.Routes)}.Unexpired(now),
		netstate.Interface{Addresses: live.Addresses, Routes: live.Routes}) {
		if d.Have != "" {
			continue // It is there in another form.
		}
		step := Step{Device: name, Reason: d.String()}
		switch d.Field {
		case netstate.FieldAddress:
			step.change = addAddress{*d.Address}
		case netstate.FieldRoute:
			step.change = addRoute{*d.Route}
		default:
			continue
		}
		steps = append(steps, step)
	}
	return steps, ""
}
