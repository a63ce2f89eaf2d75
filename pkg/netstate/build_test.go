package netstate

import "net/netip"

var (
	v3      = VLAN{ID: 3, Protocol: Protocol8021Q}
	v7      = VLAN{ID: 7, Protocol: Protocol8021Q}
	service = VLAN{ID: 100, Protocol: Protocol8021AD}
)

func nic(name, permanentMAC, bus string) Device {
	return Device{Kind: KindNIC, Name: name, MTU: 1500, NIC: NIC{PermanentMAC: permanentMAC, BusAddress: bus}}
}

func bond(name string, members ...Member) Device {
	return Device{Kind: KindBond, Name: name, MTU: 1500, Bond: &Bond{Mode: "802.3ad", Members: members}}
}

func vlanDevice(name string, v VLAN) Device {
	return Device{Kind: KindVLAN, Name: name, MTU: 1500, VLAN: &v}
}

func member(name string) Member {
	return Member{Name: name, NIC: NIC{PermanentMAC: "52:54:00:00:00:0" + name[len(name)-1:]}}
}

// live returns the device as it is in a namespace.
func live(d Device, index, parent, master int) LiveDevice {
	return LiveDevice{Device: d, Index: index, ParentIndex: parent, MasterIndex: master, Up: true}
}

func address(prefix string) Address { return Address{Prefix: netip.MustParsePrefix(prefix)} }

func route(destination, gateway string) Route {
	r := Route{Destination: netip.MustParsePrefix(destination), Table: 254}
	if gateway != "" {
		r.Gateway = netip.MustParseAddr(gateway)
	}
	return r
}

// pod returns a macvlan on VLAN 3 of a bond, with two addresses and two routes.
func pod() Interface {
	return Interface{
		Link: Link{
			Kind: KindMacvlan, Name: "eth0", Index: 2, MAC: "02:00:00:00:00:01", MTU: 1500, Up: true,
			Macvlan: &Macvlan{Mode: "bridge", BCQueueLen: 1000},
		},
		Parents:   []Device{vlanDevice("bond4.3", v3), bond("bond4", member("eth1"))},
		Addresses: []Address{address("10.3.0.5/24"), address("fd00:3::5/64")},
		Routes:    []Route{route("0.0.0.0/0", "10.3.0.1"), route("::/0", "fd00:3::1")},
	}
}

// vlanPod returns a VLAN interface on a NIC.
func vlanPod() Interface {
	i := pod()
	i.Link.Kind, i.Link.Macvlan, i.Link.VLAN = KindVLAN, nil, &VLAN{ID: 3, Protocol: Protocol8021Q}
	i.Parents = []Device{nic("eth1", "52:54:00:00:00:01", "0000:00:03.0")}
	return i
}

// message returns the text of an error, or an empty one for nil.
func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
