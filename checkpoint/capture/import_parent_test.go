package capture

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint/capture/netfix"
	"github.com/relink-cni/relink/pkg/netstate"
)

func vlan(id int) *netstate.VLAN { return &netstate.VLAN{ID: id, Protocol: netstate.Protocol8021Q} }

var (
	nic       = netstate.NIC{PermanentMAC: "52:54:00:00:00:01", BusAddress: "0000:00:02.0"}
	uplinkNIC = netstate.Device{Kind: netstate.KindNIC, Name: "eth0", MAC: "52:54:00:00:00:01", MTU: 9000, NIC: nic}
	host      = netstate.Devices{
		{Device: netstate.Device{Kind: netstate.KindNIC, Name: "lo", MTU: 65536}, Index: 1},
		{Device: uplinkNIC, Index: 2, AltNames: []string{"enp0s2"}},
		{Device: netstate.Device{Kind: netstate.KindBond, Name: "bond0", MAC: "52:54:00:00:00:01", MTU: 1500, Bond: &netstate.Bond{Mode: "802.3ad"}}, Index: 3},
		{Device: netstate.Device{Kind: netstate.KindVLAN, Name: "pods", MTU: 1500, VLAN: vlan(3)}, Index: 4, ParentIndex: 2},
		{Device: netstate.Device{Kind: netstate.KindVLAN, Name: "eth0.4", MTU: 1500, VLAN: vlan(5)}, Index: 5, ParentIndex: 2},
		{Device: netstate.Device{Kind: netstate.KindMacvlan, Name: "mac0", MTU: 1500}, Index: 6, ParentIndex: 2},
		{Device: netstate.Device{Kind: netstate.KindNIC, Name: "averylongname0", MTU: 1500}, Index: 7},
		{Device: netstate.Device{Kind: netstate.KindNIC, Name: "eth1", MTU: 1500}, Index: 8, MasterIndex: 3},
	}
)

func TestChoose(t *testing.T) {
	bond := netstate.Device{
		Kind: netstate.KindBond, Name: "bond0", MAC: "52:54:00:00:00:01", MTU: 1500,
		Bond: &netstate.Bond{Mode: "802.3ad", Members: []netstate.Member{{Name: "eth1"}}},
	}
	missing := func(name, mac string, mtu, id int) netstate.Device {
		return netstate.Device{Kind: netstate.KindVLAN, Name: name, MAC: mac, MTU: mtu, VLAN: vlan(id)}
	}
	for name, test := range map[string]struct {
		below ParentSpec
		want  []netstate.Device
		mtu   int
		err   string
	}{
		"the first that exists":    {ParentSpec{Devices: []string{"bond4", "eth0"}}, []netstate.Device{uplinkNIC}, 9000, ""},
		"the first of two":         {ParentSpec{Devices: []string{"bond0", "eth0"}}, []netstate.Device{bond}, 1500, ""},
		"by another name":          {ParentSpec{Devices: []string{"enp0s2"}, MTU: 1500}, []netstate.Device{uplinkNIC}, 1500, ""},
		"a VLAN that is missing":   {ParentSpec{Devices: []string{"bond0"}, VLAN: 3}, []netstate.Device{missing("bond0.3", bond.MAC, 1500, 3), bond}, 1500, ""},
		"a VLAN by another name":   {ParentSpec{Devices: []string{"eth0"}, VLAN: 3}, []netstate.Device{host[3].Device, uplinkNIC}, 1500, ""},
		"a VLAN as the device":     {ParentSpec{Devices: []string{"pods"}}, []netstate.Device{host[3].Device, uplinkNIC}, 1500, ""},
		"a VLAN on that":           {ParentSpec{Devices: []string{"pods"}, VLAN: 7}, []netstate.Device{missing("pods.7", "", 1500, 7), host[3].Device, uplinkNIC}, 1500, ""},
		"none said":                {err: `invalid --parent "": does not exist: name a device that is there`},
		"none there":               {below: ParentSpec{Devices: []string{"bond4", "eth9"}}, err: `invalid --parent "bond4,eth9": none of them exists: name a device that is there`},
		"one, not there":           {below: ParentSpec{Devices: []string{"bond4"}}, err: `invalid --parent "bond4": does not exist: name a device that is there`},
		"a member of a bond":       {below: ParentSpec{Devices: []string{"bond4", "eth1"}}, err: `invalid --parent "bond4,eth1": it is a member of bond0 and would take the frames of bond0: name bond0, or take eth1 out of it`},
		"no VLAN ID":               {below: ParentSpec{Devices: []string{"eth0"}, VLAN: 4095}, err: "invalid --vlan: VLAN ID 4095 is not between 1 and 4094"},
		"a negative one":           {below: ParentSpec{Devices: []string{"eth0"}, VLAN: -1}, err: "invalid --vlan: VLAN ID -1 is not between 1 and 4094"},
		"another VLAN of the name": {below: ParentSpec{Devices: []string{"eth0"}, VLAN: 4}, err: "invalid --vlan 4: eth0.4 is there but is VLAN 5 on eth0, not VLAN 4 on eth0: make one for this VLAN by hand"},
		"too long a name": {below: ParentSpec{Devices: []string{"averylongname0"}, VLAN: 3},
			err: `invalid --vlan 3: the device's name "averylongname0.3" has 16 characters, the kernel allows 15: make one for this VLAN by hand`},
		"too large an MTU": {below: ParentSpec{Devices: []string{"bond0"}, VLAN: 3, MTU: 9000}, err: "invalid --mtu 9000: must be between 68 and 1500, the MTU of bond0.3"},
		"too small an MTU": {below: ParentSpec{Devices: []string{"bond0"}, MTU: -1}, err: "invalid --mtu -1: must be between 68 and 1500, the MTU of bond0"},
	} {
		t.Run(name, func(t *testing.T) {
			got, mtu, err := test.below.Resolve(host)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff(test.err, text); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(test.want, got); diff != "" || mtu != test.mtu {
				t.Errorf("MTU %d\n%s", mtu, diff)
			}
		})
	}
}

func TestAMacvlanIsNoParent(t *testing.T) {
	chain, mtu, err := ParentSpec{Devices: []string{"mac0"}}.Resolve(host)
	if err != nil {
		t.Fatal(err)
	}
	if err := (netfix.File{IfName: "eth0", MAC: "02:42:0a:03:00:05"}).Interface(chain, mtu).Validate(); err == nil {
		t.Error("an interface on a macvlan can be remembered")
	}
}
