package netstate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Field is the part of an interface that differs.
type Field string

// The fields that Diff compares.
const (
	FieldKind       Field = "kind"
	FieldVLAN       Field = "vlan"
	FieldParent     Field = "parent"
	FieldMode       Field = "mode"
	FieldOptions    Field = "options"
	FieldMAC        Field = "MAC"
	FieldMTU        Field = "MTU"
	FieldTxQueueLen Field = "txqueuelen"
	FieldAlias      Field = "alias"
	FieldGroup      Field = "group"
	FieldFlags      Field = "flags"
	FieldMaster     Field = "master"
	FieldSetting    Field = "setting"
	FieldUp         Field = "state"
	FieldAddress    Field = "address"
	FieldRoute      Field = "route"
	FieldRule       Field = "rule"
	FieldNeighbour  Field = "neighbour"
	FieldQdisc      Field = "qdisc"
)

// Difference is one thing that differs from what is wanted.
type Difference struct {
	Field Field
	// Want and Live are for people to read. Live is empty if the thing is missing.
	Want, Live string
	// The missing thing, depending on the field: an address, a route, ..., or the key of a setting.
	Address   *Address
	Route     *Route
	Rule      *Rule
	Neighbour *Neighbour
	Qdisc     *Qdisc
	Setting   string
}

func (d Difference) String() string {
	if d.Live == "" {
		return fmt.Sprintf("%s %s is missing", d.Field, d.Want)
	}
	return fmt.Sprintf("%s is %s, not %s", d.Field, d.Live, d.Want)
}

// differences are gathered by add and the functions that use it.
type differences []Difference

func (ds *differences) add(field Field, want, live any) {
	if d := (Difference{Field: field, Want: fmt.Sprint(want), Live: fmt.Sprint(live)}); d.Want != d.Live {
		*ds = append(*ds, d)
	}
}

// Diff returns the differences that keep live from being want. What live has besides (another address, another
// route) is no difference: somebody put it there. A zero in want for something that the kernel chooses (MAC,
// MTU, queue length) matches anything. The state of the parents themselves does not matter.
func Diff(want, live Interface) []Difference {
	if want.Link.Kind != live.Link.Kind {
		return []Difference{{Field: FieldKind, Want: want.Link.Kind, Live: live.Link.Kind}}
	}
	var ds differences
	ds.kind(want.Link, live.Link)
	if difference := parentsDiffer(want, live); difference != nil {
		ds = append(ds, *difference)
	}
	ds.link(want.Link, live.Link)
	if want.Master != nil {
		ds.master(*want.Master, live.Master)
	}
	ds.settings(want.Settings, live.Settings)
	ds = append(ds, diffAddresses(want.Addresses, live.Addresses)...)
	ds = append(ds, diffRoutes(want.Routes, live.Routes)...)
	ds.tables(want, live)
	return ds
}

// kind compares what only links of a certain kind have.
func (ds *differences) kind(want, live Link) {
	if want.VLAN != nil && live.VLAN != nil {
		ds.add(FieldVLAN, want.VLAN, live.VLAN)
	}
	if want.VLANOptions != nil && live.VLANOptions != nil {
		ds.options(want.VLANOptions.Words(), live.VLANOptions.restrictedTo(*want.VLANOptions).Words())
	}
	if want.IPvlan != nil && live.IPvlan != nil {
		ds.add(FieldMode, want.IPvlan, live.IPvlan)
	}
	if w, h := want.Macvlan, live.Macvlan; w != nil && h != nil {
		ds.add(FieldMode, w.Mode, h.Mode)
		wanted, present := *w, *h
		if w.BCQueueLen == 0 {
			present.BCQueueLen = 0
		}
		if w.BCCutoff == nil || h.BCCutoff == nil { // An older kernel does not tell it.
			wanted.BCCutoff, present.BCCutoff = nil, nil
		}
		ds.options(wanted.Words(), present.Words())
	}
}

// options compares options in words.
func (ds *differences) options(want, live []string) {
	ds.add(FieldOptions, cmp.Or(strings.Join(want, ", "), "none"), cmp.Or(strings.Join(live, ", "), "none"))
}

// Words are the options of the macvlan that somebody set, in the words of ip-link(8).
func (m Macvlan) Words() []string {
	var w words
	w.add("nopromisc", m.NoPromiscuous)
	w.add("nodst", m.NoDestination)
	w.add("bcqueuelen", m.BCQueueLen)
	if m.BCCutoff != nil {
		w.put("bc_cutoff", *m.BCCutoff)
	}
	w.add("sources", strings.Join(slices.Sorted(slices.Values(m.Sources)), " "))
	return w
}

func (v IPvlan) String() string { return v.Mode + " " + v.Flag }

// restrictedTo returns the options without the mappings that want does not have.
func (v VLANOptions) restrictedTo(want VLANOptions) VLANOptions {
	subset := func(live, want map[uint32]uint32) map[uint32]uint32 {
		mapped := maps.Clone(live)
		maps.DeleteFunc(mapped, func(priority, _ uint32) bool { return want[priority] == 0 })
		return mapped
	}
	return VLANOptions{Flags: v.Flags, IngressQoS: subset(v.IngressQoS, want.IngressQoS), EgressQoS: subset(v.EgressQoS, want.EgressQoS)}
}

// Words are the options in the words of ip-link(8).
func (v VLANOptions) Words() []string {
	w := words{"no flags"}
	if len(v.Flags) > 0 {
		w[0] = "flags " + strings.Join(v.Flags, " ")
	}
	qos := func(label string, priorities map[uint32]uint32) {
		for _, priority := range slices.Sorted(maps.Keys(priorities)) {
			w.put(label, fmt.Sprintf("%d:%d", priority, priorities[priority]))
		}
	}
	qos("ingress-qos-map", v.IngressQoS)
	qos("egress-qos-map", v.EgressQoS)
	return w
}

func (m Master) String() string { return m.Kind + " " + m.Name }

// master compares the masters and, if they are the same bridge, the attributes of the port.
func (ds *differences) master(want Master, live *Master) {
	if live == nil {
		ds.add(FieldMaster, want, "")
		return
	}
	if want.String() != live.String() {
		ds.add(FieldMaster, want, live)
		return
	}
	var wanted, actual words
	for _, name := range slices.Sorted(maps.Keys(want.Port)) {
		if live.Port[name] != want.Port[name] {
			wanted.put(name, want.Port[name])
			actual.put(name, live.Port[name])
		}
	}
	if len(wanted) > 0 {
		ds.add(FieldMaster, want.String()+" with "+strings.Join(wanted, ", "), "one with "+strings.Join(actual, ", "))
	}
}

// link compares what every link has.
func (ds *differences) link(want, live Link) {
	if want.MAC != "" && !want.SharesMAC() {
		ds.add(FieldMAC, want.MAC, live.MAC)
	}
	if want.MTU != 0 {
		ds.add(FieldMTU, want.MTU, live.MTU)
	}
	if want.TxQueueLen != nil && live.TxQueueLen != nil {
		ds.add(FieldTxQueueLen, *want.TxQueueLen, *live.TxQueueLen)
	}
	if want.Alias != "" {
		ds.add(FieldAlias, want.Alias, live.Alias)
	}
	if want.Group != 0 {
		ds.add(FieldGroup, want.Group, live.Group)
	}
	if missing := want.without(live.LinkFlags); missing != (LinkFlags{}) {
		ds.add(FieldFlags, missing, "")
	}
	if want.Up && !live.Up {
		ds.add(FieldUp, "up", "down")
	}
}

// without returns the flags that the others lack.
func (f LinkFlags) without(flags LinkFlags) LinkFlags {
	return LinkFlags{
		Promiscuous: f.Promiscuous && !flags.Promiscuous, AllMulticast: f.AllMulticast && !flags.AllMulticast,
		NoARP: f.NoARP && !flags.NoARP, NoMulticast: f.NoMulticast && !flags.NoMulticast,
	}
}

func (f LinkFlags) String() string {
	var w words
	w.add("promisc on", f.Promiscuous)
	w.add("allmulticast on", f.AllMulticast)
	w.add("arp off", f.NoARP)
	w.add("multicast off", f.NoMulticast)
	return strings.Join(w, ", ")
}

// settings compares the wanted settings. Nil in live: nobody looked at them.
func (ds *differences) settings(want, live map[string]string) {
	if live == nil {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if value, ok := live[key]; !ok || value != want[key] {
			d := Difference{Field: FieldSetting, Want: key + "=" + want[key], Setting: key}
			if ok {
				d.Live = key + "=" + value
			}
			*ds = append(*ds, d)
		}
	}
}

// setOf returns the keys of the list as a set. A pod can make the lists long: to search one of them for each
// entry of another would take minutes.
func setOf[T any, K comparable](list []T, key func(T) K) map[K]bool {
	set := make(map[K]bool, len(list))
	for _, v := range list {
		set[key(v)] = true
	}
	return set
}

// tables compares what the tables of the namespace have for the interface.
func (ds *differences) tables(want, live Interface) {
	rules := setOf(live.Rules, Rule.String)
	for _, r := range want.Rules {
		if !rules[r.String()] {
			*ds = append(*ds, Difference{Field: FieldRule, Want: r.String(), Rule: &r})
		}
	}
	neighbours := setOf(live.Neighbours, func(n Neighbour) Neighbour { return n })
	for _, n := range want.Neighbours {
		if !neighbours[n] {
			*ds = append(*ds, Difference{Field: FieldNeighbour, Want: n.String(), Neighbour: &n})
		}
	}
	for _, q := range want.Qdiscs {
		if !slices.ContainsFunc(live.Qdiscs, q.Equal) {
			*ds = append(*ds, Difference{Field: FieldQdisc, Want: q.String(), Qdisc: &q})
		}
	}
}

func diffAddresses(want, live []Address) []Difference {
	present := AddressesOf(live)
	var diffs []Difference
	for _, a := range want {
		h, ok := present[a.Key()]
		if ok && h.Same(a) {
			continue
		}
		d := Difference{Field: FieldAddress, Want: a.String(), Address: &a}
		if ok {
			d.Want, d.Live = a.detail(), h.detail()
		}
		diffs = append(diffs, d)
	}
	return diffs
}
