package netstate

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
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
	FieldBCQueue    Field = "bcqueuelen"
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
	FieldRouteOrder Field = "route order"
	FieldRule       Field = "rule"
	FieldNeighbour  Field = "neighbour"
	FieldQdisc      Field = "qdisc"
)

// Difference is one thing that differs from what is wanted.
type Difference struct {
	Field Field
	// Want and Have are for people to read. Have is empty if the thing is missing.
	Want, Have string
	// The missing thing, depending on the field: an address, a route, ..., or the key of a setting.
	Address   *Address
	Route     *Route
	Order     *Order
	Rule      *Rule
	Neighbour *Neighbour
	Qdisc     *Qdisc
	Setting   string
}

func (d Difference) String() string {
	if d.Have == "" {
		return fmt.Sprintf("%s %s is missing", d.Field, d.Want)
	}
	return fmt.Sprintf("%s is %s, not %s", d.Field, d.Have, d.Want)
}

// differences are gathered by add and the functions that use it.
type differences []Difference

func (ds *differences) add(field Field, want, have string) {
	if want != have {
		*ds = append(*ds, Difference{Field: field, Want: want, Have: have})
	}
}

// Diff returns the differences that keep have from being want. What have has besides (another address, another
// route) is no difference: somebody put it there. A zero in want for something that the kernel chooses (MAC,
// MTU, queue length) matches anything. The state of the parents themselves does not matter.
func Diff(want, have Interface) []Difference {
	if want.Link.Kind != have.Link.Kind {
		return []Difference{{Field: FieldKind, Want: want.Link.Kind, Have: have.Link.Kind}}
	}
	var ds differences
	ds.kind(want.Link, have.Link)
	if why := parentsDiffer(want, have); why != nil {
		ds = append(ds, *why)
	}
	ds.link(want.Link, have.Link)
	if want.Master != nil {
		ds.master(*want.Master, have.Master)
	}
	ds.settings(want.Settings, have.Settings)
	ds = append(ds, diffAddresses(want.Addresses, have.Addresses)...)
	ds = append(ds, diffRoutes(want.Routes, have.Routes)...)
	ds = append(ds, diffOrders(want.RouteOrder, have.RouteOrder)...)
	ds.others(want, have)
	return ds
}

// kind compares what only links of a certain kind have.
func (ds *differences) kind(want, have Link) {
	if want.VLAN != nil && have.VLAN != nil {
		ds.add(FieldVLAN, want.VLAN.String(), have.VLAN.String())
	}
	if want.VLANOptions != nil && have.VLANOptions != nil {
		ds.add(FieldOptions, want.VLANOptions.String(), have.VLANOptions.asFarAs(*want.VLANOptions).String())
	}
	if want.IPvlan != nil && have.IPvlan != nil {
		ds.add(FieldMode, want.IPvlan.String(), have.IPvlan.String())
	}
	if w, h := want.Macvlan, have.Macvlan; w != nil && h != nil {
		ds.add(FieldMode, w.Mode, h.Mode)
		ds.add(FieldOptions, w.options(*h), h.options(*w))
		if w.BCQueueLen != 0 {
			ds.add(FieldBCQueue, strconv.Itoa(int(w.BCQueueLen)), strconv.Itoa(int(h.BCQueueLen)))
		}
	}
}

// options returns the options of the macvlan for a comparison with another one, without those that the other
// one's kernel does not tell.
func (m Macvlan) options(other Macvlan) string {
	cutoff := "default"
	if other.BCCutoff != nil && m.BCCutoff != nil {
		cutoff = strconv.Itoa(int(*m.BCCutoff))
	}
	sources := slices.Sorted(slices.Values(m.Sources))
	return fmt.Sprintf("nopromisc %t, nodst %t, bc_cutoff %s, sources %v", m.NoPromiscuous, m.NoDestination, cutoff, sources)
}

func (v IPvlan) String() string { return v.Mode + " " + v.Flag }

// asFarAs returns the options without the mappings that want does not have.
func (v VLANOptions) asFarAs(want VLANOptions) VLANOptions {
	only := func(have, want map[uint32]uint32) map[uint32]uint32 {
		some := maps.Clone(have)
		maps.DeleteFunc(some, func(from, _ uint32) bool { return want[from] == 0 })
		return some
	}
	return VLANOptions{Flags: v.Flags, IngressQoS: only(v.IngressQoS, want.IngressQoS), EgressQoS: only(v.EgressQoS, want.EgressQoS)}
}

func (v VLANOptions) String() string {
	return fmt.Sprintf("flags %v, ingress QoS %v, egress QoS %v", v.Flags, v.IngressQoS, v.EgressQoS)
}

func (m Master) String() string { return m.Kind + " " + m.Name }

// master compares the masters and, if they are the same bridge, the attributes of the port.
func (ds *differences) master(want Master, have *Master) {
	if have == nil {
		ds.add(FieldMaster, want.String(), "")
		return
	}
	if want.String() != have.String() {
		ds.add(FieldMaster, want.String(), have.String())
		return
	}
	var wanted, there []string
	for _, name := range slices.Sorted(maps.Keys(want.Port)) {
		if have.Port[name] != want.Port[name] {
			wanted = append(wanted, fmt.Sprintf("%s %d", name, want.Port[name]))
			there = append(there, fmt.Sprintf("%s %d", name, have.Port[name]))
		}
	}
	if len(wanted) > 0 {
		ds.add(FieldMaster, want.String()+" with "+strings.Join(wanted, ", "), "one with "+strings.Join(there, ", "))
	}
}

// link compares what every link has.
func (ds *differences) link(want, have Link) {
	if want.MAC != "" && !want.SharesMAC() {
		ds.add(FieldMAC, want.MAC, have.MAC)
	}
	if want.MTU != 0 {
		ds.add(FieldMTU, strconv.Itoa(want.MTU), strconv.Itoa(have.MTU))
	}
	if want.TxQueueLen != nil && have.TxQueueLen != nil {
		ds.add(FieldTxQueueLen, strconv.Itoa(*want.TxQueueLen), strconv.Itoa(*have.TxQueueLen))
	}
	if want.Alias != "" {
		ds.add(FieldAlias, want.Alias, have.Alias)
	}
	if want.Group != 0 {
		ds.add(FieldGroup, strconv.Itoa(int(want.Group)), strconv.Itoa(int(have.Group)))
	}
	if missing := want.without(have.LinkFlags); missing != (LinkFlags{}) {
		ds.add(FieldFlags, missing.String(), "")
	}
	if want.Up && !have.Up {
		ds.add(FieldUp, "up", "down")
	}
}

// without returns the flags that other does not have.
func (f LinkFlags) without(other LinkFlags) LinkFlags {
	return LinkFlags{
		Promiscuous: f.Promiscuous && !other.Promiscuous, AllMulticast: f.AllMulticast && !other.AllMulticast,
		NoARP: f.NoARP && !other.NoARP, NoMulticast: f.NoMulticast && !other.NoMulticast,
	}
}

func (f LinkFlags) String() string {
	var words []string
	for _, flag := range []struct {
		set  bool
		word string
	}{{f.Promiscuous, "promisc on"}, {f.AllMulticast, "allmulticast on"}, {f.NoARP, "arp off"}, {f.NoMulticast, "multicast off"}} {
		if flag.set {
			words = append(words, flag.word)
		}
	}
	return strings.Join(words, ", ")
}

// settings compares the wanted settings. Nil in have: nobody looked at them.
func (ds *differences) settings(want, have map[string]string) {
	if have == nil {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if value, ok := have[key]; !ok || value != want[key] {
			d := Difference{Field: FieldSetting, Want: key + "=" + want[key], Setting: key}
			if ok {
				d.Have = key + "=" + value
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

// others compares what the tables of the namespace have for the interface.
func (ds *differences) others(want, have Interface) {
	rules := setOf(have.Rules, Rule.String)
	for _, r := range want.Rules {
		if !rules[r.String()] {
			*ds = append(*ds, Difference{Field: FieldRule, Want: r.String(), Rule: &r})
		}
	}
	neighbours := setOf(have.Neighbours, func(n Neighbour) Neighbour { return n })
	for _, n := range want.Neighbours {
		if !neighbours[n] {
			*ds = append(*ds, Difference{Field: FieldNeighbour, Want: n.String(), Neighbour: &n})
		}
	}
	for _, q := range want.Qdiscs {
		if !slices.ContainsFunc(have.Qdiscs, q.Equal) {
			*ds = append(*ds, Difference{Field: FieldQdisc, Want: q.String(), Qdisc: &q})
		}
	}
}

func diffAddresses(want, have []Address) []Difference {
	type identity struct{ prefix, peer netip.Prefix }
	there := make(map[identity]Address, len(have))
	for _, a := range have {
		there[identity{a.Prefix, a.Peer}] = a // The kernel has each only once.
	}
	var diffs []Difference
	for _, a := range want {
		h, ok := there[identity{a.Prefix, a.Peer}]
		if ok && h.Same(a) {
			continue
		}
		d := Difference{Field: FieldAddress, Want: a.String(), Address: &a}
		if ok {
			d.Want, d.Have = a.Detail(), h.Detail()
		}
		diffs = append(diffs, d)
	}
	return diffs
}
