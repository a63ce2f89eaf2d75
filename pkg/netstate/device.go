package netstate

import (
	"fmt"
	"net/netip"
	"slices"
)

// Device is a device that interfaces are stacked on, as it is remembered.
type Device struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	MAC  string `json:"mac,omitempty"`
	MTU  int    `json:"mtu"`
	// IfIndex is the index that it had in its namespace when it was recorded. No later device of that
	// namespace gets it by itself: without a device of this index, the recorded one has gone. 0: not known.
	IfIndex int `json:"ifIndex,omitempty"`
	NIC
	VLAN        *VLAN        `json:"vlan,omitempty"`
	VLANOptions *VLANOptions `json:"vlanOptions,omitempty"`
	Bond        *Bond        `json:"bond,omitempty"`
	// Carried is what somebody gave a VLAN device or a bond of the host itself, nil if
	// nothing.
	Carried *Carried `json:"own,omitempty"`
}

// ChainNames returns the names of all devices of a chain of parents, the members of bonds included.
func ChainNames(chain []Device) []string {
	var names []string
	for _, m := range withMembers(chain) {
		names = append(names, m.Name)
	}
	return names
}

// withMembers returns all devices of a chain of parents, each bond before its members.
func withMembers(chain []Device) (devices []Member) {
	for _, d := range chain {
		devices = append(devices, Member{Name: d.Name, IfIndex: d.IfIndex})
		if d.Bond != nil {
			devices = append(devices, d.Bond.Members...)
		}
	}
	return devices
}

// Carried is what somebody gave a device of the host: its addresses, the routes through it,
// and what else no restore brings back.
type Carried struct {
	Addresses []Address `json:"addresses,omitempty"`
	Routes    []Route   `json:"routes,omitempty"`
	// NotRestored is what else somebody gave the device, in words for people: its
	// alias, its master, its sysctls, its qdiscs.
	NotRestored []string `json:"notRestored,omitempty"`
}

// NIC identifies a piece of hardware, whatever name it has.
type NIC struct {
	// PermanentMAC is the address in the hardware (IFLA_PERM_ADDRESS), empty if the driver tells none.
	PermanentMAC string `json:"permanentMAC,omitempty"`
	// BusAddress is the name of the device on its bus (IFLA_PARENT_DEV_NAME),
	// such as 0000:3b:00.0 on PCI.
	BusAddress string `json:"busAddress,omitempty"`
	// DevPort is the number of the NIC's port (dev_port in sysfs), from "0" on: several ports can share one
	// bus address. It is empty if it is not known.
	DevPort string `json:"devPort,omitempty"`
}

// Bond has the attributes of a device of KindBond that other kinds lack.
type Bond struct {
	// Mode is the bonding mode by its name, such as active-backup or 802.3ad.
	Mode    string   `json:"mode"`
	Members []Member `json:"members,omitempty"`
	// Options are the options that differ from the kernel's default, by their names in ip-link(8).
	Options Numbers `json:"options,omitempty"`
	// Primary is the name of the preferred member.
	Primary string `json:"primary,omitempty"`
	// ARPTargets are the targets of ARP monitoring, IPv4 and IPv6.
	ARPTargets []netip.Addr `json:"arpTargets,omitempty"`
	// ActorSystem is the MAC of ad_actor_system.
	ActorSystem string `json:"actorSystem,omitempty"`
}

// Member is a NIC that is enslaved to a bond.
type Member struct {
	Name string `json:"name"`
	// IfIndex is the Device's.
	IfIndex int `json:"ifIndex,omitempty"`
	NIC
}

// LiveDevice is a device as it is in a namespace now. Index, ParentIndex and MasterIndex are 0 if there is no
// such device in that namespace.
type LiveDevice struct {
	Device
	Index       int
	ParentIndex int
	MasterIndex int
	Up          bool
	Alias       string
	// AltNames are other names of the device (ip-link(8), "altname").
	AltNames []string
	// Carrier says that the device can send: it is up, and so are the devices below it.
	Carrier bool
	// CarrierChanges is how often carrier has come or gone. When a VLAN device is set down with its parent, it loses its
	// carrier, too.
	CarrierChanges int
	// PrimaryIndex is the index of a bond's primary member.
	PrimaryIndex int
	// PF is the bus address of the physical function whose virtual function (VF) of SR-IOV the device is. It is empty for any other
	// device.
	PF string
}

// VFReason says why relink leaves the VF of that name alone. The PF forgets the VLAN and the MAC of its VFs when its driver goes: a VF that
// comes back without its VLAN sends to the untagged network.
func VFReason(name, pf string) string {
	return fmt.Sprintf("%s is a VF of %s: its VLAN and MAC are settings of the PF, and relink does not bring them back yet: delete the pod when the PF has lost them", name, pf)
}

// Devices are all the devices of one namespace.
type Devices []LiveDevice

// ByName returns the device of that name.
func (ds Devices) ByName(name string) (LiveDevice, bool) {
	return ds.find(func(d *LiveDevice) bool { return d.Name == name })
}

// ByAnyName returns the device of that name or alternative name.
func (ds Devices) ByAnyName(name string) (LiveDevice, bool) {
	return ds.find(func(d *LiveDevice) bool { return d.Name == name || slices.Contains(d.AltNames, name) })
}

// ByIndex returns the device of that index.
func (ds Devices) ByIndex(index int) (LiveDevice, bool) {
	return ds.find(func(d *LiveDevice) bool { return d.Index == index })
}

// HasIndex says that there is a device of that index.
func (ds Devices) HasIndex(index int) bool {
	_, ok := ds.ByIndex(index)
	return ok
}

// VLANOn returns the VLAN device with v's ID and protocol on the parent of that
// index. The kernel allows one.
func (ds Devices) VLANOn(parentIndex int, v VLAN) (LiveDevice, bool) {
	return ds.find(func(d *LiveDevice) bool {
		return d.VLAN != nil && *d.VLAN == v && d.ParentIndex == parentIndex
	})
}

// AggregateOf returns the bond or team that d is a member of.
func (ds Devices) AggregateOf(d LiveDevice) (LiveDevice, bool) {
	if d.MasterIndex == 0 {
		return LiveDevice{}, false
	}
	return ds.find(func(m *LiveDevice) bool {
		return m.Index == d.MasterIndex && (m.Kind == KindBond || m.Kind == "team")
	})
}

func (ds Devices) find(match func(*LiveDevice) bool) (LiveDevice, bool) {
	for i := range ds {
		if match(&ds[i]) {
			return ds[i], true
		}
	}
	return LiveDevice{}, false
}

// Chain returns the device of that index and all devices below it, the base last, with the members of a bond
// filled in.
func (ds Devices) Chain(index int) ([]Device, error) {
	var chain []Device
	for depth := 0; index != 0; depth++ {
		d, ok := ds.ByIndex(index)
		if !ok {
			return nil, fmt.Errorf("device with index %d is not there", index)
		}
		if depth > len(ds) {
			return nil, fmt.Errorf("device %s is stacked on itself", d.Name)
		}
		chain = append(chain, ds.Recorded(d))
		if !IsStacked(d.Kind) {
			break
		}
		index = d.ParentIndex
	}
	return chain, nil
}

// IsStacked says whether the parent index of a device of that kind means a device below. For a veth it means its peer, and for a
// NIC it can mean the port of its switch.
func IsStacked(kind string) bool {
	switch kind {
	case KindVLAN, KindMacvlan, KindMacvtap, KindIPvlan, "ipvtap":
		return true
	}
	return false
}

// Recorded returns d in the form in which it is remembered, with the members of a bond filled in.
func (ds Devices) Recorded(d LiveDevice) Device {
	d.IfIndex = max(d.Index, 0) // A plan's own devices have no index yet.
	if d.Bond == nil {
		return d.Device
	}
	bond := *d.Bond
	if primary, ok := ds.ByIndex(d.PrimaryIndex); ok && d.PrimaryIndex != 0 {
		bond.Primary = primary.Name
	}
	bond.Members = nil
	for i := range ds {
		if ds[i].MasterIndex == d.Index {
			bond.Members = append(bond.Members, Member{Name: ds[i].Name, IfIndex: ds[i].Index, NIC: ds[i].NIC})
		}
	}
	d.Bond = &bond
	return d.Device
}

// SameIndices says that the devices have the same indices in a and b. Both have the same devices.
func SameIndices(a, b []Device) bool {
	return slices.EqualFunc(withMembers(a), withMembers(b), func(a, b Member) bool { return a.IfIndex == b.IfIndex })
}

// WithIndices returns the chain with the indices of the other chain. Where that one ends, or has another device in the place, they are not
// known: the other device may still be there, and would be found by its index.
func WithIndices(chain, source []Device) []Device {
	chain = slices.Clone(chain)
	for i := range chain {
		d := &chain[i]
		var known Device
		if i < len(source) && (source[i].Name == d.Name || source[i].IfIndex == d.IfIndex) {
			known = source[i]
		}
		d.IfIndex = known.IfIndex
		if d.Bond == nil {
			continue
		}
		bond := *d.Bond
		bond.Members = slices.Clone(bond.Members)
		for j := range bond.Members {
			bond.Members[j].IfIndex = 0
			if known.Bond != nil && j < len(known.Bond.Members) {
				bond.Members[j].IfIndex = known.Bond.Members[j].IfIndex
			}
		}
		d.Bond = &bond
	}
	return chain
}
