package main

import (
	"maps"
	"slices"

	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

// sideBySide writes the recorded values, and in a second column the live values that differ.
func sideBySide(recorded, live netstate.Interface, s *screen) {
	t := newTable(true, columns("", "RECORDED", "LIVE")...)
	for _, f := range compare(recorded, live) {
		for i, p := range f.pairs {
			t.rows = append(t.rows, []cell{
				{text: first(i, f.name)}, {text: printable.Line(p.recorded)}, {text: printable.Line(p.live), in: yellow},
			})
		}
	}
	t.write(s)
	s.say("")
}

// comparison is one fact of two interfaces.
type comparison struct {
	name  string
	pairs []pair
}

// pair is a recorded value and the live one beside it. live is empty if both are the same.
type pair struct{ recorded, live string }

// compare returns the facts of both interfaces, first those of the record.
func compare(recorded, live netstate.Interface) []comparison {
	was, is := factsOf(recorded), factsOf(inTermsOf(recorded, live))
	var all []comparison
	for _, name := range namesOfFacts(was, is) {
		w, i := factNamed(was, name), factNamed(is, name)
		c := comparison{name: name, pairs: pairs(w.values, i.values)}
		if w.compared || i.compared {
			c.pairs = slices.DeleteFunc(c.pairs, func(p pair) bool { return p.live == "" })
		}
		if len(c.pairs) > 0 {
			all = append(all, c)
		}
	}
	return all
}

// inTermsOf returns the live interface in the form of the record. It takes the recorded values where netstate.Diff
// finds no difference, and where nobody looked at the live ones.
func inTermsOf(recorded, live netstate.Interface) netstate.Interface {
	if len(live.Parents) == 0 {
		live.Parents, live.ParentsInSandbox = recorded.Parents, recorded.ParentsInSandbox
	}
	if live.Settings == nil {
		live.Settings = recorded.Settings
	}
	if live.Link.VLANOptions == nil {
		live.Link.VLANOptions = recorded.Link.VLANOptions
	}
	live.Addresses = addressesInTermsOf(recorded.Addresses, live.Addresses)
	live.Routes = routesInTermsOf(recorded.Routes, live.Routes)
	live.RouteOrder = ordersInTermsOf(recorded.RouteOrder, live.RouteOrder)
	if w, h := recorded.Master, live.Master; w != nil && h != nil {
		master := *h
		master.Port = maps.Clone(w.Port) // Two other masters are not compared further.
		if w.Kind == h.Kind && w.Name == h.Name {
			for name := range master.Port {
				master.Port[name] = h.Port[name]
			}
		}
		live.Master = &master
	} else if h != nil {
		live.Master = &netstate.Master{Kind: h.Kind, Name: h.Name}
	}
	return live
}

// addressesInTermsOf returns the live addresses, each in its recorded form where it is the same: by then, it may have become
// deprecated.
func addressesInTermsOf(recorded, live []netstate.Address) []netstate.Address {
	live = slices.Clone(live)
	for i, a := range live {
		if at := slices.IndexFunc(recorded, a.Same); at >= 0 {
			live[i] = recorded[at]
		}
	}
	return live
}

// routesInTermsOf returns the live routes, each in its recorded form. The kernel can report a leg of an IPv6 route in
// another form.
func routesInTermsOf(recorded, live []netstate.Route) []netstate.Route {
	there := netstate.RoutesOf(live)
	var agree, other []netstate.Route
	for _, r := range recorded {
		if there.Has(r) {
			agree = append(agree, r)
		}
	}
	known := netstate.RoutesOf(agree)
	for _, r := range live {
		if !known.Has(r) {
			other = append(other, r)
		}
	}
	return slices.Concat(agree, other)
}

// ordersInTermsOf returns the live orders. It returns a recorded order itself where it still holds, because the live
// order can have more routes.
func ordersInTermsOf(recorded, live []netstate.Order) []netstate.Order {
	there := map[netstate.Slot]netstate.Order{}
	for _, o := range live {
		there[o.Slot] = o
	}
	var orders []netstate.Order
	for _, o := range recorded {
		h, ok := there[o.Slot]
		if front, back := o.Moves(h.Routes, true); len(front)+len(back) == 0 {
			orders = append(orders, o)
		} else if ok {
			orders = append(orders, h)
		}
		delete(there, o.Slot)
	}
	for _, o := range live {
		if _, left := there[o.Slot]; left {
			orders = append(orders, o)
		}
	}
	return orders
}

// namesOfFacts returns the names of both lists, first those of the record.
func namesOfFacts(recorded, live []fact) []string {
	var names []string
	for _, f := range slices.Concat(recorded, live) {
		if !slices.Contains(names, f.name) {
			names = append(names, f.name)
		}
	}
	return names
}

func factNamed(facts []fact, name string) fact {
	for _, f := range facts {
		if f.name == name {
			return f
		}
	}
	return fact{}
}

// pairs puts values side by side if they have the same key, or if each side has only one. A recorded value without a
// live one is missing. A live value without a recorded one stands alone.
func pairs(recorded, live []value) []pair {
	if len(recorded) == 1 && len(live) == 1 && recorded[0].unlessKnown == counts && live[0].unlessKnown == counts {
		return []pair{beside(recorded[0], live[0])}
	}
	there := map[string][]value{}
	for _, v := range live {
		there[v.key] = append(there[v.key], v)
	}
	var all []pair
	for _, v := range recorded {
		same := there[v.key]
		switch {
		case len(same) > 0:
			// Several live values can have this key. An equal one goes first.
			at := max(0, slices.IndexFunc(same, func(h value) bool { return h.whole == v.whole }))
			all = append(all, beside(v, same[at]))
			there[v.key] = slices.Delete(same, at, at+1)
		case v.unlessKnown == untold:
			all = append(all, pair{recorded: v.text})
		default:
			all = append(all, pair{v.text, "missing"})
		}
	}
	for _, v := range live {
		if left := there[v.key]; len(left) > 0 {
			if left[0].unlessKnown == counts {
				all = append(all, pair{"-", left[0].text})
			}
			there[v.key] = left[1:]
		}
	}
	return all
}

// beside puts a live value beside the recorded value that it replaced.
func beside(recorded, live value) pair {
	switch {
	case recorded.whole == live.whole:
		return pair{recorded: recorded.text}
	case recorded.text == live.text:
		return pair{recorded.whole, live.whole}
	}
	return pair{recorded.text, live.text}
}
