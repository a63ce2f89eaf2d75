package attach

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/attach/netconf"
	"github.com/relink-cni/relink/checkpoint/parents"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

func nicOf(name, mac string) netstate.Device {
	return netstate.Device{Kind: netstate.KindNIC, Name: name, MTU: 1500, NIC: netstate.NIC{PermanentMAC: mac, BusAddress: "0000:00:02.0"}}
}

func bondOf(name string, members ...netstate.Device) netstate.Device {
	d := netstate.Device{Kind: netstate.KindBond, Name: name, MTU: 1500, Bond: &netstate.Bond{Mode: "802.3ad"}}
	for _, m := range members {
		d.Bond.Members = append(d.Bond.Members, netstate.Member{Name: m.Name, NIC: m.NIC})
	}
	return d
}

func vlanOf(name string, id int) netstate.Device {
	return netstate.Device{Kind: netstate.KindVLAN, Name: name, MTU: 1500, VLAN: &netstate.VLAN{ID: id, Protocol: netstate.Protocol8021Q}}
}

// recordOn returns the checkpoint of an attachment to the network on these parents. Its pod is default/<network>-0.
func recordOn(network string, parents ...netstate.Device) checkpoint.Record {
	return checkpoint.Record{
		Attachment: attachment.Key{Network: network, ContainerID: "c-" + network, IfName: "eth0"},
		Pod:        attachment.Pod{Namespace: "default", Name: network + "-0"},
		Interface:  netstate.Interface{Parents: parents},
	}
}

var (
	eth0 = nicOf("eth0", "52:54:00:00:00:01")
	eth1 = nicOf("eth1", "52:54:00:00:00:02")
	eth5 = nicOf("eth5", "52:54:00:00:00:05")
)

// The host has eth0 with a device for VLAN 3, and eth1.
func TestFallbackIsRefusedForCheckpointsOfWhatIsMissing(t *testing.T) {
	exists := func(name string) (bool, error) { return slices.Contains([]string{"eth0", "eth0.3", "eth1"}, name), nil }
	bond4 := bondOf("bond4", eth0, eth1)
	inSandbox := recordOn("pods", bond4)
	inSandbox.Interface.ParentsInSandbox = true
	nameless := recordOn("pods", bond4)
	nameless.Pod = attachment.Pod{}
	byAltName := recordOn("pods", eth5)
	byAltName.CNI.Config = json.RawMessage(`{"master": ["enp0s5", "eth0"]}`)
	byOther := recordOn("pods", eth5)
	byOther.CNI.Config = json.RawMessage(`{"master": "eth5"}`)
	lostVLAN := recordOn("pods", vlanOf("eth1.7", 7), eth1)
	lostVLAN.CNI.Config = json.RawMessage(`{"master": ["bond4", "eth1"]}`)
	bondAway := []string{"bond4"}
	const (
		bond4Away = "master bond4 is missing, and eth0 is not taken in its place: "
		wayOut    = " back, which relink restore does for a VLAN device; or move what is on it for good by relink restore --parent OLD=NEW; or delete those pods"
		bond4Back = ". Bring bond4" + wayOut
	)
	for name, test := range map[string]struct {
		missing []string
		master  string
		records []checkpoint.Record
		want    string
	}{
		"nothing is recorded": {bondAway, "eth0", nil, ""},
		"the network on the bond": {bondAway, "eth0", []checkpoint.Record{recordOn("pods", bond4)},
			bond4Away + "1 attachment on bond4 by checkpoint (eth0 of default/pods-0)" + bond4Back},
		"on a VLAN of the bond": {bondAway, "eth0", []checkpoint.Record{recordOn("pods", vlanOf("bond4.3", 3), bond4)},
			bond4Away + "1 attachment on bond4 by checkpoint (eth0 of default/pods-0)" + bond4Back},
		"the bond had other members": {bondAway, "eth0", []checkpoint.Record{recordOn("pods", bondOf("bond4", eth5))},
			bond4Away + "1 attachment on bond4 by checkpoint (eth0 of default/pods-0)" + bond4Back},
		"another network on the bond": {bondAway, "eth0", []checkpoint.Record{recordOn("lan", bond4)},
			bond4Away + "1 attachment on bond4 by checkpoint (eth0 of default/lan-0)" + bond4Back},
		"another network on another bond": {bondAway, "eth0", []checkpoint.Record{recordOn("lan", bondOf("bond9", eth0))}, ""},
		"a VLAN device": {[]string{"bond4.3"}, "eth0.3", []checkpoint.Record{recordOn("pods", vlanOf("bond4.3", 3), bond4)},
			"master bond4.3 is missing, and eth0.3 is not taken in its place: 1 attachment on bond4.3 by checkpoint (eth0 of default/pods-0). Bring bond4.3" + wayOut},
		"a VLAN device on what is there": {[]string{"eth1.7"}, "eth0", []checkpoint.Record{recordOn("pods", vlanOf("eth1.7", 7), eth1)},
			"master eth1.7 is missing, and eth0 is not taken in its place: 1 attachment on eth1.7 by checkpoint (eth0 of default/pods-0). Bring eth1.7" + wayOut},
		"a NIC": {[]string{"eth5"}, "eth0", []checkpoint.Record{recordOn("pods", vlanOf("eth5.3", 3), eth5)},
			"master eth5 is missing, and eth0 is not taken in its place: 1 attachment on eth5 by checkpoint (eth0 of default/pods-0). Bring eth5" + wayOut},
		"a NIC by another name of the list": {[]string{"enp0s5"}, "eth0", []checkpoint.Record{byAltName},
			"master enp0s5 is missing, and eth0 is not taken in its place: 1 attachment on eth5 by checkpoint (eth0 of default/pods-0). Bring eth5" + wayOut},
		"many, not all of which are named": {bondAway, "eth0", []checkpoint.Record{nameless, recordOn("a", bond4), recordOn("b", bond4), recordOn("c", bond4), recordOn("d", bond4)},
			bond4Away + "5 attachments on bond4 by checkpoint (eth0 of c-pods, eth0 of default/a-0, eth0 of default/b-0, and 2 more)" + bond4Back},
		"two bonds": {[]string{"bond4", "bond5"}, "eth0", []checkpoint.Record{recordOn("pods", bondOf("bond5", eth5)), recordOn("pods", bondOf("bond4", eth5))},
			"master bond4, bond5 is missing, and eth0 is not taken in its place: 2 attachments on bond4, bond5 by checkpoint (eth0 of default/pods-0, eth0 of default/pods-0). Bring bond4, bond5" + wayOut},
		"moved for good":                               {bondAway, "eth0", []checkpoint.Record{recordOn("pods", vlanOf("bond4.3", 3), eth0)}, ""},
		"a node without the bond":                      {bondAway, "eth0", []checkpoint.Record{recordOn("pods", vlanOf("eth0.3", 3), eth0)}, ""},
		"a node without the bond, its VLAN is missing": {bondAway, "eth1", []checkpoint.Record{lostVLAN}, ""},
		"the network on what another list named":       {bondAway, "eth0", []checkpoint.Record{byOther}, ""},
		"a bond of that name in a sandbox":             {bondAway, "eth0", []checkpoint.Record{inSandbox}, ""},
		"a NIC of the sandbox's own":                   {bondAway, "eth0", []checkpoint.Record{recordOn("pods")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := fallback{master: test.master, missing: test.missing}
			got := ""
			claims, err := f.claims(test.records, exists)
			if err != nil {
				t.Fatal(err)
			}
			if len(claims) > 0 {
				got = codeAndText(f.refusal(claims))
			}
			want := ""
			if test.want != "" {
				want = "11: " + test.want
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMemberOfABondIsNoMaster(t *testing.T) {
	devices := netstate.Devices{
		{Device: eth0, Index: 2, MasterIndex: 5}, {Device: eth1, Index: 3, MasterIndex: 6}, {Device: eth5, Index: 4},
		{Device: bondOf("bond4"), Index: 5}, {Device: netstate.Device{Kind: netstate.KindBridge, Name: "br0"}, Index: 6},
		// The host's admin has taken VLAN 7 away from the bond.
		{Device: vlanOf("eth0.7", 7), Index: 7, ParentIndex: 2},
	}
	for master, want := range map[string]string{
		"eth0": `7: invalid "master": "eth0": it is a member of bond4 and would take the frames of bond4: name bond4, or take eth0 out of it`,
		"eth1": "", "eth5": "", "bond4": "", "eth0.7": "",
	} {
		d, _ := devices.ByName(master)
		if diff := cmp.Diff(want, codeAndText(parents.CheckNotMember(devices, d))); diff != "" {
			t.Errorf("%s: %s", master, diff)
		}
	}
}

// Waiting does not turn a member into a master. So the error names that first.
func TestMemberOfABondIsNoFallback(t *testing.T) {
	devices := netstate.Devices{
		{Device: eth0, Index: 2}, {Device: eth1, Index: 3, MasterIndex: 4}, {Device: bondOf("bond8"), Index: 4},
		{Device: vlanOf("eth1.5", 5), Index: 5, ParentIndex: 3},
	}
	host, err := kernel.OpenHost()
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	store := checkpoint.OpenStore(t.TempDir())
	saveIn(t, store, recordOn("pods", bondOf("bond4", eth5)), host.Identity())
	for next, want := range map[string]string{
		"eth0":   "11: master bond4 is missing, and eth0 is not taken in its place",
		"eth1":   `7: invalid "master": "eth1": it is a member of bond8`,
		"eth1.5": "11: master bond4 is missing, and eth1.5 is not taken in its place",
	} {
		var config cniplugin.Config
		config.Name, config.Master = "pods", cniplugin.Names{"bond4", next}
		a := &addition{call: &call{Request: netconf.Request{Config: config}, store: store}}
		master, _ := devices.ByName(next)
		if err := a.checkMaster(host, parents.Master{LiveDevice: master, Missing: []string{"bond4"}, Devices: devices}); !strings.HasPrefix(codeAndText(err), want) {
			t.Errorf("%s: %s, want %s", next, codeAndText(err), want)
		}
	}
}

// An existing VLAN device is used. If no name is asked for, any name will do, because the kernel allows no second
// device.
func TestVLANParentIsTheOneOnTheMaster(t *testing.T) {
	devices := netstate.Devices{
		{Device: eth0, Index: 2}, {Device: vlanOf("bond4.3", 3), Index: 3, ParentIndex: 2},
		{Device: vlanOf("eth0.4", 4), Index: 4, ParentIndex: 2}, {Device: nicOf("averylongname0", ""), Index: 5},
		{Device: vlanOf("v1000", 1000), Index: 6, ParentIndex: 5}, {Device: vlanOf("eth0.5", 6), Index: 7, ParentIndex: 2},
	}
	for name, test := range map[string]struct {
		master       string
		id           int
		named, below string
		create       string
		err          string
	}{
		"it is missing":                       {master: "eth0", id: 9, below: "eth0", create: "eth0.9"},
		"it is missing, by name":              {master: "eth0", id: 9, named: "pods", below: "eth0", create: "pods"},
		"it has the usual name":               {master: "eth0", id: 4, below: "eth0.4"},
		"it kept its name when it was moved":  {master: "eth0", id: 3, below: "bond4.3"},
		"it has the name that is asked for":   {master: "eth0", id: 3, named: "bond4.3", below: "bond4.3"},
		"its usual name would be too long":    {master: "averylongname0", id: 1000, below: "v1000"},
		"it has another than is asked for":    {master: "eth0", id: 3, named: "pods", err: `7: invalid "vlanName": "pods": VLAN 3 on eth0 is there as bond4.3: name that, or leave vlanName out`},
		"another has the usual name":          {master: "eth0", id: 5, err: `7: invalid "vlan": 5: eth0.5 is there but is VLAN 6 on eth0, not VLAN 5 on eth0: give another name by vlanName`},
		"another has the name":                {master: "eth0", id: 9, named: "eth0.4", err: `7: invalid "vlan": 9: eth0.4 is there but is VLAN 4 on eth0, not VLAN 9 on eth0: give another name by vlanName`},
		"what has the name is no VLAN at all": {master: "eth0", id: 9, named: "averylongname0", err: `7: invalid "vlan": 9: averylongname0 is there but is a nic, not VLAN 9 on eth0: give another name by vlanName`},
		"no name is short enough":             {master: "averylongname0", id: 9, err: `7: invalid "vlan": 9: the device's name "averylongname0.9" has 16 characters, the kernel allows 15: give another name by vlanName`},
	} {
		t.Run(name, func(t *testing.T) {
			master, _ := devices.ByName(test.master)
			plan, err := parents.PlanParent(devices, master, &netconf.ParentVLAN{VLAN: *vlanOf("", test.id).VLAN, Name: test.named})
			create := ""
			if plan.Create != nil {
				create = plan.Create.Name
			}
			if diff := cmp.Diff([]string{test.below, test.create, test.err}, []string{plan.Lower.Name, create, codeAndText(err)}); diff != "" {
				t.Error(diff)
			}
		})
	}
}
