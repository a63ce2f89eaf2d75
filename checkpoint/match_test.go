package checkpoint

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

func recordAt(ifName, name string, index int, mac string) Record {
	return Record{
		Attachment: attachment.Key{Network: "lan", ContainerID: "c1", IfName: ifName},
		Interface:  netstate.Interface{Link: netstate.Link{Kind: netstate.KindMacvlan, Name: name, Index: index, MAC: mac}},
	}
}

func deviceAt(kind, name string, index int, mac string) netstate.LiveDevice {
	return netstate.LiveDevice{Device: netstate.Device{Kind: kind, Name: name, MAC: mac}, Index: index}
}

func TestMatch(t *testing.T) {
	const macvlan = netstate.KindMacvlan
	eth0, net1 := recordAt("eth0", "eth0", 3, "a"), recordAt("net1", "net1", 4, "b")
	for name, test := range map[string]struct {
		records []Record
		devices netstate.Devices
		want    map[int]string
	}{
		"as recorded":    {[]Record{eth0, net1}, netstate.Devices{deviceAt(macvlan, "eth0", 3, "a"), deviceAt(macvlan, "net1", 4, "b")}, map[int]string{3: "eth0", 4: "net1"}},
		"names swapped":  {[]Record{eth0, net1}, netstate.Devices{deviceAt(macvlan, "net1", 3, "a"), deviceAt(macvlan, "eth0", 4, "b")}, map[int]string{3: "eth0", 4: "net1"}},
		"swapped, other": {[]Record{net1, eth0}, netstate.Devices{deviceAt(macvlan, "net1", 3, "x"), deviceAt(macvlan, "eth0", 4, "y")}, map[int]string{3: "eth0", 4: "net1"}},
		"one is gone, and the other has its name": {
			[]Record{eth0, net1}, netstate.Devices{deviceAt(macvlan, "eth0", 4, "b")}, map[int]string{4: "net1"},
		},
		"renamed, and another MAC":             {[]Record{eth0}, netstate.Devices{deviceAt(macvlan, "web0", 3, "x")}, map[int]string{3: "eth0"}},
		"renamed, and another in its place":    {[]Record{eth0}, netstate.Devices{deviceAt("dummy", "eth0", 9, "a"), deviceAt(macvlan, "web0", 3, "x")}, map[int]string{3: "eth0"}},
		"built again":                          {[]Record{eth0}, netstate.Devices{deviceAt(macvlan, "eth0", 9, "a"), deviceAt(macvlan, "own", 3, "x")}, map[int]string{9: "eth0"}},
		"of another kind":                      {[]Record{eth0}, netstate.Devices{deviceAt("dummy", "eth0", 9, "x")}, map[int]string{9: "eth0"}},
		"the index is of another kind":         {[]Record{eth0}, netstate.Devices{deviceAt("veth", "own", 3, "x")}, map[int]string{}},
		"renamed back":                         {[]Record{recordAt("eth0", "web0", 3, "a")}, netstate.Devices{deviceAt(macvlan, "eth0", 9, "x")}, map[int]string{9: "eth0"}},
		"an interface without a record":        {nil, netstate.Devices{deviceAt(macvlan, "eth0", 3, "a")}, map[int]string{}},
		"no index in the record of an old one": {[]Record{recordAt("eth0", "eth0", 0, "a")}, netstate.Devices{deviceAt(macvlan, "eth0", 3, "a")}, map[int]string{3: "eth0"}},
		"the name of the one, the index of the other, which is gone": {
			[]Record{eth0, recordAt("net1", "net1", 3, "b")}, netstate.Devices{deviceAt(macvlan, "net1", 3, "b")}, map[int]string{3: "net1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[int]string{}
			for index, r := range Match(test.records, test.devices) {
				got[index] = r.Attachment.IfName
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
