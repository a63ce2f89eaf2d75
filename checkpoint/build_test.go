package checkpoint

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// sameRecord compares what two records say. The runtime's configuration and result are JSON, and storing changes its
// layout.
var sameRecord = cmp.Options{
	cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
	cmpopts.EquateEmpty(),
	cmpopts.IgnoreUnexported(Record{}), // The file that it was read from.
	cmp.Transformer("JSON", func(raw json.RawMessage) any {
		var value any
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber()
		if err := decoder.Decode(&value); err != nil && len(raw) > 0 {
			return err.Error()
		}
		return value
	}),
}

var (
	eth1 = netstate.NIC{PermanentMAC: "52:54:00:00:00:01", BusAddress: "0000:00:03.0"}
	eth2 = netstate.NIC{PermanentMAC: "52:54:00:00:00:02", BusAddress: "0000:00:04.0"}
)

func vlan(id int) *netstate.VLAN {
	return &netstate.VLAN{ID: id, Protocol: netstate.Protocol8021Q}
}

func nicDevice(name string, nic netstate.NIC) netstate.Device {
	return netstate.Device{Kind: netstate.KindNIC, Name: name, MAC: nic.PermanentMAC, MTU: 1500, NIC: nic}
}

func vlanDevice(name string, id int) netstate.Device {
	return netstate.Device{Kind: netstate.KindVLAN, Name: name, MAC: "52:54:00:00:00:01", MTU: 1500, VLAN: vlan(id)}
}

func bondDevice(name string) netstate.Device {
	return netstate.Device{
		Kind: netstate.KindBond, Name: name, MAC: "52:54:00:00:00:01", MTU: 9000,
		Bond: &netstate.Bond{Mode: "802.3ad", Members: []netstate.Member{{Name: "eth1", NIC: eth1}, {Name: "eth2", NIC: eth2}}},
	}
}

// record returns the smallest valid checkpoint: a macvlan on a NIC without addresses.
func record(containerID, ifName string) Record {
	return Record{
		Version:    Version,
		Attachment: attachment.Key{Network: "pods", ContainerID: containerID, IfName: ifName},
		Namespace:  attachment.Namespace{Path: "/run/netns/" + containerID, BootID: "5f4dcc3b-5aa7-65d6-1d83-27deb882cf99", Device: 4, Inode: 4026532287},
		Interface: netstate.Interface{
			Link: netstate.Link{
				Kind: netstate.KindMacvlan, Name: ifName, Index: 2, MAC: "02:00:00:00:00:05", MTU: 1500, Up: true,
				Macvlan: &netstate.Macvlan{Mode: "bridge"},
			},
			Parents: []netstate.Device{nicDevice("eth1", eth1)},
		},
		CNI:        CNI{Config: json.RawMessage(`{"cniVersion":"1.1.0","name":"pods","type":"relink-macvlan"}`), Result: json.RawMessage(`{"cniVersion":"1.1.0"}`)},
		Writer:     "relink-macvlan",
		CapturedAt: time.Date(2026, 3, 1, 12, 30, 15, 123456789, time.UTC),
	}
}

func podRecord(containerID, ifName, namespace, pod string) Record {
	r := record(containerID, ifName)
	r.Pod = attachment.Pod{Namespace: namespace, Name: pod, UID: "4a0f2f0e-6f3e-4a68-a4c4-0d4f1d3f3a11"}
	return r
}

// save saves the records.
func save(t *testing.T, s *Store, records ...Record) {
	t.Helper()
	for _, r := range records {
		if err := s.Save(r); err != nil {
			t.Fatal(err)
		}
	}
}

// message returns the text of an error, or an empty one for nil.
func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
