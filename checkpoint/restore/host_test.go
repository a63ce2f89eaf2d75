package restore

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFramesTakenByAVLANOnAMember(t *testing.T) {
	member, free := enslaved(2, nic("eth0", 0), 9), up(3, nic("eth1", 1), 0)
	over, on := up(9, bond("bond4"), 0), up(4, vlan("bond4.3", 3), 9)
	for name, test := range map[string]struct {
		there devices
		want  []string
	}{
		"on a member": {
			devices{member, over, on, up(5, vlan("eth0.3", 3), 2)},
			[]string{"eth0.3 takes the frames that bond4.3 should get, as eth0 is a member of bond4"},
		},
		"on a NIC that is no member":        {devices{free, over, on, up(5, vlan("eth1.3", 3), 3)}, nil},
		"a bond's VLAN that nobody uses":    {devices{member, over, up(4, vlan("bond4.4", 4), 9), up(5, vlan("eth0.4", 4), 2)}, nil},
		"another VLAN":                      {devices{member, over, on, up(5, vlan("eth0.7", 7), 2)}, nil},
		"another protocol":                  {devices{member, over, on, up(5, serviceVLAN("eth0.3", 3), 2)}, nil},
		"a VLAN that the bond does not use": {devices{member, over, up(5, vlan("eth0.3", 3), 2)}, nil},
	} {
		if diff := cmp.Diff(test.want, shadowedVLANs(test.there, map[string]bool{"bond4.3": true})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
