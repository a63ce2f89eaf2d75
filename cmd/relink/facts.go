package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/relink-cni/relink/pkg/netstate"
)

// fact is one thing about an interface. It can have several values.
type fact struct {
	name   string
	values []value
	// compared facts are shown only beside another interface, and only where they differ. There are too many of them to
	// show all.
	compared bool
}

// value is one value of a fact.
type value struct {
	// key is the same for two values that replace each other.
	key  string
	text string
	// whole adds what text leaves out. It is shown where two values have the same text.
	whole string
	// unlessKnown says what it means if only one of the two interfaces has the value.
	unlessKnown absence
}

// absence says what it means if only one of two interfaces has a value.
type absence int

const (
	// counts: it is a difference. The value was added, or it is missing.
	counts absence = iota
	// chosen: the kernel chooses a value if the record has none. So it is no difference if only the live interface has
	// one.
	chosen
	// untold: like chosen. In addition, not every kernel tells the value. So it is no difference either if only the
	// record has one.
	untold
)

// factsOf returns the facts of an interface, always in the same order.
func factsOf(i netstate.Interface) []fact {
	facts := slices.Concat(linkFacts(i.Link), []fact{
		{name: "Parents:", values: parentValues(i)},
		{name: "Addresses:", values: eachOf(i.Addresses, netstate.Address.String, netstate.Address.Detail)},
		{name: "Routes:", values: eachOf(i.Routes, netstate.Route.String, netstate.Route.Detail)},
	})
	if i.Master != nil {
		port := eachKey(i.Master.Port, func(name string, n uint32) string { return fmt.Sprintf("%s %d", name, n) })
		facts = append(facts, fact{name: "Master:", values: one(fmt.Sprintf("%s (%s)", i.Master.Name, i.Master.Kind))},
			fact{name: "Bridge port:", values: port, compared: true})
	}
	return append(facts,
		fact{name: "Route order:", values: orderValues(i.RouteOrder)},
		fact{name: "Rules:", values: eachOf(i.Rules, netstate.Rule.String, netstate.Rule.String)},
		fact{name: "Neighbours:", values: eachOf(i.Neighbours, netstate.Neighbour.String, wholeNeighbour)},
		fact{name: "Settings:", values: eachKey(i.Settings, func(key, setting string) string { return key + " = " + setting })},
		fact{name: "Qdiscs:", values: eachOf(i.Qdiscs, netstate.Qdisc.String, netstate.Qdisc.Detail)},
		fact{name: "Not captured:", values: eachOf(i.NotCaptured, strings.Clone, strings.Clone)})
}

// linkFacts returns the facts of the device itself.
func linkFacts(l netstate.Link) []fact {
	state := "down"
	if l.Up {
		state = "up"
	}
	name := fmt.Sprintf("%s (%s, index %d)", l.Name, linkKind(l), l.Index)
	flags := l.LinkFlags
	facts := []fact{
		{name: "Interface:", values: []value{{text: name, whole: name + " of kind " + l.Kind}}},
		{name: "Options:", values: slices.Concat(macvlanOptions(l.Macvlan), vlanOptions(l.VLANOptions))},
		{name: "Link:", values: one(state)},
		{name: "MAC:", values: known(l.MAC, chosen)},
		{name: "MTU:", values: one(strconv.Itoa(l.MTU))},
	}
	if l.TxQueueLen != nil {
		facts = append(facts, fact{name: "txqueuelen:", values: known(strconv.Itoa(*l.TxQueueLen), untold)})
	}
	if l.Group != 0 {
		facts = append(facts, fact{name: "Group:", values: one(strconv.FormatUint(uint64(l.Group), 10))})
	}
	return append(facts,
		fact{name: "Alias:", values: known(l.Alias, counts)},
		fact{name: "Flags:", values: known(flags.String(), counts)})
}

// one returns the only value of a fact.
func one(text string) []value { return known(text, counts) }

// known returns the only value of a fact, or none if the text is empty.
func known(text string, unlessKnown absence) []value {
	if text == "" {
		return nil
	}
	return []value{{text: text, whole: text, unlessKnown: unlessKnown}}
}

// eachOf returns one value for each element of a list without an order. Two values replace each other if their texts
// are equal.
func eachOf[T any](all []T, text, whole func(T) string) []value {
	var values []value
	for _, of := range all {
		values = append(values, value{key: text(of), text: text(of), whole: whole(of)})
	}
	return values
}

// eachKey returns one value for each key of a map, sorted.
func eachKey[V any](all map[string]V, text func(string, V) string) []value {
	var values []value
	for _, key := range slices.Sorted(maps.Keys(all)) {
		values = append(values, value{key: key, text: text(key, all[key]), whole: text(key, all[key])})
	}
	return values
}

func parentValues(i netstate.Interface) []value {
	var values []value
	for level, d := range i.Parents {
		text := describeParent(d)
		if level == 0 && i.ParentsInSandbox {
			text += " in the sandbox"
		}
		whole := fmt.Sprintf("%s (kind %s, permanent MAC %q, bus address %q, port %q)", text, d.Kind, d.PermanentMAC, d.BusAddress, d.DevPort)
		values = append(values, value{key: strconv.Itoa(level), text: text, whole: whole})
	}
	return values
}

func orderValues(orders []netstate.Order) []value {
	var values []value
	for _, o := range orders {
		slot := fmt.Sprintf("%s (tos %#x)", o.Slot, o.TOS)
		values = append(values, value{key: slot, text: o.String(), whole: o.String()})
	}
	return values
}

func wholeNeighbour(n netstate.Neighbour) string {
	return fmt.Sprintf("%s (MAC %q, flags %#x)", n, n.MAC, n.Flags)
}

func macvlanOptions(m *netstate.Macvlan) []value {
	if m == nil {
		return nil
	}
	var values []value
	add := func(set bool, key, text string, unlessKnown absence) {
		if set {
			values = append(values, value{key: key, text: text, whole: text, unlessKnown: unlessKnown})
		}
	}
	add(m.NoPromiscuous, "nopromisc", "nopromisc", counts)
	add(m.NoDestination, "nodst", "nodst", counts)
	add(m.BCQueueLen != 0, "bcqueuelen", fmt.Sprintf("bcqueuelen %d", m.BCQueueLen), chosen)
	if m.BCCutoff != nil {
		add(true, "bc_cutoff", fmt.Sprintf("bc_cutoff %d", *m.BCCutoff), untold)
	}
	sources := slices.Sorted(slices.Values(m.Sources))
	add(len(sources) > 0, "sources", "sources "+strings.Join(sources, " "), counts)
	return values
}

func vlanOptions(v *netstate.VLANOptions) []value {
	if v == nil {
		return nil
	}
	flags := "flags " + strings.Join(v.Flags, " ")
	if len(v.Flags) == 0 {
		flags = "no flags"
	}
	values := []value{{key: "flags", text: flags, whole: flags, unlessKnown: untold}}
	for _, qos := range []struct {
		name string
		maps map[uint32]uint32
	}{{"ingress-qos-map", v.IngressQoS}, {"egress-qos-map", v.EgressQoS}} {
		for _, from := range slices.Sorted(maps.Keys(qos.maps)) {
			key := fmt.Sprintf("%s %d", qos.name, from)
			text := fmt.Sprintf("%s:%d", key, qos.maps[from])
			values = append(values, value{key: key, text: text, whole: text, unlessKnown: chosen})
		}
	}
	return values
}

func linkKind(l netstate.Link) string {
	switch {
	case l.Macvlan != nil:
		return l.Kind + " " + l.Macvlan.Mode
	case l.VLAN != nil:
		return l.VLAN.String()
	case l.IPvlan != nil:
		return l.Kind + " " + l.IPvlan.String()
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
