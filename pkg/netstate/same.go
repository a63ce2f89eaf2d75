package netstate

import (
	"fmt"
	"strings"
)

// parentsDiffer compares the parents of the interface, level by level. The name of a NIC may change if it is the
// same hardware.
func parentsDiffer(want, live Interface) *Difference {
	differ := func(want, live string) *Difference {
		return &Difference{Field: FieldParent, Want: want, Live: live}
	}
	if len(want.Parents) == 0 || len(live.Parents) == 0 {
		return nil
	}
	if want.ParentsInSandbox != live.ParentsInSandbox {
		return differ(parentPlace(want), parentPlace(live))
	}
	if len(want.Parents) != len(live.Parents) {
		return differ(chainNames(want.Parents), chainNames(live.Parents))
	}
	for i := range want.Parents {
		if !want.Parents[i].SameDevice(live.Parents[i]) {
			return differ(describe(want.Parents[i]), describe(live.Parents[i]))
		}
	}
	return nil
}

// SameDevice says that device is the device that was recorded as d: the same hardware, a VLAN of the same ID and protocol, or
// else a device of the same kind, with the name or with the index: somebody may have renamed it.
func (d Device) SameDevice(device Device) bool {
	if d.Kind != device.Kind {
		return false
	}
	switch {
	case d.VLAN != nil && device.VLAN != nil:
		return *d.VLAN == *device.VLAN
	case d.VLAN != nil || device.VLAN != nil:
		return false
	case d.Identified():
		return d.Same(device.NIC)
	}
	return d.Name == device.Name || d.IfIndex != 0 && d.IfIndex == device.IfIndex
}

// Identified says that something identifies the NIC.
func (n NIC) Identified() bool { return n.PermanentMAC != "" || n.BusAddress != "" }

// Same says that two descriptions are of the same NIC: the same hardware by its permanent MAC, or the card in the
// same place on the bus, which may be a new card.
func (n NIC) Same(nic NIC) bool {
	if n.PermanentMAC != "" && n.PermanentMAC == nic.PermanentMAC {
		return true
	}
	return n.SamePlace(nic)
}

// SamePlace says that both are at the same address on the bus. If the ports are known, they must be the same,
// too.
func (n NIC) SamePlace(nic NIC) bool {
	if n.BusAddress == "" || n.BusAddress != nic.BusAddress {
		return false
	}
	return n.DevPort == "" || nic.DevPort == "" || n.DevPort == nic.DevPort
}

// Contradicts says that the two descriptions cannot be of one NIC: the permanent MACs differ or, if these are not
// known, the places differ. What is not known contradicts nothing.
func (n NIC) Contradicts(nic NIC) bool {
	if n.PermanentMAC != "" && nic.PermanentMAC != "" {
		return n.PermanentMAC != nic.PermanentMAC
	}
	return n.BusAddress != "" && nic.BusAddress != "" && !n.SamePlace(nic)
}

func parentPlace(i Interface) string {
	if i.ParentsInSandbox {
		return i.Parents[0].Name + " in the sandbox"
	}
	return i.Parents[0].Name + " in the host"
}

func chainNames(chain []Device) string {
	var names []string
	for _, d := range chain {
		names = append(names, d.Name)
	}
	return strings.Join(names, " on ")
}

// Hardware says in words for people what is known of the NIC. Port 0 is left out.
func (n NIC) Hardware() string {
	phrase := func(label, value string) string {
		if value == "" {
			return "no " + label
		}
		return label + " " + value
	}
	words := phrase("permanent MAC", n.PermanentMAC) + ", " + phrase("bus address", n.BusAddress)
	if n.DevPort != "" && n.DevPort != "0" {
		words += ", port " + n.DevPort
	}
	return words
}

func describe(d Device) string {
	switch {
	case d.VLAN != nil:
		return fmt.Sprintf("%s (%s)", d.Name, d.VLAN)
	case d.Identified() && d.Kind == KindNIC:
		return fmt.Sprintf("%s (%s)", d.Name, d.Hardware())
	case d.Identified():
		return fmt.Sprintf("%s (%s, %s)", d.Name, d.Kind, d.Hardware())
	}
	return fmt.Sprintf("%s (%s)", d.Name, d.Kind)
}
