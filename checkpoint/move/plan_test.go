package move

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

func nic(index int, name string, mtu int) netstate.LiveDevice {
	return netstate.LiveDevice{Device: netstate.Device{Kind: netstate.KindNIC, Name: name, MTU: mtu, MAC: "02:00:00:00:00:0" + fmt.Sprint(index)}, Index: index, Up: true, Carrier: true}
}

func vlanOn(parent netstate.LiveDevice, index, id int) netstate.LiveDevice {
	return netstate.LiveDevice{
		Device: netstate.Device{
			Kind: netstate.KindVLAN, Name: fmt.Sprintf("%s.%d", parent.Name, id), MTU: parent.MTU, MAC: parent.MAC, VLAN: &netstate.VLAN{ID: id, Protocol: netstate.Protocol8021Q},
		},
		Index: index, ParentIndex: parent.Index, Up: true, Carrier: true,
	}
}

// recordOn returns a record of an interface on the devices, the nearest first.
func recordOn(id string, devices ...netstate.LiveDevice) checkpoint.Record {
	r := checkpoint.Record{Attachment: attachment.Key{ContainerID: id, IfName: "eth0"}}
	r.Interface.Link = netstate.Link{Kind: netstate.KindMacvlan, Name: "eth0", MTU: 1500, Macvlan: &netstate.Macvlan{Mode: "bridge"}}
	for _, d := range devices {
		r.Interface.Parents = append(r.Interface.Parents, d.Device)
	}
	return r
}

func changed(r checkpoint.Record, change func(*netstate.Interface)) checkpoint.Record {
	change(&r.Interface)
	return r
}

func chainNames(chain []netstate.Device) (names string) {
	for _, d := range chain {
		names += fmt.Sprintf("%s(%d) ", d.Name, d.MTU)
	}
	return strings.TrimSpace(names)
}

func TestPlanMoves(t *testing.T) {
	eth0, eth2 := nic(2, "eth0", 9000), nic(4, "eth2", 1500)
	vlan3, vlan5 := vlanOn(eth0, 10, 3), vlanOn(eth0, 11, 5)
	inner := vlanOn(vlan3, 12, 7)
	there := vlanOn(eth2, 13, 5)
	there.Name = "prod"
	taken := nic(14, "eth2.8", 1500)
	devices := netstate.Devices{eth0, eth2, vlan3, vlan5, inner, there, taken}
	for name, c := range map[string]struct {
		from    string
		record  checkpoint.Record
		to, why string
	}{
		"untagged":                            {"eth0", recordOn("a", eth0), "eth2(1500)", ""},
		"a VLAN device to be made":            {"eth0", recordOn("a", vlan3, eth0), "eth2.3(1500) eth2(1500)", ""},
		"a VLAN device that is there":         {"eth0", recordOn("a", vlan5, eth0), "prod(1500) eth2(1500)", ""},
		"a stack of two VLANs":                {"eth0", recordOn("a", inner, vlan3, eth0), "eth2.3.7(1500) eth2.3(1500) eth2(1500)", ""},
		"the VLAN device itself is replaced":  {"eth0.3", recordOn("a", vlan3, eth0), "eth2(1500)", ""},
		"the name of the VLAN device is used": {"eth0", recordOn("a", vlanOn(eth0, 20, 8), eth0), "", "eth2.8 is there but is a nic, not VLAN 8 on eth2: make one for this VLAN by hand"},
		"the MTU does not fit": {
			"eth0", changed(recordOn("a", vlan3, eth0), func(i *netstate.Interface) { i.Link.MTU = 9000 }), "", "its MTU 9000 does not fit eth2, which has 1500: ip link set eth2 mtu 9000",
		},
		"passthru": {
			"eth0", changed(recordOn("a", eth0), func(i *netstate.Interface) { i.Link.Macvlan.Mode = "passthru" }), "", "it is a macvlan in mode passthru, which has its uplink for itself",
		},
		"a VLAN interface of the pod": {
			"eth0", changed(recordOn("a", eth0), func(i *netstate.Interface) {
				i.Link.Kind, i.Link.Macvlan, i.Link.VLAN = netstate.KindVLAN, nil, &netstate.VLAN{ID: 5, Protocol: netstate.Protocol8021Q}
			}), "", "eth2 already has a device for VLAN 5, prod: the kernel allows only one",
		},
		"on a device of the pod": {
			"eth0", changed(recordOn("a", eth0), func(i *netstate.Interface) { i.ParentsInSandbox = true }), "", "it is on a device of the pod itself, and moves with that",
		},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := planMoves([]checkpoint.Record{recordOn("other", eth2), c.record}, devices, c.from, eth2)
			if err != nil || len(all) != 1 {
				t.Fatal(all, err)
			}
			if got := chainNames(all[0].newParents); got != c.to || all[0].outcome.Reason != c.why {
				t.Errorf("to %q, refused %q", got, all[0].outcome.Reason)
			}
			if len(all[0].newParents) > 0 && all[0].newParents[0].MAC != eth2.MAC && c.to != "prod(1500) eth2(1500)" {
				if all[0].newParents[0].VLAN != nil {
					t.Errorf("the VLAN device has the MAC %s, not that of the uplink", all[0].newParents[0].MAC)
				}
			}
		})
	}
}

// An interface does not move if another interface of the pod is on it.
func TestPlanMovesLeavesWhatCarriesAnother(t *testing.T) {
	eth0, eth2 := nic(2, "eth0", 1500), nic(4, "eth2", 1500)
	above := recordOn("a", eth0)
	above.Attachment.IfName, above.Interface.Link.Name, above.Interface.ParentsInSandbox = "net1", "net1", true
	above.Interface.Parents = []netstate.Device{{Kind: netstate.KindMacvlan, Name: "eth0"}}
	all, err := planMoves([]checkpoint.Record{recordOn("a", eth0), recordOn("b", eth0), above}, netstate.Devices{eth0, eth2}, "eth0", eth2)
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	if want := "net1 of the pod is on it, and would go with it"; all[0].outcome.Reason != want || all[1].outcome.Reason != "" {
		t.Errorf("%q, %q", all[0].outcome.Reason, all[1].outcome.Reason)
	}
}

func TestNothingToMove(t *testing.T) {
	eth0, eth2 := nic(2, "eth0", 1500), nic(4, "eth2", 1500)
	bond := netstate.LiveDevice{Device: netstate.Device{Kind: netstate.KindBond, Name: "bond4", Bond: &netstate.Bond{Members: []netstate.Member{{Name: "eth0"}}}}, Index: 9}
	for from, want := range map[string]string{
		"eth0": "eth0 is a member of bond4: name bond4",
		"eth7": "no attachment is on eth7: relink list shows what is on which device",
	} {
		_, err := planMoves([]checkpoint.Record{recordOn("a", bond)}, netstate.Devices{eth0, eth2, bond}, from, eth2)
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v", from, err)
		}
	}
}

func TestUplink(t *testing.T) {
	down, dark, member, bond := nic(3, "down", 1500), nic(4, "dark", 1500), nic(5, "eth1", 1500), nic(6, "bond4", 1500)
	down.Up, down.Carrier, dark.Carrier, member.MasterIndex, bond.Kind = false, false, false, 6, netstate.KindBond
	old := nic(7, "eth0", 1500)
	devices := netstate.Devices{nic(2, "eth2", 1500), down, dark, member, bond, old, vlanOn(old, 8, 5)}
	for to, want := range map[string]string{
		"eth2": "", "eth0": "eth0 is both the old and the new device: name two devices",
		"gone":   "gone is not there: name a device of this host",
		"down":   "down is down: set it up first (ip link set down up)",
		"dark":   "dark has no carrier: look at the link, the cable and the switch's port",
		"eth1":   "invalid device \"eth1\": it is a member of bond4 and would take the frames of bond4: name bond4, or take eth1 out of it",
		"eth0.5": "eth0.5 is on eth0, and would go with it: name a device that stays without eth0",
	} {
		_, err := checkUplink(devices, "eth0", to)
		if got := fmt.Sprint(err); want != "" && got != want || want == "" && err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
}

func TestRefusal(t *testing.T) {
	recorded := recordOn("a", nic(2, "eth0", 1500)).Interface
	recorded.Link.Index = 7
	device := func(index, parent int, name string) netstate.LiveDevice {
		return netstate.LiveDevice{Device: netstate.Device{Kind: netstate.KindMacvlan, Name: name}, Index: index, ParentIndex: parent}
	}
	for name, c := range map[string]struct {
		change func(*netstate.Interface)
		beside surroundings
		want   string
	}{
		"as recorded": {want: ""},
		"differs": {
			change: func(i *netstate.Interface) { i.Link.MTU = 1400 },
			want:   "it is not as recorded (MTU is 1400, not 1500): relink restore, or relink capture --refresh",
		},
		"not captured": {
			change: func(i *netstate.Interface) { i.NotCaptured = []string{"its XDP program"} },
			want:   "it has what a new interface would not get: its XDP program",
		},
		"a VLAN device of the pod on it": {
			beside: surroundings{devices: netstate.Devices{device(7, 0, "eth0"), device(8, 7, "eth0.9")}},
			want:   "eth0.9 of the pod, a macvlan, is on it, and would go with it",
		},
		"another attachment beside it": {
			beside: surroundings{devices: netstate.Devices{device(7, 0, "eth0"), device(8, 0, "net1")}, siblings: []int{8}, recorded: []string{"eth0", "net1"}},
		},
		"a stranger beside it": {
			beside: surroundings{devices: netstate.Devices{device(7, 0, "eth0"), device(8, 0, "vrrp.1")}, siblings: []int{8}, recorded: []string{"eth0"}},
			want:   "vrrp.1 of the pod is on eth0 too and has no checkpoint: it would stay behind",
		},
		"what a killed move has left": {
			beside: surroundings{devices: netstate.Devices{device(7, 0, "eth0"), device(8, 0, "rlnk4000000a")}, siblings: []int{8}, recorded: []string{"eth0"}},
		},
	} {
		live := recorded
		if c.change != nil {
			c.change(&live)
		}
		if got := refusal(recorded, live, c.beside); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestGatewaysOf(t *testing.T) {
	route := func(destination, gateway string) netstate.Route {
		return netstate.Route{Destination: netip.MustParsePrefix(destination), Gateway: netip.MustParseAddr(gateway)}
	}
	neighbour := netstate.Neighbour{Address: netip.MustParseAddr("10.0.0.9")}
	for name, c := range map[string]struct {
		of   netstate.Interface
		want string
	}{
		"none":                      {netstate.Interface{}, "[]"},
		"the default route's first": {netstate.Interface{Routes: []netstate.Route{route("10.7.0.0/16", "10.0.0.2"), route("0.0.0.0/0", "10.0.0.1")}}, "[10.0.0.1]"},
		"of each family":            {netstate.Interface{Routes: []netstate.Route{route("10.7.0.0/16", "10.0.0.2"), route("::/0", "fe80::1")}}, "[10.0.0.2 fe80::1]"},
		"a neighbour":               {netstate.Interface{Neighbours: []netstate.Neighbour{neighbour}}, "[10.0.0.9]"},
		"no proxy":                  {netstate.Interface{Neighbours: []netstate.Neighbour{{Address: neighbour.Address, Proxy: true}}}, "[]"},
		"of several next hops, the own one": {
			netstate.Interface{Routes: []netstate.Route{{Destination: netip.MustParsePrefix("0.0.0.0/0"), NextHops: []netstate.NextHop{{Gateway: netip.MustParseAddr("10.0.0.3")}, {Device: "net1"}}}}}, "[10.0.0.3]",
		},
		"not through another device": {
			netstate.Interface{Routes: []netstate.Route{{Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("10.0.0.3"), Device: "net1"}}}, "[]",
		},
	} {
		if got := fmt.Sprint(gatewaysOf(c.of)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestPlanBack(t *testing.T) {
	eth0, eth2, eth4 := nic(2, "eth0", 1500), nic(4, "eth2", 1500), nic(6, "eth4", 1500)
	entry := func(id string) checkpoint.Move {
		return checkpoint.Move{Attachment: recordOn(id).Attachment, OldParents: []netstate.Device{eth0.Device}, NewParents: []netstate.Device{eth2.Device}, Index: 7}
	}
	all, notes := planRevert([]checkpoint.Move{entry("moved"), entry("ended"), entry("back"), entry("on")}, []checkpoint.Record{recordOn("moved", eth2), recordOn("back", eth0), recordOn("on", eth4), recordOn("new", eth2)})
	var got []string
	for _, p := range all {
		got = append(got, fmt.Sprintf("%s to %s with index %d", p.record.Attachment.ContainerID, nearestParent(p.newParents), p.index))
	}
	if diff := cmp.Diff([]string{"moved to eth0 with index 7"}, got); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(notes, []string{"eth0 of on stays on eth4: it was moved to eth2, and somebody has moved it on"}) {
		t.Errorf("%q", notes)
	}
}
