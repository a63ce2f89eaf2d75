package netstate

import "fmt"

// parentsDiffer compares the parents of the interface, level by level. The name of a NIC may change if it is the
// same hardware.
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

// Is says that other is the device that was recorded as d: the same hardware, a VLAN of the same ID and protocol, or
// else a device of the same kind and name.
func (d Device) Is(other Device) bool {
	if d.Kind != other.Kind {
		return false
	}
	switch {
	case d.VLAN != nil && other.VLAN != nil:
		return *d.VLAN == *other.VLAN
	case d.VLAN != nil || other.VLAN != nil:
		return false
	case d.Known():
		return d.Same(other.NIC)
	}
	return d.Name == other.Name
}

// Known says that something identifies the NIC.
func (n NIC) Known() bool { return n.PermanentMAC != "" || n.BusAddress != "" }

// Same says that two descriptions are of the same NIC: the same hardware by its permanent MAC, or the card in the
// same place on the bus, which may be a new card.
func (n NIC) Same(other NIC) bool {
	if n.PermanentMAC != "" && n.PermanentMAC == other.PermanentMAC {
		return true
	}
	return n.SamePlace(other)
}

// SamePlace says that both are at the same address on the bus. If the ports are known, they must be the same,
// too.
func (n NIC) SamePlace(other NIC) bool {
	if n.BusAddress == "" || n.BusAddress != other.BusAddress {
		return false
	}
	return n.DevPort == "" || other.DevPort == "" || n.DevPort == other.DevPort
}

// Contradicts says that the two descriptions cannot be of one NIC: the permanent MACs differ or, if these are not
// known, the places differ. What is not known contradicts nothing.
func (n NIC) Contradicts(other NIC) bool {
	if n.PermanentMAC != "" && other.PermanentMAC != "" {
		return n.PermanentMAC != other.PermanentMAC
	}
	return n.BusAddress != "" && other.BusAddress != "" && !n.SamePlace(other)
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

// Hardware says in words for people what is known of the NIC. Port 0 is left out.
func (n NIC) Hardware() string {
	told := func(what, value string) string {
		if value == "" {
			return "no " + what
		}
		return what + " " + value
	}
	words := told("permanent MAC", n.PermanentMAC) + ", " + told("bus address", n.BusAddress)
	if n.DevPort != "" && n.DevPort != "0" {
		words += ", port " + n.DevPort
	}
	return words
}

func describe(d Device) string {
	switch {
	case d.VLAN != nil:
		return fmt.Sprintf("%s (%s)", d.Name, d.VLAN)
	case d.Known() && d.Kind == KindNIC:
		return fmt.Sprintf("%s (%s)", d.Name, d.Hardware())
	case d.Known():
		return fmt.Sprintf("%s (%s, %s)", d.Name, d.Kind, d.Hardware())
	}
	return fmt.Sprintf("%s (%s)", d.Name, d.Kind)
}
