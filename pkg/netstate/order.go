package netstate

import "slices"

// named returns p with the name of every device: ifName is that of the interface.
func (p Place) named(ifName string) Place {
	return p.withDevices(func(device string) string {
		if device == "" {
			return ifName
		}
		return device
	})
}

// relativeTo is the reverse of named.
func (p Place) relativeTo(ifName string) Place {
	return p.withDevices(func(device string) string {
		if device == ifName {
			return ""
		}
		return device
	})
}

func (p Place) withDevices(name func(string) string) Place {
	switch {
	case p.Gateways:
	case len(p.NextHops) == 0:
		p.Device = name(p.Device)
	default:
		p.NextHops = slices.Clone(p.NextHops)
		for i := range p.NextHops {
			p.NextHops[i].Device = name(p.NextHops[i].Device)
		}
	}
	return p
}

// Orders are the orders of the slots that several interfaces of a sandbox share.
type Orders struct {
	slots []Slot
	// places are the places of each slot, with the name of every device.
	places map[Slot][]Place
}

// Add adds the orders that the interface of that name knows. What was added before goes first: of a known slot
// only the missing routes are added, as near as possible to their old places.
func (o *Orders) Add(name string, orders []Order) {
	if o.places == nil {
		o.places = map[Slot][]Place{}
	}
	for _, order := range orders {
		if _, ok := o.places[order.Slot]; !ok {
			o.slots = append(o.slots, order.Slot)
		}
		var added []Place
		for _, p := range order.Routes {
			added = append(added, p.named(name))
		}
		o.places[order.Slot] = mergePlaces(o.places[order.Slot], added)
	}
}

// mergePlaces returns the places with the missing ones of added. Each comes after all places that it followed. If that is
// not possible, it comes before all that it preceded. Else it comes at the end.
func mergePlaces(places, added []Place) []Place {
	present := map[string]bool{}
	for _, p := range places {
		present[p.String()] = true
	}
	places = slices.Clone(places)
	for i, p := range added {
		if key := p.String(); !present[key] {
			places = slices.Insert(places, insertPosition(places, added[:i], added[i+1:]), p)
		}
	}
	return places
}

// insertPosition returns where a place goes that followed some places and preceded others.
func insertPosition(places, behind, before []Place) int {
	last, first := -1, len(places)
	positions := map[string][]int{}
	for i, p := range places {
		positions[p.String()] = append(positions[p.String()], i)
	}
	for _, p := range behind {
		if indices := positions[p.String()]; len(indices) > 0 {
			last = max(last, indices[len(indices)-1])
		}
	}
	for _, p := range before {
		if indices := positions[p.String()]; len(indices) > 0 {
			first = min(first, indices[0])
		}
	}
	if last >= 0 {
		return last + 1
	}
	return first
}

// ForInterface returns the orders that concern the interface, from its point of view. recorded are the interfaces whose
// routes have to be in order.
func (o *Orders) ForInterface(i Interface, recorded []string) []Order {
	name, slots := i.Link.Name, map[Slot]bool{}
	for _, r := range i.Routes {
		slots[r.Slot()] = true
	}
	for _, order := range i.RouteOrder {
		slots[order.Slot] = true
	}
	var orders []Order
	for _, slot := range o.slots {
		order := Order{Slot: slot, Recorded: recorded}
		for _, p := range o.places[slot] {
			p = p.relativeTo(name)
			slots[slot] = slots[slot] || p.isOwn() && !p.Gateways
			order.Routes = append(order.Routes, p)
		}
		if slots[slot] {
			orders = append(orders, order)
		}
	}
	return orders
}
