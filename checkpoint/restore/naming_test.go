package restore

import (
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/netstate"
)

// A parent has its present name, and also its old one, unless another device has that name now.
func TestNaming(t *testing.T) {
	type stack = []netstate.Device
	type host = netstate.Devices
	tests := map[string]struct {
		parents stack
		there   host
		want    []string
	}{
		"as recorded":  {stack{nic("eth0", 0)}, host{up(1, nic("eth0", 0), 0)}, list("eth0")},
		"renamed":      {stack{nic("eth0", 0)}, host{up(1, nic("ens5f0", 0), 0)}, list("ens5f0", "eth0")},
		"gone":         {stack{nic("eth0", 0)}, host{up(1, nic("eth1", 1), 0)}, list("eth0")},
		"swapped":      {stack{nic("eth0", 0)}, host{up(1, nic("eth1", 0), 0), up(2, nic("eth0", 1), 0)}, list("eth1")},
		"a VLAN on it": {stack{vlan("eth0.3", 3), nic("eth0", 0)}, host{up(1, nic("ens5f0", 0), 0)}, list("ens5f0", "eth0", "eth0.3")},
		"a VLAN that was renamed": {
			stack{vlan("eth0.3", 3), nic("eth0", 0)}, host{up(1, nic("eth0", 0), 0), up(2, vlan("pods", 3), 1)}, list("eth0", "eth0.3", "pods"),
		},
		"a member of a bond": {
			stack{bond("bond4", 0, 1)}, host{up(1, nic("ens5f0", 0), 0), up(2, nic("eth1", 1), 0), up(3, bond("bond4"), 0)},
			list("bond4", "ens5f0", "eth0", "eth1"),
		},
	}
	for name, test := range tests {
		records := []checkpoint.Record{recordOn(nic("eth0", 0)), recordOn(nic("eth1", 1)), recordOn(test.parents...)}
		got := planNames(test.there, records, nil).names(recordOn(test.parents...).Interface)
		slices.Sort(got)
		if diff := gocmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
