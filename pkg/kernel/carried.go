package kernel

import (
	"fmt"
	"maps"
	"slices"

	"github.com/relink-cni/relink/pkg/netstate"
)

// parentsCarried reads what somebody gave the VLAN devices and bonds below the interface.
func (c *capture) parentsCarried() error {
	for i := range c.captured.Parents {
		p := &c.captured.Parents[i]
		d, _ := c.devices.ByName(p.Name)
		c.vfs(d)
		if p.VLAN == nil && p.Bond == nil {
			continue
		}
		carried, notes, err := c.host.CarriedBy(d.Index)
		if err != nil {
			return err
		}
		for _, note := range notes {
			c.note(p.Name + " in the host: " + note)
		}
		if carried.NotRestored, err = c.extras(d); err != nil {
			return err
		}
		if len(carried.Addresses)+len(carried.Routes)+len(carried.NotRestored) > 0 {
			p.Carried = &carried
		}
	}
	return nil
}

// vfs notes the VFs among the parent and its members. What is on them is restored, as far as relink knows it.
func (c *capture) vfs(parent netstate.LiveDevice) {
	for _, d := range c.devices {
		if d.PF != "" && (d.Index == parent.Index || d.MasterIndex == parent.Index) {
			c.note(fmt.Sprintf("the VLAN and the MAC that the PF %s gives its VF %s in the host", d.PF, d.Name))
		}
	}
}

// extras names what somebody gave the device besides addresses and routes. Sysctls and qdiscs take
// a while to read: they are read only where Capture reads those of the interface too.
func (c *capture) extras(d netstate.LiveDevice) (items []string, err error) {
	if d.Alias != "" {
		items = append(items, fmt.Sprintf("alias %q", d.Alias))
	}
	if master, ok := c.devices.ByIndex(d.MasterIndex); ok && d.MasterIndex != 0 {
		items = append(items, fmt.Sprintf("member of %s (%s)", master.Name, master.Kind))
	}
	if c.extent.ChangedSettings {
		link, err := c.host.linkByIndex(d.Index)
		if err != nil {
			return nil, err
		}
		settings, _, err := c.host.changedSettings(link)
		if err != nil {
			return nil, err
		}
		for _, key := range slices.Sorted(maps.Keys(settings)) {
			items = append(items, fmt.Sprintf(SettingNote+"%s=%s", key, settings[key]))
		}
	}
	if c.extent.Qdiscs {
		qdiscs, notes, err := c.host.qdiscs(d.Index)
		if err != nil {
			return nil, err
		}
		for _, q := range qdiscs {
			items = append(items, "qdisc "+q.String())
		}
		items = append(items, notes...)
	}
	return items, nil
}

// CarriedBy returns what somebody gave the device of that index: its addresses, and the routes
// through it. The notes name what cannot be described.
func (n *Namespace) CarriedBy(index int) (carried netstate.Carried, notes []string, err error) {
	if carried.Addresses, err = n.addresses(index, bothFamilies); err != nil {
		return carried, nil, err
	}
	list, err := n.routes(routeQuery{index: index, families: bothFamilies, toKeep: true})
	carried.Routes = list.routes
	return carried, list.notes, err
}
