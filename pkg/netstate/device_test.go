package netstate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDeviceIsWhatItWas(t *testing.T) {
	plain := Device{Kind: KindNIC, Name: "dummy0"}
	indexed := func(d Device, index int) Device { d.IfIndex = index; return d }
	for name, test := range map[string]struct {
		recorded, now Device
		want          bool
	}{
		"NIC, renamed":                          {nic("eth1", "m1", "b1"), nic("eth7", "m1", "b1"), true},
		"NIC, other hardware under its name":    {nic("eth1", "m1", "b1"), nic("eth1", "m2", "b2"), false},
		"NIC that tells nothing, same name":     {plain, plain, true},
		"NIC that tells nothing, another name":  {plain, Device{Kind: KindNIC, Name: "dummy1"}, false},
		"VLAN, renamed":                         {vlanDevice("eth1.3", v3), vlanDevice("vlan3", v3), true},
		"VLAN, another ID under its name":       {vlanDevice("eth1.3", v3), vlanDevice("eth1.3", v7), false},
		"bond, same name, other members":        {bond("bond4", member("eth1")), bond("bond4"), true},
		"bond, another name":                    {bond("bond4"), bond("bond5"), false},
		"bond, renamed":                         {indexed(bond("bond4"), 7), indexed(bond("uplink"), 7), true},
		"bond, made anew":                       {indexed(bond("bond4"), 7), indexed(bond("bond4"), 9), true},
		"other hardware with its index":         {indexed(nic("eth1", "m1", "b1"), 7), indexed(nic("eth1", "m2", "b2"), 7), false},
		"same name, another kind":               {bond("bond4"), Device{Kind: "team", Name: "bond4"}, false},
		"same hardware, seen as another kind":   {nic("eth1", "m1", ""), Device{Kind: "bridge", Name: "eth1", NIC: NIC{PermanentMAC: "m1"}}, false},
		"same VLAN, MTU and MAC do not matter":  {vlanDevice("eth1.3", v3), Device{Kind: KindVLAN, VLAN: &v3, MTU: 9, MAC: "x"}, true},
		"NIC by name when the record tells all": {nic("eth1", "m1", "b1"), plain, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.recorded.SameDevice(test.now); got != test.want {
				t.Errorf("Is() = %v, want %v", got, test.want)
			}
		})
	}
}

func TestNICSameByMACOrByBus(t *testing.T) {
	for name, test := range map[string]struct {
		a, b NIC
		want bool
	}{
		"both the same":               {NIC{PermanentMAC: "m1", BusAddress: "b1"}, NIC{PermanentMAC: "m1", BusAddress: "b1"}, true},
		"MAC alone":                   {NIC{PermanentMAC: "m1", BusAddress: "b1"}, NIC{PermanentMAC: "m1", BusAddress: "b2"}, true},
		"bus, where one tells no MAC": {NIC{PermanentMAC: "m1", BusAddress: "b1"}, NIC{PermanentMAC: "", BusAddress: "b1"}, true},
		"neither":                     {NIC{PermanentMAC: "m1", BusAddress: "b1"}, NIC{PermanentMAC: "m2", BusAddress: "b2"}, false},
		"nothing told":                {NIC{}, NIC{}, false},
		"nothing in common told":      {NIC{PermanentMAC: "m1", BusAddress: ""}, NIC{PermanentMAC: "", BusAddress: "b1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if test.a.Same(test.b) != test.want || test.b.Same(test.a) != test.want {
				t.Errorf("Same() = %v and %v, want %v", test.a.Same(test.b), test.b.Same(test.a), test.want)
			}
		})
	}
}

// host returns a bond of two NICs with stacked VLANs, a NIC with a VLAN of the same ID, and a veth.
func host() Devices {
	return Devices{
		live(nic("eth1", "52:54:00:00:00:01", ""), 2, 0, 5),
		live(nic("eth2", "52:54:00:00:00:02", ""), 3, 0, 5),
		live(nic("eth3", "52:54:00:00:00:03", ""), 4, 0, 0),
		live(bond("bond4", member("eth9")), 5, 0, 0), // eth9 was a member once.
		live(vlanDevice("bond4.100", service), 6, 5, 0),
		live(vlanDevice("bond4.100.3", v3), 7, 6, 0),
		live(vlanDevice("eth3.3", v3), 8, 4, 0),
		live(Device{Kind: "veth", Name: "veth0"}, 9, 4, 0),
	}
}

// at returns the device as recorded with that index.
func at(index int, d Device) Device {
	d.IfIndex = index
	return d
}

// memberAt is at for a bond's member.
func memberAt(index int, m Member) Member {
	m.IfIndex = index
	return m
}

func TestChainGoesDownToTheBase(t *testing.T) {
	members := at(5, bond("bond4", memberAt(2, member("eth1")), memberAt(3, member("eth2"))))
	for name, test := range map[string]struct {
		index int
		want  []Device
	}{
		"nothing":                             {0, nil},
		"a NIC":                               {4, []Device{at(4, nic("eth3", "52:54:00:00:00:03", ""))}},
		"a member of a bond ends at the NIC":  {2, []Device{at(2, nic("eth1", "52:54:00:00:00:01", ""))}},
		"a bond with its members":             {5, []Device{members}},
		"stacked VLANs":                       {7, []Device{at(7, vlanDevice("bond4.100.3", v3)), at(6, vlanDevice("bond4.100", service)), members}},
		"a veth's parent index means no base": {9, []Device{at(9, Device{Kind: "veth", Name: "veth0"})}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := host().Chain(test.index)
			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Errorf("Chain(%d): %v (-want +got):\n%s", test.index, err, diff)
			}
		})
	}
}

func TestChainLeavesTheDevicesAlone(t *testing.T) {
	devices := host()
	if _, err := devices.Chain(5); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(host(), devices); diff != "" {
		t.Errorf("Chain() changed the devices:\n%s", diff)
	}
}

func TestChainThatCannotBeFollowed(t *testing.T) {
	for name, test := range map[string]struct {
		devices Devices
		index   int
		want    string
	}{
		"device missing":      {host(), 99, "device with index 99 is not there"},
		"parent missing":      {Devices{live(vlanDevice("eth9.3", v3), 2, 99, 0)}, 2, "device with index 99 is not there"},
		"a VLAN on itself":    {Devices{live(vlanDevice("a", v3), 2, 2, 0)}, 2, "device a is stacked on itself"},
		"two on one another":  {Devices{live(vlanDevice("a", v3), 2, 3, 0), live(vlanDevice("b", v7), 3, 2, 0)}, 2, "device b is stacked on itself"},
		"a loop further down": {Devices{live(vlanDevice("a", v3), 2, 3, 0), live(vlanDevice("b", v7), 3, 3, 0)}, 2, "device b is stacked on itself"},
	} {
		t.Run(name, func(t *testing.T) {
			chain, err := test.devices.Chain(test.index)
			if message(err) != test.want || chain != nil {
				t.Errorf("Chain() = %v, %q, want %q", chain, message(err), test.want)
			}
		})
	}
}

// A VLAN whose parent is in another namespace has no parent index. relink remembers no interface on it, because it does
// not know the base.
func TestChainWhoseParentIsElsewhereIsNoValidBase(t *testing.T) {
	devices := Devices{live(vlanDevice("eth0.3", v3), 2, 0, 0)}
	chain, err := devices.Chain(2)
	if diff := cmp.Diff([]Device{at(2, vlanDevice("eth0.3", v3))}, chain); err != nil || diff != "" {
		t.Fatalf("Chain(): %v\n%s", err, diff)
	}
	i := pod()
	i.Parents = chain
	want := `parent "eth0.3": a vlan at place 1 of 1: VLANs are stacked on one base`
	if got := message(i.Validate()); got != want {
		t.Errorf("Validate() = %q, want %q", got, want)
	}
}

func TestDevicesAreFound(t *testing.T) {
	devices := host()
	under := func(kind, name string) Devices {
		return Devices{live(nic("eth1", "", ""), 2, 0, 3), live(Device{Kind: kind, Name: name}, 3, 0, 0)}
	}
	teamed, bridged := under("team", "team0"), under(KindBridge, "br0")
	found := func(d LiveDevice, ok bool) string {
		if !ok {
			return "none"
		}
		return d.Name
	}
	for what, test := range map[string]struct{ got, want string }{
		"by name":                      {found(devices.ByName("eth2")), "eth2"},
		"by a name that is not there":  {found(devices.ByName("eth9")), "none"},
		"by index":                     {found(devices.ByIndex(6)), "bond4.100"},
		"by an index that is not":      {found(devices.ByIndex(60)), "none"},
		"a VLAN on its parent":         {found(devices.VLANOn(4, v3)), "eth3.3"},
		"the same ID on another":       {found(devices.VLANOn(6, v3)), "bond4.100.3"},
		"the ID of another protocol":   {found(devices.VLANOn(5, VLAN{ID: 100, Protocol: Protocol8021Q})), "none"},
		"an ID that the parent has no": {found(devices.VLANOn(4, v7)), "none"},
		"a member's bond":              {found(devices.AggregateOf(devices[0])), "bond4"},
		"a member's team":              {found(teamed.AggregateOf(teamed[0])), "team0"},
		"the bond of what has none":    {found(devices.AggregateOf(devices[2])), "none"},
		"a bridge is no bond":          {found(bridged.AggregateOf(bridged[0])), "none"},
	} {
		if test.got != test.want {
			t.Errorf("%s: %s, want %s", what, test.got, test.want)
		}
	}
}
