package netfix

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ns(inode uint64) attachment.Namespace {
	return attachment.Namespace{Path: "/proc/1234/ns/net", BootID: "b", Device: 4, Inode: inode}
}

var onVLAN3 = []netstate.Device{
	{Kind: netstate.KindVLAN, Name: "eth0.3", MTU: 1500, VLAN: &netstate.VLAN{ID: 3, Protocol: netstate.Protocol8021Q}},
	{Kind: netstate.KindNIC, Name: "eth0", MTU: 1500, NIC: netstate.NIC{PermanentMAC: "52:54:00:00:00:01"}},
}

// live returns the interface of the file, as if it existed.
func live(change func(*netstate.Interface)) *netstate.Interface {
	file := parsed(nil)
	i := netstate.Interface{
		Link: netstate.Link{
			Kind: netstate.KindMacvlan, Name: "eth0", Index: 7, MAC: file.MAC, MTU: 9000, Up: true,
			Macvlan: &netstate.Macvlan{Mode: "bridge", BCQueueLen: 1000},
		},
		Parents: onVLAN3[1:], Addresses: file.Addresses, Routes: file.Routes,
	}
	if change != nil {
		change(&i)
	}
	return &i
}

// found returns a file whose interface is gone. It was written at noon on the day of the boot, and its process started
// an hour earlier.
func found(change func(*Candidate)) Candidate {
	f := Candidate{
		Path: "/fix/0123456789ab", File: parsed(nil), ModTime: noon,
		Sandbox: SandboxState{Namespace: ns(1), BootedAt: noon.Add(-12 * time.Hour), StartedAt: noon.Add(-time.Hour)},
	}
	if change != nil {
		change(&f)
	}
	return f
}

func recordOn(id string, inode uint64, mac string) checkpoint.Record {
	return checkpoint.Record{
		Attachment: attachment.Key{Network: "lan", ContainerID: id, IfName: "eth0"}, Namespace: ns(inode),
		Interface: netstate.Interface{Link: netstate.Link{Name: "eth0", MAC: mac}},
	}
}

const (
	own    = "0123456789abcdef"
	ownMAC = "02:42:0a:03:00:05"
)

// decided is the part of an action that a test compares.
type decided struct {
	Do     FileState
	From   Source
	ID     string
	Reason string
}

func TestDecide(t *testing.T) {
	alive := func(change func(*netstate.Interface)) func(*Candidate) {
		return func(f *Candidate) { f.Sandbox.Live = live(change) }
	}
	const there = "eth0 is there and as the file says: remembered as it is"
	for name, test := range map[string]struct {
		found  func(*Candidate)
		others []Candidate
		node   Node
		want   decided
	}{
		"gone":  {want: decided{Imported, FromFile, own, "eth0 is gone from the sandbox: remembered from the file, on eth0.3 < eth0"}},
		"alive": {found: alive(nil), want: decided{Imported, FromLive, own, there}},
		"alive, a day after the file, by another process": {
			found: func(f *Candidate) {
				f.Sandbox.Live, f.Sandbox.BootedAt, f.Sandbox.StartedAt = live(nil), noon.Add(time.Hour), noon.Add(2*time.Hour)
			},
			want: decided{Imported, FromLive, own, there},
		},
		"alive, with an address more": {
			found: alive(func(i *netstate.Interface) {
				i.Addresses = append([]netstate.Address{address("192.0.2.1/32", "", "")}, i.Addresses...)
			}),
			want: decided{Imported, FromLive, own, there},
		},
		"alive and down, without its route": {
			found: alive(func(i *netstate.Interface) { i.Link.Up, i.Routes = false, nil }),
			want: decided{Imported, FromLive, own, there +
				"; it is down, and remembered as up; its route 0.0.0.0/0 via 10.3.0.1 is missing, and remembered from the file"},
		},
		"alive, with another gateway": {
			found: alive(func(i *netstate.Interface) { i.Routes = []netstate.Route{route("0.0.0.0/0", "10.3.0.9", 0)} }),
			want:  decided{Imported, FromLive, own, there},
		},
		"another MAC": {
			found: alive(func(i *netstate.Interface) { i.Link.MAC = "02:00:00:00:00:09" }),
			want: decided{Refused, "", own, "the sandbox is a stranger's by now: what is there as eth0 is a macvlan, 02:00:00:00:00:09 with 10.3.0.5/24; " +
				"the file says 02:42:0a:03:00:05 with 10.3.0.5/24"},
		},
		"another address": {
			found: alive(func(i *netstate.Interface) { i.Addresses = []netstate.Address{address("10.3.0.6/24", "", "")} }),
			want: decided{Refused, "", own, "the sandbox is a stranger's by now: what is there as eth0 is a macvlan, 02:42:0a:03:00:05 with 10.3.0.6/24; " +
				"the file says 02:42:0a:03:00:05 with 10.3.0.5/24"},
		},
		"a stranger's of another kind": {
			found: func(f *Candidate) {
				f.Sandbox.Live = &netstate.Interface{Link: netstate.Link{Kind: "veth", MAC: "02:00:00:00:00:09"}}
				f.Sandbox.Unsupported = errors.New("eth0 is a veth: not supported")
			},
			want: decided{Refused, "", own, "the sandbox is a stranger's by now: what is there as eth0 is a veth, 02:00:00:00:00:09 with no address; " +
				"the file says 02:42:0a:03:00:05 with 10.3.0.5/24"},
		},
		"its own, but none to be remembered": {
			found: func(f *Candidate) {
				f.Sandbox.Live = live(func(i *netstate.Interface) { i.Addresses = nil }) // The addresses were not read.
				f.Sandbox.Unsupported = errors.New("its parent is elsewhere")
			},
			want: decided{Refused, "", own, "it can't be remembered: its parent is elsewhere"},
		},
		"of an earlier boot": {
			found: func(f *Candidate) { f.Sandbox.BootedAt = noon.Add(2 * time.Second) },
			want:  decided{Refused, "", own, "eth0 is gone, and the file is of an earlier boot: so was its sandbox"},
		},
		"a process of later": {
			found: func(f *Candidate) { f.Sandbox.StartedAt = noon.Add(2 * time.Second) },
			want:  decided{Refused, "", own, "eth0 is gone, and the process at /proc/1234/ns/net started after the file was written: it is a stranger's"},
		},
		"by no process": {
			found: func(f *Candidate) { f.Sandbox.StartedAt = time.Time{} },
			want:  decided{Imported, FromFile, own, "eth0 is gone from the sandbox: remembered from the file, on eth0.3 < eth0"},
		},
		"another interface instead": {
			found: func(f *Candidate) {
				f.Sandbox.External = []netstate.LiveDevice{{Device: netstate.Device{Kind: "macvlan", Name: "net1", MAC: "02:00:00:00:00:09"}}}
			},
			want: decided{Refused, "", own, "eth0 is gone, and the sandbox has net1 (macvlan, 02:00:00:00:00:09) instead: it is a stranger's by now"},
		},
		"two files for one namespace": {
			others: []Candidate{found(func(f *Candidate) { f.Path, f.File.ContainerID = "/fix/other", "other" })},
			want:   decided{Refused, "", own, "eth0 is gone, and /fix/other names the same namespace: only one of the files can be right"},
		},
		"two files for one namespace, of which this one is right": {
			found:  alive(nil),
			others: []Candidate{found(func(f *Candidate) { f.Path, f.File.ContainerID = "/fix/other", "other" })},
			want:   decided{Imported, FromLive, own, there},
		},
		"two files for one sandbox": {
			others: []Candidate{found(func(f *Candidate) { f.Path = "/fix/" + own })},
			want:   decided{Imported, FromFile, own, "eth0 is gone from the sandbox: remembered from the file, on eth0.3 < eth0"},
		},
		"a torn file of another": {
			others: []Candidate{{Path: "/fix/torn", Err: errors.New("torn")}},
			want:   decided{Imported, FromFile, own, "eth0 is gone from the sandbox: remembered from the file, on eth0.3 < eth0"},
		},
		"a checkpoint": {
			node: Node{Records: []checkpoint.Record{recordOn(own, 1, "02:00:00:00:00:09")}},
			want: decided{Kept, "", own, "it has a checkpoint"},
		},
		"a checkpoint of another namespace": {
			node: Node{Records: []checkpoint.Record{recordOn(own, 2, ownMAC)}},
			want: decided{Refused, "", own, "its name is that of a checkpoint of another namespace, /proc/1234/ns/net"},
		},
		"a checkpoint that capture wrote": {
			node: Node{Records: []checkpoint.Record{recordOn("ns-1-2", 1, ownMAC)}},
			want: decided{Kept, "", "ns-1-2", "it has a checkpoint, as ns-1-2"},
		},
		"a checkpoint of another's interface": {
			found: alive(nil),
			node:  Node{Records: []checkpoint.Record{recordOn("other", 1, "02:00:00:00:00:09")}},
			want:  decided{Refused, "", own, "the checkpoint of eth0 of other on lan in the same namespace says MAC 02:00:00:00:00:09, the file 02:42:0a:03:00:05"},
		},
		"the sandbox of another's checkpoint": {
			node: Node{Records: []checkpoint.Record{func() checkpoint.Record {
				r := recordOn("other", 1, "02:00:00:00:00:09")
				r.Attachment.IfName = "net1"
				return r
			}()}},
			want: decided{Refused, "", own, "eth0 is gone, and the sandbox is that of the checkpoint of net1 of other on lan"},
		},
		"a torn checkpoint": {
			node: Node{Unreadable: []checkpoint.Unreadable{{ContainerID: own, IfName: "eth0", Err: errors.New("torn")}}},
			want: decided{Refused, "", own, "its checkpoint cannot be read: torn"},
		},
		"a torn checkpoint of another": {
			node: Node{Unreadable: []checkpoint.Unreadable{{ContainerID: own, IfName: "net1", Err: errors.New("torn")}}},
			want: decided{Imported, FromFile, own, "eth0 is gone from the sandbox: remembered from the file, on eth0.3 < eth0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.node.Parents, test.node.MTU = onVLAN3, 1500
			a := Decide(append([]Candidate{found(test.found)}, test.others...), test.node)[0]
			if diff := cmp.Diff(test.want, decided{a.State, a.Source, a.Attachment.ContainerID, a.Reason}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatIsRememberedOfOneThatIsGone(t *testing.T) {
	a := Decide([]Candidate{found(nil)}, Node{Parents: onVLAN3, MTU: 1400})[0]
	want := netstate.Interface{
		Link: netstate.Link{
			Kind: netstate.KindMacvlan, Name: "eth0", MAC: ownMAC, MTU: 1400, Up: true, Macvlan: &netstate.Macvlan{Mode: "bridge"},
		},
		Parents: onVLAN3, Addresses: parsed(nil).Addresses, Routes: parsed(nil).Routes,
		Settings: map[string]string{"ipv4/proxy_arp": "1"},
	}
	if diff := cmp.Diff(want, a.Interface, comparable); diff != "" {
		t.Error(diff)
	}
	r := recordOf(parsed(nil), a)
	if want := (attachment.Key{Network: "unknown", ContainerID: own, IfName: "eth0"}); r.Attachment != want || r.Writer != "relink import from a file" {
		t.Errorf("%+v", r)
	}
	if want := (attachment.Pod{Name: "web-0"}); r.Pod != want || r.Namespace != ns(1) {
		t.Errorf("%+v", r)
	}
}

func TestWhatIsRememberedOfOneThatIsThere(t *testing.T) {
	there := live(func(i *netstate.Interface) { i.Link.Up, i.Routes = false, nil })
	a := Decide([]Candidate{found(func(f *Candidate) {
		f.Sandbox.Live = there
		f.File.Addresses = append(slices.Clone(f.File.Addresses), address("fd00:3::5/64", "", ""))
		there.Addresses = f.File.Addresses
	})}, Node{Parents: onVLAN3, MTU: 1500})[0]
	want := *live(func(i *netstate.Interface) {
		i.Addresses = there.Addresses
		i.Settings = map[string]string{"ipv4/proxy_arp": "1", "ipv6/disable_ipv6": "0"}
	})
	if diff := cmp.Diff(want, a.Interface, comparable); diff != "" {
		t.Error(diff)
	}
}

func TestOutside(t *testing.T) {
	device := func(kind, name string, parent int) netstate.LiveDevice {
		return netstate.LiveDevice{Device: netstate.Device{Kind: kind, Name: name}, ParentIndex: parent}
	}
	own := netstate.Devices{
		device("nic", "lo", 0), device("macvlan", "eth0", 0), device("ipip", "tunl0", 0), device("dummy", "own0", 0), device("tun", "tap0", 0),
		device("bridge", "br0", 0), device("veth", "a", 7), device("veth", "b", 6), device("macvlan", "own0.m", 3),
		device("veth", "out0", 0), device("nic", "ens1", 0), device("vlan", "net1", 0), device("ipvlan", "net2", 0),
	}
	var got []string
	for _, d := range externalDevices(own, "eth0") {
		got = append(got, d.Name)
	}
	if diff := cmp.Diff([]string{"out0", "ens1", "net1", "net2"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestUsableAddresses(t *testing.T) {
	for prefix, want := range map[string]bool{
		"10.3.0.5/24": true, "169.254.1.1/16": true, "fd00::1/64": true, "10.3.0.5/32": true,
		"10.3.0.5/0": false, "0.0.0.0/8": false, "127.0.0.1/8": false, "255.255.255.255/32": false, "::/64": false, "::1/128": false,
		"ff02::1/64": false, "fe80::1/64": false, "::ffff:10.0.0.1/120": false,
	} {
		if got := isAssignable(netip.MustParsePrefix(prefix)); got != want {
			t.Errorf("%s: %v", prefix, got)
		}
	}
}

// An import onto the wrong device can be done again. A record that was read from a live interface stays.
func TestDecideReplace(t *testing.T) {
	imported := func(change func(*checkpoint.Record)) Node {
		a := Decide([]Candidate{found(nil)}, Node{Parents: onVLAN3[1:], MTU: 1500})[0]
		r := recordOf(parsed(nil), a)
		if change != nil {
			change(&r)
		}
		return Node{Records: []checkpoint.Record{r}, Replace: true}
	}
	const anew = "it was imported onto eth0: remembered anew from the file, on eth0.3 < eth0"
	for name, test := range map[string]struct {
		found func(*Candidate)
		node  Node
		want  decided
	}{
		"onto another device": {node: imported(nil), want: decided{Replaced, FromFile, own, anew}},
		"onto the same one": {
			node: imported(func(r *checkpoint.Record) { r.Interface.Parents = onVLAN3 }),
			want: decided{Kept, "", own, "it was imported like this already"},
		},
		"nobody asks": {
			node: func() Node { n := imported(nil); n.Replace = false; return n }(),
			want: decided{Kept, "", own, "it has a checkpoint"},
		},
		"while the interface was there": {
			node: imported(func(r *checkpoint.Record) { r.Writer, r.Interface.Link.Index = Writer, 7 }),
			want: decided{Kept, "", own, "its checkpoint is not from a file: relink import wrote it, from the live interface"},
		},
		"captured since": {
			node: imported(func(r *checkpoint.Record) { r.Writer = "relink capture" }),
			want: decided{Kept, "", own, "its checkpoint is not from a file: relink capture wrote it, from the live interface"},
		},
		"restored since": {
			found: func(f *Candidate) { f.Sandbox.Live = live(nil) }, node: imported(func(r *checkpoint.Record) { r.Interface.Link.Index = 7 }),
			want: decided{Refused, "", own, "it was imported onto eth0, and eth0 is there, on eth0. To keep that: relink capture --refresh " + own + ". " +
				"To import it anew: take it away first (nsenter --net=/proc/1234/ns/net ip link del eth0)"},
		},
		"of a stranger by now": {
			found: func(f *Candidate) { f.Sandbox.BootedAt = f.ModTime.Add(time.Hour) }, node: imported(nil),
			want: decided{Refused, "", own, "eth0 is gone, and the file is of an earlier boot: so was its sandbox"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.node.Parents, test.node.MTU = onVLAN3, 1500
			a := Decide([]Candidate{found(test.found)}, test.node)[0]
			if diff := cmp.Diff(test.want, decided{a.State, a.Source, a.Attachment.ContainerID, a.Reason}); diff != "" {
				t.Error(diff)
			}
		})
	}
}
