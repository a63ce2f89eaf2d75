package checkpoint

import "github.com/relink-cni/relink/pkg/netstate"

// Match says which record of a sandbox is of which device. Its result has the records by device
// index. No device has two records, and no record two devices. If two records fit one device, the
// better match gets it. A renamed interface keeps its index. An interface that is built again keeps
// its name and MAC.
func Match(records []Record, devices netstate.Devices) map[int]Record {
	byIndex, byName := map[int]netstate.LiveDevice{}, map[string]netstate.LiveDevice{}
	for _, d := range devices {
		byIndex[d.Index], byName[d.Name] = d, d
	}
	index := func(r Record) (netstate.LiveDevice, bool) {
		d, ok := byIndex[r.Interface.Link.Index]
		return d, ok && d.Index != 0 && d.Kind == r.Interface.Link.Kind
	}
	name := func(r Record) (netstate.LiveDevice, bool) {
		d, ok := byName[r.Interface.Link.Name]
		return d, ok
	}
	m := matching{byDevice: map[int]Record{}, assigned: make([]bool, len(records))}
	m.assign(records, index, func(link netstate.Link, device netstate.LiveDevice) bool { return link.Name == device.Name })
	m.assign(records, index, sameMAC)
	m.assign(records, name, func(link netstate.Link, device netstate.LiveDevice) bool {
		return link.Kind == device.Kind && sameMAC(link, device)
	})
	m.assign(records, index, nil)
	m.assign(records, name, nil)
	m.assign(records, func(r Record) (netstate.LiveDevice, bool) { d, ok := byName[r.Attachment.IfName]; return d, ok }, nil)
	return m.byDevice
}

func sameMAC(link netstate.Link, device netstate.LiveDevice) bool { return link.MAC == device.MAC }

// matching is the state of a Match.
type matching struct {
	byDevice map[int]Record
	assigned []bool
}

// assign gives each record without a device the one that find returns, if that is free and accept
// agrees.
func (m matching) assign(records []Record, find func(Record) (netstate.LiveDevice, bool), accept func(netstate.Link, netstate.LiveDevice) bool) {
	for i, r := range records {
		d, ok := find(r)
		if m.assigned[i] || !ok || accept != nil && !accept(r.Interface.Link, d) {
			continue
		}
		if _, exists := m.byDevice[d.Index]; !exists {
			m.byDevice[d.Index], m.assigned[i] = r, true
		}
	}
}
