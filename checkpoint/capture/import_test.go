package capture

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/capture/netfix"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var onVLAN3 = []netstate.Device{
	{Kind: netstate.KindVLAN, Name: "eth0.3", MTU: 1500, VLAN: &netstate.VLAN{ID: 3, Protocol: netstate.Protocol8021Q}},
	{Kind: netstate.KindNIC, Name: "eth0", MTU: 1500, NIC: netstate.NIC{PermanentMAC: "52:54:00:00:00:01"}},
}

const (
	own    = "0123456789abcdef"
	ownMAC = "02:42:0a:03:00:05"
)

func prefix(text string) netstate.Address {
	return netstate.Address{Prefix: netip.MustParsePrefix(text)}
}

// fixFile returns a file that was written at noon on the day of the boot. Its process started an hour earlier.
func fixFile(change func(*importFile)) importFile {
	file := netfix.File{
		Netns: "/proc/1234/ns/net", PodName: "web-0", ContainerID: own, IfName: "eth0", MAC: ownMAC, Result: []byte(`{}`), Path: "/fix/0123456789ab", ModTime: noon,
		Addresses: []netstate.Address{prefix("10.3.0.5/24")},
		Routes:    []netstate.Route{{Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("10.3.0.1"), Table: 254, Protocol: 3, Type: 1}},
	}
	f := importFile{File: file, namespace: ns(1), bootedAt: noon.Add(-12 * time.Hour), startedAt: noon.Add(-time.Hour)}
	if change != nil {
		change(&f)
	}
	f.built = f.Interface(onVLAN3, 1500)
	return f
}

// fixLive returns the interface of the file, as if it existed.
func fixLive(change func(*netstate.Interface)) *LiveInterface {
	i := fixFile(nil).Interface(onVLAN3[1:], 9000)
	i.Link.Index, i.Link.Macvlan.BCQueueLen = 7, 1000
	if change != nil {
		change(&i)
	}
	return &LiveInterface{Namespace: ns(1), Live: i}
}

func fixRecord(id string, inode uint64, mac string) checkpoint.Record {
	return checkpoint.Record{
		Attachment: attachment.Key{Network: "lan", ContainerID: id, IfName: "eth0"}, Namespace: ns(inode),
		Interface: netstate.Interface{Link: netstate.Link{Name: "eth0", MAC: mac}},
	}
}

func TestDecideFile(t *testing.T) {
	const there = "it has no checkpoint; eth0 is there and as the file says: remembered as it is"
	const fromFile = "it has no checkpoint; eth0 is gone from the sandbox: remembered from the file, on eth0.3 < eth0"
	device := func(kind, name string, parent int) netstate.LiveDevice {
		return netstate.LiveDevice{Device: netstate.Device{Kind: kind, Name: name, MAC: "02:00:00:00:00:09"}, Index: 20, ParentIndex: parent}
	}
	other := fixFile(func(f *importFile) { f.Path, f.ContainerID, f.MAC = "/fix/other", "other", "02:00:00:00:00:08" })
	copied := other
	copied.MAC = ownMAC
	for name, test := range map[string]struct {
		file       func(*importFile)
		live       *LiveInterface
		records    []checkpoint.Record
		unreadable []checkpoint.Unreadable
		devices    netstate.Devices
		want       decided
	}{
		"gone":  {want: decided{Captured, own, fromFile}},
		"alive": {live: fixLive(nil), want: decided{Captured, own, there}},
		"alive, a day after the file, by another process": {
			file: func(f *importFile) { f.bootedAt, f.startedAt = noon.Add(time.Hour), noon.Add(2*time.Hour) },
			live: fixLive(nil), want: decided{Captured, own, there},
		},
		"alive, with an address more": {
			live: fixLive(func(i *netstate.Interface) {
				i.Addresses = append([]netstate.Address{prefix("192.0.2.1/32")}, i.Addresses...)
			}),
			want: decided{Captured, own, there},
		},
		"alive and down, without its route": {
			live: fixLive(func(i *netstate.Interface) { i.Link.Up, i.Routes = false, nil }),
			want: decided{Captured, own, there + "; it is down, and remembered as up; its route 0.0.0.0/0 via 10.3.0.1 is missing, and remembered from the file"},
		},
		"alive, with another gateway": {
			live: fixLive(func(i *netstate.Interface) {
				i.Routes = slices.Clone(i.Routes)
				i.Routes[0].Gateway = netip.MustParseAddr("10.3.0.9")
			}),
			want: decided{Captured, own, there},
		},
		"another MAC": {
			live: fixLive(func(i *netstate.Interface) { i.Link.MAC = "02:00:00:00:00:09" }),
			want: decided{change.Refused, own, "the sandbox is a stranger's by now: what is there as eth0 is a macvlan, 02:00:00:00:00:09 with [10.3.0.5/24]; the file says 02:42:0a:03:00:05 with [10.3.0.5/24]"},
		},
		"another address": {
			live: fixLive(func(i *netstate.Interface) { i.Addresses = []netstate.Address{prefix("10.3.0.6/24")} }),
			want: decided{change.Refused, own, "the sandbox is a stranger's by now: what is there as eth0 is a macvlan, 02:42:0a:03:00:05 with [10.3.0.6/24]; the file says 02:42:0a:03:00:05 with [10.3.0.5/24]"},
		},
		"a VF": {
			live: &LiveInterface{Namespace: ns(1), Live: fixLive(nil).Live, Settled: change.Refused, Reason: "it is a VF"},
			want: decided{change.Refused, own, "it is a VF"},
		},
		"of an earlier boot": {
			file: func(f *importFile) { f.bootedAt = noon.Add(2 * time.Second) },
			want: decided{change.Refused, own, "eth0 is gone, and the file is of an earlier boot: so was its sandbox"},
		},
		"a process of later": {
			file: func(f *importFile) { f.startedAt = noon.Add(2 * time.Second) },
			want: decided{change.Refused, own, "eth0 is gone, and the process at /proc/1234/ns/net started after the file was written: it is a stranger's"},
		},
		"by no process": {file: func(f *importFile) { f.startedAt = time.Time{} }, want: decided{Captured, own, fromFile}},
		"another interface instead": {
			devices: netstate.Devices{device("macvlan", "net1", 0)},
			want:    decided{change.Refused, own, "eth0 is gone, and the sandbox has net1 (macvlan, 02:00:00:00:00:09) instead: it is a stranger's by now"},
		},
		"another kind under its name": {
			devices: netstate.Devices{device("dummy", "eth0", 0)},
			want:    decided{change.Refused, own, "eth0 is gone, and the sandbox has eth0 (dummy, 02:00:00:00:00:09) instead: it is a stranger's by now"},
		},
		"devices that the sandbox has made": {
			devices: netstate.Devices{device("nic", "lo", 0), device("ipip", "tunl0", 0), device("dummy", "own0", 0), device("tun", "tap0", 0), device("bridge", "br0", 0), device("veth", "a", 7), device("macvlan", "own0.m", 3)},
			want:    decided{Captured, own, fromFile},
		},
		"two files for one namespace": {
			file: func(f *importFile) { f.rivals = []importFile{other} },
			want: decided{change.Refused, own, "eth0 is gone, and /fix/other names the same namespace: only one of the files can be right"},
		},
		"two files for one namespace, of which this one is right": {
			file: func(f *importFile) { f.rivals = []importFile{other} }, live: fixLive(nil), want: decided{Captured, own, there},
		},
		"two files for one interface": {
			file: func(f *importFile) { f.rivals = []importFile{copied} }, live: fixLive(nil),
			want: decided{change.Refused, own, "/fix/other names the same namespace: only one of the files can be right"},
		},
		"a checkpoint": {
			records: []checkpoint.Record{fixRecord(own, 1, "02:00:00:00:00:09")}, want: decided{change.Kept, own, "it has a checkpoint"},
		},
		"a checkpoint of another namespace": {
			records: []checkpoint.Record{fixRecord(own, 2, ownMAC)},
			want:    decided{change.Refused, own, "its name is that of a checkpoint of another namespace, /run/netns/a"},
		},
		"a checkpoint that capture wrote": {
			records: []checkpoint.Record{fixRecord("ns-1-10", 1, ownMAC)}, want: decided{change.Kept, "ns-1-10", "it has a checkpoint"},
		},
		"a checkpoint of another's interface": {
			live: fixLive(nil), records: []checkpoint.Record{fixRecord("other", 1, "02:00:00:00:00:09")},
			want: decided{change.Refused, own, "the checkpoint of eth0 of other on lan in the same namespace says MAC 02:00:00:00:00:09, the file 02:42:0a:03:00:05"},
		},
		"the sandbox of another's checkpoint": {
			records: []checkpoint.Record{func() checkpoint.Record {
				r := fixRecord("other", 1, "02:00:00:00:00:09")
				r.Attachment.IfName = "net1"
				return r
			}()},
			want: decided{change.Refused, own, "eth0 is gone, and the sandbox is that of the checkpoint of net1 of other on lan"},
		},
		"a torn checkpoint": {
			unreadable: []checkpoint.Unreadable{{ContainerID: own, IfName: "eth0", Err: errors.New("torn")}},
			want:       decided{change.Refused, own, "its checkpoint cannot be read: torn"},
		},
		"a torn checkpoint that has the namespace": {
			unreadable: []checkpoint.Unreadable{{ContainerID: own, IfName: "eth0", Err: errors.New("torn"), Partial: fixRecord(own, 1, ownMAC)}},
			want:       decided{change.Refused, own, "its checkpoint cannot be read: torn"},
		},
		"a torn checkpoint of another": {
			unreadable: []checkpoint.Unreadable{{ContainerID: own, IfName: "net1", Err: errors.New("torn")}}, want: decided{Captured, own, fromFile},
		},
	} {
		t.Run(name, func(t *testing.T) {
			devices := test.devices
			if test.live != nil {
				devices = append(devices, device(test.live.Live.Link.Kind, "eth0", 0))
			}
			a := indexRecords(test.records, test.unreadable).match(ns(1), devices).decideFile(fixFile(test.file), test.live)
			if diff := cmp.Diff(test.want, decided{a.State, a.Attachment.ContainerID, a.Reason}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatIsRememberedOfAFile(t *testing.T) {
	file := fixFile(nil)
	a := indexRecords(nil, nil).match(ns(1), nil).decideFile(file, nil)
	r := recordOf(a, Writer)
	if diff := cmp.Diff(file.built, r.Interface, addresses); diff != "" {
		t.Error(diff)
	}
	if want := (attachment.Key{Network: "unknown", ContainerID: own, IfName: "eth0"}); r.Attachment != want || r.Writer != "relink import" || r.Pod.Name != "web-0" || r.Namespace != ns(1) {
		t.Errorf("%+v", r)
	}
	// One that is there is remembered as it is, with the settings of the tool.
	live := fixLive(func(i *netstate.Interface) {
		i.Link.Up, i.Routes, i.Settings = false, nil, map[string]string{"ipv4/forwarding": "1"}
	})
	r = recordOf(indexRecords(nil, nil).match(ns(1), nil).decideFile(file, live), Writer)
	want := fixLive(nil).Live
	want.Settings = map[string]string{"ipv4/proxy_arp": "1"}
	if diff := cmp.Diff(want, r.Interface, addresses); diff != "" {
		t.Error(diff)
	}
}
