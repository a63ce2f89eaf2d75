package restore

import (
	"testing"

	"github.com/relink-cni/relink/pkg/netstate"
)

func TestPlanSaysThatTwoNICsMatch(t *testing.T) {
	noBus := func(d netstate.Device) netstate.Device { d.BusAddress = ""; return d }
	planTests{
		"two NICs with the MAC": {
			there:  devices{up(2, noBus(nic("eth5", 1)), 0), up(3, noBus(nic("eth6", 1)), 0)},
			chains: one(noBus(nic("eth1", 1))),
			want: said{On: list(""), Broken: list("the recorded eth1 (permanent MAC 52:54:00:00:00:01, no bus address) could be what is now " +
				"eth5 (permanent MAC 52:54:00:00:00:01, no bus address) or eth6 (permanent MAC 52:54:00:00:00:01, no bus address): say which, such as --parent eth1=eth5 ?")},
		},
		"a bridge under the NIC's name": {
			there: devices{up(2, plain("bridge", "eth1"), 0)}, chains: one(nic("eth1", 1)),
			want: said{On: list(""), Broken: list("eth1 is a bridge now, recorded as a nic: left alone")},
		},
	}.run(t)
}
