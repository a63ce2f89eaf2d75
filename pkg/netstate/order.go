package netstate

import "slices"

// named returns p with the name of every device: own is that of the interface.
func (p Place) named(own string) Place {
	return p.withDevices(func(device string) string {
		if device == "" {
			return own
		}
		return device
	})
}

// seenBy is the reverse of named.
func (p Place) seenBy(own string) Place {
	return p.withDevices(func(device string) string {
		if device == own {
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
		var more []Place
		for _, p := range order.Routes {
			more = append(more, p.named(name))
		}
		o.places[order.Slot] = joined(o.places[order.Slot], more)
	}
}

// joined returns the places with the missing ones of more. Each comes after all places that it followed. If that is
// not possible, it comes before all that it preceded. Else it comes at the end.
func joined(places, more []Place) []Place {
	known := map[string]bool{}
	for _, p := range places {
		known[p.String()] = true
	}
	places = slices.Clone(places)
	for i, p := range more {
		if key := p.String(); !known[key] {
			places = slices.Insert(places, between(places, more[:i], more[i+1:]), p)
		}
	}
	return places
}

// between returns where a place goes that followed some places and preceded others.
func between(places, behind, before []Place) int {
	last, first := -1, len(places)
	at := map[string][]int{}
	for i, p := range places {
		at[p.String()] = append(at[p.String()], i)
	}
	for _, p := range behind {
		if there := at[p.String()]; len(there) > 0 {
			last = max(last, there[len(there)-1])
		}
	}
	for _, p := range before {
		if there := at[p.String()]; len(there) > 0 {
			first = min(first, there[0])
		}
	}
	if last >= 0 {
		return last + 1
	}
	return first
}

// Of returns the orders that concern the interface, from its point of view. recorded are the interfaces whose
// routes have to be in order.
func (o *Orders) Of(i Interface, recorded []string) []Order {
	name, own := i.Link.Name, map[Slot]bool{}
	for _, r := range i.Routes {
		own[r.Slot()] = true
	}
	for _, order := range i.RouteOrder {
		own[order.Slot] = true
	}
	var orders []Order
	for _, slot := range o.slots {
		order := Order{Slot: slot, Recorded: recorded}
		for _, p := range o.places[slot] {
			p = p.seenBy(name)
			own[slot] = own[slot] || p.isOwn() && !p.Gateways
			order.Routes = append(order.Routes, p)
		}
		if own[slot] {
			orders = append(orders, order)
		}
	}
	return orders
}
