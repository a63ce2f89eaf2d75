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
func (o Order) matched(there []Place) []int {
	recorded, now := map[string][]int{}, map[string]int{}
	for rank, p := range o.Routes {
		recorded[p.String()] = append(recorded[p.String()], rank)
	}
	for _, p := range there {
		now[p.String()]++
	}
	ranks, seen := make([]int, len(there)), map[string]int{}
	for i, p := range there {
		ranks[i] = -1
		if key := p.String(); len(recorded[key]) == now[key] {
			ranks[i] = recorded[key][seen[key]]
			seen[key]++
		}
	}
	return ranks
}

// wanted returns the indices of the places that the order knows, in its order. Places that it does not apply to
// keep their order among themselves.
func (o Order) wanted(there []Place) []int {
	var known []int
	ranks := o.matched(there)
	for i, rank := range ranks {
		if rank >= 0 {
			known = append(known, i)
		}
	}
	slices.SortFunc(known, func(a, b int) int { return ranks[a] - ranks[b] })
	for start := 0; start < len(known); start++ {
		end := start
		for end < len(known) && !o.isFor(there[known[end]]) {
			end++
		}
		slices.Sort(known[start:end])
		start = max(start, end)
	}
	return known
}

// Moves says how to bring the places that are there into the order. front are the indices of those that have to go
// before all others, back of those that have to go behind all others, each in this order. It moves as few
// places of other interfaces as possible, and of these as few as possible that the order does not apply to.
// frontToo says that a route can be put before others, as in IPv4.
func (o Order) Moves(there []Place, frontToo bool) (front, back []int) {
	wanted := o.wanted(there)
	weight := func(i int) int {
		switch {
		case there[i].isOwn():
			return 1
		case o.isFor(there[i]):
			return len(there) + 1
		}
		return (len(there) + 1) * (len(there) + 1)
	}
	from, to, best := 0, 0, 0
	for start := range wanted {
		if start > 0 && !frontToo {
			break
		}
		sum, end := 0, start
		for end < len(wanted) && (end == start || wanted[end] > wanted[end-1]) {
			sum += weight(wanted[end])
			end++
		}
		if sum > best {
			from, to, best = start, end, sum
		}
	}
	return wanted[:from], wanted[to:]
}

// diffOrders returns the slots whose routes are in another order. A missing route is a difference of its own. A
// route that the order does not know may be anywhere.
func diffOrders(want, have []Order) []Difference {
	there := make(map[Slot]Order, len(have))
	for _, o := range have {
		there[o.Slot] = o
	}
	var diffs []Difference
	for _, o := range want {
		h := there[o.Slot]
		if front, back := o.Moves(h.Routes, true); len(front)+len(back) > 0 {
			diffs = append(diffs, Difference{Field: FieldRouteOrder, Want: o.String(), Have: h.String(), Order: &o})
		}
	}
	return diffs
}
