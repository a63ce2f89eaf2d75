package netstate

import (
	"cmp"
	"fmt"
	"slices"
)

// isLeg says that the route is an IPv6 route with a single next hop of a known weight.
func (r Route) isLeg() bool { return len(r.NextHops) == 1 && r.Is6() }

// plain returns a leg in the form of a route with a gateway. Several next hops are sorted. OnLink is left out: see MarkOnLink.
func (r Route) plain() Route {
	if r.isLeg() {
		hop := r.NextHops[0]
		r.Gateway, r.NextHops = hop.Gateway, nil
		r.Device = cmp.Or(r.Device, hop.Device)
	}
	r.OnLink = false
	r.NextHops = slices.SortedFunc(slices.Values(r.NextHops), func(a, b NextHop) int { return cmp.Compare(a.String(), b.String()) })
	return r
}

// key is everything of an IPv4 route. Of an IPv6 route it has what tells it apart from others: the kernel has a
// route for each next hop.
func (r Route) key() string {
	r = r.plain()
	if !r.Is6() {
		return r.detail()
	}
	return fmt.Sprint(r.Slot(), r.Gateway, r.Device, r.NextHops)
}

// weight is the weight of a leg, 0 if the kernel does not tell it.
func (r Route) weight() int {
	if r.isLeg() {
		return r.NextHops[0].Weight
	}
	return 0
}

// agrees says that two routes with the same key are the same, as far as is known.
func (r Route) agrees(route Route) bool {
	if w, o := r.weight(), route.weight(); w != o && w != 0 && o != 0 {
		return false
	}
	return r.Unsure || route.Unsure || r.plain().detail() == route.plain().detail()
}

// Equal says that both are the same route.
func (r Route) Equal(route Route) bool { return r.key() == route.key() && r.agrees(route) }

// Routes are routes that can be looked up.
type Routes map[string]Route

// RoutesOf returns the routes in a form in which they can be looked up.
func RoutesOf(list []Route) Routes {
	routes := make(Routes, len(list))
	for _, r := range list {
		routes[r.key()] = r
	}
	return routes
}

// Has says that r is one of the routes.
func (rs Routes) Has(r Route) bool {
	match, ok := rs[r.key()]
	return ok && match.agrees(r)
}

// HasHop says that one of the routes goes the same way in the same slot. For IPv6, its other attributes do not
// matter.
func (rs Routes) HasHop(r Route) bool {
	_, ok := rs[r.key()]
	return ok
}

func diffRoutes(want, live []Route) []Difference {
	present := RoutesOf(live)
	var wanted Routes
	var slots map[Slot]Route
	var diffs []Difference
	for _, r := range want {
		if present.Has(r) {
			continue
		}
		if slots == nil {
			wanted, slots = RoutesOf(want), firstOfSlots(live)
		}
		d := Difference{Field: FieldRoute, Want: r.String(), Route: &r}
		if current, ok := slots[r.Slot()]; ok && !wanted.Has(current) {
			if d.Live = current.String(); d.Live == d.Want {
				d.Want, d.Live = r.detail(), current.detail()
			}
		}
		diffs = append(diffs, d)
	}
	return diffs
}

func firstOfSlots(routes []Route) map[Slot]Route {
	first := make(map[Slot]Route, len(routes))
	for _, r := range routes {
		if _, ok := first[r.Slot()]; !ok {
			first[r.Slot()] = r
		}
	}
	return first
}
