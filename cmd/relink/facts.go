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
	// absence says what it means if only one of the two interfaces has the value.
	absence absence
}

// absence says what it means if only one of two interfaces has a value.
type absence int

const (
	// counts: it is a difference. The value was added, or it is missing.
	absenceDiffers absence = iota
	// chosen: the kernel chooses a value if the record has none. So it is no difference if only the live interface has
	// one.
	kernelDefault
	// untold: like chosen. In addition, not every kernel tells the value. So it is no difference either if only the
	// record has one.
	unreported
)

// factsOf returns the facts of an interface, always in the same order.
func factsOf(i netstate.Interface) []fact {
	facts := slices.Concat(linkFacts(i.Link), []fact{
		{name: "Parents:", values: parentValues(i)},
		{name: "Addresses:", values: listValues(i.Addresses, netstate.Address.String, netstate.Address.Detail)},
		{name: "Routes:", values: listValues(i.Routes, netstate.Route.String, netstate.Route.Detail)},
	})
	if i.Master != nil {
		port := mapValues(i.Master.Port, func(name string, n uint32) string { return fmt.Sprintf("%s %d", name, n) })
		facts = append(facts, fact{name: "Master:", values: singleValue(fmt.Sprintf("%s (%s)", i.Master.Name, i.Master.Kind))},
			fact{name: "Bridge port:", values: port, compared: true})
	}
	return append(facts,
		fact{name: "Rules:", values: listValues(i.Rules, netstate.Rule.String, netstate.Rule.String)},
		fact{name: "Neighbours:", values: listValues(i.Neighbours, netstate.Neighbour.String, neighbourDetail)},
		fact{name: "Settings:", values: mapValues(i.Settings, func(key, setting string) string { return key + " = " + setting })},
		fact{name: "Qdiscs:", values: listValues(i.Qdiscs, netstate.Qdisc.String, netstate.Qdisc.Detail)},
		fact{name: "Not captured:", values: listValues(i.NotCaptured, strings.Clone, strings.Clone)})
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
		{name: "Link:", values: singleValue(state)},
		{name: "MAC:", values: optionalValue(l.MAC, kernelDefault)},
		{name: "MTU:", values: singleValue(strconv.Itoa(l.MTU))},
	}
	if l.TxQueueLen != nil {
		facts = append(facts, fact{name: "txqueuelen:", values: optionalValue(strconv.Itoa(*l.TxQueueLen), unreported)})
	}
	if l.Group != 0 {
		facts = append(facts, fact{name: "Group:", values: singleValue(strconv.FormatUint(uint64(l.Group), 10))})
	}
	return append(facts,
		fact{name: "Alias:", values: optionalValue(l.Alias, absenceDiffers)},
		fact{name: "Flags:", values: optionalValue(flags.String(), absenceDiffers)})
}

// singleValue returns the only value of a fact.
func singleValue(text string) []value { return optionalValue(text, absenceDiffers) }

// optionalValue returns the only value of a fact, or none if the text is empty.
func optionalValue(text string, unlessKnown absence) []value {
	if text == "" {
		return nil
	}
	return []value{{text: text, whole: text, absence: unlessKnown}}
}

// listValues returns one value for each element of a list without an order. Two values replace each other if their texts
// are equal.
func listValues[T any](elements []T, text, whole func(T) string) []value {
	var values []value
	for _, element := range elements {
		values = append(values, value{key: text(element), text: text(element), whole: whole(element)})
	}
	return values
}

// mapValues returns one value for each key of a map, sorted.
func mapValues[V any](entries map[string]V, text func(string, V) string) []value {
	var values []value
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		values = append(values, value{key: key, text: text(key, entries[key]), whole: text(key, entries[key])})
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

func neighbourDetail(n netstate.Neighbour) string {
	return fmt.Sprintf("%s (MAC %q, flags %#x)", n, n.MAC, n.Flags)
}

func macvlanOptions(m *netstate.Macvlan) []value {
	if m == nil {
		return nil
	}
	var values []value
	add := func(set bool, key, text string, unlessKnown absence) {
		if set {
			values = append(values, value{key: key, text: text, whole: text, absence: unlessKnown})
		}
	}
	add(m.NoPromiscuous, "nopromisc", "nopromisc", absenceDiffers)
	add(m.NoDestination, "nodst", "nodst", absenceDiffers)
	add(m.BCQueueLen != 0, "bcqueuelen", fmt.Sprintf("bcqueuelen %d", m.BCQueueLen), kernelDefault)
	if m.BCCutoff != nil {
		add(true, "bc_cutoff", fmt.Sprintf("bc_cutoff %d", *m.BCCutoff), unreported)
	}
	sources := slices.Sorted(slices.Values(m.Sources))
	add(len(sources) > 0, "sources", "sources "+strings.Join(sources, " "), absenceDiffers)
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
	values := []value{{key: "flags", text: flags, whole: flags, absence: unreported}}
	for _, qos := range []struct {
		name string
		maps map[uint32]uint32
	}{{"ingress-qos-map", v.IngressQoS}, {"egress-qos-map", v.EgressQoS}} {
		for _, priority := range slices.Sorted(maps.Keys(qos.maps)) {
			key := fmt.Sprintf("%s %d", qos.name, priority)
			text := fmt.Sprintf("%s:%d", key, qos.maps[priority])
			values = append(values, value{key: key, text: text, whole: text, absence: kernelDefault})
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
