package parents

import (
	"testing"

	"github.com/relink-cni/relink/pkg/netstate"
)

func TestPlanVLAN(t *testing.T) {
	vlan := func(id int) *netstate.VLAN { return &netstate.VLAN{ID: id, Protocol: netstate.Protocol8021Q} }
	device := func(index int, kind, name string, parent int, v *netstate.VLAN) netstate.LiveDevice {
		return netstate.LiveDevice{Device: netstate.Device{Kind: kind, Name: name, VLAN: v}, Index: index, ParentIndex: parent}
	}
	eth0, planned := device(2, netstate.KindNIC, "eth0", 0, nil), device(0, netstate.KindVLAN, "eth0.7", 0, vlan(7))
	long := device(6, netstate.KindNIC, "averylongname0", 0, nil)
	devices := netstate.Devices{
		eth0, device(3, netstate.KindVLAN, "pods", 2, vlan(3)), device(4, netstate.KindVLAN, "eth0.5", 2, vlan(6)),
		device(5, netstate.KindNIC, "eth0.8", 0, nil), long, device(7, netstate.KindVLAN, "lost", 99, vlan(9)),
		device(8, netstate.KindVLAN, "inner", 0, vlan(9)),
	}
	for name, test := range map[string]struct {
		parent                  netstate.LiveDevice
		id                      int
		named                   string
		existing, newName, text string
	}{
		"it is there":                       {eth0, 3, "", "pods", "", ""},
		"it is there under another name":    {eth0, 3, "other", "pods", "", ""},
		"the usual name":                    {eth0, 4, "", "", "eth0.4", ""},
		"the given name":                    {eth0, 4, "lan", "", "lan", ""},
		"on a parent that is still to make": {planned, 9, "", "", "eth0.7.9", ""},
		"another VLAN has the name":         {eth0, 5, "", "", "", "eth0.5 is there but is VLAN 6 on eth0, not VLAN 5 on eth0"},
		"a NIC has the name":                {eth0, 8, "", "", "", "eth0.8 is there but is a nic, not VLAN 8 on eth0"},
		"a VLAN on an unseen device":        {eth0, 9, "lost", "", "", "lost is there but is VLAN 9, not VLAN 9 on eth0"},
		"too long a name":                   {long, 3, "", "", "", `the device's name "averylongname0.3" has 16 characters, the kernel allows 15`},
	} {
		existing, newName, err := PlanVLAN(devices, test.parent, *vlan(test.id), test.named)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if existing.Name != test.existing || newName != test.newName || text != test.text {
			t.Errorf("%s: %q, %q, %q", name, existing.Name, newName, text)
		}
	}
}

func TestCheckMember(t *testing.T) {
	member := netstate.LiveDevice{Device: netstate.Device{Kind: netstate.KindNIC, Name: "eth1"}, Index: 2, MasterIndex: 3}
	free := netstate.LiveDevice{Device: netstate.Device{Kind: netstate.KindNIC, Name: "eth2"}, Index: 4}
	devices := netstate.Devices{member, free, {Device: netstate.Device{Kind: netstate.KindBond, Name: "bond4"}, Index: 3}}
	const want = "it is a member of bond4 and would take the frames of bond4: name bond4, or take eth1 out of it"
	if err := CheckMember(devices, member); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	if err := CheckMember(devices, free); err != nil {
		t.Errorf("%v", err)
	}
}
