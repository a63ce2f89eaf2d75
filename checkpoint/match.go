package checkpoint

import "github.com/relink-cni/relink/pkg/netstate"

// Match says which of a sandbox's records is of which of its devices, by the device's
// index. No device has two records, and no record two devices. Of a device that two
// records could be of, the one with more to show for it gets it: an index stays when an
// interface is renamed, a name and a MAC stay when it is built again.
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

// matched is a Match under way.
type matched struct {
	of   map[int]Record
	done []bool
}

// pass gives the records that have no device yet those that find finds, where they are
// free and sure says so.
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
