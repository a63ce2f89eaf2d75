package netstate

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// says returns the text of each difference.
func says(diffs []Difference) []string {
	var all []string
	for _, d := range diffs {
		all = append(all, d.String())
	}
	return all
}

type diffTest struct {
	want, have func(*Interface)
	says       []string
}

func (test diffTest) run(t *testing.T, start func() Interface) {
	t.Helper()
	want, have := start(), start()
	if test.want != nil {
		test.want(&want)
	}
	if test.have != nil {
		test.have(&have)
	}
	if diff := cmp.Diff(test.says, says(Diff(want, have))); diff != "" {
		t.Errorf("Diff() (-want +got):\n%s", diff)
	}
}

func TestDiffOfAMacvlan(t *testing.T) {
	for name, test := range map[string]diffTest{
		"nothing": {},
		"another kind, and nothing else is looked at": {
			have: func(i *Interface) { *i = vlanPod(); i.Link.MTU = 9000 },
			says: []string{"kind is vlan, not macvlan"},
		},
		"mode": {
			have: func(i *Interface) { i.Link.Macvlan.Mode = "private" },
			says: []string{"mode is private, not bridge"},
		},
		"queue length": {
			have: func(i *Interface) { i.Link.Macvlan.BCQueueLen = 5 },
			says: []string{"options is bcqueuelen 5, not bcqueuelen 1000"},
		},
		"queue length left to the kernel": {want: func(i *Interface) { i.Link.Macvlan.BCQueueLen = 0 }},
		"MAC": {
			have: func(i *Interface) { i.Link.MAC = "02:00:00:00:00:02" },
			says: []string{"MAC is 02:00:00:00:00:02, not 02:00:00:00:00:01"},
		},
		"MAC left to the kernel": {want: func(i *Interface) { i.Link.MAC = "" }},
		"MTU": {
			have: func(i *Interface) { i.Link.MTU = 1400 },
			says: []string{"MTU is 1400, not 1500"},
		},
		"MTU left to the parent":    {want: func(i *Interface) { i.Link.MTU = 0 }},
		"down":                      {have: func(i *Interface) { i.Link.Up = false }, says: []string{"state is down, not up"}},
		"up though down was wanted": {want: func(i *Interface) { i.Link.Up = false }},
		"another index":             {have: func(i *Interface) { i.Link.Index = 99 }},
		"all at once, in a fixed order": {
			have: func(i *Interface) {
				i.Link.Macvlan.Mode, i.Link.Macvlan.BCQueueLen = "vepa", 1
				i.Link.MAC, i.Link.MTU, i.Link.Up = "02:00:00:00:00:09", 68, false
				i.Parents[0].VLAN = &VLAN{ID: 7, Protocol: Protocol8021Q}
				i.Addresses, i.Routes = nil, nil
			},
			says: []string{
				"mode is vepa, not bridge", "options is bcqueuelen 1, not bcqueuelen 1000", "parent is bond4.3 (VLAN 7), not bond4.3 (VLAN 3)",
				"MAC is 02:00:00:00:00:09, not 02:00:00:00:00:01", "MTU is 68, not 1500", "state is down, not up",
				"address 10.3.0.5/24 is missing", "address fd00:3::5/64 is missing",
				"route 0.0.0.0/0 via 10.3.0.1 is missing", "route ::/0 via fd00:3::1 is missing",
			},
		},
	} {
		t.Run(name, func(t *testing.T) { test.run(t, pod) })
	}
}

func TestDiffOfAVLANInterface(t *testing.T) {
	for name, test := range map[string]diffTest{
		"nothing": {},
		"ID": {
			have: func(i *Interface) { i.Link.VLAN.ID = 4 },
			says: []string{"vlan is VLAN 4, not VLAN 3"},
		},
		"protocol": {
			have: func(i *Interface) { i.Link.VLAN.Protocol = Protocol8021AD },
			says: []string{"vlan is VLAN 3 (802.1ad), not VLAN 3"},
		},
		"another kind": {
			have: func(i *Interface) { *i = pod() },
			says: []string{"kind is macvlan, not vlan"},
		},
	} {
		t.Run(name, func(t *testing.T) { test.run(t, vlanPod) })
	}
}

func TestDiffOfParentsGoesLevelByLevel(t *testing.T) {
	for name, test := range map[string]diffTest{
		"VLAN parent under another name": {have: func(i *Interface) { i.Parents[0].Name = "vlan3" }},
		"VLAN parent with another ID": {
			have: func(i *Interface) { i.Parents[0] = vlanDevice("bond4.3", v7) },
			says: []string{"parent is bond4.3 (VLAN 7), not bond4.3 (VLAN 3)"},
		},
		"VLAN parent with another protocol": {
			have: func(i *Interface) { i.Parents[0] = vlanDevice("bond4.3", VLAN{ID: 3, Protocol: Protocol8021AD}) },
			says: []string{"parent is bond4.3 (VLAN 3 (802.1ad)), not bond4.3 (VLAN 3)"},
		},
		"another bond": {
			have: func(i *Interface) { i.Parents[1].Name = "bond5" },
			says: []string{"parent is bond5 (bond), not bond4 (bond)"},
		},
		"bond without its member": {have: func(i *Interface) { i.Parents[1] = bond("bond4") }},
		"no VLAN in between": {
			have: func(i *Interface) { i.Parents = i.Parents[1:] },
			says: []string{"parent is bond4, not bond4.3 on bond4"},
		},
		"one VLAN more in between": {
			have: func(i *Interface) { i.Parents = slices.Insert(i.Parents, 1, vlanDevice("bond4.7", v7)) },
			says: []string{"parent is bond4.3 on bond4.7 on bond4, not bond4.3 on bond4"},
		},
		"a bridge instead of the bond": {
			have: func(i *Interface) { i.Parents[1] = Device{Kind: "bridge", Name: "bond4"} },
			says: []string{"parent is bond4 (bridge), not bond4 (bond)"},
		},
		"in the sandbox instead of the host": {
			have: func(i *Interface) { i.ParentsInSandbox = true },
			says: []string{"parent is bond4.3 in the sandbox, not bond4.3 in the host"},
		},
		"in the host instead of the sandbox": {
			want: func(i *Interface) { i.ParentsInSandbox = true },
			says: []string{"parent is bond4.3 in the host, not bond4.3 in the sandbox"},
		},
		"not known in the record": {want: func(i *Interface) { i.Parents = nil }},
		"not known now":           {have: func(i *Interface) { i.Parents = nil }},
		"MTU and MAC of a parent": {have: func(i *Interface) { i.Parents[0].MTU, i.Parents[0].MAC = 9000, "02:00:00:00:00:77" }},
	} {
		t.Run(name, func(t *testing.T) { test.run(t, pod) })
	}
}

func TestDiffOfANICBelow(t *testing.T) {
	for name, test := range map[string]diffTest{
		"renamed, the same hardware": {have: func(i *Interface) { i.Parents[0].Name = "enp3s0" }},
		"renamed, known by the bus alone": {
			have: func(i *Interface) { i.Parents[0].Name, i.Parents[0].PermanentMAC = "enp3s0", "" },
		},
		"moved to another slot": {have: func(i *Interface) { i.Parents[0].BusAddress = "0000:00:04.0" }},
		"other hardware under the old name": {
			have: func(i *Interface) { i.Parents[0] = nic("eth1", "52:54:00:00:00:02", "0000:00:04.0") },
			says: []string{"parent is eth1 (permanent MAC 52:54:00:00:00:02, bus address 0000:00:04.0), not eth1 (permanent MAC 52:54:00:00:00:01, bus address 0000:00:03.0)"},
		},
		"nothing known of the hardware now": {
			have: func(i *Interface) { i.Parents[0].NIC = NIC{} },
			says: []string{"parent is eth1 (nic), not eth1 (permanent MAC 52:54:00:00:00:01, bus address 0000:00:03.0)"},
		},
		"nothing known of the hardware then": {want: func(i *Interface) { i.Parents[0].NIC = NIC{} }},
	} {
		t.Run(name, func(t *testing.T) { test.run(t, vlanPod) })
	}
}

func TestDiffOfAddresses(t *testing.T) {
	for name, test := range map[string]diffTest{
		"one more is no difference": {have: func(i *Interface) { i.Addresses = append(i.Addresses, address("10.3.0.6/24")) }},
		"in another order":          {have: func(i *Interface) { slices.Reverse(i.Addresses) }},
		"one missing": {
			have: func(i *Interface) { i.Addresses = i.Addresses[1:] },
			says: []string{"address 10.3.0.5/24 is missing"},
		},
		"another prefix length is another address": {
			have: func(i *Interface) { i.Addresses[0] = address("10.3.0.5/16") },
			says: []string{"address 10.3.0.5/24 is missing"},
		},
		"point-to-point instead": {
			want: func(i *Interface) { i.Addresses[0].Peer = netip.MustParsePrefix("10.3.0.9/32") },
			says: []string{"address 10.3.0.5 peer 10.3.0.9/32 is missing"},
		},
	} {
		t.Run(name, func(t *testing.T) { test.run(t, pod) })
	}
}

func TestDiffHandsOutWhatIsMissing(t *testing.T) {
	want, have := pod(), pod()
	have.Addresses, have.Routes = have.Addresses[1:], have.Routes[:1]
	diffs := Diff(want, have)
	expected := []Difference{
		{Field: FieldAddress, Want: "10.3.0.5/24", Address: &want.Addresses[0]},
		{Field: FieldRoute, Want: "::/0 via fd00:3::1", Route: &want.Routes[1]},
	}
	compare := []cmp.Option{cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })}
	if diff := cmp.Diff(expected, diffs, compare...); diff != "" {
		t.Errorf("Diff() (-want +got):\n%s", diff)
	}
}

func TestDiffOfAnAddressThatIsThereOtherwise(t *testing.T) {
	for name, change := range map[string]func(*Address){
		"label":     func(a *Address) { a.Label = "eth0:1" },
		"broadcast": func(a *Address) { a.Broadcast = netip.MustParseAddr("10.3.0.255") },
		"scope":     func(a *Address) { a.Scope = 253 },
		"flags":     func(a *Address) { a.Flags = 0x200 },
	} {
		t.Run(name, func(t *testing.T) {
			want, have := pod(), pod()
			change(&have.Addresses[0])
			diffs := Diff(want, have)
			if len(diffs) != 1 || diffs[0].Field != FieldAddress || *diffs[0].Address != want.Addresses[0] || diffs[0].Live == "" {
				t.Errorf("Diff() = %+v, want address %+v, there in another form", diffs, want.Addresses[0])
			}
		})
	}
}

func TestDiffOfRoutes(t *testing.T) {
	for name, test := range map[string]diffTest{
		"one more is no difference": {have: func(i *Interface) { i.Routes = append(i.Routes, route("10.9.0.0/16", "10.3.0.9")) }},
		"in another order":          {have: func(i *Interface) { slices.Reverse(i.Routes) }},
		"one missing": {
			have: func(i *Interface) { i.Routes = i.Routes[1:] },
			says: []string{"route 0.0.0.0/0 via 10.3.0.1 is missing"},
		},
		"by another gateway": {
			have: func(i *Interface) { i.Routes[0] = route("0.0.0.0/0", "10.3.0.254") },
			says: []string{"route is 0.0.0.0/0 via 10.3.0.254, not 0.0.0.0/0 via 10.3.0.1"},
		},
		"the same destination in another table is another route": {
			have: func(i *Interface) { i.Routes[0].Table = 100 },
			says: []string{"route 0.0.0.0/0 via 10.3.0.1 is missing"},
		},
		"the same destination with another metric is another route": {
			have: func(i *Interface) { i.Routes[0].Priority = 50 },
			says: []string{"route 0.0.0.0/0 via 10.3.0.1 is missing"},
		},
		"what is in its place is wanted itself": {
			want: func(i *Interface) { i.Routes = append(i.Routes, route("0.0.0.0/0", "10.3.0.2")) },
			says: []string{"route 0.0.0.0/0 via 10.3.0.2 is missing"},
		},
		"another MTU": {
			have: func(i *Interface) { i.Routes[0].MTU = 1400 },
			says: []string{"route is 0.0.0.0/0 via 10.3.0.1 mtu 1400, not 0.0.0.0/0 via 10.3.0.1"},
		},
	} {
		t.Run(name, func(t *testing.T) { test.run(t, pod) })
	}
}

// Two parents that are not one device never have the same description.
func TestParentsThatDifferAreDescribedApart(t *testing.T) {
	port := func(p string) Device {
		return Device{Kind: KindNIC, Name: "eth0", NIC: NIC{BusAddress: "0000:3b:00.0", DevPort: p}}
	}
	vlan := Device{Kind: KindVLAN, Name: "eth0.3", VLAN: &VLAN{ID: 3, Protocol: Protocol8021Q}}
	const hardware = "no permanent MAC, bus address 0000:3b:00.0"
	for name, test := range map[string]struct {
		want, have Device
		reason     *Difference
	}{
		"the same port":       {port("1"), port("1"), nil},
		"another port":        {port("0"), port("1"), &Difference{Field: FieldParent, Want: "eth0 (" + hardware + ")", Live: "eth0 (" + hardware + ", port 1)"}},
		"a VLAN without ID":   {vlan, Device{Kind: KindVLAN, Name: "eth0.3"}, &Difference{Field: FieldParent, Want: "eth0.3 (" + vlan.VLAN.String() + ")", Live: "eth0.3 (vlan)"}},
		"no ID was recorded":  {Device{Kind: KindVLAN, Name: "eth0.3"}, vlan, &Difference{Field: FieldParent, Want: "eth0.3 (vlan)", Live: "eth0.3 (" + vlan.VLAN.String() + ")"}},
		"another kind of NIC": {port(""), Device{Kind: "team", Name: "eth0", NIC: port("").NIC}, &Difference{Field: FieldParent, Want: "eth0 (" + hardware + ")", Live: "eth0 (team, " + hardware + ")"}},
	} {
		got := parentsDiffer(Interface{Parents: []Device{test.want}}, Interface{Parents: []Device{test.have}})
		if diff := cmp.Diff(test.reason, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
