package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

// fact is one thing about an interface, of which there may be several values.
type fact struct {
	name   string
	values []string
}

// factsOf returns what there is to say of an interface, always in the same order.
func factsOf(i netstate.Interface) []fact {
	link := i.Link
	facts := []fact{
		{"Interface:", []string{fmt.Sprintf("%s (%s, index %d)", link.Name, linkKind(link), link.Index)}},
		{"MAC:", []string{link.MAC}},
		{"MTU:", []string{fmt.Sprint(link.MTU)}},
		{"Parents:", eachOf(i.Parents, describeParent)},
		{"Addresses:", eachOf(i.Addresses, netstate.Address.String)},
		{"Routes:", eachOf(i.Routes, netstate.Route.String)},
	}
	if i.Master != nil {
		facts = append(facts, fact{"Master:", []string{fmt.Sprintf("%s (%s)", i.Master.Name, i.Master.Kind)}})
	}
	var settings []string
	for _, key := range slices.Sorted(maps.Keys(i.Settings)) {
		settings = append(settings, key+" = "+i.Settings[key])
	}
	return append(facts,
		fact{"Route order:", eachOf(i.RouteOrder, netstate.Order.String)},
		fact{"Rules:", eachOf(i.Rules, netstate.Rule.String)},
		fact{"Neighbours:", eachOf(i.Neighbours, netstate.Neighbour.String)},
		fact{"Settings:", settings},
		fact{"Qdiscs:", eachOf(i.Qdiscs, netstate.Qdisc.String)},
		fact{"Not captured:", i.NotCaptured})
}

func eachOf[T any](all []T, text func(T) string) []string {
	var texts []string
	for _, one := range all {
		texts = append(texts, text(one))
	}
	return texts
}

// sideBySide writes what is recorded, and in a second column what is live where that differs.
func sideBySide(recorded, live []fact, s *screen) {
	t := newTable(true, columns("", "RECORDED", "LIVE")...)
	for _, name := range namesOfFacts(recorded, live) {
		for i, pair := range pairs(valuesOf(recorded, name), valuesOf(live, name)) {
			t.rows = append(t.rows, []cell{
				{text: first(i, name)}, {text: printable.Line(pair.recorded)}, {text: printable.Line(pair.live), in: yellow},
			})
		}
	}
	t.write(s)
	s.say("")
}

// namesOfFacts returns the names that either has, in the order of what is recorded.
func namesOfFacts(recorded, live []fact) []string {
	var names []string
	for _, f := range slices.Concat(recorded, live) {
		if !slices.Contains(names, f.name) {
			names = append(names, f.name)
		}
	}
	return names
}

func valuesOf(facts []fact, name string) []string {
	for _, f := range facts {
		if f.name == name {
			return f.values
		}
	}
	return nil
}

// pair is a recorded value and a live one beside it. A live one that is the same is left out.
type pair struct{ recorded, live string }

// pairs puts values side by side. One of the recorded that is not live is missing, one of the live that is not
// recorded stands alone. Two single values that differ are one pair.
func pairs(recorded, live []string) []pair {
	if len(recorded) == 1 && len(live) == 1 {
		if recorded[0] == live[0] {
			return []pair{{recorded: recorded[0]}}
		}
		return []pair{{recorded[0], live[0]}}
	}
	var all []pair
	for _, value := range recorded {
		if slices.Contains(live, value) {
			all = append(all, pair{recorded: value})
		} else {
			all = append(all, pair{value, "missing"})
		}
	}
	for _, value := range live {
		if !slices.Contains(recorded, value) {
			all = append(all, pair{"-", value})
		}
	}
	return all
}

func linkKind(l netstate.Link) string {
	switch {
	case l.Macvlan != nil:
		return l.Kind + " " + l.Macvlan.Mode
	case l.VLAN != nil:
		return l.VLAN.String()
	case l.IPvlan != nil:
		return l.Kind + " " + l.IPvlan.Mode
	case l.NIC != nil:
		return fmt.Sprintf("NIC, permanent MAC %s, bus address %s", l.NIC.PermanentMAC, l.NIC.BusAddress)
	}
	return l.Kind
}

func describeParent(d netstate.Device) string {
	details := []string{d.Kind}
	switch {
	case d.VLAN != nil:
		details[0] = d.VLAN.String()
	case d.Bond != nil:
		var members []string
		for _, m := range d.Bond.Members {
			members = append(members, m.Name)
		}
		details = append(details, d.Bond.Mode, "members "+strings.Join(members, " "))
	case d.PermanentMAC != "":
		details = append(details, d.PermanentMAC, d.BusAddress)
	}
	return fmt.Sprintf("%s (%s, MTU %d)", d.Name, strings.Join(details, ", "), d.MTU)
}
