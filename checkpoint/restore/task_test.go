package restore

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Nothing that somebody made is undone: a step in the host is taken only on a device that is new, and only when the network
// manager has had its time.
func TestOutlook(t *testing.T) {
	onNIC := []checkpoint.Record{recordOf("a", "eth0", indexed(12, vlan("eth1.3", 3)), indexed(2, nic("eth1", 1)))}
	onBond := []checkpoint.Record{recordOf("a", "eth0", indexed(12, vlan("bond4.3", 3)), indexed(6, bond("bond4", 1, 2)))}
	off := func(d netstate.LiveDevice) netstate.LiveDevice { d.Up = false; return d }
	type said struct{ Ready, Missing, Blocked, Unnamed, Theirs, Ours []string }
	for name, test := range map[string]struct {
		there    devices
		records  []checkpoint.Record
		theirs   bool
		udevBusy int
		want     said
	}{
		"nothing is lost":              {devices{up(2, nic("eth1", 1), 0), up(12, vlan("eth1.3", 3), 2)}, onNIC, false, 0, said{}},
		"the NIC is away":              {nil, onNIC, false, 0, said{Missing: list("eth1 (permanent MAC 52:54:00:00:00:01, bus address 0000:00:01.0) is not there")}},
		"the NIC is back and up":       {devices{up(20, nic("eth1", 1), 0)}, onNIC, false, 0, said{Ready: list("a"), Ours: list("create eth1.3, VLAN 3 on eth1")}},
		"the NIC is back and down":     {devices{down(20, nic("eth1", 1), 0)}, onNIC, false, 0, said{Missing: list("eth1: it is down"), Theirs: list("set eth1 up"), Ours: list("create eth1.3, VLAN 3 on eth1")}},
		"the manager had its time":     {devices{down(20, nic("eth1", 1), 0)}, onNIC, true, 0, said{Ready: list("a"), Ours: list("set eth1 up", "create eth1.3, VLAN 3 on eth1")}},
		"the VLAN device went":         {devices{up(2, nic("eth1", 1), 0)}, onNIC, false, 0, said{Ready: list("a"), Ours: list("create eth1.3, VLAN 3 on eth1")}},
		"somebody set the NIC down":    {devices{down(2, nic("eth1", 1), 0)}, onNIC, true, 0, said{Blocked: list("eth1: it is down, and it was there all the time: somebody made it so"), Ours: list("create eth1.3, VLAN 3 on eth1")}},
		"the manager made the VLAN":    {devices{up(20, nic("eth1", 1), 0), up(21, vlan("eth1.3", 3), 20)}, onNIC, false, 0, said{Ready: list("a")}},
		"its VLAN device is down":      {devices{up(20, nic("eth1", 1), 0), down(21, vlan("eth1.3", 3), 20)}, onNIC, false, 0, said{Missing: list("eth1.3: it is down"), Theirs: list("set eth1.3 up")}},
		"udev is not done":             {devices{down(20, nic("eth1", 1), 0)}, onNIC, true, 20, said{Ready: list("a"), Unnamed: list("eth1 is there, but udev is not done with it"), Ours: list("set eth1 up", "create eth1.3, VLAN 3 on eth1")}},
		"the bond is away":             {devices{up(20, nic("eth1", 1), 0)}, onBond, true, 0, said{Missing: list("bond4 (bond) is not there: --rebuild-bond builds it from its record, where the host's network manager does not")}},
		"one member is back":           {devices{up(5, nic("eth2", 2), 6), up(6, bond("bond4"), 0), up(12, vlan("bond4.3", 3), 6), down(20, nic("eth1", 1), 0)}, onBond, false, 0, said{Theirs: list("enslave eth1 to bond4")}},
		"the manager leaves it":        {devices{up(5, nic("eth2", 2), 6), up(6, bond("bond4"), 0), up(12, vlan("bond4.3", 3), 6), down(20, nic("eth1", 1), 0)}, onBond, true, 0, said{Ready: list("a"), Ours: list("enslave eth1 to bond4")}},
		"the manager has enslaved it":  {devices{enslaved(5, nic("eth2", 2), 6), up(6, bond("bond4"), 0), up(12, vlan("bond4.3", 3), 6), enslaved(20, nic("eth1", 1), 6)}, onBond, false, 0, said{Ready: list("a")}},
		"somebody freed the other":     {devices{up(4, nic("eth1", 1), 0), up(6, bond("bond4"), 0), up(12, vlan("bond4.3", 3), 6)}, onBond, true, 0, said{Missing: list("bond4 lacks its member: eth2 (permanent MAC 52:54:00:00:00:02, bus address 0000:00:02.0) is not there")}},
		"a new bond, members later":    {devices{down(20, nic("eth1", 1), 0), down(21, nic("eth2", 2), 0), up(30, bond("bond4"), 0)}, onBond, false, 0, said{Ready: list("a"), Theirs: list("enslave eth1 to bond4", "enslave eth2 to bond4"), Ours: list("create bond4.3, VLAN 3 on bond4")}},
		"a new bond, NICs that stayed": {devices{up(4, nic("eth1", 1), 0), up(5, nic("eth2", 2), 30), up(30, bond("bond4"), 0)}, onBond, false, 0, said{Ready: list("a"), Theirs: list("enslave eth1 to bond4", "enslave eth2 to bond4"), Ours: list("create bond4.3, VLAN 3 on bond4")}},
		"a NIC of the pod is back":     {devices{off(up(30, nic("eth5", 5), 0))}, []checkpoint.Record{nicRecord("a", "net1", 7, 5)}, false, 0, said{Ready: list("a")}},
		"a VF of the pod is back":      {devices{vfOf("0000:01:00.0", off(up(30, nic("eth5", 5), 0)))}, []checkpoint.Record{nicRecord("a", "net1", 7, 5)}, false, 0, said{Blocked: list(netstate.VFReason("eth5", "0000:01:00.0") + ": left in the host")}},
		"on an interface of the pod":   {devices{up(2, nic("eth1", 1), 0)}, append(onNIC[:1:1], onSandboxDevice("a", "top0", deviceOfKind("macvlan", "eth0"))), false, 0, said{Ready: list("a", "a"), Ours: list("create eth1.3, VLAN 3 on eth1")}},
	} {
		t.Run(name, func(t *testing.T) {
			task := Task{Chain: Chain{Records: test.records}, Losses: Losses(test.there, test.records), NICs: NICs(test.records), AllowManagerSteps: test.theirs}
			o := task.Outlook(test.there, func(index int) (bool, error) { return index != test.udevBusy, nil })
			got := said{Missing: o.Missing, Blocked: o.Blocked, Unnamed: o.UdevPending}
			for _, r := range o.Ready {
				got.Ready = append(got.Ready, r.Attachment.ContainerID)
			}
			for _, s := range o.ManagerSteps {
				got.Theirs = append(got.Theirs, s.String())
			}
			for _, s := range o.Steps {
				got.Ours = append(got.Ours, s.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Outlook() (-want +got):\n%s", diff)
			}
		})
	}
}
