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
	m := matched{of: map[int]Record{}, done: make([]bool, len(records))}
	m.pass(records, index, func(was netstate.Link, is netstate.LiveDevice) bool { return was.Name == is.Name })
	m.pass(records, index, sameMAC)
	m.pass(records, name, func(was netstate.Link, is netstate.LiveDevice) bool { return was.Kind == is.Kind && sameMAC(was, is) })
	m.pass(records, index, nil)
	m.pass(records, name, nil)
	m.pass(records, func(r Record) (netstate.LiveDevice, bool) { d, ok := byName[r.Attachment.IfName]; return d, ok }, nil)
	return m.of
}

func sameMAC(was netstate.Link, is netstate.LiveDevice) bool { return was.MAC == is.MAC }

// matched is the state of a Match.
type matched struct {
	of   map[int]Record
	done []bool
}

// pass gives each record without a device the one that find returns, if that is free and sure
// agrees.
func (m matched) pass(records []Record, find func(Record) (netstate.LiveDevice, bool), sure func(netstate.Link, netstate.LiveDevice) bool) {
	for i, r := range records {
		d, ok := find(r)
		if m.done[i] || !ok || sure != nil && !sure(r.Interface.Link, d) {
			continue
		}
		if _, taken := m.of[d.Index]; !taken {
			m.of[d.Index], m.done[i] = r, true
		}
	}
}
