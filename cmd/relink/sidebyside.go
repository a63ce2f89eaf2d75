package main

import (
	"maps"
	"slices"

	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

// writeComparison writes the recorded values, and in a second column the live values that differ.
func writeComparison(recorded, live netstate.Interface, s *screen) {
	t := newTable(true, columns("", "RECORDED", "LIVE")...)
	for _, f := range compare(recorded, live) {
		for i, p := range f.pairs {
			t.rows = append(t.rows, []cell{
				{text: firstOnly(i, f.name)}, {text: printable.Line(p.recorded)}, {text: printable.Line(p.live), colour: yellow},
			})
		}
	}
	t.write(s)
	s.printf("")
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
	recordedFacts, liveFacts := factsOf(recorded), factsOf(normalizeLive(recorded, live))
	var comparisons []comparison
	for _, name := range namesOfFacts(recordedFacts, liveFacts) {
		w, i := factNamed(recordedFacts, name), factNamed(liveFacts, name)
		c := comparison{name: name, pairs: pairValues(w.values, i.values)}
		if w.compared || i.compared {
			c.pairs = slices.DeleteFunc(c.pairs, func(p pair) bool { return p.live == "" })
		}
		if len(c.pairs) > 0 {
			comparisons = append(comparisons, c)
		}
	}
	return comparisons
}

// normalizeLive returns the live interface in the form of the record. It takes the recorded values where netstate.Diff
// finds no difference, and where nobody looked at the live ones.
func normalizeLive(recorded, live netstate.Interface) netstate.Interface {
	if len(live.Parents) == 0 {
		live.Parents, live.ParentsInSandbox = recorded.Parents, recorded.ParentsInSandbox
	}
	if live.Settings == nil {
		live.Settings = recorded.Settings
	}
	if live.Link.VLANOptions == nil {
		live.Link.VLANOptions = recorded.Link.VLANOptions
	}
	live.Addresses = normalizeAddresses(recorded.Addresses, live.Addresses)
	live.Routes = normalizeRoutes(recorded.Routes, live.Routes)
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

// normalizeAddresses returns the live addresses, each in its recorded form where it is the same: by then, it may have become
// deprecated.
func normalizeAddresses(recorded, live []netstate.Address) []netstate.Address {
	live = slices.Clone(live)
	for i, a := range live {
		if index := slices.IndexFunc(recorded, a.Same); index >= 0 {
			live[i] = recorded[index]
		}
	}
	return live
}

// normalizeRoutes returns the live routes, each in its recorded form. The kernel can report a leg of an IPv6 route in
// another form.
func normalizeRoutes(recorded, live []netstate.Route) []netstate.Route {
	liveRoutes := netstate.RoutesOf(live)
	var agree, rest []netstate.Route
	for _, r := range recorded {
		if liveRoutes.Has(r) {
			agree = append(agree, r)
		}
	}
	agreed := netstate.RoutesOf(agree)
	for _, r := range live {
		if !agreed.Has(r) {
			rest = append(rest, r)
		}
	}
	return slices.Concat(agree, rest)
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

// pairValues puts values side by side if they have the same key, or if each side has only one. A recorded value without a
// live one is missing. A live value without a recorded one stands alone.
func pairValues(recorded, live []value) []pair {
	if len(recorded) == 1 && len(live) == 1 && recorded[0].absence == absenceDiffers && live[0].absence == absenceDiffers {
		return []pair{newPair(recorded[0], live[0])}
	}
	unmatched := map[string][]value{}
	for _, v := range live {
		unmatched[v.key] = append(unmatched[v.key], v)
	}
	var result []pair
	for _, v := range recorded {
		candidates := unmatched[v.key]
		switch {
		case len(candidates) > 0:
			// Several live values can have this key. An equal one goes first.
			index := max(0, slices.IndexFunc(candidates, func(h value) bool { return h.whole == v.whole }))
			result = append(result, newPair(v, candidates[index]))
			unmatched[v.key] = slices.Delete(candidates, index, index+1)
		case v.absence == unreported:
			result = append(result, pair{recorded: v.text})
		default:
			result = append(result, pair{v.text, "missing"})
		}
	}
	for _, v := range live {
		if rest := unmatched[v.key]; len(rest) > 0 {
			if rest[0].absence == absenceDiffers {
				result = append(result, pair{"-", rest[0].text})
			}
			unmatched[v.key] = rest[1:]
		}
	}
	return result
}

// newPair puts a live value beside the recorded value that it replaced.
func newPair(recorded, live value) pair {
	switch {
	case recorded.whole == live.whole:
		return pair{recorded: recorded.text}
	case recorded.text == live.text:
		return pair{recorded.whole, live.whole}
	}
	return pair{recorded.text, live.text}
}
