package netstate

import (
	"fmt"
	"slices"
	"strconv"
)

// Field says what of an interface differs.
type Field string

// The fields that Diff compares.
const (
	FieldKind    Field = "kind"
	FieldVLAN    Field = "vlan"
	FieldParent  Field = "parent"
	FieldMode    Field = "mode"
	FieldBCQueue Field = "bcqueuelen"
	FieldMAC     Field = "MAC"
	FieldMTU     Field = "MTU"
	FieldUp      Field = "state"
	FieldAddress Field = "address"
	FieldRoute   Field = "route"
)

// Difference is one thing that is not as it should be.
type Difference struct {
	Field Field
	// Want and Have are for people to read. Have is empty for what is missing.
	Want, Have string
	// Address and Route are what is missing, for those fields.
	Address *Address
	Route   *Route
}

func (d Difference) String() string {
	if d.Have == "" {
		return fmt.Sprintf("%s %s is missing", d.Field, d.Want)
	}
	return fmt.Sprintf("%s is %s, not %s", d.Field, d.Have, d.Want)
}

// Diff returns what keeps have from being want. What have has beyond want
// (another address, another route) is no difference: somebody put it there.
// A zero in want for what the kernel chooses (MAC, MTU, queue length) matches
// anything. Whether the parents themselves are well is not looked at.
func Diff(want, have Interface) []Difference {
	if want.Link.Kind != have.Link.Kind {
		return []Difference{{Field: FieldKind, Want: want.Link.Kind, Have: have.Link.Kind}}
	}
	var diffs []Difference
	add := func(field Field, want, have string) {
		if want != have {
			diffs = append(diffs, Difference{Field: field, Want: want, Have: have})
		}
	}
	if want.Link.VLAN != nil && have.Link.VLAN != nil {
		add(FieldVLAN, want.Link.VLAN.String(), have.Link.VLAN.String())
	}
	if w, h := want.Link.Macvlan, have.Link.Macvlan; w != nil && h != nil {
		add(FieldMode, w.Mode, h.Mode)
		if w.BCQueueLen != 0 {
			add(FieldBCQueue, strconv.Itoa(int(w.BCQueueLen)), strconv.Itoa(int(h.BCQueueLen)))
		}
	}
	if why := parentsDiffer(want, have); why != nil {
		diffs = append(diffs, *why)
	}
	if want.Link.MAC != "" {
		add(FieldMAC, want.Link.MAC, have.Link.MAC)
	}
	if want.Link.MTU != 0 {
		add(FieldMTU, strconv.Itoa(want.Link.MTU), strconv.Itoa(have.Link.MTU))
	}
	if want.Link.Up && !have.Link.Up {
		add(FieldUp, "up", "down")
	}
	diffs = append(diffs, diffAddresses(want.Addresses, have.Addresses)...)
	return append(diffs, diffRoutes(want.Routes, have.Routes)...)
}

func diffAddresses(want, have []Address) []Difference {
	var diffs []Difference
	for _, a := range want {
		if slices.Contains(have, a) {
			continue
		}
		d := Difference{Field: FieldAddress, Want: a.String(), Address: &a}
		if i := slices.IndexFunc(have, func(h Address) bool { return h.Prefix == a.Prefix && h.Peer == a.Peer }); i >= 0 {
			d.Want, d.Have = a.detail(), have[i].detail()
		}
		diffs = append(diffs, d)
	}
	return diffs
}

func diffRoutes(want, have []Route) []Difference {
	var diffs []Difference
	for _, r := range want {
		if slices.Contains(have, r) {
			continue
		}
		d := Difference{Field: FieldRoute, Want: r.String(), Route: &r}
		if i := slices.IndexFunc(have, r.SameSlot); i >= 0 && !slices.Contains(want, have[i]) {
			if d.Have = have[i].String(); d.Have == d.Want {
				d.Want, d.Have = r.detail(), have[i].detail()
			}
		}
		diffs = append(diffs, d)
	}
	return diffs
}

// parentsDiffer compares what the interface is stacked on, level by level. The
// name of a NIC may change as long as it is the same hardware.
func parentsDiffer(want, have Interface) *Difference {
	differ := func(want, have string) *Difference {
		return &Difference{Field: FieldParent, Want: want, Have: have}
	}
	if len(want.Parents) == 0 || len(have.Parents) == 0 {
		return nil
	}
	if want.ParentsInSandbox != have.ParentsInSandbox {
		return differ(place(want), place(have))
	}
	if len(want.Parents) != len(have.Parents) {
		return differ(chainNames(want.Parents), chainNames(have.Parents))
	}
	for i := range want.Parents {
		if !want.Parents[i].Is(have.Parents[i]) {
			return differ(describe(want.Parents[i]), describe(have.Parents[i]))
		}
	}
	return nil
}

// Is says that other is what d was when it was recorded: for hardware the same
// hardware, for a VLAN the same ID and protocol, for anything else the same
// kind and name.
func (d Device) Is(other Device) bool {
	if d.Kind != other.Kind {
		return false
	}
	switch {
	case d.VLAN != nil:
		return *d.VLAN == *other.VLAN
	case d.known():
		return d.Same(other.NIC)
	}
	return d.Name == other.Name
}

func (n NIC) known() bool { return n.PermanentMAC != "" || n.BusAddress != "" }

// Same says that two descriptions are of the same NIC: the same hardware by its
// permanent MAC, or what is in the same place on the bus, where a card was
// exchanged.
func (n NIC) Same(other NIC) bool {
	if n.PermanentMAC != "" && n.PermanentMAC == other.PermanentMAC {
		return true
	}
	return n.BusAddress != "" && n.BusAddress == other.BusAddress
}

func place(i Interface) string {
	if i.ParentsInSandbox {
		return i.Parents[0].Name + " in the sandbox"
	}
	return i.Parents[0].Name + " in the host"
}

func chainNames(chain []Device) string {
	names := ""
	for i, d := range chain {
		if i > 0 {
			names += " on "
		}
		names += d.Name
	}
	return names
}

func describe(d Device) string {
	switch {
	case d.VLAN != nil:
		return fmt.Sprintf("%s (%s)", d.Name, d.VLAN)
	case d.known():
		return fmt.Sprintf("%s (permanent MAC %s, bus address %s)", d.Name, d.PermanentMAC, d.BusAddress)
	}
	return fmt.Sprintf("%s (%s)", d.Name, d.Kind)
}
