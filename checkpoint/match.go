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
	matched, assigned := map[int]Record{}, make([]bool, len(records))
	// assign gives each record without a device the one that find returns, if that is free and accept agrees.
	assign := func(find func(Record) (netstate.LiveDevice, bool), accept func(netstate.Link, netstate.LiveDevice) bool) {
		for i, r := range records {
			d, ok := find(r)
			if assigned[i] || !ok || accept != nil && !accept(r.Interface.Link, d) {
				continue
			}
			if _, exists := matched[d.Index]; !exists {
				matched[d.Index], assigned[i] = r, true
			}
		}
	}
	assign(index, func(link netstate.Link, device netstate.LiveDevice) bool { return link.Name == device.Name })
	assign(index, sameMAC)
	assign(name, func(link netstate.Link, device netstate.LiveDevice) bool {
		return link.Kind == device.Kind && sameMAC(link, device)
	})
	assign(index, nil)
	assign(name, nil)
	assign(func(r Record) (netstate.LiveDevice, bool) { d, ok := byName[r.Attachment.IfName]; return d, ok }, nil)
	return matched
}

func sameMAC(link netstate.Link, device netstate.LiveDevice) bool { return link.MAC == device.MAC }
