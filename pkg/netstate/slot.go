package netstate

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/attachment"
)

// Slot is a place in a routing table for which routes compete.
type Slot struct {
	Destination netip.Prefix `json:"destination"`
	From        netip.Prefix `json:"from,omitzero"`
	Table       uint32       `json:"table"`
	Priority    uint32       `json:"priority,omitempty"`
	TOS         uint8        `json:"tos,omitempty"`
}

func (s Slot) String() string {
	return Route{Destination: s.Destination, From: s.From, Table: s.Table, Priority: s.Priority}.String()
}

// Slot returns the place in the routing table for which the route competes.
func (r Route) Slot() Slot {
	return Slot{Destination: r.Destination, From: r.From, Table: r.Table, Priority: r.Priority, TOS: r.TOS}
}

// Order is the order of the routes of a slot in the kernel, which uses the first one that it can.
type Order struct {
	Slot
	Routes []Place `json:"routes"`
	// Recorded are the other interfaces whose routes the order applies to, too. The routes of all others keep
	// their order among themselves.
	Recorded []string `json:"-"`
}

// Place is one of the routes of an Order.
type Place struct {
	// Device is the name of the device, empty for the interface itself.
	Device  string     `json:"device,omitempty"`
	Gateway netip.Addr `json:"gateway,omitzero"`
	Source  netip.Addr `json:"source,omitzero"`
	// NextHops are the next hops of an IPv4 route that has several.
	NextHops []NextHop `json:"nextHops,omitempty"`
	// Gateways stands for all IPv6 routes of the slot that have a gateway: the kernel treats them as one route,
	// and divides the packets among them.
	Gateways bool `json:"gateways,omitempty"`
}

func (p Place) String() string {
	var words []string
	add := func(word string, value fmt.Stringer) { words = append(words, word+" "+value.String()) }
	if p.Gateways {
		words = append(words, "those with a gateway")
	}
	if p.Gateway.IsValid() {
		add("via", p.Gateway)
	}
	switch {
	case p.Device != "":
		words = append(words, "dev "+p.Device)
	case !p.Gateways && len(p.NextHops) == 0:
		words = append(words, "its own")
	}
	if p.Source.IsValid() {
		add("src", p.Source)
	}
	return strings.Join(append(words, hopWords(p.NextHops)...), " ")
}

// hopWords are the next hops, sorted.
func hopWords(hops []NextHop) []string {
	var words []string
	for _, h := range hops {
		words = append(words, h.String())
	}
	slices.Sort(words)
	return words
}

// isOwn says that the place is of the interface itself.
func (p Place) isOwn() bool {
	return p.Gateways || p.Device == "" && (len(p.NextHops) == 0 || slices.ContainsFunc(p.NextHops, func(h NextHop) bool { return h.Device == "" }))
}

// isFor says that the order applies to the place.
func (o Order) isFor(p Place) bool {
	return p.isOwn() || !slices.ContainsFunc(Route{Device: p.Device, NextHops: p.NextHops}.Devices(), func(device string) bool {
		return !slices.Contains(o.Recorded, device)
	})
}

// First says that one of the interface's own routes is the first of the slot.
func (o Order) First() bool { return len(o.Routes) > 0 && o.Routes[0].isOwn() }

func (o Order) String() string {
	var words []string
	for _, p := range o.Routes {
		words = append(words, p.String())
	}
	return o.Slot.String() + ": " + strings.Join(words, ", then ")
}

// Validate reports the first thing in o that no kernel would have.
func (o Order) Validate() error {
	if !o.Destination.IsValid() {
		return errors.New("a route order without destination")
	}
	for _, p := range o.Routes {
		for _, name := range (Route{Device: p.Device, NextHops: p.NextHops}).Devices() {
			if err := attachment.ValidateIfName(name); err != nil {
				return fmt.Errorf("route order %s: device %w", o, err)
			}
		}
	}
	return nil
}

// matched returns the ranks that the order gives to the places that are there, -1 for one that it does not know.
// Of several that look the same, the first is the first. If there are more or fewer of them now, nobody knows
// which is which.
func (o Order) matched(places []Place) []int {
	recorded, counts := map[string][]int{}, map[string]int{}
	for rank, p := range o.Routes {
		recorded[p.String()] = append(recorded[p.String()], rank)
	}
	for _, p := range places {
		counts[p.String()]++
	}
	ranks, used := make([]int, len(places)), map[string]int{}
	for i, p := range places {
		ranks[i] = -1
		if key := p.String(); len(recorded[key]) == counts[key] {
			ranks[i] = recorded[key][used[key]]
			used[key]++
		}
	}
	return ranks
}

// wanted returns the indices of the places that the order knows, in its order. Places that it does not apply to
// keep their order among themselves.
func (o Order) wanted(places []Place) []int {
	var indices []int
	ranks := o.matched(places)
	for i, rank := range ranks {
		if rank >= 0 {
			indices = append(indices, i)
		}
	}
	slices.SortFunc(indices, func(a, b int) int { return ranks[a] - ranks[b] })
	for start := 0; start < len(indices); start++ {
		end := start
		for end < len(indices) && !o.isFor(places[indices[end]]) {
			end++
		}
		slices.Sort(indices[start:end])
		start = max(start, end)
	}
	return indices
}

// Moves says how to bring the places that are there into the order. front are the indices of those that have to go
// before all others, back of those that have to go behind all others, each in this order. It moves as few
// places of other interfaces as possible, and of these as few as possible that the order does not apply to.
// allowFront says that a route can be put before others, as in IPv4.
func (o Order) Moves(places []Place, allowFront bool) (front, back []int) {
	wanted := o.wanted(places)
	weight := func(i int) int {
		switch {
		case places[i].isOwn():
			return 1
		case o.isFor(places[i]):
			return len(places) + 1
		}
		return (len(places) + 1) * (len(places) + 1)
	}
	bestStart, bestEnd, best := 0, 0, 0
	for start := range wanted {
		if start > 0 && !allowFront {
			break
		}
		sum, end := 0, start
		for end < len(wanted) && (end == start || wanted[end] > wanted[end-1]) {
			sum += weight(wanted[end])
			end++
		}
		if sum > best {
			bestStart, bestEnd, best = start, end, sum
		}
	}
	return wanted[:bestStart], wanted[bestEnd:]
}

// diffOrders returns the slots whose routes are in another order. A missing route is a difference of its own. A
// route that the order does not know may be anywhere.
func diffOrders(want, live []Order) []Difference {
	present := make(map[Slot]Order, len(live))
	for _, o := range live {
		present[o.Slot] = o
	}
	var diffs []Difference
	for _, o := range want {
		h := present[o.Slot]
		if front, back := o.Moves(h.Routes, true); len(front)+len(back) > 0 {
			diffs = append(diffs, Difference{Field: FieldRouteOrder, Want: o.String(), Live: h.String(), Order: &o})
		}
	}
	return diffs
}
